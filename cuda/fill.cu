// fill, fill_scaled: y = value, or y += value; the value times the loss scale of the step.
//   y [count] float written or added to     step read
//   launch   four elements per thread, at multiples of 16 bytes: grid ceil((count + lead) / 1024), where y lies `lead`
//            elements behind one; block 256
//   traffic  4 bytes per element, 8 where it accumulates: memory bound
//   assumes  count < 2^31
//   source   layermem/backends/reference/host.py
#include "common.cuh"
#include "step_scalars.cuh"

using namespace lm;

LM_FN void fill_four(float* y, int count, float value, bool accumulate) {
    const int lead = static_cast<int>(reinterpret_cast<unsigned long long>(y) / sizeof(float) % 4);
    const long long first = 4ll * (blockIdx.x * 256u + threadIdx.x) - lead;
    float values[4] = {value, value, value, value};
    if (first >= 0 && first + 4 <= count)
        put<4>(y + first, values, accumulate);
    else
        for (long long i = first; i < first + 4; ++i)
            if (i >= 0 && i < count) put(y + i, value, accumulate);
}

struct FillArgs {
    float* y;
    int count;
    float value;
    int accumulate;
};

LM_KERNEL(fill, FillArgs, p, 256) { fill_four(p.y, p.count, p.value, p.accumulate); }

struct FillScaledArgs {
    float* y;
    const StepScalars* step;
    int count;
    float value;
    int accumulate;
};

LM_KERNEL(fill_scaled, FillScaledArgs, p, 256) { fill_four(p.y, p.count, p.value * p.step->loss_scale, p.accumulate); }
