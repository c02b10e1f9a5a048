// StepScalars: the values that change from step to step, in the GPU's memory.  The host writes them once before a step,
// so that the arguments of every launch stay the same, and a captured CUDA graph is launched unchanged.
//   rate, correction         of the learning rate, by cuda/update.cu
//   seed, step_low, _high    key and counter of random numbers, by cuda/dropout.cu and cuda/pooling.cu
//   averaged                 batches that move averages, by cuda/batch_norm.cuh
//   loss_scale               a power of two, by cuda/fill.cu and cuda/update.cu
//   source  layermem/backends/cuda/support/step_scalars.py packs it
#pragma once
#include "primitives.cuh"

namespace lm {

struct StepScalars {
    double rate;       // of the solver; that of a parameter is local_rate()
    float correction;  // Adam and AdamW
    int averaged;      // -1: all that there are
    float loss_scale;
    unsigned seed, step_low, step_high;
};

// Returns the learning rate of a parameter: a product of doubles, rounded once, as on the other devices.
LM_FN float local_rate(const StepScalars* step, double lr_mult) { return static_cast<float>(step->rate * lr_mult); }

}  // namespace lm
