// MVN: mean and variance of each map, or of each image, removed.
//   x, y [outer][size][inner] float     inv_std [outer][inner] float, 1 / (deviation + eps); `size` elements a mean
//   launch   mvn_forward, mvn_backward: one block per outer and `lanes` of inner: grid (outer, ceil(inner/lanes)), block 256, lanes across and
//            256 / lanes rows down
//   traffic  forward 4|x| read and 4|y| written, backward 8|y| read and 4|dx| written, and reads again from the cache
//            for each mean: bound by memory
//   assumes  elements below 2^31; lanes a power of two
//   order    a thread adds 64 rows, then those sums; then rows by halving distance
//   overlay  a thread writes the elements that it reads, after all means
//   source   layermem/backends/reference/mvn.py; Caffe mvn_layer.cu
#include "common.cuh"

using namespace lm;

constexpr int THREADS = 256;
constexpr int RUN = 64;  // rows that a thread adds before it adds their sum
constexpr int ROWS = 8;  // whose loads are in flight together

struct MvnArgs {
    float* y;            // dx
    const float* x;      // dy
    const float* saved;  // backward: y, read with normalize only
    float* inv_std;      // written forward where it is not null; null backward without normalize
    int size, inner, lanes;
    int normalize, accumulate;
    float eps;
};

// The elements of a thread: those of its column, a row in every `down`.
struct Mine {
    int base, first, down, lane;
    bool inside;
};

LM_FN Mine my_rows(const MvnArgs& p) {
    const int across = threadIdx.x % p.lanes, column = static_cast<int>(blockIdx.y) * p.lanes + across;
    return {static_cast<int>(blockIdx.x) * p.size * p.inner + column, static_cast<int>(threadIdx.x) / p.lanes,
            THREADS / p.lanes, across, column < p.inner};
}

// The values of ROWS rows of the thread, from `row` on: value(element), or 0 behind the last row.
template <class Value>
LM_FN void compute_rows(float (&values)[ROWS], const MvnArgs& p, const Mine& mine, int row, Value value) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        values[r] = row + r * mine.down < p.size ? value(mine.base + (row + r * mine.down) * p.inner) : 0.0f;
}

// The mean of term(element) over a column; every thread of the column gets it.
template <class Term>
LM_FN float column_mean(const MvnArgs& p, const Mine& mine, float* sums, Term term) {
    float total = 0.0f;
    for (int row = mine.first; mine.inside && row < p.size;) {
        float sum = 0.0f;
#pragma unroll 1
        for (int i = 0; i < RUN && row < p.size; i += ROWS, row += ROWS * mine.down) {
            float terms[ROWS];
            compute_rows(terms, p, mine, row, term);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sum += terms[r];
        }
        total += sum;
    }
    block_sync();  // the sums of the last mean have been read
    sums[threadIdx.x] = total;
    for (int distance = THREADS / 2; distance >= p.lanes; distance /= 2) {
        block_sync();
        if (static_cast<int>(threadIdx.x) < distance) sums[threadIdx.x] += sums[threadIdx.x + distance];
    }
    block_sync();
    return sums[mine.lane] / static_cast<float>(p.size);
}

template <class Value>
LM_FN void write_rows(const MvnArgs& p, const Mine& mine, Value value) {
    for (int row = mine.first; mine.inside && row < p.size; row += ROWS * mine.down) {
        float values[ROWS];
        compute_rows(values, p, mine, row, value);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            if (row + r * mine.down < p.size)
                put(p.y + mine.base + (row + r * mine.down) * p.inner, values[r], p.accumulate);
    }
}

LM_KERNEL(mvn_forward, MvnArgs, p, THREADS) {
    LM_SHARED(float, sums, [THREADS]);
    const Mine mine = my_rows(p);
    const float mean = column_mean(p, mine, sums, [&](int at) { return p.x[at]; });
    float factor = 1.0f;
    if (p.normalize) {
        const float variance = column_mean(p, mine, sums, [&](int at) {
            const float centered = p.x[at] - mean;
            return centered * centered;
        });
        factor = 1.0f / (sqrtf(variance) + p.eps);
        if (p.inv_std != nullptr && mine.inside && mine.first == 0)
            p.inv_std[blockIdx.x * p.inner + blockIdx.y * p.lanes + mine.lane] = factor;
    }
    write_rows(p, mine, [&](int at) { return (p.x[at] - mean) * factor; });
}

LM_KERNEL(mvn_backward, MvnArgs, p, THREADS) {
    LM_SHARED(float, sums, [THREADS]);
    const Mine mine = my_rows(p);
    const float mean = column_mean(p, mine, sums, [&](int at) { return p.x[at]; });
    if (!p.normalize) {
        write_rows(p, mine, [&](int at) { return p.x[at] - mean; });
        return;
    }
    const float product = column_mean(p, mine, sums, [&](int at) { return p.saved[at] * p.x[at]; });
    const float factor = mine.inside ? p.inv_std[blockIdx.x * p.inner + blockIdx.y * p.lanes + mine.lane] : 0.0f;
    write_rows(p, mine, [&](int at) { return (p.x[at] - mean - p.saved[at] * product) * factor; });
}
