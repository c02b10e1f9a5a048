// The matrix engine of sm_90a: C[M,N] = A[M,K] B[K,N]; loads and products run in different warps, which barriers
// synchronize.
//
//   producers   the first four warps: A in fp32 by asynchronous copies, B through registers, where it is rounded
//   consumers   a warpgroup for each 128 rows of the tile: A from shared memory into registers, where it is rounded, then
//               products with B where it lies
//   packed      if both operands are bfloat16: producers copy both, weights by whole stages (weight_tiles.cuh), and two
//               warpgroups multiply them in place, with half of the columns each, or half of the rows
//   ring        STAGES of A and B, 32 words deep, with two barriers each: `filled` and `emptied`
//   tiles       a block takes every gridDim.x-th, and loads the next one while it stores this one
//   order       k rises, in products of 8 (tf32) or 16 (bf16), each added to the sum of those before: no tile and no place
//               in it changes a bit.  The bits are those of sm_90a: mma.cuh adds in another way on a GPU
//
// A lies as in implicit_gemm.cuh; B in rows of 32 k's whose columns are in the order of Product::column_of_row, in fp32 or,
// of eight k's 0 1 2 3 4 5 6 7, in bfloat16 as 0 4 1 5 2 6 3 7: the pairs of mma.cuh.
#pragma once
#include "implicit_gemm.cuh"
#include "mma.cuh"
#include "warpgroup.cuh"
#include "warpgroup_operands.cuh"
#include "weight_tiles.cuh"

namespace lm {

// A tile whose consumer warps have 32 rows each, and how many registers a thread has.
template <int M, int N, int BLOCKS, int PRODUCER_REGISTERS_, int CONSUMER_REGISTERS_, Precision PRECISION_>
struct WarpgroupTile : Tile<M, N, WARP, N, BLOCKS> {
    static constexpr Precision PRECISION = PRECISION_;
    static constexpr int PRODUCERS = WARPGROUP, CONSUMERS = M, ALL_THREADS = PRODUCERS + CONSUMERS;
    static constexpr int VECTOR = 4;                 // elements of a copy
    static constexpr bool ROWS_IN_REGISTERS = true;  // of A, as producers know them
    static constexpr int STAGES = 4;
    static constexpr int FILLING =
        2 * PRODUCERS;  // arrivals that fill a stage: each producer's copies of A, and itself
    static constexpr int B_ROW_BYTES = (PRECISION == Precision::BF16 ? 2 : 4) * DEPTH;
    static constexpr int A_BYTES = 4 * M * DEPTH, STAGE_BYTES = A_BYTES + N * B_ROW_BYTES;
    static constexpr int ALIGNMENT = 8 * 128;  // of B for products
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + ALIGNMENT;
    static constexpr int PRODUCER_REGISTERS = PRODUCER_REGISTERS_, CONSUMER_REGISTERS = CONSUMER_REGISTERS_;
    static constexpr int LAUNCH_REGISTERS = 65536 / (ALL_THREADS * BLOCKS) / 8 * 8;
    static_assert(PRODUCERS * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= ALL_THREADS * LAUNCH_REGISTERS,
                  "what consumers take, producers have given");
};

template <Precision PRECISION>
using W256x128 = WarpgroupTile<256, 128, 1, 136, 184, PRECISION>;
template <Precision PRECISION>
using W128x64 = WarpgroupTile<128, 64, 2, 112, 144, PRECISION>;

// A tile of packed operands: two consumer warpgroups have half of the columns or rows each, a warp 16 of each 64 rows.
template <int M, int N, int PRODUCER_REGISTERS_, int CONSUMER_REGISTERS_, bool HALVES_ROWS = false>
struct PackedWarpgroupTile : Tile<M, N, M / (HALVES_ROWS ? 8 : 4), N / (HALVES_ROWS ? 1 : 2), 1> {
    static constexpr Precision PRECISION = Precision::BF16_PACKED;
    static constexpr int PRODUCERS = WARPGROUP, CONSUMERS = 2 * WARPGROUP, ALL_THREADS = PRODUCERS + CONSUMERS;
    static constexpr int VECTOR = PACKED;
    static constexpr bool ROWS_IN_REGISTERS = false;
    static constexpr int STAGES = 3;
    static constexpr int FILLING = PRODUCERS;
    static constexpr int ROW_BYTES = 4 * DEPTH, A_BYTES = M * ROW_BYTES, B_BYTES = N * ROW_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int ALIGNMENT = 8 * ROW_BYTES;  // of both operands for products
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + ALIGNMENT;
    static constexpr int PRODUCER_REGISTERS = PRODUCER_REGISTERS_, CONSUMER_REGISTERS = CONSUMER_REGISTERS_;
    static constexpr int LAUNCH_REGISTERS = 65536 / ALL_THREADS / 8 * 8;
    static_assert(PRODUCERS * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= ALL_THREADS * LAUNCH_REGISTERS,
                  "what consumers take, producers have given");
};

using W192x256 = PackedWarpgroupTile<192, 256, 40, 232>;
// Outputs are the rows of a weight gradient, and often a multiple of 256; columns of 3 x 3 taps are one of 192.  Producers
// need registers for its windows.
using W256x192Wgrad = PackedWarpgroupTile<256, 192, 56, 224, true>;
using W256x128Wgrad = PackedWarpgroupTile<256, 128, 56, 224, true>;

#if LM_WARPGROUPS

// ---- the ring -------------------------------------------------------------------------------------------------------

// The current stage of a ring, for producers or for consumers.
template <class T>
struct StagesOf {
    unsigned char* stages;
    unsigned long long *filled, *emptied;
    int stage = 0;
    unsigned parity = 0;  // of the phase of the stage's barriers

    LM_MEMBER StagesOf(unsigned char* stages, unsigned long long* filled, unsigned long long* emptied)
        : stages(stages), filled(filled), emptied(emptied) {}

    LM_MEMBER unsigned char* at_hand() const { return stages + stage * T::STAGE_BYTES; }
    LM_MEMBER void wait_until_empty() const { barrier_wait(&emptied[stage], parity ^ 1u); }
    LM_MEMBER void wait_until_full() const { barrier_wait(&filled[stage], parity); }

    // Releases a stage to the producers: the lanes of a consumer's warp no longer need their data of a stage.
    LM_MEMBER void give_back(int stage) const {
        warp_sync();
        if (lane_of_warp() == 0) barrier_arrive(&emptied[stage]);
    }

    LM_MEMBER void advance() {
        if (++stage == T::STAGES) stage = 0, parity ^= 1u;
    }
};

template <class T, bool A_ROWS>
struct WarpgroupRing : StagesOf<T> {
    // The sums of a thread, and their places in C; m_of counts the producers' warps as if they had rows.
    using Product = Mma<T, A_ROWS, A_ROWS, T::PRECISION>;
    static constexpr bool BF16 = T::PRECISION == Precision::BF16;
    static constexpr int K = BF16 ? 16 : 8;  // of a product

    // B from rows of a matrix, or from consecutive columns of a Source.
    template <class E>
    using RowsOfB = RoundedRows<T, Product>;
    template <class Source>
    using ColumnsOfB = TransposedRows<T, Source>;

    // A consumer warp's part of the tile: WARP_ROWS rows, of all columns.
    static constexpr int WARP_ROWS = WARP, COLUMNS = T::N;
    LM_MEMBER static int row_of_warp(int i) { return static_cast<int>(threadIdx.x) / WARP * WARP - T::PRODUCERS + i; }
    LM_MEMBER static int first_column() { return 0; }

    // Returns the row of the tile of element i of a product.
    LM_MEMBER static int row_of_tile(const Product& product, int i) { return product.m_of(i) - T::PRODUCERS; }

    using StagesOf<T>::StagesOf;

    // Loads stages for k in [0, depth).
    template <class A, class B>
    LM_MEMBER void fill(A& a, B& b, int depth) {
        b.fetch();
#pragma unroll 1
        for (int k = 0; k < depth; k += DEPTH) {
            unsigned char* to = this->at_hand();
            this->wait_until_empty();
            a.advance();
#pragma unroll
            for (int i = 0; i < A::COPIES; ++i) a.copy(reinterpret_cast<float*>(to), i);
            barrier_arrive_behind_copies(&this->filled[this->stage]);
            b.place(to + T::A_BYTES);
            proxy_fence();
            barrier_arrive(&this->filled[this->stage]);
            b.fetch();  // beyond the last one these are zeros
            this->advance();
        }
    }

    // Waits for the last copies, and so for the arrivals behind them.
    LM_MEMBER void finish() const {
        async_commit();
        async_wait<0>();
    }

    // += the products of stages for k in [0, depth).  `thread` may be opaque, so that no register keeps places between tiles.
    LM_MEMBER void multiply(Product& product, int depth, int thread = static_cast<int>(threadIdx.x)) {
#pragma unroll 1
        for (int k = depth; k > 0; k -= DEPTH) {
            this->wait_until_full();
            add(product, this->at_hand(), thread);
            this->give_back(this->stage);
            this->advance();
        }
    }

    // Adds a stage in parts of two products along k: fragments of one part fit into the registers.
    LM_MEMBER static void add(Product& product, const unsigned char* stage, int thread) {
#pragma unroll
        for (int part = 0; part < DEPTH / K; part += 2) {
            unsigned a[2][Product::BLOCKS_M][4];
#pragma unroll
            for (int k = 0; k < 2; ++k)
#pragma unroll
                for (int i = 0; i < Product::BLOCKS_M; ++i)
                    load_fragment(a[k][i], product, reinterpret_cast<const float*>(stage), i, (part + k) * K, thread);
            products_begin();
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const unsigned long long b = shared_rows<T::B_ROW_BYTES>(stage + T::A_BYTES, part + k);
#pragma unroll
                for (int i = 0; i < Product::BLOCKS_M; ++i) {
                    if constexpr (BF16)
                        product_bf16(product.sum[i], a[k][i], b);
                    else
                        product_tf32(product.sum[i], a[k][i], b);
                }
            }
            products_commit();
#pragma unroll
            for (int i = 0; i < Product::BLOCKS_M; ++i) products_wait<0>(product.sum[i]);
        }
    }

    // Loads, for this warp's block i of 16 rows, K k's from `k` on.
    LM_MEMBER static void load_fragment(unsigned (&fragment)[4], const Product& product, const float* tile, int i,
                                        int k, int thread) {
        const int lane = thread % WARP, first = (thread - T::PRODUCERS) / WARP * WARP;
        unsigned eights[K / 8][4];
#pragma unroll
        for (int eight = 0; eight < K / 8; ++eight) {
            const int at = k + 8 * eight;
            if constexpr (A_ROWS) {
                load_matrix(eights[eight], tile + (first + 16 * i) * DEPTH + (in_rows(lane % 16, lane / 16 * 4) ^ at));
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float both[2];  // rows of C side by side
                    const int pair = in_columns<T::M>(lane % 4, row_of_tile(product, 0) - first);
                    load<2>(both, tile + first + (pair ^ 8 * i) + (at + 4 * half) * T::M);
#pragma unroll
                    for (int e = 0; e < 2; ++e) eights[eight][2 * half + e] = __float_as_uint(both[e]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            if constexpr (BF16)
                fragment[r] =
                    bf16_pack(__uint_as_float(eights[r / 2][r % 2]), __uint_as_float(eights[r / 2][r % 2 + 2]));
            else
                fragment[r] = tf32_round(__uint_as_float(eights[0][r]));
        }
    }
};

// B in stages with the same layout in memory and in the ring, each of which one thread copies at once: weights.
// source_of(k) returns the address of the stage from k on.
template <class SourceOf>
struct WholeStages {
    SourceOf source_of;

    LM_MEMBER explicit WholeStages(SourceOf source_of) : source_of(source_of) {}
};

// A packed tile of columns in consecutive panels of PANEL.
template <int WIDTH, int THREADS, int V, class Source, int PANEL>
struct PanelsOfColumns : Columns<WIDTH, THREADS, V, Source> {
    using Columns<WIDTH, THREADS, V, Source>::Columns;

    LM_MEMBER void copy(float* tile, int i) {
        bool inside;
        const auto* from = this->source_of(i, inside);
        const int column = my_column<WIDTH, V>(), row = this->row_of(i);
        const int place = column / PANEL * (PANEL * DEPTH) + in_packed_columns<PANEL>(row, column % PANEL);
        async_copy<4 * COPY_WORDS<V>>(tile + place, from, inside);
    }
};

// A packed tile of columns in panels, of which each thread has eight consecutive columns, from first_column() on, in
// every STRIDE-th k from first_k() on.
template <int WIDTH, int THREADS, int PANEL>
struct PanelsOfTile {
    static constexpr int COLUMNS = PANEL, CHUNKS = PANEL / PACKED, STRIDE = THREADS / CHUNKS;
    static constexpr int PANELS = WIDTH / PANEL, ROWS = STAGE_DEPTH<PACKED> / STRIDE;  // of a thread

    LM_MEMBER static int first_column() { return static_cast<int>(threadIdx.x) % CHUNKS * PACKED; }
    LM_MEMBER static int first_k() { return static_cast<int>(threadIdx.x) / CHUNKS; }
};

// The copies of a thread.  Source:
//      advance()             as of all loads; begin_row(row): the copies of k number `row` come next; called by all lanes
//      at(panel, inside)     this thread's elements of a panel in that row, and whether they are there
//
// Rows lie in the order of place_eight, so that each product sums the same k's in the same order as fp32 tiles, in
// which slices of a batch sum some windows.
template <class Panels, class Source>
struct PanelCopies {
    static constexpr int COPIES = Panels::ROWS * Panels::PANELS;

    Source source;
    int place;  // of the first copy, in words

    LM_MEMBER explicit PanelCopies(const Source& source) : source(source) {
        const int k = Panels::first_k(), row = k / 8 * 8 + k % 4 * 2 + k / 4 % 2;
        place = in_packed_columns<Panels::COLUMNS>(row, Panels::first_column());
    }

    LM_MEMBER void advance() { source.advance(); }

    LM_MEMBER void copy(float* tile, int i) {
        const int row = i / Panels::PANELS, panel = i % Panels::PANELS;
        if (panel == 0) source.begin_row(row);
        bool inside;
        const auto* from = source.at(panel, inside);
        const int behind = (row * Panels::STRIDE + panel * STAGE_DEPTH<PACKED>)*(Panels::COLUMNS / 2);
        async_copy<4 * COPY_WORDS<PACKED>>(tile + place + behind, from, inside);
    }
};

// The ring of packed operands.  Products read the data of 16-byte copies by another path: each producer waits for its
// own copies of a stage, fences them and only then arrives, one stage late, so that the copies of two stages are in
// flight. Bulk copies do not need this: they use the same path as products, and the barrier counts their bytes.
template <class T, bool A_ROWS, bool B_ROWS>
struct PackedRing : StagesOf<T> {
    static constexpr int WARP_ROWS = T::WARP_M, COLUMNS = T::WARP_N;
    static constexpr bool HALVES_ROWS = T::WARPS_N == 1;
    using Product = Mma<Tile<T::M, COLUMNS, WARP_ROWS, COLUMNS, 1>, true, B_ROWS, T::PRECISION>;
    static constexpr int K = 16, ROWS = 64;                               // of a product
    static constexpr int PANEL = 64, PANEL_BYTES = PANEL * T::ROW_BYTES;  // columns that lie together

    template <class Source>
    using ColumnsOfB = PanelsOfColumns<T::N, T::PRODUCERS, T::VECTOR, Source, PANEL>;

    // The thread number is recomputed at each use, because products leave few registers.
    LM_MEMBER static unsigned thread() { return static_cast<unsigned>(opaque(static_cast<int>(threadIdx.x))); }
    LM_MEMBER static int consumer() { return static_cast<int>((thread() - T::PRODUCERS) / WARPGROUP); }
    LM_MEMBER static int first_row() { return HALVES_ROWS ? consumer() * (T::M / 2) : 0; }
    LM_MEMBER static int row_of_warp(int i) {
        return first_row() + i / 16 * ROWS + static_cast<int>(thread() / WARP % 4 * 16) + i % 16;
    }
    LM_MEMBER static int first_column() { return HALVES_ROWS ? 0 : consumer() * COLUMNS; }
    LM_MEMBER static int row_of_tile(const Product&, int i) {
        return row_of_warp(8 * i) + static_cast<int>(thread() % WARP / 4);
    }

    bool is_behind = false;  // the stage before is not announced

    using StagesOf<T>::StagesOf;

    template <class A, class B>
    LM_MEMBER void fill(A& a, B& b, int depth) {
#pragma unroll 1
        for (int k = 0; k < depth; k += Product::STAGE_DEPTH) {
            float* to = reinterpret_cast<float*>(this->at_hand());
            this->wait_until_empty();
            start(b, to + T::A_FLOATS, k);
            start(a, to, k);
            async_commit();
            if (is_behind) announce<1>();
            is_behind = true;
            this->advance();
        }
    }

    // Ends all tiles.
    LM_MEMBER void finish() const {
        if (is_behind) announce<0>();
    }

    // Starts this thread's copies of an operand for the stage from k on.
    template <class Operand>
    LM_MEMBER void start(Operand& operand, float* to, int) const {
        operand.advance();
#pragma unroll
        for (int i = 0; i < Operand::COPIES; ++i) operand.copy(to, i);
    }

    template <class SourceOf>
    LM_MEMBER void start(WholeStages<SourceOf>& operand, float* to, int k) const {
        static_assert(T::B_BYTES == WeightTile::BYTES && PANEL == WeightTile::PANEL, "as it lies in memory");
        if (threadIdx.x != 0) return;
        barrier_expect(&this->filled[this->stage], T::B_BYTES);
        bulk_copy(to, operand.source_of(k), T::B_BYTES, &this->filled[this->stage]);
    }

    // Arrives for the stage before, once all copies except those of the newest NEWER stages have landed.
    template <int NEWER>
    LM_MEMBER void announce() const {
        async_wait<NEWER>();
        proxy_fence();
        barrier_arrive(&this->filled[before(1)]);
    }

    // A stage's products are in flight while those of the next one begin.
    LM_MEMBER void multiply(Product& product, int depth) {
#pragma unroll 1
        for (int k = depth; k > 0; k -= Product::STAGE_DEPTH) {
            this->wait_until_full();
            const unsigned char *a = this->at_hand() + first_row() * T::ROW_BYTES,
                                *b = this->at_hand() + T::A_BYTES + first_column() * T::ROW_BYTES;
            products_begin();
#pragma unroll
            for (int part = 0; part < Product::STAGE_DEPTH / K; ++part) {
                const unsigned long long columns = operand<B_ROWS>(b, part);
#pragma unroll
                for (int i = 0; i < Product::BLOCKS_M; ++i)
                    product_bf16<!A_ROWS, !B_ROWS>(product.sum[i], operand<A_ROWS>(a + i * ROWS * T::ROW_BYTES, part),
                                                   columns);
            }
            products_commit();
            if (k < depth) {
                products_wait<1>();
                this->give_back(before(1));
            }
            this->advance();
        }
#pragma unroll
        for (int i = 0; i < Product::BLOCKS_M; ++i) products_wait<0>(product.sum[i]);
        if (depth > 0) this->give_back(before(1));
        product.arrange();
    }

  private:
    // Names 64 rows or columns, or the first of more, for product number `part` of a stage.
    template <bool IN_ROWS>
    LM_MEMBER static unsigned long long operand(const unsigned char* first, int part) {
        return IN_ROWS ? shared_rows<T::ROW_BYTES>(first, part) : shared_columns<PANEL_BYTES>(first, part);
    }

    // Returns the stage `count` before the current one.
    LM_MEMBER int before(int count) const { return (this->stage + T::STAGES - count) % T::STAGES; }
};

// Loads initial sums from `c`, in the order of products.  row_of(i) is the offset of row i of the thread, or -1;
// columns from `left` on, counted from `c`, are absent.
template <class Product, class RowOf>
LM_FN void load_sums(Product& product, const float* c, RowOf row_of, int left) {
    const int first = lane_of_warp() % 4 * 2;
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int row = row_of(i);
#pragma unroll
        for (int j = 0; j < Product::BLOCKS_N; ++j) {
            float both[2] = {};
            if (row >= 0 && first + 8 * j < left) load<2>(both, c + row + first + 8 * j);
#pragma unroll
            for (int e = 0; e < 2; ++e) product.sum[i / 2][j][i % 2 * 2 + e] = both[e];
        }
    }
}

// The ring of a tile, and whether A and B come in rows.
template <class T, bool A_ROWS, bool B_ROWS, Precision PRECISION = T::PRECISION>
struct RingOf {
    using Ring = WarpgroupRing<T, A_ROWS>;
};
template <class T, bool A_ROWS, bool B_ROWS>
struct RingOf<T, A_ROWS, B_ROWS, Precision::BF16_PACKED> {
    using Ring = PackedRing<T, A_ROWS, B_ROWS>;
};

// ---- a block --------------------------------------------------------------------------------------------------------

// Producers call produce(ring, tile) and consumers consume(ring, tile) for each of the block's tiles.  `tiles`, and
// earlier writes of the first thread to shared memory, are visible to all.
template <class T, class Ring, class Produce, class Consume>
LM_FN void run_warpgroups(const int& tiles, Produce produce, Consume consume) {
    LM_DYN_SHARED(unsigned char, shared);
    LM_SHARED(unsigned long long, filled, [T::STAGES]);
    LM_SHARED(unsigned long long, emptied, [T::STAGES]);
    const auto beyond = reinterpret_cast<unsigned long long>(shared) % T::ALIGNMENT;
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; ++i) {
            barrier_init(&filled[i], T::FILLING);
            barrier_init(&emptied[i], T::CONSUMERS / WARP);
        }
        proxy_fence();  // for bulk copies, whose bytes they count
    }
    block_sync();
    Ring ring(shared + (T::ALIGNMENT - beyond) % T::ALIGNMENT, filled, emptied);
    if (threadIdx.x < T::PRODUCERS) {
        registers_give<T::PRODUCER_REGISTERS>();
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) produce(ring, tile);
        ring.finish();
    } else {
        registers_take<T::CONSUMER_REGISTERS>();
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) consume(ring, tile);
    }
}

// Columns 32 WORD to 32 WORD + 31 of a product, so that an epilogue needs registers for these only.
template <class Product, int WORD>
struct ColumnsOf {
    static constexpr int ROWS = Product::ROWS, COLUMNS = 32 / Product::LANES, LANES = Product::LANES;

    const Product& product;
    int first;  // column; the others lie at constant distances

    LM_MEMBER explicit ColumnsOf(const Product& product) : product(product), first(opaque(product.n_of(0))) {}

    LM_MEMBER int m_of(int i) const { return product.m_of(i); }
    LM_MEMBER int n_of(int j) const { return first + (product.n_of(j) - product.n_of(0)); }
    LM_MEMBER float at(int i, int j) const { return product.at(i, WORD * COLUMNS + j); }
};

#endif

}  // namespace lm
