// Max and average pooling, forward and backward; PoolProblem is in microkernels/pooling.h.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/pooling.h"

namespace layermem::cpu {

// argmax, uint8 or int32 per output, is written where it is not null; backward reads it.
Launch max_pool_forward(const PoolProblem& p, float* y, const float* x, OrNull<void> argmax,
                        Storage storage = Storage::fp32);
Launch max_pool_backward(const PoolProblem& p, float* dx, const float* dy, const void* argmax, bool accumulate,
                         Storage storage = Storage::fp32);
// The mean over the window clipped to the padded image, as in Caffe.
Launch average_pool_forward(const PoolProblem& p, float* y, const float* x, Storage storage = Storage::fp32);
Launch average_pool_backward(const PoolProblem& p, float* dx, const float* dy, bool accumulate,
                             Storage storage = Storage::fp32);

// mask[i] = the index within the plane h x w of the element that argmax names
Launch max_pool_mask(const PoolProblem& p, float* mask, const void* argmax);

// STOCHASTIC: element i of a window with probability x_i / sum x, by one random word for each output (see dropout.h);
// argmax as of max_pool_forward, whose gradient it has.  And the mean that these probabilities give, sum x^2 / sum x
StepLaunch stochastic_pool_forward(const PoolProblem& p, float* y, const float* x, OrNull<void> argmax, uint64_t seed,
                                   uint32_t stream, int64_t first = 0);  // first: number of the first y in the batch
Launch stochastic_pool_average(const PoolProblem& p, float* y, const float* x);

}  // namespace layermem::cpu
