// Rows of floats from one pitch to another, and images transposed in tiles.
#include "cpu/microkernels/copy.h"

#include "cpu/isa/simd.h"
#include "cpu/microkernels/transpose_tile.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Rows [begin, end); a row is copied, or added, a register at a time.
void copy_rows(const StridedCopy& args, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
        float* out = args.out + r * args.out_pitch;
        const float* in = args.in + r * args.in_pitch;
        for_each_vector(0, args.width, [&](int64_t i, auto n) {
            store(out + i, args.accumulate ? load(out + i, n) + load(in + i, n) : load(in + i, n), n);
        });
    }
}

// Rows [begin, end) of one image.  Tiles of 16 x 16 floats, whole cache lines on both sides, are transposed into a
// buffer and written from there, so that reads and writes both go along memory.
void transpose(const Transpose& args, int64_t image, int64_t begin, int64_t end) {
    const float* in = args.in + image * args.rows * args.columns;
    float* out = args.out + image * args.rows * args.columns;
    for (int64_t j0 = 0; j0 < args.columns; j0 += 16)
        for (int64_t i0 = begin; i0 < end; i0 += 16) {
            float tile[16 * 16];
            const int64_t rows = min(16, end - i0), columns = min(16, args.columns - j0);
            transpose_tile(tile, 16, in + i0 * args.in_pitch + j0, args.in_pitch, rows, columns);
            for (int64_t j = 0; j < columns; ++j) {
                float* to = out + (j0 + j) * args.out_pitch + i0;
                for_each_vector(0, rows, [&](int64_t i, auto n) {
                    const V v = load(tile + j * 16 + i, n);
                    store(to + i, args.accumulate ? load(to + i, n) + v : v, n);
                });
            }
        }
}

}  // namespace

const CopyKernels copy_kernels = {copy_rows, transpose};

}  // namespace layermem::cpu::LAYERMEM_ISA
