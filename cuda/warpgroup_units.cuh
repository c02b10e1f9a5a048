// What a warpgroup leaves of its 128 rows of a tile in fp32 (warpgroup_gemm.cuh), which are a unit, for a BatchNorm behind
// the convolution: moments of what conv_fprop stores (moments.cuh).
//
//   group   the 32 rows of a warp, which takes them from its registers, 32 columns after the other, as it stores them
//   unit    the four warps meet at a barrier of their own; then a thread merges the groups of a column
//   memory  of two tiles in turns: a warp may write what it leaves of the next one while others still read
//   bits    those of batch_moments (batch_norm.cuh): the rows and the order are the same
#pragma once
#include "conv.cuh"
#include "warpgroup_gemm.cuh"

namespace lm {

// Where no BatchNorm needs more conv_fprop stores with any epilogue.
struct NoUnits {
    static constexpr bool ARE_LEFT = false;
};

#if LM_WARPGROUPS

template <class T>
struct UnitMemory {
    static constexpr int BUFFERS = 2, TERMS = 2, UNITS = T::M / UNIT_ROWS;
    static_assert(T::M % UNIT_ROWS == 0 && UNIT_ROWS == WARPGROUP, "a warpgroup has a unit");

    float groups[BUFFERS][UNITS][GROUPS][TERMS][T::N];
    unsigned long long met[UNITS];  // barriers
};

// The unit of a thread in the tile at hand.
template <class T>
struct UnitOfTile {
    UnitMemory<T>& memory;
    unsigned turn = 0;  // of the buffers; the parity of the barrier's phase, too

    // Called by all threads; a block_sync makes the barriers known.
    LM_MEMBER explicit UnitOfTile(UnitMemory<T>& memory) : memory(memory) {
        if (threadIdx.x == 0)
            for (int i = 0; i < UnitMemory<T>::UNITS; ++i) barrier_init(&memory.met[i], GROUPS);
    }

    LM_MEMBER static int consumer() { return static_cast<int>(threadIdx.x) - T::PRODUCERS; }
    LM_MEMBER static int number() { return consumer() / WARPGROUP; }
    LM_MEMBER static int thread() { return consumer() % WARPGROUP; }  // of those of the unit

    // Terms of the warp's group, or of number g of the unit.
    LM_MEMBER float* group(int g) const { return memory.groups[turn][number()][g][0]; }
    LM_MEMBER float* own_group() const { return group(consumer() / WARP % GROUPS); }

    // Until all groups are there.
    LM_MEMBER void meet() const {
        warp_sync();
        if (lane_of_warp() == 0) barrier_arrive(&memory.met[number()]);
        barrier_wait(&memory.met[number()], turn);
    }

    LM_MEMBER void advance() { turn ^= 1u; }
};

// ---- moments --------------------------------------------------------------------------------------------------------

// Stores 32 columns of a warp's rows after the other, with their bias, and leaves the moments of each in `group`.  `c` is the
// warp's first row, of which `count` are there, all of them if WHOLE.  Called by all lanes.
template <class T, bool WHOLE, int WORD = 0, class Product, class E>
LM_FN void store_and_group(Product& product, float* group, E* c, int count, int pitch, int n0, int columns,
                           const float* bias) {
    constexpr int RUN = 4;
    const ColumnsOf<Product, WORD> word(product);
    const int left = opaque(n0) + 32 * WORD, row = opaque(lane_of_warp()) / Product::LANES;
#pragma unroll
    for (int j = 0; j < word.COLUMNS; j += RUN) {
        const int column = left + word.n_of(j);
        if (column >= columns) continue;
        if (bias != nullptr) {
            float added[RUN];
            load<RUN>(added, bias + column);
#pragma unroll
            for (int i = 0; i < word.ROWS; ++i)
#pragma unroll
                for (int e = 0; e < RUN; ++e) product.set(i, WORD * word.COLUMNS + j + e, word.at(i, j + e) + added[e]);
        }
#pragma unroll
        for (int i = 0; i < word.ROWS; ++i) {
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e) values[e] = word.at(i, j + e);
            if (WHOLE || row + 8 * i < count) store<RUN>(c + (row + 8 * i) * pitch + column, values);
        }
    }
    store_group<T, WHOLE>(word, group + 32 * WORD, 0, count);
    if constexpr (WORD + 1 < T::N / 32)
        store_and_group<T, WHOLE, WORD + 1>(product, group, c, count, pitch, n0, columns, bias);
}

// The epilogue of conv_fprop that leaves moments: no ReLU and no residual.
template <class T>
struct MomentUnits {
    static constexpr bool ARE_LEFT = true;

    UnitOfTile<T> unit;

    // Of the tile from row m0 of `rows` and column n0 of a group on; `is_whole`: all of its rows are there.
    template <class Ring, class Product, class Image, class Maps, class Weights>
    LM_MEMBER void store_tile(Product& product, const ConvFpropArgs<Image, Maps, Weights>& p, int m0, int rows, int n0,
                              bool is_whole) {
        const ConvProblem& conv = p.problem;
        const int first_output = blockIdx.z * conv.outputs, first = m0 + Ring::row_of_warp(0);
        const int count = rows_within<GROUP_ROWS>(first, rows), pitch = conv.maps_pitch;
        const float* bias = p.epilogue.bias != nullptr ? p.epilogue.bias + first_output : nullptr;
        Maps* maps = p.maps + (static_cast<long long>(first) * pitch + first_output);
        if (is_whole)
            store_and_group<T, true>(product, unit.own_group(), maps, count, pitch, n0, conv.outputs, bias);
        else
            store_and_group<T, false>(product, unit.own_group(), maps, count, pitch, n0, conv.outputs, bias);
        unit.meet();
        const int n = unit.thread(), begin = m0 + unit.number() * UNIT_ROWS;
        if (n < T::N && n0 + n < conv.outputs && begin < rows) {
            const Moments all = merge_groups([&](int g) {
                const float* group = unit.group(g) + n;
                const int its = rows_within<GROUP_ROWS>(begin + g * GROUP_ROWS, rows);
                return Moments{static_cast<float>(its), group[0], group[T::N]};
            });
            float* to = p.moments + (2 * (begin / UNIT_ROWS) * pitch + first_output + n0 + n);
            to[0] = all.mean;
            to[pitch] = all.m2;
        }
        unit.advance();
    }
};

#endif

}  // namespace lm
