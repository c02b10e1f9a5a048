// Results of a warpgroup for a BatchNorm from its 128 rows of an fp32 tile (warpgroup_gemm.cuh), which are a unit:
// moments of what conv_fprop stores (moments.cuh), or sums of what conv_dgrad stores (gradient_sums.cuh).
//
//   group   the 32 rows of a warp, which takes them from its registers, some columns after the other
//   unit    the four warps meet at a separate barrier; then a thread merges the groups of a column
//   memory  of moments for two tiles in turns: a warp may write those of the next one while others still read; where sums
//           are left, warps meet before they write, too
//   bits    equal to those of the passes over memory (batch_norm.cuh): the rows and the order are the same
#pragma once
#include "conv_sums.cuh"
#include "warpgroup_gemm.cuh"

namespace lm {

// conv_fprop and conv_dgrad without a BatchNorm: they store with any epilogue.
struct NoUnits {
    static constexpr bool ARE_LEFT = false;
};

#if LM_WARPGROUPS

// BUFFERS for the results of alternating tiles.
template <class T, int BUFFERS>
struct UnitMemory {
    static constexpr int TERMS = 2, UNITS = T::M / UNIT_ROWS;
    static_assert(T::M % UNIT_ROWS == 0 && UNIT_ROWS == WARPGROUP && TERMS == GRADIENT_TERMS, "a row a thread");

    float groups[BUFFERS][UNITS][GROUPS][TERMS][T::N];
    unsigned long long met[UNITS];  // barriers
};

// The unit of a thread in the current tile.
template <class T, int BUFFERS>
struct UnitOfTile {
    UnitMemory<T, BUFFERS>& memory;
    unsigned phase = 0;  // of the barrier, its parity

    // Called by all threads; a block_sync makes the barriers known.
    LM_MEMBER explicit UnitOfTile(UnitMemory<T, BUFFERS>& memory) : memory(memory) {
        if (threadIdx.x == 0)
            for (int i = 0; i < UnitMemory<T, BUFFERS>::UNITS; ++i) barrier_init(&memory.met[i], GROUPS);
    }

    // The number is recomputed at each use, because products leave few registers.
    LM_MEMBER static int consumer() { return opaque(static_cast<int>(threadIdx.x)) - T::PRODUCERS; }
    LM_MEMBER static int number() { return consumer() / WARPGROUP; }
    LM_MEMBER static int thread() { return consumer() % WARPGROUP; }  // of those of the unit

    // Return the terms of the warp's group, written before the threads meet, and of group g of the unit, read
    // afterwards.
    LM_MEMBER float* own_group() const {
        return memory.groups[phase % BUFFERS][number()][consumer() / WARP % GROUPS][0];
    }
    LM_MEMBER const float* group(int g) const { return memory.groups[(phase ^ 1u) % BUFFERS][number()][g][0]; }

    // Waits until all threads of the unit are here.
    LM_MEMBER void meet() {
        warp_sync();
        if (lane_of_warp() == 0) barrier_arrive(&memory.met[number()]);
        barrier_wait(&memory.met[number()], phase);
        phase ^= 1u;
    }
};

// ---- moments --------------------------------------------------------------------------------------------------------

// Stores 32 columns of a warp's rows after the other, with their bias, and writes the moments of each to `group`.  `c`
// is the warp's first row, of which `count` exist, all of them if WHOLE.  Called by all lanes.
template <class T, bool WHOLE, int WORD = 0, class Product, class E>
LM_FN void store_and_group(Product& product, float* group, E* c, int count, int pitch, int n0, int columns,
                           const float* bias) {
    constexpr int RUN = 4;
    const ColumnsOf<Product, WORD> word(product);
    const int first = opaque(n0) + 32 * WORD, row = opaque(lane_of_warp()) / Product::LANES;
#pragma unroll
    for (int j = 0; j < word.COLUMNS; j += RUN) {
        const int column = first + word.n_of(j);
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

// The epilogue of conv_fprop that computes moments: no ReLU and no residual.
template <class T>
struct MomentUnits {
    static constexpr bool ARE_LEFT = true;
    using Memory = UnitMemory<T, 2>;

    UnitOfTile<T, 2> unit;

    // Handles the tile from row m0 of `rows` and column n0 of a group on; `is_whole`: all of its rows exist.
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
    }
};

// ---- sums -----------------------------------------------------------------------------------------------------------

// The epilogue of conv_dgrad that computes sums, for one phase: rows of C are consecutive pixels.
template <class T, class E>
struct SumUnits {
    static constexpr bool ARE_LEFT = true;
    static constexpr int RUN = 4, AT_ONCE = 4;  // columns side by side, and rows, of a lane
    static constexpr int NUMBERS = 4;           // of a column: mean, inv_std, factor and bias
    static constexpr int AHEAD_FROM = 2;        // runs, whose registers take x of the next one
    using Values = float[AT_ONCE][RUN];
    using Memory = UnitMemory<T, 1>;
    using Numbers = float[NUMBERS][T::N];

    const NormGradient<E>& norm;
    UnitOfTile<T, 1> unit;
    Numbers* numbers;  // of each unit

    // The places of a lane's elements in the image, from the table of the tile's rows.  Absent rows and columns are
    // replaced by existing ones, so that no load has a condition; places are recomputed at each use, since the tile
    // leaves few registers.
    struct Places {
        const int* pixels;  // of the tile; -1 where a row is not there
        int n0, columns;    // of the tile in the group

        LM_MEMBER int pixel(int i) const {
            const int thread = UnitOfTile<T, 1>::consumer();
            return pixels[thread / WARP * WARP + thread % WARP / 4 + 8 * i];
        }
        LM_MEMBER int row(int i) const { return max(pixel(i), 0); }
        LM_MEMBER bool has_row(int i) const { return pixel(i) >= 0; }
        LM_MEMBER int of(int n) const { return min(opaque(n0) + n, columns - RUN); }
        LM_MEMBER bool has(int n) const { return opaque(n0) + n < columns; }
    };

    // Starts, before the product, the copies of the numbers of `columns` columns from `channel` on.
    LM_MEMBER void begin(int channel, int columns) const {
        constexpr int CHUNKS = T::N / 4;
        static_assert(NUMBERS * CHUNKS <= WARPGROUP, "a thread has a copy");
        const int number = unit.thread() / CHUNKS, n = unit.thread() % CHUNKS * 4;
        if (number < NUMBERS) {
            const float* from = number == 0   ? norm.mean
                                : number == 1 ? norm.inv_std
                                : number == 2 ? norm.epilogue.factor
                                              : norm.epilogue.bias;
            const bool inside = n < columns && (number < 2 || norm.epilogue.relu);
            async_copy<16>(&numbers[unit.number()][number][n], from + channel + n, inside);
        }
        async_commit();
    }

    // Handles tile number `tile` of a group whose first channel is `channel`; pixels are the places of the tile's rows.
    // It is stored first, so that later loads of x wait for no condition.
    template <class Product, class Weights, class Extent>
    LM_MEMBER void store_tile(Product& product, const ConvDgradArgs<E, Weights>& p, const Extent& extent, int tile,
                              int channel, const int* pixels) {
        constexpr int RUNS = Product::COLUMNS / RUN, SUMS = GRADIENT_TERMS * RUN;
        static_assert(Product::ROWS == AT_ONCE && SUMS * Product::LANES == WARP, "lanes share the sums of a run");
        const ConvProblem& conv = p.problem;
        const Places places = {pixels, opaque(tile) % extent.across * T::N, conv.channels};
        async_wait<0>();
        unit.meet();  // the numbers of all threads are there, and none reads groups of the tile before any more
#pragma unroll
        for (int run = 0; run < RUNS; ++run) store_run(product, p, places, run);
        Values x[2];
        const auto fetch = [&](int run) {
            const E* from = norm.x + places.of(product.n_of(run * RUN));
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) load<RUN>(x[run % 2][i], from + places.row(i));
        };
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            const int n = product.n_of(run * RUN);
            if (run <= AHEAD_FROM) fetch(run);
            if (run >= AHEAD_FROM && run + 1 < RUNS) fetch(run + 1);
            float sums[SUMS];
            sum_run(sums, product, x[run % 2], n, run);
            const int its = share_lanes<Product::LANES>(sums);
            unit.own_group()[its / RUN * T::N + n + its % RUN] = sums[0];
        }
        unit.meet();
        const int n = unit.thread(), n0 = opaque(tile) % extent.across * T::N;
        const int begin = opaque(tile) / extent.across * T::M + unit.number() * UNIT_ROWS;
        if (n < T::N && n0 + n < conv.channels && begin < extent.rows) {
            float* to = norm.parts + (GRADIENT_TERMS * (begin / UNIT_ROWS) * conv.image_pitch + channel + n0 + n);
#pragma unroll
            for (int k = 0; k < GRADIENT_TERMS; ++k)
                to[k * conv.image_pitch] = sum_groups([&](int g) { return unit.group(g)[k * T::N + n]; });
        }
    }

  private:
    // Computes the sums of columns 4 run .. 4 run + 3 of the lane, from column n of the tile on; two at a time, with
    // their numbers in registers.
    template <int SUMS, class Product>
    LM_MEMBER void sum_run(float (&sums)[SUMS], const Product& product, const Values& x, int n, int run) const {
        constexpr int PAIR = 2;
        const float* of_run = &numbers[unit.number()][0][n];
#pragma unroll
        for (int first = 0; first < RUN; first += PAIR) {
            const float* its = of_run + opaque(first);
            const TermsOfColumns<PAIR> terms_of(
                its, its + T::N, {its + 2 * T::N, its + 3 * T::N, norm.epilogue.relu, norm.epilogue.largest_zero});
#pragma unroll
            for (int pair = 0; pair < PAIR; ++pair) {
                const int e = first + pair;
                float terms[GRADIENT_TERMS][AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) {
                    float y;
                    terms[0][i] = terms_of.gradient(pair, product.at(i, run * RUN + e), x[i][e], y);
                    terms[1][i] = terms[0][i] * y;
                }
#pragma unroll
                for (int k = 0; k < GRADIENT_TERMS; ++k) sums[k * RUN + e] = sum_apart(terms[k]);
            }
        }
    }

    // Stores these columns, and leaves the stored values in `product`; zeros in absent rows.
    template <class Product, class Weights>
    LM_MEMBER void store_run(Product& product, const ConvDgradArgs<E, Weights>& p, const Places& places,
                             int run) const {
        const int n = product.n_of(run * RUN), column = places.of(n);
        const auto set = [&](auto value) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
                for (int e = 0; e < RUN; ++e) product.set(i, run * RUN + e, value(i, e, product.at(i, run * RUN + e)));
        };
        const bool is_there = places.has(n);
        if (p.accumulate) {
            Values before;
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                // Other threads write the columns that are not this thread's.
                const E* blob = is_there && places.has_row(i) ? p.image : norm.x;
                load<RUN>(before[i], blob + (places.row(i) + column));
            }
            set([&](int i, int e, float value) { return before[i][e] + value; });
        }
        if (p.bottom_mask != nullptr) {
            unsigned bits[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const unsigned at = places.row(i) + column;
                bits[i] = p.bottom_mask[at / 8] >> at % 8;
            }
            set([&](int i, int e, float value) { return (bits[i] >> e & 1u) == 0 ? 0.0f : value; });
        }
        if (!places.has_row(AT_ONCE - 1))
            set([&](int i, int, float value) { return places.has_row(i) ? value : 0.0f; });
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e) values[e] = product.at(i, run * RUN + e);
            if (is_there && places.has_row(i)) store<RUN>(p.image + (places.row(i) + column), values);
        }
    }
};

#endif

}  // namespace lm
