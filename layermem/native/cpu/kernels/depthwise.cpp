// fprop and dgrad: a task is a few rows of the image that is written; weights are transposed to [taps][channels] first,
// so that lanes are channels.  wgrad: rows of dy are divided into parts, each with its own copy of dw.
#include "cpu/kernels/depthwise.h"

#include <algorithm>

#include "cpu/kernels/activation.h"
#include "cpu/microkernels/depthwise.h"
#include "cpu/microkernels/gemm.h"
#include "cpu/microkernels/reduction.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskFloats = 4096;  // floats that a task writes, unless one row is longer
constexpr int64_t kMaxParts = 16;      // most copies of dw

// Floats of a packed tap: whole registers of every ISA.
int64_t packed_pitch(const ConvProblem& p) { return (p.c + 15) / 16 * 16; }

// Parts of the whole batch; its slices use the same parts.
int64_t wgrad_parts(const ConvProblem& p) {
    const int64_t rows = p.batch() * p.ho();
    return std::clamp<int64_t>(rows * p.wo() * p.c / 65536, 1, std::min(kMaxParts, rows));
}

using RowKernel = void (*)(const DepthwiseArgs&, int64_t row);

// `rows` rows of `width` floats are written.
void run_rows(RowKernel kernel, const DepthwiseArgs& args, int64_t rows, int64_t width) {
    parallel_for_ranges(rows, std::max<int64_t>(1, kTaskFloats / width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) kernel(args, row);
    });
}

// With stride 1 dgrad is fprop of dy with the window rotated by 180 degrees, unless that would need a negative pad.
bool dgrad_is_fprop(const ConvProblem& p) {
    return p.sh == 1 && p.sw == 1 && p.dh * (p.kh - 1) >= p.ph && p.dw * (p.kw - 1) >= p.pw;
}

ConvProblem rotated_problem(const ConvProblem& p) {
    ConvProblem rotated = p;
    rotated.h = p.ho();
    rotated.w = p.wo();
    rotated.ph = p.dh * (p.kh - 1) - p.ph;
    rotated.pw = p.dw * (p.kw - 1) - p.pw;
    return rotated;
}

}  // namespace

// workspace: weights [taps][pitch]
int64_t depthwise_workspace_bytes(const ConvProblem& p) { return aligned_bytes<float>(p.taps() * packed_pitch(p)); }

Launch depthwise_fprop(const ConvProblem& p, float* y, const float* x, const float* w, const float* bias,
                       bool accumulate, bool relu, const ReluMask& mask, void* workspace) {
    return [=, &kernels = depthwise_kernels(), &gemm = gemm_kernels(), &activation = activation_kernels()] {
        float* packed = static_cast<float*>(workspace);
        const int64_t pitch = packed_pitch(p);
        gemm.pack_columns(packed, w, p.taps(), p.taps(), p.c, pitch);
        run_rows(kernels.fprop, {p, y, x, packed, bias, pitch, accumulate, relu}, p.n * p.ho(), p.wo() * p.c);
        if (mask.bits) write_mask(activation, p.n * p.ho() * p.wo() * p.c, y, mask);
    };
}

Launch depthwise_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, const float* bias,
                       bool accumulate, void* workspace) {
    return [=, &kernels = depthwise_kernels(), &gemm = gemm_kernels()] {
        float* packed = static_cast<float*>(workspace);
        const int64_t pitch = packed_pitch(p), rows = p.n * p.h, width = p.w * p.c;
        gemm.pack_columns(packed, w, p.taps(), p.taps(), p.c, pitch);
        if (!dgrad_is_fprop(p))
            return run_rows(kernels.dgrad, {p, dx, dy, packed, bias, pitch, accumulate, false}, rows, width);
        for (int64_t a = 0, b = p.taps() - 1; a < b; ++a, --b)
            std::swap_ranges(packed + a * pitch, packed + (a + 1) * pitch, packed + b * pitch);
        run_rows(kernels.fprop, {rotated_problem(p), dx, dy, packed, bias, pitch, accumulate, false}, rows, width);
    };
}

// copies of dw [parts][taps][c]
int64_t depthwise_wgrad_carry_bytes(const ConvProblem& p) {
    return aligned_bytes<float>(wgrad_parts(p) * p.taps() * p.c);
}

Launch depthwise_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                       float* copies) {
    return [=, &kernels = depthwise_kernels(), &reduction = reduction_kernels()] {
        const int64_t parts = wgrad_parts(p), taps = p.taps(), floats = taps * p.c;
        const int64_t all_rows = p.batch() * p.ho(), rows = p.n * p.ho(), first = p.first * p.ho();
        parallel_for(parts, [&](int64_t i) {  // rows of the part that lie in this slice
            const int64_t begin = chunk_begin(all_rows, parts, i) - first;
            const int64_t end = std::min(chunk_begin(all_rows, parts, i + 1) - first, rows);
            if (begin < rows && end > 0)
                kernels.wgrad({p, copies + i * floats, x, dy, begin < 0}, std::max<int64_t>(begin, 0), end);
        });
        if (!p.is_last()) return;
        if (parts > 1) reduction.sum_rows(copies, copies + floats, floats, parts - 1, floats, true);
        for (int64_t c = 0; c < p.c; ++c)
            for (int64_t tap = 0; tap < taps; ++tap) {
                float& out = dw[c * taps + tap];
                out = accumulate ? out + copies[tap * p.c + c] : copies[tap * p.c + c];
            }
    };
}

}  // namespace layermem::cpu
