// Packing of matrices into panels for GEMM, and the transposition in registers that it needs.
#pragma once
#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// kLanes registers of kLanes floats, transposed in place.  At each stage the lanes whose number has a bit set are
// exchanged with the registers whose number has it.
inline void transpose_registers(V (&row)[kLanes]) {
#pragma GCC unroll 4
    for (int bit = 1; bit < kLanes; bit *= 2) {
        I low, high;
        for (int lane = 0; lane < kLanes; ++lane) {
            low[lane] = lane & bit ? kLanes + lane - bit : lane;
            high[lane] = lane & bit ? kLanes + lane : lane + bit;
        }
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            if (i & bit) continue;
            const V a = row[i], b = row[i + bit];
            row[i] = __builtin_shuffle(a, b, low);
            row[i + bit] = __builtin_shuffle(a, b, high);
        }
    }
}

// out[i][j] = w[j * pitch + i]: kLanes steps by kLanes columns at a time; width is a multiple of kLanes, and columns
// beyond `columns` become zeros.
inline void pack_columns(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width) {
    for (int64_t k = 0; k < depth; k += kLanes) {
        const int64_t steps = min(kLanes, depth - k);
        for (int64_t j = 0; j < width; j += kLanes) {
            V square[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i)
                square[i] = j + i < columns ? load_up_to(w + (j + i) * pitch + k, steps) : zero();
            transpose_registers(square);
            for (int64_t i = 0; i < steps; ++i) store(out + (k + i) * width + j, square[i]);
        }
    }
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
