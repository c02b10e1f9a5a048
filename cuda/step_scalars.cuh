// StepScalars: what changes from one step to the next, in the GPU's memory.  The host writes it once before a step, so
// that the arguments of every launch stay as they are, and a captured CUDA graph is launched as it is.
//   rate, correction         of the learning rate, by cuda/update.cu
//   seed, step_low, _high    key and counter of random numbers, by cuda/dropout.cu and cuda/pooling.cu
//   averaged                 batches that move averages, by cuda/batch_norm.cuh
//   loss_scale               a power of two, by cuda/fill.cu and cuda/update.cu
//   source  layermem/backends/cuda/step_scalars.py packs it
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

// The learning rate of a parameter: a product of doubles, rounded once, as the other devices have it.
LM_FN float local_rate(const StepScalars* step, double lr_mult) { return static_cast<float>(step->rate * lr_mult); }

}  // namespace lm
