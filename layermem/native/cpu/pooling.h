// Pooling windows over channels-last images: x [n][h][w][c] -> y [n][ho][wo][c].
#pragma once
#include <cstdint>

#include "launch.h"

namespace layermem::cpu {

struct Pool {
    int64_t n, c, h, w, ho, wo, kh, kw, sh, sw, ph, pw;
    bool wide() const { return kh * kw > 256; }  // argmax is int32 instead of uint8
    void check() const;
};

struct PoolArgs {
    Pool g;
    float* out;
    const float* in;
    void* argmax;  // MAX: index r * kw + s in the unclipped window; forward may leave it out
    bool accumulate;
};

Launch max_pool_forward(const Pool&, float* y, const float* x, void* argmax);
Launch max_pool_backward(const Pool&, float* dx, const float* dy, const void* argmax, bool accumulate);
Launch average_pool_forward(const Pool&, float* y, const float* x);
Launch average_pool_backward(const Pool&, float* dx, const float* dy, bool accumulate);

}  // namespace layermem::cpu
