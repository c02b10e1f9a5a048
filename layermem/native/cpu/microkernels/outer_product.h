// The tile of an OuterBlock: kRows rows (broadcast from d) by kVectors registers (loaded from x) of sums stay in
// registers while all `count` pairs go by.
//
// The tiles of a panel of columns read the same registers of x.  Their rows lie far apart, often at distances that map
// them to few cache sets: the first tile of a panel writes what it loads into a packed panel, which stays in the
// first-level cache for the others.
#pragma once
#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/gemm.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Places in rows of memory: rows[0] + offset, rows[1] + offset, ...
struct Places {
    const float* const* rows;
    int64_t offset;
};

enum class Source { rows, packing, panel };

// Rows of a tile of full height.  Tile shapes fill the register file, as those of gemm do.
constexpr int tile_rows(int vectors) {
    if (kRegisters < 32) return 6;
    return vectors <= 2 ? 12 : vectors == 3 ? 8 : 6;
}

// Rows [k, k + kRows) and the registers from column c on; the last of them has `last` floats in use.  The registers of
// x are loaded from args.x, and written to panel [count][kVectors * kLanes] if kSource is packing, or loaded from it.
// Every second place of `fetched` is brought into the second-level cache, and the sums from next_out on, of a tile of
// the same shape, into the first-level cache: cold sums would make each tile wait.
template <int kRows, int kVectors, Source kSource>
void outer_tile(const OuterBlock& args, const Places& fetched, const float* next_out, int64_t k, int64_t c, int last,
                float* panel) {
    constexpr int64_t kLines = (kVectors * kLanes + kLineFloats - 1) / kLineFloats;  // of a row of the tile
    V sum[kRows][kVectors];
    float* out = args.out + k * args.pitch + c;
    const bool whole = last == kLanes;
    if (args.init == Init::out) {
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) {
                const float* at = out + i * args.pitch + j * kLanes;
                sum[i][j] = j + 1 < kVectors || whole ? load(at) : load(at, last);
            }
    } else {
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) sum[i][j] = zero();
    }
    const auto step = [&](const V(&x)[kVectors], const float* d) __attribute__((always_inline)) {
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i) {
            const V y = broadcast(d[i]);
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) sum[i][j] = fma(y, x[j], sum[i][j]);
        }
    };
    const int64_t d_offset = k / kStripRows * args.d_strip + k % kStripRows;
    const auto steps = [&](const auto& load_x) __attribute__((always_inline)) {
        float* packed = panel;
        const auto pair = [&](int64_t n) __attribute__((always_inline)) {
            __builtin_prefetch(next_out + min(n / kLines, kRows - 1) * args.pitch + n % kLines * kLineFloats);
            V x[kVectors];
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) {
                x[j] = kSource == Source::panel ? load(packed + j * kLanes) : load_x(args.x[n] + c, j);
                if (kSource == Source::packing) store(packed + j * kLanes, x[j]);
            }
            packed += kVectors * kLanes;
            step(x, args.d[n] + d_offset);
        };
        int64_t n = 0;
        for (; n + 2 <= args.count; n += 2) {
            __builtin_prefetch(fetched.rows[n] + fetched.offset, 0, 2);
            pair(n);
            pair(n + 1);
        }
        if (n < args.count) pair(n);
    };
    // Two loops, so that the test stays out of the loop over pairs, for tiles of full height alone: they are most of a
    // panel, and each further loop takes its time to compile.
    if (kSource == Source::panel || (kRows == tile_rows(kVectors) && whole))
        steps([](const float* at, int j) __attribute__((always_inline)) { return load(at + j * kLanes); });
    else
        steps([last](const float* at, int j) __attribute__((always_inline)) {
            return j + 1 < kVectors ? load(at + j * kLanes) : load(at + j * kLanes, last);
        });
#pragma GCC unroll 24
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
            float* at = out + i * args.pitch + j * kLanes;
            j + 1 < kVectors || whole ? store(at, sum[i][j]) : store(at, sum[i][j], last);
        }
}

// The first tile of a panel: the last `rows` rows, so that all others have the full height.
template <int kRows, int kVectors, Source kSource>
void outer_first_tile(const OuterBlock& args, const Places& fetched, const float* next_out, int64_t rows, int64_t c,
                      int last, float* panel) {
    if constexpr (kRows > 0) {
        if (rows == kRows)
            return outer_tile<kRows, kVectors, kSource>(args, fetched, next_out, args.rows - rows, c, last, panel);
        outer_first_tile<kRows - 1, kVectors, kSource>(args, fetched, next_out, rows, c, last, panel);
    }
}

// Lets the tiles of a panel fetch data into the second-level cache: the columns of x that the next panel reads, or the
// data that the next block reads first.  The rows lie too far apart for the hardware to foresee them.  One line between
// two steps leaves the line fill buffers to the tile's own loads; prefetches in a row would wait for them.
class Prefetcher {
  public:
    // The panel from column c to `next`, number `index` of `panels`, in `tiles` tiles.
    Prefetcher(const OuterBlock& args, int64_t c, int64_t next, int64_t index, int64_t panels, int64_t tiles)
        : cached_{args.x, c}, tiles_(tiles) {
        add(args.x, next, min(kMaxVectors * kLanes, args.columns - next));
        if (args.next_d) {
            const int64_t lines = ceil_div(args.rows, 16), first = lines * index / panels;
            add(args.next_d, first * 16, (lines * (index + 1) / panels - first) * 16);
        }
        if (args.next_x && index + 1 == panels) add(args.next_x, 0, min(kMaxVectors * kLanes, args.columns));
    }

    Places of_tile(int64_t tile) const {
        const int64_t i = count_ < tiles_ ? tile * count_ / tiles_ : tile;
        return i < count_ && (count_ >= tiles_ || tile == 0 || (tile - 1) * count_ / tiles_ != i) ? lines_[i] : cached_;
    }

  private:
    void add(const float* const* rows, int64_t offset, int64_t floats) {
        for (int64_t i = 0; i < floats && count_ + 2 <= kMaxLines; i += 16)
            for (int64_t parity = 0; parity < 2; ++parity) lines_[count_++] = {rows + parity, offset + i};
    }

    static constexpr int64_t kMaxLines = 64;
    const Places cached_;  // for a tile that need not fetch anything
    const int64_t tiles_;
    int64_t count_ = 0;
    Places lines_[kMaxLines];
};

// All rows of one panel of columns.
template <int kRows, int kVectors, bool kPack>
void outer_tiles(const OuterBlock& args, const Prefetcher& prefetcher, int64_t c, int last, float* panel) {
    const int64_t full = (args.rows - 1) / kRows * kRows;
    const float* out = args.out + c;
    outer_first_tile<kRows, kVectors, kPack ? Source::packing : Source::rows>(args, prefetcher.of_tile(0), out,
                                                                              args.rows - full, c, last, panel);
    for (int64_t k = 0; k < full; k += kRows) {  // behind the last tile is the first one of the next panel
        const float* next_out =
            k + kRows < full ? out + (k + kRows) * args.pitch : out + full * args.pitch + kVectors * kLanes;
        outer_tile<kRows, kVectors, kPack ? Source::panel : Source::rows>(args, prefetcher.of_tile(k / kRows + 1),
                                                                          next_out, k, c, last, panel);
    }
}

// The only panel of a block is not packed: its rows are short.
template <int kVectors>
void outer_panel(const OuterBlock& args, int64_t c, int last, int64_t index, int64_t panels) {
    constexpr int kRows = tile_rows(kVectors);
    const Prefetcher prefetcher(args, c, c + kVectors * kLanes, index, panels, ceil_div(args.rows, kRows));
    alignas(64) float panel[kMaxPairs * kVectors * kLanes];
    if (panels > 1)
        outer_tiles<kRows, kVectors, true>(args, prefetcher, c, last, panel);
    else
        outer_tiles<kRows, kVectors, false>(args, prefetcher, c, last, panel);
}

// Panels of columns are as equal in width as possible.
void outer(const OuterBlock& args) {
    const int64_t vectors = ceil_div(args.columns, kLanes), panels = ceil_div(vectors, kMaxVectors);
    for (int64_t p = 0, v = 0; p < panels; ++p) {
        const int64_t width = ceil_div(vectors - v, panels - p), c = v * kLanes;
        v += width;
        const int last = static_cast<int>(v * kLanes <= args.columns ? kLanes : args.columns - (v - 1) * kLanes);
        if (width == 1) {
            outer_panel<1>(args, c, last, p, panels);
        } else if (width == 2 || kMaxVectors == 2) {
            outer_panel<2>(args, c, last, p, panels);
        } else if constexpr (kMaxVectors > 2) {
            width == 3 ? outer_panel<3>(args, c, last, p, panels) : outer_panel<4>(args, c, last, p, panels);
        }
    }
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
