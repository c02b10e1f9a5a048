// Bilinear interpolation, one row of pixels at a time; lanes are channels.
//
// Along one axis output i samples the position i * (size - 1) / (out - 1) of the region: corners meet corners.
// Positions are computed with integers, so that they are exact where they fall on a pixel.
#include "cpu/microkernels/resize.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

struct Sample {  // of one output along one axis: (1 - t) x[low] + t x[high]
    int64_t low, high;
    float t;
};

// Output i of `out`, for the region [first, first + size).
inline Sample sample_at(int64_t i, int64_t first, int64_t size, int64_t out) {
    if (out == 1) return {first, first, 0};
    const int64_t low = i * (size - 1) / (out - 1), rest = i * (size - 1) % (out - 1);
    return {first + low, first + low + (rest > 0),
            static_cast<float>(static_cast<double>(rest) / static_cast<double>(out - 1))};
}

// Row `row` of n * ho rows of y, from two rows of x.
void interp(const InterpArgs& args, int64_t row) {
    const Sample r = sample_at(row % args.ho, args.begin_h, args.size_h, args.ho);
    const float* low = args.in + (row / args.ho * args.h + r.low) * args.w * args.c;
    const float* high = low + (r.high - r.low) * args.w * args.c;
    for (int64_t x = 0; x < args.wo; ++x) {
        const Sample s = sample_at(x, args.begin_w, args.size_w, args.wo);
        const V t = broadcast(s.t), rest = broadcast(1 - s.t), u = broadcast(r.t), less = broadcast(1 - r.t);
        for_each_vector(0, args.c, [&](int64_t c, auto n) {
            const V a = load(low + s.low * args.c + c, n) * rest + load(low + s.high * args.c + c, n) * t;
            const V b = load(high + s.low * args.c + c, n) * rest + load(high + s.high * args.c + c, n) * t;
            store(args.out + (row * args.wo + x) * args.c + c, a * less + b * u, n);
        });
    }
}

// The weight with which input `at` enters an output.
inline float weight_of(const Sample& b, int64_t at) {
    return (b.low == at ? 1 - b.t : 0) + (b.high == at && b.t > 0 ? b.t : 0);
}

// The outputs [begin, end) that input `at` may enter: those that sample strictly between at - 1 and at + 1.
inline void outputs_near(int64_t at, int64_t first, int64_t size, int64_t out, int64_t& begin, int64_t& end) {
    begin = 0;
    end = out;
    if (at < first || at >= first + size) {
        end = 0;
    } else if (size > 1 && out > 1) {
        const int64_t a = at - first;
        begin = max(0, (a - 1) * (out - 1) / (size - 1));
        end = min(out, (a + 1) * (out - 1) / (size - 1) + 1);
    }
}

constexpr int64_t kMaxWeights = 64;  // that are looked up at a time
struct Weights {                     // the outputs of a range along one axis that an input enters
    int64_t count, index[kMaxWeights];
    float weight[kMaxWeights];

    void find(int64_t at, int64_t begin, int64_t end, int64_t first, int64_t size, int64_t out) {
        count = 0;
        for (int64_t i = begin; i < end; ++i) {
            weight[count] = weight_of(sample_at(i, first, size, out), at);
            index[count] = i;
            count += weight[count] > 0;
        }
    }
};

// out += dy of the outputs that `down` (rows) and `right` (columns) list, times both weights; dy: of output (0, 0), at
// this register of channels.
template <int kGroup, class N>
LAYERMEM_INLINE void add_weighted(float* out, const float* dy, int64_t width, int64_t channels, const Weights& down,
                                  const Weights& right, N n, VectorGroup<kGroup>) {
    V sum[kGroup];
#pragma GCC unroll 4
    for (int k = 0; k < kGroup; ++k) sum[k] = load(out + k * kLanes, n);
    for (int64_t i = 0; i < down.count; ++i)
        for (int64_t j = 0; j < right.count; ++j) {
            const float* at = dy + (down.index[i] * width + right.index[j]) * channels;
            const V weight = broadcast(down.weight[i] * right.weight[j]);
#pragma GCC unroll 4
            for (int k = 0; k < kGroup; ++k) sum[k] = fma(load(at + k * kLanes, n), weight, sum[k]);
        }
#pragma GCC unroll 4
    for (int k = 0; k < kGroup; ++k) store(out + k * kLanes, sum[k], n);
}

// Row `row` of n * h rows of dx, gathered from dy.
void interp_backward(const InterpArgs& args, int64_t row) {
    const int64_t h = row % args.h;
    const float* dy = args.in + row / args.h * args.ho * args.wo * args.c;
    float* out = args.out + row * args.w * args.c;
    Weights down, right;
    int64_t i0, i1, j0, j1;
    outputs_near(h, args.begin_h, args.size_h, args.ho, i0, i1);
    if (!args.accumulate) for_each_vector(0, args.w * args.c, [&](int64_t i, auto n) { store(out + i, zero(), n); });
    for (int64_t i = i0; i < i1; i += kMaxWeights) {
        down.find(h, i, min(i1, i + kMaxWeights), args.begin_h, args.size_h, args.ho);
        for (int64_t w = 0; w < args.w && down.count; ++w) {
            outputs_near(w, args.begin_w, args.size_w, args.wo, j0, j1);
            for (int64_t j = j0; j < j1; j += kMaxWeights) {
                right.find(w, j, min(j1, j + kMaxWeights), args.begin_w, args.size_w, args.wo);
                if (right.count == 0) continue;
                for_each_vector_group(0, args.c, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
                    add_weighted(out + w * args.c + c, dy + c, args.wo, args.c, down, right, n, group);
                });
            }
        }
    }
}

}  // namespace

const ResizeKernels resize_kernels = {interp, interp_backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
