// transpose_*: y = x transposed, 32x32, through shared rows of 32 or of 33 floats; sums: rows read four at a time.
#include "primitives.cuh"

struct TileArgs {
    float* y;
    const float* x;
};

template <int PITCH>
static __device__ __forceinline__ void transpose(const TileArgs& p) {
    LM_SHARED(float, tile, [32][PITCH]);
    const int t = threadIdx.x;
    for (int row = 0; row < 32; ++row) tile[row][t] = p.x[32 * row + t];
    lm::block_sync();
    for (int row = 0; row < 32; ++row) p.y[32 * row + t] = tile[t][row];
}

LM_KERNEL(transpose_32, TileArgs, p, 32) { transpose<32>(p); }
LM_KERNEL(transpose_33, TileArgs, p, 32) { transpose<33>(p); }

// y[t] = the sum of four neighbours of x, which lie one after another, or at a stride of 32 bytes
template <int STRIDE>
static __device__ __forceinline__ void sum_fours(const TileArgs& p) {
    LM_SHARED(float, tile, [32 * STRIDE]);
    const int t = threadIdx.x;
    for (int i = 0; i < 4; ++i) tile[STRIDE * t + i] = p.x[4 * t + i];
    lm::block_sync();
    const float4 four = *reinterpret_cast<const float4*>(&tile[STRIDE * t]);
    p.y[t] = four.x + four.y + four.z + four.w;
}

LM_KERNEL(sum_fours_4, TileArgs, p, 32) { sum_fours<4>(p); }
LM_KERNEL(sum_fours_8, TileArgs, p, 32) { sum_fours<8>(p); }
