// The matrix engine: C[M,N] = A[M,K] B[K,N], one tile of C per block, with operands gathered on their way into shared
// memory.
//
//   tile in shared memory     rows     [rows][32 of k]  a row runs along k, as memory does; 128 bytes
//                             columns  [32 of k][width] a row runs along m or n, as memory does
//   order                     k rises, always in the same steps: no tile and no place in it changes a bit
//   pipeline                  a ring of stages: while one is multiplied, the next are copied; one barrier a stage
//   product                   the work of a warp on a stage: ffma.cuh (fp32), mma.cuh (tensor cores)
//   elements                  of blobs may have 16 bits (element.cuh): they are widened on their way, so tiles are fp32;
//                             or both operands have 16 bits, and tiles are packed: two elements a word, 64 of k a stage
//
// 16-byte chunk j of row r lies at chunk j ^ (r & 7) in a tile of rows, packed or not, and at j ^ (r & 3) in a tile of
// columns: the lanes of a warp then use different banks in all products.
//
// A product stores runs of four neighbours of a row of C.  It may choose the order in which it reads columns of a tile
// of columns; rows of B in a tile of rows are placed in the same order (Product::column_of_row).
#pragma once
#include "element.cuh"

namespace lm {

constexpr int DEPTH = 32;  // of k in a tile, in words
constexpr int PACKED = 8;  // elements of 16 bits that are copied at once, as they are, to a packed tile

// Elements of k in a stage if V elements are copied at once, and words of such a copy.
template <int V>
constexpr int STAGE_DEPTH = V == PACKED ? 2 * DEPTH : DEPTH;
template <int V>
constexpr int COPY_WORDS = V == PACKED ? V / 2 : V;

// A block's tile of C, a warp's part of it, and the blocks per multiprocessor, which bound their registers.
template <int M_, int N_, int WARP_M_, int WARP_N_, int BLOCKS_>
struct Tile {
    static constexpr int M = M_, N = N_, WARP_M = WARP_M_, WARP_N = WARP_N_, BLOCKS = BLOCKS_;
    static constexpr int WARPS_N = N / WARP_N, THREADS = M / WARP_M * WARPS_N * WARP;
    static constexpr int A_FLOATS = M * DEPTH, STAGE_FLOATS = (M + N) * DEPTH;
};

LM_FN int in_rows(int row, int k) { return row * DEPTH + ((k / 4 ^ (row & 7)) * 4 + k % 4); }

// The same for row + i STRIDE, for a row below STRIDE.
template <int STRIDE>
LM_FN int in_rows(int row, int i, int k) {
    if constexpr (STRIDE == 4) return (in_rows(row, k) ^ (i & 1) * 16) + i * STRIDE * DEPTH;
    return STRIDE % 8 == 0 ? in_rows(row, k) + i * STRIDE * DEPTH : in_rows(row + i * STRIDE, k);
}

template <int WIDTH>
LM_FN int in_columns(int k, int column) {
    return k * WIDTH + ((column / 4 ^ (k & 3)) * 4 + column % 4);
}

// Returns the words of row k of a packed tile of columns from `column` (a multiple of 8) on.  Eight rows use all banks
// once.
template <int WIDTH>
LM_FN int in_packed_columns(int k, int column) {
    constexpr bool SHARED = WIDTH < 64;  // two rows of 64 bytes share the banks
    return k * (WIDTH / 2) + (column / 8 ^ (SHARED ? k / 2 & 3 : k & 7)) * 4;
}

LM_FN int lane_of_warp() { return static_cast<int>(threadIdx.x) % WARP; }

// Returns the start of the warp's part of the block's tile.
template <class T>
LM_FN int warp_m() {
    return static_cast<int>(threadIdx.x) / WARP / T::WARPS_N * T::WARP_M;
}

template <class T>
LM_FN int warp_n() {
    return static_cast<int>(threadIdx.x) / WARP % T::WARPS_N * T::WARP_N;
}

// Returns x as a value that the compiler cannot analyze, so that it is kept, or computed from here on.
LM_FN int opaque(int x) {
#if !defined(LM_EMULATE)
    asm volatile("" : "+r"(x));
#endif
    return x;
}

template <class E>
LM_FN const E* opaque(const E* x) {
#if !defined(LM_EMULATE)
    asm volatile("" : "+l"(x));
#endif
    return x;
}

// ---- loading --------------------------------------------------------------------------------------------------------
//
// The copies of a thread for each stage, of A or of B:
//      COPIES                how many
//      advance()             prepares those of the next stage, at first of the one from k = 0 on; called by all lanes
//      copy(tile, i)         starts number i, zeros beyond the operand; called by all lanes
//      SPREADS               whether copies are written out between products: of several elements, or with their place in
//                            one register; others would take more registers than there are
//      WIDENS                whether elements have 16 bits.  Then copy() loads, widens and stores, which takes as long as
//                            memory does; so do fetch(i) and, later, place(tile, i), with other work between
// Thread n copies V elements from k = n % (STAGE_DEPTH / V) V on of a tile of rows, or from column n % (WIDTH / V) V on.
//
// E is the element of the operand in memory.  V is 1, 4, or PACKED, if E has 16 bits.

constexpr int OUTSIDE = -(1 << 30);  // as h: a row that is not there

// A row and a column of 15 bits and a sign each, in one register, for images below 2^14 pixels a side.
struct Pair {
    unsigned both;

    LM_MEMBER Pair() {}
    LM_MEMBER Pair(int h, int w)  // a row that is not there stays below zero, whatever is added
        : both((static_cast<unsigned>(max(h, -(1 << 14))) << 16) + static_cast<unsigned>(w)) {}
    LM_MEMBER explicit Pair(unsigned both) : both(both) {}
    LM_MEMBER Pair kept() const { return Pair(static_cast<unsigned>(opaque(static_cast<int>(both)))); }  // as it is
    LM_MEMBER Pair operator+(Pair other) const { return Pair(both + other.both); }
    LM_MEMBER Pair operator-(Pair other) const { return Pair(both - other.both); }
};

// Returns whether no number of two pairs is below zero.  A column below zero borrows from its row, but is detected.
LM_FN bool are_natural(Pair a, Pair b) { return ((a.both | b.both) & 0x80008000u) == 0; }

// V 16-bit elements on their way from memory to a tile.
template <int V>
struct Fetched {
    static_assert(V == 1 || V == 4, "one element or four");
    unsigned words[(V + 1) / 2];

    template <class E>
    LM_MEMBER void fetch(const E* from, bool inside) {
        check_aligned(inside ? from : nullptr, 2 * V);
        if constexpr (V == 4) {
            const uint2 both = inside ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
            words[0] = both.x, words[1] = both.y;
        } else {
            words[0] = inside ? from->bits : 0;
        }
    }

    template <class E>
    LM_MEMBER void place(float* to) const {
        float wide[V];
        wide[0] = E::low(words[0]);
        if constexpr (V == 4) wide[1] = E::high(words[0]), wide[2] = E::low(words[1]), wide[3] = E::high(words[1]);
        store_shared<V>(to, wide);
    }
};

template <class E>
constexpr bool IS_NARROW = sizeof(E) == 2;

// The copies of a thread: Loader provides the source of number i, whether it exists, and its place in a tile.  Copies
// of sixteen bytes are held in registers between fetch() and place().
template <class E, int COPIES_, int V, class Loader>
struct Copies {
    static constexpr int COPIES = COPIES_;
    static constexpr bool SPREADS = V > 1;
    static constexpr bool WIDENS = IS_NARROW<E> && V != PACKED;
    static_assert(IS_NARROW<E> || V != PACKED, "packed tiles are of 16 bits");

    Fetched<V == PACKED ? 1 : V> held[WIDENS && V == 4 ? COPIES : 1];

    LM_MEMBER Loader& loader() { return *static_cast<Loader*>(this); }
    LM_MEMBER static bool is_mine(int) { return true; }  // whether this thread has copy number i

    LM_MEMBER void copy(float* tile, int i) {
        if (!Loader::is_mine(i)) return;
        bool inside;
        const E* from = loader().source_of(i, inside);
        if constexpr (WIDENS) {
            Fetched<V> elements;
            elements.fetch(from, inside);
            elements.template place<E>(tile + loader().place_of(i));
        } else {
            async_copy<4 * COPY_WORDS<V>>(tile + loader().place_of(i), from, inside);
        }
    }

    LM_MEMBER void fetch(int i) {
        bool inside;
        const E* from = loader().source_of(i, inside);
        held[i].fetch(from, inside);
    }

    LM_MEMBER void place(float* tile, int i) { held[i].template place<E>(tile + loader().place_of(i)); }
};

// Rows that read an image [..][height][width][pitch] through taps: row i, tap (r, s), channel c is the element (h + r
// step_h, w + s step_w, c) with (offset, h, w) from a table, zero outside the image. k = (r across + s) channels + c.
template <class E>
struct Taps {
    const E* image;
    int height, width, pitch;
    Divider channels;
};

struct TapSteps {
    int step_h, step_w;
    int depth;  // of k
    Divider across;
};

constexpr int MAX_ROWS = 256;  // of a tile, for which there are registers

template <class Product, int ROWS, int THREADS, int V, class E>
struct TapRows : Copies<E, ROWS * STAGE_DEPTH<V> / V / THREADS, V, TapRows<Product, ROWS, THREADS, V, E>> {
    static constexpr int CHUNKS = STAGE_DEPTH<V> / V, STRIDE = THREADS / CHUNKS, COPIES = ROWS / STRIDE;
    static constexpr bool FEW_ROWS = ROWS <= MAX_ROWS;
    static constexpr bool IN_REGISTERS = V > 1 && Product::ROWS_IN_REGISTERS&& FEW_ROWS;  // else copies read the table,
    static constexpr bool KEEPS_OFFSETS = IN_REGISTERS && !(TapRows::WIDENS && THREADS > 128);  // or offsets alone

    const int4* table;
    const Taps<E> taps;
    const TapSteps& steps;  // read once a stage
    int row, k;             // of the first copy, k of the next stage
    int offsets[KEEPS_OFFSETS ? COPIES : 1];
    Pair places[IN_REGISTERS ? COPIES : 1];
    int down, right;   // the tap of this stage,
    unsigned shift;    // as an offset, with the channel,
    Pair tap, behind;  // and what it adds to a place and leaves of the image

    LM_MEMBER TapRows(const int4* table, const Taps<E>& taps, const TapSteps& steps)
        : table(table), taps(taps), steps(steps), row(threadIdx.x / CHUNKS), k(threadIdx.x % CHUNKS * V) {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                const int4 at = table[row + i * STRIDE];
                if constexpr (KEEPS_OFFSETS) offsets[i] = at.x;
                places[i] = Pair(at.y, at.z);
            }
        }
    }

    LM_MEMBER void advance() {
        const int number = divide(k, taps.channels), c = k - number * static_cast<int>(taps.channels.divisor);
        const int r = divide(number, steps.across), s = number - r * static_cast<int>(steps.across.divisor);
        down = r * steps.step_h, right = s * steps.step_w;
        shift = static_cast<unsigned>(down * taps.width + right) * static_cast<unsigned>(taps.pitch) + c;
        if (k >= steps.depth) down = OUTSIDE;
        tap = Pair(down, right);
        behind = Pair(taps.height - 1, taps.width - 1) - tap;
        k += STAGE_DEPTH<V>;
    }

    LM_MEMBER const E* source_of(int i, bool& inside) const {
        int offset;
        if constexpr (IN_REGISTERS) {
            offset = KEEPS_OFFSETS ? offsets[KEEPS_OFFSETS ? i : 0] : table[row + i * STRIDE].x;
            inside = are_natural(places[i] + tap, behind - places[i]);
        } else {
            // With many rows, each is read right before its copy, since all of them would take too many registers.
            const int4 at = table[(V == 1 || FEW_ROWS ? row : opaque(row)) + i * STRIDE];
            offset = at.x;
            inside = static_cast<unsigned>(at.y + down) < static_cast<unsigned>(taps.height) &&
                     static_cast<unsigned>(at.z + right) < static_cast<unsigned>(taps.width);
        }
        return taps.image + static_cast<int>(offset + shift);
    }

    LM_MEMBER int place_of(int i) const { return in_rows<STRIDE>(row, i, threadIdx.x % CHUNKS * COPY_WORDS<V>); }
};

// Rows of a matrix [count][depth], each at `pitch` from the one before, from row `first` on, in the order of
// Product::column_of_row.  IS_SHORT: the pitch is so small that a row of the tile is computed again for each copy, in
// 32 bits, if there are no registers to keep it.
template <class Product, int ROWS, int THREADS, int V, class E, bool IS_SHORT = false>
struct MatrixRows
    : Copies<E, ROWS * STAGE_DEPTH<V> / V / THREADS, V, MatrixRows<Product, ROWS, THREADS, V, E, IS_SHORT>> {
    static constexpr int CHUNKS = STAGE_DEPTH<V> / V, STRIDE = THREADS / CHUNKS, COPIES = ROWS / STRIDE;

    const E* next;  // this thread's first element of the next stage
    int depth, pitch, row, k, rows_left;
    int rows_here;

    LM_MEMBER MatrixRows(const E* matrix, int first, int count, int depth)
        : MatrixRows(matrix, first, count, depth, depth) {}
    LM_MEMBER MatrixRows(const E* matrix, int first, int count, int depth, int pitch)
        : depth(depth), pitch(pitch), row(threadIdx.x / CHUNKS), k(threadIdx.x % CHUNKS * V) {
        first += Product::column_of_row(row);
        next = matrix + (static_cast<long long>(first) * pitch + k);
        rows_left = count - first;
    }

    LM_MEMBER void advance() {
        rows_here = k < depth ? rows_left : 0;
        k += STAGE_DEPTH<V>;
        next += STAGE_DEPTH<V>;
    }

    LM_MEMBER const E* source_of(int i, bool& inside) const {
        const int behind = Product::column_of_row(i * STRIDE);  // bits of row and of i STRIDE part
        inside = behind < rows_here;
        const E* from = next - STAGE_DEPTH<V>;
        return IS_SHORT ? from + behind * opaque(pitch) : from + static_cast<long long>(behind) * pitch;
    }

    LM_MEMBER int place_of(int i) const { return in_rows<STRIDE>(row, i, threadIdx.x % CHUNKS * COPY_WORDS<V>); }
};

// Copies of a thread for a stage of a tile of columns; some threads have one less if STRIDE does not divide it.
template <int V, int STRIDE>
constexpr int COLUMN_COPIES = (STAGE_DEPTH<V> + STRIDE - 1) / STRIDE;

// A tile of columns.  Source:
//      Element               of the operand
//      SPREADS               as above
//      HAS_PARTS             whether `part` counts
//      advance()             as above; lane i may prepare row i, and row WARP + i
//      at(k, part, inside)   this thread's element of row k of the stage, which is row k % WARP of part `part`, a
//                            constant, and whether it is there; called by all lanes
//
// RECOMPUTES: the place of a copy is computed again in each stage, where there are no registers to keep it.
template <int WIDTH, int THREADS, int V, class Source, bool RECOMPUTES = false>
struct Columns : Copies<typename Source::Element, COLUMN_COPIES<V, THREADS / (WIDTH / V)>, V,
                        Columns<WIDTH, THREADS, V, Source, RECOMPUTES>> {
    static constexpr int CHUNKS = WIDTH / V, STRIDE = THREADS / CHUNKS, COPIES = COLUMN_COPIES<V, STRIDE>;
    static constexpr bool SPREADS = Source::SPREADS, DIVIDES = STAGE_DEPTH<V> % STRIDE == 0;
    static_assert(THREADS % CHUNKS == 0, "a thread keeps its column");
    static_assert(WARP % STRIDE == 0 || !Source::HAS_PARTS, "a copy keeps its part");
    static_assert(DIVIDES || !Columns::WIDENS, "what is widened is fetched and placed by all threads");

    LM_MEMBER static bool is_mine(int i) {
        return DIVIDES || i + 1 < COPIES || static_cast<int>(threadIdx.x) < (STAGE_DEPTH<V> - i * STRIDE) * CHUNKS;
    }

    Source source;

    LM_MEMBER explicit Columns(const Source& source) : source(source) {}

    LM_MEMBER void advance() { source.advance(); }

    LM_MEMBER int row_of(int i) const { return static_cast<int>(threadIdx.x) / CHUNKS + i * STRIDE; }
    LM_MEMBER const typename Source::Element* source_of(int i, bool& inside) {
        return source.at(row_of(i), STAGE_DEPTH<V> > WARP ? i * STRIDE / WARP : 0, inside);
    }
    LM_MEMBER int place_of(int i) const {
        const int own = static_cast<int>(threadIdx.x) % CHUNKS * V, column = RECOMPUTES ? opaque(own) : own;
        return V == PACKED ? in_packed_columns<WIDTH>(row_of(i), column) : in_columns<WIDTH>(row_of(i), column);
    }
};

// Returns the column that this thread loads: V elements from here.
template <int WIDTH, int V>
LM_FN int my_column() {
    return static_cast<int>(threadIdx.x) % (WIDTH / V) * V;
}

// ---- the whole product ----------------------------------------------------------------------------------------------
//
// A product holds a thread's share of the block's tile of C:
//      ROWS, COLUMNS         how many elements a thread has, four columns side by side; LANES of a warp share a row
//      m_of(i), n_of(j)      the place of element (i, j) in the tile
//      at(i, j), set(i, j, value)    read and write that element
//      arrange()             converts the order of the sums to that of m_of and n_of, or back; called by all lanes
//      begin(stage)          runs before the first stage
//      STAGES                the number of stages in the ring, each of STAGE_DEPTH along k
//      ROWS_IN_REGISTERS     whether enough registers are left for what TapRows knows of rows
//      COPIES_AT_ONCE        how many copies the registers that are left can hold, where a loop of copies is not
//                            unrolled completely
//      KEEPS_PLACES          whether enough registers are left for places of copies of B, in conv_dgrad
//      patch                 where A lies, if its Patch::READS_PATCH; then stages have B alone
//      add(stage, copies, turn)      adds the product of a stage.  It calls copies(from, to) for parts of PARTS of the
//                            copies of a later stage, and then turn(), which returns the next stage.

constexpr int LATE = 4;  // a quarter of a stage, so that memory has time to answer
// Without asynchronous copies, and with products by shuffles, there are no registers to hold fetched elements.
constexpr bool FETCHES_AHEAD = LM_ARCH >= 800;

template <class Operand>
LM_FN void start(Operand& operand, float* tile, int i) {
    if constexpr (Operand::WIDENS && FETCHES_AHEAD)
        operand.fetch(i);
    else
        operand.copy(tile, i);
}

template <class Operand>
LM_FN void finish(Operand& operand, float* tile, int i) {
    if constexpr (Operand::WIDENS && FETCHES_AHEAD) operand.place(tile, i);
}

// Multiplies over k in [0, depth), in stages that `a` and `b` load.
template <class T, class Product, class A, class B>
LM_FN void multiply(float* shared, int depth, A& a, B& b, Product& product) {
    constexpr int STAGES = Product::STAGES, COPIES = A::COPIES + B::COPIES;
    const int steps = (depth + Product::STAGE_DEPTH - 1) / Product::STAGE_DEPTH;
    float* to = shared;  // the stage that is filled
    const auto advance = [&] {
        a.advance();
        b.advance();
    };
    const auto copies = [&](int part, int parts) {
        if constexpr (A::SPREADS && B::SPREADS) {
            // Operands to be widened are fetched in the first parts, and placed LATE of `parts` later.
            const int later = FETCHES_AHEAD ? parts / LATE : 0;
            const auto is_due = [&](int i, int part, int parts) {
                return i >= COPIES * part / parts && i < COPIES * (part + 1) / parts;
            };
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                const bool widens = i < A::COPIES ? A::WIDENS : B::WIDENS;
                if (!is_due(i, part, widens ? parts - later : parts)) continue;
                if (i < A::COPIES)
                    start(a, to, i);
                else
                    start(b, to + T::A_FLOATS, i - A::COPIES);
            }
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                if (!is_due(i, part - later, parts - later)) continue;
                if (i < A::COPIES)
                    finish(a, to, i);
                else
                    finish(b, to + T::A_FLOATS, i - A::COPIES);
            }
        } else if (part == 0) {
#pragma unroll Product::COPIES_AT_ONCE
            for (int i = 0; i < A::COPIES; ++i) a.copy(to, i);
#pragma unroll Product::COPIES_AT_ONCE
            for (int i = 0; i < B::COPIES; ++i) b.copy(to + T::A_FLOATS, i);
        }
    };
    const auto behind = [&](float* stage) {
        float* next = stage + T::STAGE_FLOATS;
        return next == shared + STAGES * T::STAGE_FLOATS ? next - STAGES * T::STAGE_FLOATS : next;
    };
    for (int step = 0; step < STAGES - 1; ++step) {
        advance();
        copies(0, 1);
        async_commit();
        to = behind(to);
    }
    async_wait<STAGES - 2>();
    block_sync();
    float* stage = shared;
    product.begin(stage);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        advance();  // beyond the last one these are zeros, so that no copy is in a branch
        product.add(stage, copies, [&] {
            async_commit();
            to = behind(to);
            async_wait<STAGES - 2>();
            block_sync();  // the next stage is complete, and no thread reads the one before this any more
            if (step + 1 < steps) stage = behind(stage);
            return stage;
        });
    }
    async_wait<0>();
    product.arrange();
}

// Elements i to i + N - 1 of a longer array, as an array.
template <int N, int ALL>
LM_FN float (&part(float (&all)[ALL], int i)) [N] { return *reinterpret_cast<float (*)[N]>(all + i); }

// Element (i, j) of C lies at `c` + `row_of(i)` + n0 + n_of(j).  It is absent if row_of(i) is -1, or from column
// `columns` on.  RUN is 4 if runs of four columns are aligned to 16 bytes, else 1.
template <int RUN, class Product, class E, class RowOf>
LM_FN void load_tile(Product& product, const E* c, RowOf row_of, int n0, int columns) {
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int row = row_of(i);
        if (row < 0) continue;
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int column = n0 + product.n_of(j);
            if (column >= columns) continue;
            float values[RUN];
            load<RUN>(values, c + row + column);
#pragma unroll
            for (int e = 0; e < RUN; ++e) product.set(i, j + e, values[e]);
        }
    }
    product.arrange();
}

}  // namespace lm
