// block_sums: the sum of each run of `length` elements, always added in the same order.
//   sums [grid] float written     x [n] float read
//   launch   grid ceil(n/length), block 256, no dynamic shared memory
//   order    thread t adds elements t, t+256, ...; lanes by halving distance; then the warps' sums by lane order
#include "primitives.cuh"

struct SumArgs {
    float* sums;
    const float* x;
    int n, length;
};

static __device__ __forceinline__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += lm::shuffle_xor(value, distance);
    return value;
}

LM_KERNEL(block_sums, SumArgs, p, 256) {
    LM_SHARED(float, warp_sums, [8]);
    const int first = blockIdx.x * p.length, end = min(first + p.length, p.n);
    float sum = 0;
    for (int i = first + threadIdx.x; i < end; i += 256) sum += p.x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
    lm::block_sync();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < 8 ? warp_sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) p.sums[blockIdx.x] = sum;
    }
}

// row_max: the largest element of each row, in dynamic shared memory.
//   largest [rows] float written     x [rows,n] float read
//   launch   grid rows, block a power of two, shared 4 bytes per thread
LM_KERNEL(row_max, SumArgs, p, 1024) {
    LM_DYN_SHARED(float, best);
    const int t = threadIdx.x, threads = blockDim.x;
    float mine = -lm::infinity();
    for (int i = t; i < p.n; i += threads) mine = fmaxf(mine, p.x[blockIdx.x * p.n + i]);
    best[t] = mine;
    for (int half = threads / 2; half > 0; half /= 2) {
        lm::block_sync();
        if (t < half) best[t] = fmaxf(best[t], best[t + half]);
    }
    if (t == 0) p.sums[blockIdx.x] = best[0];
}
