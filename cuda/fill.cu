// fill: y = value.
//   y [count] float written
//   launch   grid ceil(count / 1024), block 256
//   traffic  4 bytes per element: bound by memory
//   assumes  y aligned to 16 bytes
//   source   layermem/backends/reference/step.py
#include "common.cuh"

using namespace lm;

struct FillArgs {
    float* y;
    int count;
    float value;
};

LM_KERNEL(fill, FillArgs, p, 256) {
    const unsigned first = 4u * (blockIdx.x * 256u + threadIdx.x), count = static_cast<unsigned>(p.count);
    const float values[4] = {p.value, p.value, p.value, p.value};
    if (first + 4 <= count)
        store<4>(p.y + first, values);
    else
        for (unsigned i = first; i < count; ++i) p.y[i] = p.value;
}
