// Producers of warpgroup_gemm.cuh that round B on its way into a stage, by rows and by columns.
#pragma once
#include "implicit_gemm.cuh"
#include "mma.cuh"

namespace lm {

//      fetch()       loads this thread's elements of the next stage, zeros beyond the operand; called by all producers
//      place(tile)   rounds and stores what fetch() has loaded

// Returns eight k's of row `row` of B, number `eight` of four.
template <class T>
LM_FN void place_eight(unsigned char* tile, int row, int eight, const float (&values)[8]) {
    const auto put = [&](int chunk, unsigned a, unsigned b, unsigned c, unsigned d) {
        *reinterpret_cast<uint4*>(tile + row * T::B_ROW_BYTES + chunk * 16) = make_uint4(a, b, c, d);
    };
    if constexpr (T::PRECISION == Precision::BF16) {
        put(eight ^ (row / 2 & 3), bf16_pack(values[0], values[4]), bf16_pack(values[1], values[5]),
            bf16_pack(values[2], values[6]), bf16_pack(values[3], values[7]));
    } else {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            put((2 * eight + half) ^ (row & 7), tf32_round(values[4 * half]), tf32_round(values[4 * half + 1]),
                tf32_round(values[4 * half + 2]), tf32_round(values[4 * half + 3]));
    }
}

// Takes B from rows of a matrix [count][depth], from row `first` on: a thread has eight k's of every 32nd row.
template <class T, class Product>
struct RoundedRows {
    static constexpr int EIGHTS = DEPTH / 8, STRIDE = T::PRODUCERS / EIGHTS, ROWS = T::N / STRIDE;

    const float* next;  // this thread's first element of the next stage
    int depth, row, k, rows_left;
    float held[ROWS][8];

    LM_MEMBER RoundedRows(const float* matrix, int first, int count, int depth)
        : depth(depth), row(threadIdx.x / EIGHTS), k(threadIdx.x % EIGHTS * 8) {
        first += Product::column_of_row(row);
        next = matrix + (static_cast<long long>(first) * depth + k);
        rows_left = count - first;
    }

    LM_MEMBER void fetch() {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const int behind = Product::column_of_row(i * STRIDE);
            const float* from = next + static_cast<long long>(behind) * depth;
#pragma unroll
            for (int half = 0; half < 8; half += 4) {
                float values[4] = {};
                if (behind < rows_left && k + half < depth) load<4>(values, from + half);
#pragma unroll
                for (int e = 0; e < 4; ++e) held[i][half + e] = values[e];
            }
        }
        k += DEPTH;
        next += DEPTH;
    }

    LM_MEMBER void place(unsigned char* tile) const {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
            place_eight<T>(tile, row + i * STRIDE, static_cast<int>(threadIdx.x) % EIGHTS, held[i]);
    }
};

// Takes B from consecutive columns of a Source (implicit_gemm.cuh): a thread has eight k's of four columns, from
// first_column() on, which it transposes.
template <class T, class Source>
struct TransposedRows {
    static constexpr int QUADS = T::N / 4, LOADERS = QUADS * DEPTH / 8;

    Source source;
    float held[4][8];

    LM_MEMBER static int first_column() { return static_cast<int>(threadIdx.x) % QUADS * 4; }
    LM_MEMBER static int eight() { return static_cast<int>(threadIdx.x) / QUADS; }  // beyond three where all are loaded

    LM_MEMBER explicit TransposedRows(const Source& source) : source(source) {}

    LM_MEMBER void fetch() {
        source.advance();
        const int first = opaque(8 * eight() % DEPTH);  // and each k computed from it, which takes no register for long
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            bool inside;
            const float* from = source.at(first + k, 0, inside);
            float values[4] = {};
            if (inside && static_cast<int>(threadIdx.x) < LOADERS) load<4>(values, from);
#pragma unroll
            for (int column = 0; column < 4; ++column) held[column][k] = values[column];
        }
    }

    // Columns 4 q to 4 q + 3 of 32 are eight rows apart, as column_of_row has them.
    LM_MEMBER void place(unsigned char* tile) const {
        if (static_cast<int>(threadIdx.x) >= LOADERS) return;
        const int run = opaque(first_column() / 4), row = run / 8 * 32 + run % 4 * 2 + run / 4 % 2;
#pragma unroll
        for (int column = 0; column < 4; ++column) place_eight<T>(tile, row + 8 * column, eight(), held[column]);
    }
};

}  // namespace lm
