// y = x, through a 2-D tile.  Planted: the column index leaves its row, and lands in the next.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void copy(const TwinArgs& p) {
    LM_SHARED(float, tile, [8][8]);
    const int t = threadIdx.x, row = SEEDED_BUGS && t == 8 ? 0 : t / 8, column = SEEDED_BUGS && t == 8 ? 8 : t % 8;
    tile[row][column] = p.x[t];
    p.y[t] = tile[row][column];
}
TWINS(copy, 64)
