// y = x, through a 2-D tile.  Bug: the column index leaves its row, and lands in the next.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void copy(const PairArgs& p) {
    LM_SHARED(float, tile, [8][8]);
    const int t = threadIdx.x, row = SEEDED && t == 8 ? 0 : t / 8, column = SEEDED && t == 8 ? 8 : t % 8;
    tile[row][column] = p.x[t];
    p.y[t] = tile[row][column];
}
PAIR(copy, 64)
