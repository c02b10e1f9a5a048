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

struct SharedProductArgs {
    float* d;           // [128,BLOCKS,4]: of each thread, read and written
    const unsigned* a;  // the bytes of A in shared memory: 64 rows of 128
    const unsigned* b;  // those of B: 8 BLOCKS rows of 128, or panels of 64 rows of 128 for 64 columns each
    int number;         // of the product, along k
};

// Both operands from shared memory.
template <bool A_COLUMNS, bool B_COLUMNS, int BLOCKS>
static __device__ __forceinline__ void product_of_shared(const SharedProductArgs& p) {
    constexpr int A_WORDS = 64 * 32, B_WORDS = 8 * BLOCKS * 32, PANEL_BYTES = 64 * 128;
    LM_DYN_SHARED(unsigned, shared);
    const int t = threadIdx.x;
    unsigned* a = shared;
    while (reinterpret_cast<unsigned long long>(a) % 1024 != 0) ++a;
    unsigned* b = a + A_WORDS;
    for (int i = t; i < A_WORDS; i += lm::WARPGROUP) a[i] = p.a[i];
    for (int i = t; i < B_WORDS; i += lm::WARPGROUP) b[i] = p.b[i];
    lm::proxy_fence();
    lm::block_sync();
    float d[BLOCKS][4];
    for (int i = 0; i < 4 * BLOCKS; ++i) d[i / 4][i % 4] = p.d[4 * BLOCKS * t + i];
    const auto operand = [&](const unsigned* first, bool columns) {
        return columns ? lm::shared_columns<PANEL_BYTES>(first, p.number) : lm::shared_rows<128>(first, p.number);
    };
    const unsigned long long of_a = operand(a, A_COLUMNS), of_b = operand(b, B_COLUMNS);
    lm::products_begin();
    lm::product_bf16<A_COLUMNS, B_COLUMNS>(d, of_a, of_b);
    lm::products_commit();
    lm::products_wait<0>(d);
    for (int i = 0; i < 4 * BLOCKS; ++i) p.d[4 * BLOCKS * t + i] = d[i / 4][i % 4];
}

LM_KERNEL(product_of_rows, SharedProductArgs, p, 128) { product_of_shared<false, false, 16>(p); }
LM_KERNEL(product_of_columns_of_b, SharedProductArgs, p, 128) { product_of_shared<false, true, 16>(p); }
LM_KERNEL(product_of_columns, SharedProductArgs, p, 128) { product_of_shared<true, true, 24>(p); }

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

// What may be wrong in `rounds`.
enum Bug { NONE, NO_WAIT, NOT_EXPECTED, FEWER, MORE, ODD_BYTES, ODD_PLACE, ODD_SOURCE, NO_BARRIER, BARRIER_UNFENCED,
           BYTES_UNFENCED, LEFT_IN_FLIGHT };

struct BulkArgs {
    int* y;        // [n], written
    const int* x;  // [n]
    int n, bug;
};

// y = x.  Thread 0 brings 64 numbers at a time, which warp 1 stores; they arrive at a barrier each, so that neither overtakes.
LM_KERNEL(rounds, BulkArgs, p, 64) {
    constexpr int EACH = 64, BYTES = 4 * EACH;
    LM_SHARED(unsigned long long, filled, [1]);
    LM_SHARED(unsigned long long, emptied, [1]);
    LM_SHARED(int, numbers, [EACH + 4]);
    const auto is = [&](Bug bug) { return p.bug == bug; };
    if (threadIdx.x == 0) {
        lm::barrier_init(filled, 1);
        lm::barrier_init(emptied, lm::WARP);
        if (!is(BARRIER_UNFENCED)) lm::proxy_fence();
    }
    lm::block_sync();
    for (int i = 0; i < p.n / EACH; ++i) {
        const unsigned parity = i % 2;
        const bool is_last = i + 1 == p.n / EACH;
        if (threadIdx.x == 0) {
            lm::barrier_wait(emptied, parity ^ 1u);
            if (!is(NOT_EXPECTED)) lm::barrier_expect(filled, BYTES + (is(MORE) ? 16 : is(FEWER) ? -16 : 0));
            lm::bulk_copy(numbers + (is(ODD_PLACE) ? 1 : 0), p.x + i * EACH + (is(ODD_SOURCE) ? 1 : 0),
                          is(ODD_BYTES) ? BYTES - 8 : BYTES, is(NO_BARRIER) ? filled + 2 : filled);
            if (!(is(LEFT_IN_FLIGHT) && is_last)) lm::barrier_arrive(filled);
        } else if (threadIdx.x >= lm::WARP && !(is(LEFT_IN_FLIGHT) && is_last)) {
            if (!is(NO_WAIT)) lm::barrier_wait(filled, parity);
            const int lane = threadIdx.x - lm::WARP;
            p.y[i * EACH + lane] = numbers[lane];
            p.y[i * EACH + lm::WARP + lane] = numbers[lm::WARP + lane];
            if (!is(BYTES_UNFENCED)) lm::proxy_fence();
            lm::barrier_arrive(emptied);
        }
    }
}
