// Pooling windows over channels-last images: x [n][h][w][c] -> y [n][ho][wo][c].  Lanes are channels.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

struct PoolProblem {
    int64_t n, c, h, w, ho, wo;      // of the images; ho, wo as Caffe rounds them (up)
    int64_t kh, kw, sh, sw, ph, pw;  // kernel, stride, pad
    void check() const;              // std::invalid_argument, with what is wrong
};

struct PoolArgs {
    PoolProblem problem;
    float* out;       // y [n][ho][wo][c];  backward: dx [n][h][w][c]
    const float* in;  // x;  backward: dy
    void* argmax;     // MAX: [n][ho][wo][c], index r * kw + s in the unclipped window; null: not wanted (forward only)
    bool accumulate;  // backward only
};

struct PoolRandom {   // numbers from 0 to 1 by output element (philox.h)
    uint32_t key[2];  // seed, stream
    uint64_t step;    // of training
    int64_t first;    // number of the first output element: random numbers belong to numbers
};

using PoolRow = void (*)(const PoolArgs&, int64_t row);

struct PoolingKernels {                                   // by Storage of the blobs, where there are several
    PoolRow max_pool[kStorages];                          // row of y: [0, n * ho)
    PoolRow average_pool[kStorages];                      // likewise
    PoolRow max_pool_backward[kStorages];                 // row of dx: [0, n * h)
    PoolRow average_pool_backward[kStorages];             // likewise
    void (*max_pool_mask)(const PoolArgs&, int64_t row);  // of out: where in h x w the argmax points
    void (*stochastic_pool)(const PoolArgs&, const PoolRandom&, int64_t row);
    void (*stochastic_average)(const PoolArgs&, int64_t row);
};
LAYERMEM_KERNEL_TABLE(PoolingKernels, pooling_kernels)

}  // namespace layermem::cpu
