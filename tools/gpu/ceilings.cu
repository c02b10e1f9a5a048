// The highest rates of a GPU: arithmetic on registers alone, with nothing to wait for; and reads, with no arithmetic.
//   out [blocks] float written    launch   any grid, block 256, no shared memory
//   x [count] float read          traffic  4 count bytes a round: from memory, a cache or the host, as count and x are
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

// Past the L1 cache, which could hold what a block reads in every round.
LM_FN float4 load_past_l1(const float4* x) {
#if defined(LM_EMULATE)
    return *x;
#else
    float4 four;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "l"(x));
    return four;
#endif
}

struct ReadArgs {
    float* out;
    const float* x;
    int count;  // a multiple of 4
    int rounds;
};

LM_KERNEL(read_rate, ReadArgs, p, 256) {
    const int threads = static_cast<int>(256 * gridDim.x), first = static_cast<int>(256 * blockIdx.x + threadIdx.x);
    const float4* x = reinterpret_cast<const float4*>(p.x);
    float sum[4] = {};
    for (int round = 0; round < p.rounds; ++round)
#pragma unroll 4
        for (int i = first; i < p.count / 4; i += threads) {
            const float4 four = load_past_l1(x + i);
            sum[0] += four.x;
            sum[1] += four.y;
            sum[2] += four.z;
            sum[3] += four.w;
        }
    const float all = sum[0] + sum[1] + sum[2] + sum[3];
    if (all == 1.5f) p.out[blockIdx.x] = all;  // all sums are needed
}
