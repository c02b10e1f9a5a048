// sgemm: c = a b, one thread per element of c, tiles of 16x16 in shared memory.
//   c [m,n] float written     a [m,k], b [k,n] float read, all row by row
//   launch   grid (ceil(n/16), ceil(m/16)), block (16, 16)
#include "primitives.cuh"

struct SgemmArgs {
    float* c;
    const float* a;
    const float* b;
    int m, n, k;
};

LM_KERNEL(sgemm, SgemmArgs, p, 256) {
    LM_SHARED(float, a_tile, [16][17]);
    LM_SHARED(float, b_tile, [16][17]);
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = 16 * blockIdx.y + y, column = 16 * blockIdx.x + x;
    float sum = 0;
    for (int k = 0; k < p.k; k += 16) {
        a_tile[y][x] = row < p.m && k + x < p.k ? p.a[row * p.k + k + x] : 0.0f;
        b_tile[y][x] = k + y < p.k && column < p.n ? p.b[(k + y) * p.n + column] : 0.0f;
        lm::block_sync();
        for (int i = 0; i < 16; ++i) sum = fmaf(a_tile[y][i], b_tile[i][x], sum);
        lm::block_sync();
    }
    if (row < p.m && column < p.n) p.c[row * p.n + column] = sum;
}
