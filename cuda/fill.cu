// fill: y = value, or y += value.
//   y [count] float written or added to
//   launch   four elements per thread: grid ceil(count / 1024), block 256
//   traffic  4 bytes per element, 8 where it accumulates: memory bound
//   assumes  y aligned to 16 bytes; count < 2^31
//   source   layermem/backends/reference/host.py
#include "common.cuh"

using namespace lm;

struct FillArgs {
    float* y;
    int count;
    float value;
    int accumulate;
};

LM_KERNEL(fill, FillArgs, p, 256) {
    const unsigned first = 4u * (blockIdx.x * 256u + threadIdx.x), count = static_cast<unsigned>(p.count);
    float values[4] = {p.value, p.value, p.value, p.value};
    if (first + 4 <= count)
        put<4>(p.y + first, values, p.accumulate);
    else
        for (unsigned i = first; i < count; ++i) put(p.y + i, p.value, p.accumulate);
}
