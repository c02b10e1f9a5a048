// fprop and dgrad as implicit GEMMs: each is described as one or more ConvGemms, the weights are packed into panels,
// and implicit_gemm.cpp multiplies.  No im2col matrix is stored: rows of the left operand are pointers to pixels.
//
//     fprop   C [n ho wo][k] = A [n ho wo][tap c] W [tap c][k]     a row of A: the pixels under the window of an output
//     dgrad   C [n h w][c]   = A [n h w][tap k]   W [tap k][c]     a row of A: the outputs that read a pixel
//
// Packing costs |w| of traffic per launch, which is small beside the product unless there are few pixels.  Depthwise
// and 3x3 convolutions have drivers of their own (depthwise.cpp, winograd.cpp); the choice depends on the problem only,
// so a recomputed forward takes the same path and gives the same bits.
#include "cpu/kernels/convolution.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/depthwise.h"
#include "cpu/kernels/implicit_gemm.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/winograd.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

// -- fprop ------------------------------------------------------------------------------------------------------------

// The grid is y.  Output pixel (i, j) reads x at (i sh + r dh - ph, j sw + s dw - pw) for each tap (r, s).  Where the
// pixels of a window's row are contiguous (row_is_tap), a whole row of taps is one slice of kw * c floats.
ConvGemm fprop_gemm(const ConvProblem& p) {
    ConvGemm gemm{};
    const bool rows = p.row_is_tap();
    gemm.images = p.n;
    gemm.grid_h = gemm.out_h = p.ho();
    gemm.grid_w = gemm.out_w = p.wo();
    gemm.in_h = p.h;
    gemm.in_w = p.w;
    gemm.in_pitch = p.c;
    gemm.in_step_h = p.sh;
    gemm.in_step_w = p.sw;
    gemm.out_pitch = p.k;
    gemm.out_step_h = gemm.out_step_w = 1;
    for (int64_t r = 0; r < p.kh; ++r)
        for (int64_t s = 0; s < (rows ? 1 : p.kw); ++s) gemm.taps.push_back({r * p.dh - p.ph, s * p.dw - p.pw});
    gemm.span = rows ? p.kw : 1;
    gemm.length = gemm.span * p.group_c();
    gemm.columns = p.group_k();
    gemm.groups = p.groups;
    gemm.packed_pitch = packed_floats(p.taps() * p.group_c(), p.group_k());
    return gemm;
}

// w [k][depth] into panels of output channels [depth][width], where depth is [tap][c].
void pack_fprop(const GemmKernels& kernels, const ConvProblem& p, float* packed, const float* w) {
    const int64_t depth = p.taps() * p.group_c(), pitch = packed_floats(depth, p.group_k());
    const auto panels = make_panels(kernels, p.group_k());
    // A panel's depth is cut into up to 16 parts of at least 64 rows: few output channels would leave threads idle.
    const int64_t count = static_cast<int64_t>(panels.size()), parts = std::clamp<int64_t>(depth / 64, 1, 16);
    parallel_for(p.groups * count * parts, [&](int64_t task) {
        const int64_t group = task / count / parts, part = task % parts;
        const int64_t begin = chunk_begin(depth, parts, part), end = chunk_begin(depth, parts, part + 1);
        const Panel& panel = panels[static_cast<size_t>(task / parts % count)];
        const int64_t width = panel.vectors * int64_t{kernels.lanes};
        kernels.pack_columns(packed + group * pitch + panel.offset * depth + begin * width,
                             w + (group * p.group_k() + panel.column) * depth + begin, depth, end - begin,
                             used_columns(kernels, panel), width);
    });
}

// -- dgrad ------------------------------------------------------------------------------------------------------------

// Pixels of x whose coordinates are equal modulo the stride meet the same taps.  Such a residue class is a convolution
// of dy with stride 1, so that no product with an inserted zero is computed:
//     dx[a + i sh] = sum over taps r with (a + ph - r dh) divisible by sh of dy[i + (a + ph - r dh) / sh] w[r]
struct ResidueClass {
    ConvGemm gemm;
    std::vector<int64_t> taps;  // r * kw + s of each tap of the gemm
};

struct TapOffset {
    int64_t tap;     // r, or s
    int64_t offset;  // of the pixel of dy that it reads
};

// Taps r along one axis for which first + pad - r * dilation is a multiple of the stride, with the quotient.
std::vector<TapOffset> matching_taps(int64_t first, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    std::vector<TapOffset> taps;
    for (int64_t r = 0; r < kernel; ++r) {
        const int64_t distance = first + pad - r * dilation;
        if (distance % stride == 0) taps.push_back({r, distance / stride});
    }
    return taps;
}

// Pixels (a + i * sh, b + j * sw) of dx.
ResidueClass dgrad_class(const ConvProblem& p, int64_t a, int64_t b) {
    ResidueClass one{};
    ConvGemm& gemm = one.gemm;
    gemm.images = p.n;
    gemm.grid_h = ceil_div(p.h - a, p.sh);
    gemm.grid_w = ceil_div(p.w - b, p.sw);
    gemm.in_h = p.ho();
    gemm.in_w = p.wo();
    gemm.in_pitch = p.k;
    gemm.in_step_h = gemm.in_step_w = 1;
    gemm.out_h = p.h;
    gemm.out_w = p.w;
    gemm.out_pitch = p.c;
    gemm.out_first_h = a;
    gemm.out_first_w = b;
    gemm.out_step_h = p.sh;
    gemm.out_step_w = p.sw;
    for (const TapOffset& r : matching_taps(a, p.kh, p.sh, p.ph, p.dh))
        for (const TapOffset& s : matching_taps(b, p.kw, p.sw, p.pw, p.dw)) {
            gemm.taps.push_back({r.offset, s.offset});
            one.taps.push_back(r.tap * p.kw + s.tap);
        }
    gemm.span = 1;
    gemm.length = p.group_k();
    gemm.columns = p.group_c();
    gemm.groups = p.groups;
    gemm.packed_pitch = packed_floats(static_cast<int64_t>(one.taps.size()) * p.group_k(), p.group_c());
    return one;
}

// All sh * sw classes; together they write each pixel of dx exactly once.  A class may have no tap (stride larger than
// the kernel): its pixels become zero, or the bias of a Deconvolution.
std::vector<ResidueClass> dgrad_classes(const ConvProblem& p) {
    std::vector<ResidueClass> classes;
    for (int64_t a = 0; a < std::min(p.sh, p.h); ++a)
        for (int64_t b = 0; b < std::min(p.sw, p.w); ++b) classes.push_back(dgrad_class(p, a, b));
    return classes;
}

// The weights of one class into panels of input channels [tap][k][width]; c is contiguous in w already.
void pack_dgrad(const GemmKernels& kernels, const ConvProblem& p, const ResidueClass& one, float* packed,
                const float* w) {
    const auto taps = static_cast<int64_t>(one.taps.size());
    const int64_t depth = taps * p.group_k(), pitch = p.taps() * p.group_c();
    const auto panels = make_panels(kernels, p.group_c());
    const auto count = static_cast<int64_t>(panels.size());
    parallel_for(p.groups * count * taps, [&](int64_t task) {
        const int64_t group = task / count / taps, tap = task % taps;
        const Panel& panel = panels[static_cast<size_t>(task / taps % count)];
        const int64_t width = panel.vectors * int64_t{kernels.lanes};
        kernels.pack_rows(
            packed + group * one.gemm.packed_pitch + panel.offset * depth + tap * p.group_k() * width,
            w + group * p.group_k() * pitch + one.taps[static_cast<size_t>(tap)] * p.group_c() + panel.column, pitch,
            p.group_k(), used_columns(kernels, panel), width);
    });
}

void check(const ConvProblem& p, const float* bias, bool accumulate) {
    p.check();
    if (accumulate && bias) throw std::invalid_argument("convolution: bias and accumulate exclude each other");
}

}  // namespace

void check_stored(const ConvProblem& p, Storage of_x, Storage of_y) {
    if ((of_x != Storage::fp32 || of_y != Storage::fp32) && !conv_is_stored(p))
        throw std::invalid_argument("convolution: this problem takes blobs in fp32 only");
}

void ConvProblem::check() const {
    const auto fail = [](const std::string& what) { throw std::invalid_argument("convolution: " + what); };
    if (n < 1 || c < 1 || h < 1 || w < 1 || k < 1) fail("every size must be at least 1");
    if (kh < 1 || kw < 1 || sh < 1 || sw < 1 || dh < 1 || dw < 1 || groups < 1)
        fail("kernel, stride, dilation and groups must be at least 1");
    if (ph < 0 || pw < 0) fail("pad must not be negative");
    if (c % groups || k % groups) fail("channels must be divisible by groups");
    if (first < 0 || first + n > batch()) fail("the batch does not have these images");
    if (frames && (n % frames || first % frames)) fail("the images are not all frames of their items");
    if (h + 2 * ph < dh * (kh - 1) + 1 || w + 2 * pw < dw * (kw - 1) + 1)
        fail("the window is larger than the padded image");
}

// workspace: packed weights
int64_t conv_fprop_workspace_bytes(const ConvProblem& p) {
    p.check();
    if (is_depthwise(p)) return depthwise_workspace_bytes(p);
    if (is_winograd(p)) return winograd_fprop_workspace_bytes(p);
    return aligned_bytes<float>(p.groups * packed_floats(p.taps() * p.group_c(), p.group_k()));
}

Launch conv_fprop(const ConvProblem& p, float* y, const float* x, const float* w, OrNull<const float> bias,
                  bool accumulate, bool relu, const ReluMask& mask, OrNull<void> workspace, Storage of_x,
                  Storage of_y) {
    check(p, bias, accumulate);
    check_stored(p, of_x, of_y);
    if (is_depthwise(p)) return depthwise_fprop(p, y, x, w, bias, accumulate, relu, mask, workspace);
    if (is_winograd(p)) return winograd_fprop(p, y, x, w, bias, accumulate, relu, mask, workspace, of_x, of_y);
    float* packed = static_cast<float*>(workspace);
    return [=, &kernels = gemm_kernels(), &activation = activation_kernels(), gemm = fprop_gemm(p)] {
        pack_fprop(kernels, p, packed, w);
        run_implicit_gemm(kernels, gemm, y, x, packed, bias, accumulate, relu, of_x, of_y);
        if (mask.bits) write_mask(activation, gemm.rows() * p.k, y, mask, of_y);
    };
}

// workspace: packed weights of one class after the other
int64_t conv_dgrad_workspace_bytes(const ConvProblem& p) {
    p.check();
    if (is_depthwise(p)) return depthwise_workspace_bytes(p);
    if (is_winograd(p)) return winograd_dgrad_workspace_bytes(p);
    int64_t floats = 0;
    for (const ResidueClass& one : dgrad_classes(p)) floats += p.groups * one.gemm.packed_pitch;
    return aligned_bytes<float>(floats);
}

Launch conv_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, OrNull<const float> bias,
                  bool accumulate, OrNull<void> workspace, Storage storage) {
    check(p, bias, accumulate);
    check_stored(p, storage, storage);
    if (is_depthwise(p)) return depthwise_dgrad(p, dx, dy, w, bias, accumulate, workspace);
    if (is_winograd(p)) return winograd_dgrad(p, dx, dy, w, bias, accumulate, workspace, storage);
    return [=, &kernels = gemm_kernels(), classes = dgrad_classes(p)] {
        float* packed = static_cast<float*>(workspace);
        for (const ResidueClass& one : classes) {
            if (one.taps.empty() && accumulate) continue;  // adds nothing; otherwise its pixels are still initialized
            pack_dgrad(kernels, p, one, packed, w);
            run_implicit_gemm(kernels, one.gemm, dx, dy, packed, bias, accumulate, false, storage, storage);
            packed += p.groups * one.gemm.packed_pitch;
        }
    };
}

LAYERMEM_KERNEL(conv_is_stored)
LAYERMEM_KERNEL(conv_fprop_workspace_bytes)
LAYERMEM_KERNEL(conv_dgrad_workspace_bytes)
LAYERMEM_KERNEL(conv_fprop)
LAYERMEM_KERNEL(conv_dgrad)

}  // namespace layermem::cpu
