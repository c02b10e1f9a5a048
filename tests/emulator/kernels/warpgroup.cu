// One kernel per primitive of cuda/warpgroup.cuh, for the tests of the primitives themselves.
#include "warpgroup.cuh"

struct ProductArgs {
    float* d;           // [128,N,4]: of each thread, read and written
    const unsigned* a;  // [128,4]
    const unsigned* b;  // the bytes of B in shared memory, N rows
};

template <int BLOCKS, int ROW_BYTES, bool BF16>
static __device__ __forceinline__ void product(const ProductArgs& p, int number) {
    LM_DYN_SHARED(unsigned, shared);
    const int t = threadIdx.x;
    unsigned* rows = shared;
    while (reinterpret_cast<unsigned long long>(rows) % 1024 != 0) ++rows;
    for (int i = t; i < 8 * BLOCKS * ROW_BYTES / 4; i += lm::WARPGROUP) rows[i] = p.b[i];
    lm::proxy_fence();
    lm::block_sync();
    float d[BLOCKS][4];
    unsigned a[4];
    for (int i = 0; i < 4 * BLOCKS; ++i) d[i / 4][i % 4] = p.d[4 * BLOCKS * t + i];
    for (int i = 0; i < 4; ++i) a[i] = p.a[4 * t + i];
    lm::products_begin();
    const unsigned long long b = lm::shared_rows<ROW_BYTES>(rows, number);
    if (BF16)
        lm::product_bf16(d, a, b);
    else
        lm::product_tf32(d, a, b);
    lm::products_commit();
    lm::products_wait<0>(d);
    for (int i = 0; i < 4 * BLOCKS; ++i) p.d[4 * BLOCKS * t + i] = d[i / 4][i % 4];
}

LM_KERNEL(product_tf32, ProductArgs, p, 128) { product<8, 128, false>(p, 3); }
LM_KERNEL(product_bf16, ProductArgs, p, 128) { product<16, 64, true>(p, 1); }

struct PhaseArgs {
    int* y;  // [n]
    int n;
};

// y[i] = i, by a thread that hands each number to the next warp's through shared memory, and waits until it is taken.
LM_KERNEL(phases, PhaseArgs, p, 64) {
    LM_SHARED(unsigned long long, given, [1]);
    LM_SHARED(unsigned long long, taken, [1]);
    LM_SHARED(int, number, [1]);
    if (threadIdx.x == 0) {
        lm::barrier_init(given, 1);
        lm::barrier_init(taken, 1);
    }
    lm::block_sync();
    for (int i = 0; i < p.n; ++i) {
        const unsigned parity = i % 2;
        if (threadIdx.x == 0) {
            lm::barrier_wait(taken, parity ^ 1u);
            number[0] = i;
            lm::barrier_arrive(given);
        } else if (threadIdx.x == 32) {
            lm::barrier_wait(given, parity);
            p.y[i] = number[0];
            lm::barrier_arrive(taken);
        }
    }
}
