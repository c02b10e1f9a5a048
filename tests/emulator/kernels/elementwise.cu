// scale_add: y = factor x + more, element by element.
//   y, x [n] float; y may be x
//   launch   grid ceil(n/256), block 256
#include "primitives.cuh"

struct ScaleAddArgs {
    float* y;
    const float* x;
    const float* more;  // or null: nothing is added
    int n;
    float factor;
};

LM_KERNEL(scale_add, ScaleAddArgs, p, 256) {
    const int i = 256 * blockIdx.x + threadIdx.x;
    if (i < p.n) p.y[i] = p.factor * p.x[i] + (p.more != nullptr ? p.more[i] : 0.0f);
}

#if defined(LM_EMULATE)
extern "C" __attribute__((visibility("default"))) const int lm_emu_toolkit = 13000;  // as cubins name theirs
#endif
