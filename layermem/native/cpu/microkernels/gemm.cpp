// Matrix products in register tiles.
//
// A tile is kRows x kVectors registers of sums.  Its shape leaves registers for one row of packed
// weights (kVectors registers) and one broadcast: 12x2 + 2 + 1 = 27 of 32 registers with AVX-512, 6x2 + 2 + 1 = 15 of
// 16 with AVX2.  A step does kRows * kVectors fused multiply-adds for kVectors + kRows loads.  With two such
// instructions per cycle of latency 4, at least 8 sums must be independent: all tiles but AVX2's 6x1 have 12 or more.
//
// Operands   in_rows[slice][row]: pointers into the image, contiguous along k only
//            packed [slices * length][kVectors * kLanes]: read once per tile, in order, which prefetchers follow
// Rounding   each sum adds its products in order of (slice, k), whatever the tile: bits depend on the ISA and on how
//            the driver cuts k, not on the position of a row or column
#include "cpu/microkernels/gemm.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/dot_product.h"
#include "cpu/microkernels/outer_product.h"
#include "cpu/microkernels/pack.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Rows [row, row + kRows) of a block.  The sums stay in registers through all slices; each step loads kVectors
// registers of packed weights once and broadcasts one float of every row, straight from the image.  Rows beyond the
// block's are computed (their pointers are readable) but not stored.  Each step fetches the lines number
// `line` and `line + lines_apart` of a row of args.next: kFetched of them.  kPacks: weights are not packed yet.
template <int kRows, int kVectors, int kFetched, bool kPacks>
void gemm_tile(const GemmBlock& args, int64_t row, int64_t line, int64_t lines_apart) {
    const int64_t valid_rows = args.rows - row < kRows ? args.rows - row : kRows;
    V sum[kRows][kVectors];
    if (args.init == Init::out) {
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i) {
            const float* out = args.out_rows[i < valid_rows ? row + i : row] + args.column;
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j)
                sum[i][j] = j + 1 < kVectors ? load(out + j * kLanes) : load_up_to(out + j * kLanes, args.last_lanes);
        }
    } else {
        V first[kVectors];
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
            const int in_use = j + 1 < kVectors ? kLanes : args.last_lanes;
            first[j] = args.init == Init::bias ? load_up_to(args.bias + j * kLanes, in_use) : zero();
        }
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) sum[i][j] = first[j];
    }

    // The reduction: the only loop whose length grows with the problem.
    const float* b = args.packed;
    for (int64_t slice = 0; slice < args.slices; ++slice, b += args.length * kVectors * kLanes) {
        const float* const* in = args.in_rows + slice * args.pitch + row;
        if (args.zero_row) {  // padding: skip what adds nothing
            bool empty = true;
#pragma GCC unroll 24
            for (int i = 0; i < kRows; ++i) empty &= in[i] == args.zero_row;
            if (empty) continue;
        }
        const float* a[kRows];
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i) a[i] = in[i];
        const float* w = b;
        const float* unpacked = args.unpacked;
        const float* next = args.next + line * kLineFloats;
        for (int64_t k = 0; k < args.length; ++k, w += kVectors * kLanes) {
            if (kFetched > 0) {  // one or two lines a step leave the line fill buffers to the tile's own loads
                __builtin_prefetch(next, 0, 2);
                if (kFetched > 1) __builtin_prefetch(next + lines_apart * kLineFloats, 0, 2);
                next += args.next_pitch;
            }
            V column[kVectors];
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) {
                column[j] = load((kPacks ? unpacked : w) + j * kLanes);
                if (kPacks) store(args.to + (w - b) + j * kLanes, column[j]);
            }
            if (kPacks) unpacked += args.unpacked_pitch;
#pragma GCC unroll 24
            for (int i = 0; i < kRows; ++i) {
                const V x = broadcast(a[i][k]);
#pragma GCC unroll 4
                for (int j = 0; j < kVectors; ++j) sum[i][j] = fma(x, column[j], sum[i][j]);
            }
        }
    }

    if (args.relu) {
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) sum[i][j] = relu(sum[i][j]);
    }
#pragma GCC unroll 24
    for (int i = 0; i < kRows; ++i) {
        if (i >= valid_rows) break;
        float* out = args.out_rows[row + i] + args.column;
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j)
            if (j + 1 < kVectors)
                store(out + j * kLanes, sum[i][j]);
            else
                store_up_to(out + j * kLanes, sum[i][j], args.last_lanes);
    }
}

// Tile number `tile` of `tiles`.  The first tiles share the lines of args.next; two lines of each row are the most that
// a tile fetches.  The very first one packs.
template <int kRows, int kVectors>
void gemm_tile(const GemmBlock& args, int64_t row, int64_t tile, int64_t tiles) {
    const int64_t lines = args.next ? max(kVectors * kLanes / kLineFloats, 1) : 0;
    const int fetched = tile >= lines ? 0 : tile + tiles >= lines ? 1 : 2;
    if (tile == 0 && args.unpacked) {
        switch (fetched) {
            case 0: return gemm_tile<kRows, kVectors, 0, true>(args, row, 0, 0);
            case 1: return gemm_tile<kRows, kVectors, 1, true>(args, row, 0, 0);
            default: return gemm_tile<kRows, kVectors, 2, true>(args, row, 0, tiles);
        }
    }
    switch (fetched) {
        case 0: return gemm_tile<kRows, kVectors, 0, false>(args, row, 0, 0);
        case 1: return gemm_tile<kRows, kVectors, 1, false>(args, row, tile, 0);
        default: return gemm_tile<kRows, kVectors, 2, false>(args, row, tile, tiles);
    }
}

// Tiles of kRows rows, but the last one or two have kFew where these are enough for what is left.  With rows of zeros
// all tiles are of one height: it decides which of them skip a slice.
template <int kRows, int kFew, int kVectors>
void gemm_tiles(const GemmBlock& args) {
    const int64_t tiles = ceil_div(args.rows, kRows), tall = tiles - 1, rest = args.rows - tall * kRows;
    const int64_t two = tall > 0 && rest + kRows <= 2 * kFew;
    const int64_t few = args.zero_row ? 0 : two ? 2 : rest <= kFew ? 1 : 0;
    for (int64_t tile = 0; tile < tiles - few; ++tile) gemm_tile<kRows, kVectors>(args, tile * kRows, tile, tiles);
    for (int64_t i = 0; i < few; ++i)
        gemm_tile<kFew, kVectors>(args, (tiles - few) * kRows + i * kFew, tiles - few + i, tiles);
}

// With 32 registers the height depends on the width of the panel: 12x2 and 8x3 and 6x4 are 24 sums each, beside
// registers for the row of packed weights and the broadcast.  A panel of one
// register has 12 sums and is limited by its loads.  The last rows have tiles of less height, with 8 sums or more.
void gemm(const GemmBlock& args) {
    if constexpr (kRegisters == 32) {
        switch (args.vectors) {
            case 1: return gemm_tiles<12, 8, 1>(args);
            case 2: return gemm_tiles<12, 8, 2>(args);
            case 3: return gemm_tiles<8, 4, 3>(args);
            default: return gemm_tiles<6, 4, 4>(args);
        }
    } else if (args.vectors == 1) {
        gemm_tiles<6, 4, 1>(args);
    } else {
        gemm_tiles<6, 4, 2>(args);
    }
}

// Rows of w into rows of `width` columns; those beyond `columns` become zeros.
void pack_rows(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width) {
    for (int64_t k = 0; k < depth; ++k, out += width, w += pitch)
        for (int64_t j = 0; j < width; j += kLanes)
            store(out + j, columns - j >= kLanes ? load(w + j)
                           : columns > j         ? load(w + j, static_cast<int>(columns - j))
                                                 : zero());
}

}  // namespace

const GemmKernels gemm_kernels = {kLanes, kMaxVectors, gemm, outer, dot, rank_update, pack_columns, pack_rows};

}  // namespace layermem::cpu::LAYERMEM_ISA
