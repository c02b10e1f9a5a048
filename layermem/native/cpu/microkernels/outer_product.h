// The tile of an OuterBlock: kRows rows (broadcast from d) by kVectors registers (loaded from x) of sums stay in
// registers while all `count` pairs go by.
#pragma once
#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/gemm.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Rows [k, k + kRows) and the registers from column c on; the last of them has `last` floats in use.
template <int kRows, int kVectors>
void outer_tile(const OuterBlock& args, int64_t k, int64_t c, int last) {
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
    if (whole) {  // two loops: the test stays out of the loop over pairs
        for (int64_t n = 0; n < args.count; ++n) {
            const float* at = args.x[n] + c;
            V x[kVectors];
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) x[j] = load(at + j * kLanes);
            step(x, args.d[n] + k);
        }
    } else {
        for (int64_t n = 0; n < args.count; ++n) {
            const float* at = args.x[n] + c;
            V x[kVectors];
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j)
                x[j] = j + 1 < kVectors ? load(at + j * kLanes) : load(at + j * kLanes, last);
            step(x, args.d[n] + k);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
            float* at = out + i * args.pitch + j * kLanes;
            j + 1 < kVectors || whole ? store(at, sum[i][j]) : store(at, sum[i][j], last);
        }
}

// The rows left over below the last full tile get a tile of exactly their height.
template <int kRows, int kVectors>
void outer_rest(const OuterBlock& args, int64_t k, int64_t c, int last) {
    if constexpr (kRows > 0) {
        if (args.rows - k == kRows) return outer_tile<kRows, kVectors>(args, k, c, last);
        outer_rest<kRows - 1, kVectors>(args, k, c, last);
    }
}

inline void prefetch_row(const float* row, int64_t floats) {
    for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(row + i, 0, 2);
}

// Fetches into the second-level cache, a few rows before each tile, the columns of x that the next panel reads, or
// what the next block reads first.  Rows of x and d lie too far apart for the hardware to foresee them.
class Prefetcher {
  public:
    Prefetcher(const OuterBlock& args, int64_t next_column, int64_t tiles)
        : args_(args),
          column_(next_column),
          floats_(min(kMaxVectors * kLanes, args.columns - next_column)),
          rows_(floats_ > 0 ? args.count : args.next_d.rows + args.next_x.rows),
          step_(ceil_div(rows_, tiles)) {}

    void before_tile() {
        for (const int64_t end = min(rows_, row_ + step_); row_ < end; ++row_)
            if (floats_ > 0)
                prefetch_row(args_.x[row_] + column_, floats_);
            else if (row_ < args_.next_d.rows)
                prefetch_row(args_.next_d.begin + row_ * args_.next_d.pitch, args_.next_d.floats);
            else
                prefetch_row(args_.next_x.begin + (row_ - args_.next_d.rows) * args_.next_x.pitch, args_.next_x.floats);
    }

  private:
    const OuterBlock& args_;
    const int64_t column_, floats_, rows_, step_;
    int64_t row_ = 0;
};

// All rows of one panel of columns.
template <int kRows, int kVectors>
void outer_panel(const OuterBlock& args, int64_t c, int last) {
    Prefetcher prefetcher(args, c + kVectors * kLanes, ceil_div(args.rows, kRows));
    int64_t k = 0;
    for (; k + kRows <= args.rows; k += kRows) {
        prefetcher.before_tile();
        outer_tile<kRows, kVectors>(args, k, c, last);
    }
    prefetcher.before_tile();
    outer_rest<kRows - 1, kVectors>(args, k, c, last);
}

// Panels of columns are as equal in width as possible.  Tile shapes fill the register file, as those of gemm do.
void outer(const OuterBlock& args) {
    const int64_t vectors = ceil_div(args.columns, kLanes), panels = ceil_div(vectors, kMaxVectors);
    for (int64_t p = 0, v = 0; p < panels; ++p) {
        const int64_t width = ceil_div(vectors - v, panels - p), c = v * kLanes;
        v += width;
        const int last = static_cast<int>(v * kLanes <= args.columns ? kLanes : args.columns - (v - 1) * kLanes);
        if constexpr (kRegisters == 32) {
            switch (width) {
                case 1: outer_panel<12, 1>(args, c, last); break;
                case 2: outer_panel<12, 2>(args, c, last); break;
                case 3: outer_panel<8, 3>(args, c, last); break;
                default: outer_panel<6, 4>(args, c, last); break;
            }
        } else if (width == 1) {
            outer_panel<6, 1>(args, c, last);
        } else {
            outer_panel<6, 2>(args, c, last);
        }
    }
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
