// Common parts of the sums over windows by warpgroups (conv_warpgroup.cuh): the size of a product, the sources of rows
// and stages, and the stores of tiles.
#pragma once
#include "conv_fprop.cuh"
#include "warpgroup_gemm.cuh"

namespace lm {

#if LM_WARPGROUPS

// The size of a product: rows, k's, columns, tiles along N, all tiles.
struct Extent {
    int rows, depth, columns, across, tiles;
};

template <class T>
LM_FN Extent extent_of(int rows, int depth, int columns) {
    const int across = (columns + T::N - 1) / T::N;
    return {rows, depth, columns, across, (rows + T::M - 1) / T::M * across};
}

// Calls visit(i) for the rows i of A that this warp's lanes copy: 4 warp + n % 4 + 16 (n / 4), n from 0 on.
template <class T, class Visit>
LM_FN void each_row_of_warp(Visit visit) {
    warp_sync();  // all lanes have read those of the tile before
    for (int n = lane_of_warp(); n < T::M / 4; n += WARP)
        visit(static_cast<int>(threadIdx.x) / WARP * 4 + n % 4 + n / 4 * 16);
    warp_sync();
}

// Applies the epilogue and stores, 32 columns after the other.  row_of(m) is the offset of row m of the tile, or -1.
template <class Ring, int AT_ONCE, int WORD = 0, class Product, class E, class RowOf>
LM_FN void store_words(const Product& product, E* c, RowOf row_of, int n0, int columns, const Epilogue<E>& epilogue,
                       const unsigned char* bottom_mask = nullptr) {
    using Word = Tile<WARP, 32, WARP, 32, 1>;
    const ColumnsOf<Product, WORD> word(product);
    const int first = opaque(n0) + 32 * WORD;  // nothing is kept in registers from one word to the next
    store_tile<4, Word, AT_ONCE>(word, c, row_of, first, columns, epilogue, bottom_mask);
    if constexpr (WORD + 1 < Ring::COLUMNS / 32)
        store_words<Ring, AT_ONCE, WORD + 1>(product, c, row_of, n0, columns, epilogue, bottom_mask);
}

template <class T>
constexpr int ROWS_AT_ONCE = T::PRECISION == Precision::BF16_PACKED ? 1 : 2;  // that an epilogue has registers for

// Weights as tiles in memory, consecutive by k through all stages, tiles and groups: number_of(k) is the number of the
// first one of the stage from k on.
template <class Weights, class NumberOf>
LM_FN auto tiles_from(const Weights* tiles, NumberOf number_of) {
    const auto source_of = [=](int k) { return tiles + static_cast<long long>(number_of(k)) * WeightTile::COLUMNS; };
    return WholeStages<decltype(source_of)>(source_of);
}

#endif

}  // namespace lm
