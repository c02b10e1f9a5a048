// fill, fill_scaled: y = value, or y += value; the value times the loss scale of the step.
//   y [count] float written or added to     step read
//   launch   four elements per thread: grid ceil(count / 1024), block 256
//   traffic  4 bytes per element, 8 where it accumulates: memory bound
//   assumes  y aligned to 16 bytes; count < 2^31
//   source   layermem/backends/reference/host.py
#include "common.cuh"
#include "step_scalars.cuh"

using namespace lm;

LM_FN void fill_four(float* y, unsigned count, float value, bool accumulate) {
    const unsigned first = 4u * (blockIdx.x * 256u + threadIdx.x);
    float values[4] = {value, value, value, value};
    if (first + 4 <= count)
        put<4>(y + first, values, accumulate);
    else
        for (unsigned i = first; i < count; ++i) put(y + i, value, accumulate);
}

struct FillArgs {
    float* y;
    int count;
    float value;
    int accumulate;
};

LM_KERNEL(fill, FillArgs, p, 256) { fill_four(p.y, static_cast<unsigned>(p.count), p.value, p.accumulate); }

struct FillScaledArgs {
    float* y;
    const StepScalars* step;
    int count;
    float value;
    int accumulate;
};

LM_KERNEL(fill_scaled, FillScaledArgs, p, 256) {
    fill_four(p.y, static_cast<unsigned>(p.count), p.value * p.step->loss_scale, p.accumulate);
}
