// One kernel per primitive of cuda/primitives.cuh, for the tests of the primitives themselves.
#include "primitives.cuh"

struct WordArgs {
    unsigned* y;
    const unsigned* x;
    int n;
};

// y [5,threads]: shuffle from lane 7 t + 3, shuffle_xor 5, shuffle_down 9, ballot of odd x, block_any of x == n
LM_KERNEL(exchange, WordArgs, p, 1024) {
    const int t = threadIdx.x, threads = blockDim.x;
    const unsigned mine = p.x[t];
    p.y[t] = lm::shuffle(mine, (7 * t + 3) % 32);
    p.y[threads + t] = lm::shuffle_xor(mine, 5);
    p.y[2 * threads + t] = lm::shuffle_down(mine, 9);
    p.y[3 * threads + t] = lm::ballot(mine % 2 != 0);
    p.y[4 * threads + t] = lm::block_any(mine == static_cast<unsigned>(p.n)) ? 1 : 0;
}

// y [32,4+4+2+2]: what each lane gets of the matrices in x, plain and transposed, by four and by two
LM_KERNEL(matrices, WordArgs, p, 32) {
    LM_SHARED(unsigned, rows, [32][4]);
    const int lane = threadIdx.x;
    for (int i = 0; i < 4; ++i) rows[lane][i] = p.x[4 * lane + i];
    lm::block_sync();
    unsigned four[4], transposed_four[4], two[2], transposed_two[2];
    lm::load_matrix(four, rows[lane]);
    lm::load_matrix<true>(transposed_four, rows[lane]);
    lm::load_matrix(two, rows[lane]);
    lm::load_matrix<true>(transposed_two, rows[lane]);
    unsigned* y = p.y + 12 * lane;
    for (int i = 0; i < 4; ++i) {
        y[i] = four[i];
        y[4 + i] = transposed_four[i];
    }
    for (int i = 0; i < 2; ++i) {
        y[8 + i] = two[i];
        y[10 + i] = transposed_two[i];
    }
}

struct FragmentArgs {
    float* d;           // [32,4] read and written
    const unsigned* a;  // [32,4]
    const unsigned* b;  // [32,2]
};

template <bool BF16>
static __device__ __forceinline__ void product(const FragmentArgs& p) {
    const int lane = threadIdx.x;
    float d[4];
    unsigned a[4], b[2];
    for (int i = 0; i < 4; ++i) {
        d[i] = p.d[4 * lane + i];
        a[i] = p.a[4 * lane + i];
    }
    for (int i = 0; i < 2; ++i) b[i] = p.b[2 * lane + i];
    if (BF16)
        lm::mma_bf16(d, a, b);
    else
        lm::mma_tf32(d, a, b);
    for (int i = 0; i < 4; ++i) p.d[4 * lane + i] = d[i];
}

LM_KERNEL(product_tf32, FragmentArgs, p, 32) { product<false>(p); }
LM_KERNEL(product_bf16, FragmentArgs, p, 32) { product<true>(p); }

struct FormatArgs {
    unsigned* y;
    const float* x;
    int n;
};

// y [4,n]: tf32_round, bf16_round, bf16_pack(x[i], x[i+1]), bits of bf16_low + bf16_high of that pair
LM_KERNEL(formats, FormatArgs, p, 256) {
    const int i = 256 * blockIdx.x + threadIdx.x;
    if (i >= p.n) return;
    const unsigned pair = lm::bf16_pack(p.x[i], p.x[(i + 1) % p.n]);
    p.y[i] = lm::tf32_round(p.x[i]);
    p.y[p.n + i] = lm::bf16_round(p.x[i]);
    p.y[2 * p.n + i] = pair;
    p.y[3 * p.n + i] = __float_as_uint(lm::bf16_low(pair) + lm::bf16_high(pair));
}

// y [n,4]: four random words for each [counter x, y, z, w, key0, key1] of x
LM_KERNEL(random_words, WordArgs, p, 32) {
    const int t = threadIdx.x;
    if (t >= p.n) return;
    const unsigned* x = p.x + 6 * t;
    const uint4 words = lm::philox(make_uint4(x[0], x[1], x[2], x[3]), x[4], x[5]);
    p.y[4 * t] = words.x;
    p.y[4 * t + 1] = words.y;
    p.y[4 * t + 2] = words.z;
    p.y[4 * t + 3] = words.w;
}

// y [3,4*threads]: x copied 4, 8 and 16 bytes at a time, zeros from element n on
LM_KERNEL(copies, WordArgs, p, 64) {
    LM_SHARED(unsigned, tile, [3][256]);
    const int first = 4 * threadIdx.x;
    for (int i = first; i < first + 4; ++i) lm::async_copy<4>(&tile[0][i], p.x + i, i < p.n);
    for (int i = first; i < first + 4; i += 2) lm::async_copy<8>(&tile[1][i], p.x + i, i < p.n);
    lm::async_copy<16>(&tile[2][first], p.x + first, first < p.n);
    lm::async_commit();
    lm::async_wait<0>();
    for (int row = 0; row < 3; ++row)
        for (int i = first; i < first + 4; ++i) p.y[256 * row + i] = tile[row][i];
}
