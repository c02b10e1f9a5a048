// A small matrix transposed, in registers of four floats on every ISA.
#pragma once
#include "cpu/isa/simd.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));
typedef float UnalignedFour __attribute__((vector_size(16), aligned(4), may_alias));

// out[c][r] = in[r][c] for 4 x 4 floats.
inline void transpose_4x4(float* out, int64_t out_pitch, const float* in, int64_t in_pitch) {
    const auto row = [&](int64_t i) -> Four { return *reinterpret_cast<const UnalignedFour*>(in + i * in_pitch); };
    const auto put = [&](int64_t i, Four v) { *reinterpret_cast<UnalignedFour*>(out + i * out_pitch) = v; };
    const FourInts even{0, 4, 1, 5}, odd{2, 6, 3, 7}, low{0, 1, 4, 5}, high{2, 3, 6, 7};
    const Four a = row(0), b = row(1), c = row(2), d = row(3);
    const Four ab = __builtin_shuffle(a, b, even), cd = __builtin_shuffle(c, d, even);
    const Four ef = __builtin_shuffle(a, b, odd), gh = __builtin_shuffle(c, d, odd);
    put(0, __builtin_shuffle(ab, cd, low));
    put(1, __builtin_shuffle(ab, cd, high));
    put(2, __builtin_shuffle(ef, gh, low));
    put(3, __builtin_shuffle(ef, gh, high));
}

// out[c][r] = in[r][c] for any size: squares of four, then the rest element by element.
inline void transpose_tile(float* out, int64_t out_pitch, const float* in, int64_t in_pitch, int64_t rows,
                           int64_t columns) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= columns; c += 4)
            transpose_4x4(out + c * out_pitch + r, out_pitch, in + r * in_pitch + c, in_pitch);
        for (; c < columns; ++c)
            for (int64_t i = r; i < r + 4; ++i) out[c * out_pitch + i] = in[i * in_pitch + c];
    }
    for (; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) out[c * out_pitch + r] = in[r * in_pitch + c];
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
