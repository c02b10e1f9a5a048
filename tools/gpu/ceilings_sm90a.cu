// The highest rate of warpgroups: products of registers and shared memory, with nothing to load (ceilings.cu).
//   out [blocks] float written    launch   any grid, block 256: two warpgroups; SHARED_BYTES of dynamic shared memory
//   work     rounds x PRODUCTS products a warpgroup, 64 x 128 and 8 (tf32) or 16 (bf16) deep, added to the same sums
#include "warpgroup.cuh"

using namespace lm;

constexpr int PRODUCTS = 16, COLUMNS = 128, ROW_BYTES = 128, OF_A_ROW = 4;  // products that a row of B is for
constexpr int ALIGNMENT = 1024;                                             // SHARED_BYTES = COLUMNS * ROW_BYTES + this

struct RateArgs {
    float* out;
    int rounds;
    float x, y;
};

template <bool BF16>
LM_FN void wgmma_rate(const RateArgs& p) {
#if LM_WARPGROUPS
    LM_DYN_SHARED(unsigned char, shared);
    const auto beyond = reinterpret_cast<unsigned long long>(shared) % ALIGNMENT;
    unsigned char* b = shared + (ALIGNMENT - beyond) % ALIGNMENT;
    for (int i = static_cast<int>(threadIdx.x); i < COLUMNS * ROW_BYTES / 4; i += 256)
        reinterpret_cast<float*>(b)[i] = p.y;
    proxy_fence();
    block_sync();
    const unsigned a[4] = {__float_as_uint(p.x), __float_as_uint(p.y), __float_as_uint(p.x), __float_as_uint(p.y)};
    float sum[COLUMNS / 8][4] = {};
#pragma unroll 1
    for (int round = 0; round < p.rounds; ++round) {
        products_begin();
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) {
            const unsigned long long rows = shared_rows<ROW_BYTES>(b, i % OF_A_ROW);
            if constexpr (BF16)
                product_bf16(sum, a, rows);
            else
                product_tf32(sum, a, rows);
        }
        products_commit();
        products_wait<0>(sum);
    }
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i) all += sum[i][0] + sum[i][1] + sum[i][2] + sum[i][3];
    if (threadIdx.x == 0) p.out[blockIdx.x] = all;
#else
    if (threadIdx.x == 0) p.out[blockIdx.x] = 0.0f;
#endif
}

LM_KERNEL(wgmma_tf32_rate, RateArgs, p, 256, 2) { wgmma_rate<false>(p); }
LM_KERNEL(wgmma_bf16_rate, RateArgs, p, 256, 2) { wgmma_rate<true>(p); }
