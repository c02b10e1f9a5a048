// Max and average pooling, forward and backward; PoolProblem is in microkernels/pooling.h.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/pooling.h"

namespace layermem::cpu {

// argmax, uint8 or int32 per output, is written where it is not null; backward reads it.
Launch max_pool_forward(const PoolProblem& p, float* y, const float* x, void* argmax);
Launch max_pool_backward(const PoolProblem& p, float* dx, const float* dy, const void* argmax, bool accumulate);
// The mean over the window clipped to the padded image, as in Caffe.
Launch average_pool_forward(const PoolProblem& p, float* y, const float* x);
Launch average_pool_backward(const PoolProblem& p, float* dx, const float* dy, bool accumulate);

}  // namespace layermem::cpu
