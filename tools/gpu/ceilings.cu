// What a GPU can do at best: arithmetic on registers alone, with nothing to wait for.
//   out [blocks] float written    launch   any grid, block 256, no shared memory
//   work     rounds x CHAINS products a thread (FFMA) or a warp (mma), in CHAINS chains that do not depend on each other
#include "primitives.cuh"

using namespace lm;

constexpr int CHAINS = 8;

struct RateArgs {
    float* out;
    int rounds;
    float x, y;
};

LM_KERNEL(ffma_rate, RateArgs, p, 256, 4) {
    float sum[CHAINS];
    for (int i = 0; i < CHAINS; ++i) sum[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 4
    for (int round = 0; round < p.rounds; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) sum[i] = fmaf(sum[i], p.x, p.y);
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) all += sum[i];
    if (threadIdx.x == 0) p.out[blockIdx.x] = all;
}

template <bool BF16>
LM_FN void mma_rate(const RateArgs& p) {
    float sum[CHAINS][4] = {};
    const unsigned a[4] = {__float_as_uint(p.x), __float_as_uint(p.y), __float_as_uint(p.x), __float_as_uint(p.y)};
    const unsigned b[2] = {__float_as_uint(p.y), __float_as_uint(p.x)};
#pragma unroll 4
    for (int round = 0; round < p.rounds; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) {
            if (BF16)
                mma_bf16(sum[i], a, b);
            else
                mma_tf32(sum[i], a, b);
        }
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) all += sum[i][0] + sum[i][1] + sum[i][2] + sum[i][3];
    if (threadIdx.x == 0) p.out[blockIdx.x] = all;
}

LM_KERNEL(mma_tf32_rate, RateArgs, p, 256, 2) { mma_rate<false>(p); }
LM_KERNEL(mma_bf16_rate, RateArgs, p, 256, 2) { mma_rate<true>(p); }
