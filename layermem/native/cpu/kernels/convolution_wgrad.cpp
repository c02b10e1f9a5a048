// wgrad: for every tap, output channels times input channels, summed over pixels.
//
//     dw[k][tap][c] = sum over pixels of dy[pixel][k] * x[pixel moved by tap][c]
//
// Pixels are processed in blocks that stay in cache while all taps and channels use them.  Only pixels whose tap lies
// inside the image are visited, so padding costs nothing.  Where dw is small, pixels are divided into parts, whose
// number depends on the problem only (split-K); each part sums into its own copy of dw, and the copies are added in
// order.  A slice of a batch adds its pixels to the copies of the whole batch's parts.
//
// Lanes are input channels.  Where those would leave most lanes empty (an image of three channels), lanes are output
// channels instead, and each copy is the transpose of dw.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cpu/kernels/convolution.h"
#include "cpu/kernels/depthwise.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/kernels/strips.h"
#include "cpu/kernels/winograd.h"
#include "cpu/microkernels/gemm.h"
#include "cpu/microkernels/reduction.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kBlockPixels = kMaxPairs;  // most pixels of a block
constexpr int64_t kCopiesBytes = 4 << 20;    // most workspace for copies of dw
constexpr int64_t kPartChannels = 64;        // output channels by which parts are counted
constexpr int64_t kTaskChannels = 128;       // most output channels of a task
constexpr int64_t kTaskColumns = 512;        // most input channels of a task
constexpr int64_t kMinTasks = 32;
constexpr int64_t kMinPartPixels = 256;  // fewer are not worth a copy of dw
constexpr int64_t kEdgeFloats = 12288;   // floats of a task's edge buffer, for windows that cross the border: 48 KiB

struct Split {
    int64_t parts, chunks, slices, block_pixels;  // parts of the pixels, chunks of output, slices of input channels
    bool lanes_over_outputs;
    bool needs_copies() const { return parts > 1 || lanes_over_outputs; }
};

// Whether lanes over outputs leave fewer lanes empty, counted for registers of 16 lanes so that it is the same on every
// ISA.
bool better_with_lanes_over_outputs(const ConvProblem& p) {
    if (!p.row_is_tap()) return false;
    const int64_t row = p.kw * p.c;
    return row * ceil_div(p.k, 16) < p.k * ceil_div(row, 16);
}

// The split of the whole batch; its slices use the same one.
Split make_split(const ConvProblem& p) {
    const int64_t rows = p.batch() * p.ho() * p.wo(), weight_bytes = p.weights() * 4;
    Split split{};
    split.lanes_over_outputs = better_with_lanes_over_outputs(p);
    split.chunks = split.lanes_over_outputs ? 1 : ceil_div(p.group_k(), kPartChannels);
    const int64_t max_parts = split.lanes_over_outputs ? kMinTasks : 16;
    split.parts = std::clamp<int64_t>(ceil_div(kMinTasks, split.chunks * p.groups), 1, max_parts);
    split.parts = std::clamp<int64_t>(kCopiesBytes / weight_bytes, 1, split.parts);
    split.parts = std::clamp<int64_t>(rows / kMinPartPixels, 1, split.parts);
    // Sums depend on the parts only: chunks and slices may differ in number without changing a bit.
    split.slices = split.lanes_over_outputs || p.row_is_tap() ? 1 : ceil_div(p.group_c(), kTaskColumns);
    const int64_t fewer = split.lanes_over_outputs ? 1 : ceil_div(p.group_k(), kTaskChannels);
    if (split.parts * p.groups * fewer * split.slices >= kMinTasks) split.chunks = fewer;
    split.block_pixels = p.row_is_tap() ? std::min(kBlockPixels, kEdgeFloats / (p.kw * p.c)) : kBlockPixels;
    return split;
}

// Pairs (pixel of x, pixel of dy) that one tap multiplies.
struct Pairs {
    const float* x[kBlockPixels];
    const float* dy[kBlockPixels];
    int64_t count = 0;
    union {
        alignas(64) float edge[kEdgeFloats];
        alignas(64) float wide[kBlockPixels * kTaskColumns];  // all pixels of x in 16 bits
    };
    float* edge_end;

    void add(const float* x_pixel, const float* dy_pixel) {
        x[count] = x_pixel;
        dy[count] = dy_pixel;
        ++count;
    }
};

// Output columns, or parts, [begin, end).
struct Range {
    int64_t begin, end;
};

// The columns whose tap, `shift` pixels from the window's first pixel, lies inside [0, width).
Range columns_inside(int64_t shift, int64_t step, int64_t width) {
    return {shift >= 0 ? 0 : ceil_div(-shift, step), shift >= width ? 0 : (width - 1 - shift) / step + 1};
}

class PairGatherer {
  public:
    PairGatherer(const ConvProblem& p, const float* x, const Conversion& of_x)
        : p_(p), x_(x), of_x_(of_x), ho_(p.ho()), wo_(p.wo()) {}

    // Pixels [begin, end) of dy, which lie `pitch` floats apart from `dy` on, for the tap that starts at (r, s) and is
    // `span` pixels of x wide.
    void gather(Pairs& pairs, int64_t begin, int64_t end, const float* dy, int64_t pitch, int64_t r, int64_t s,
                int64_t span, int64_t channels) const {
        pairs.count = 0;
        pairs.edge_end = of_x_.storage == Storage::fp32 ? pairs.edge : pairs.wide;
        const int64_t shift = s * p_.dw - p_.pw;
        const Range first_pixel = columns_inside(shift, p_.sw, p_.w);
        const Range last_pixel = columns_inside(shift + span - 1, p_.sw, p_.w);
        const Range touching{last_pixel.begin, first_pixel.end};  // some pixel of the span is inside
        const Range whole{first_pixel.begin, last_pixel.end};     // all are
        for (int64_t m = begin; m < end;) {
            // Does the output pixels [first, last) of one row.
            const int64_t line = m / wo_, first = m - line * wo_, last = std::min(wo_, first + end - m);
            const float* dy_line = dy + (m - first - begin) * pitch;
            m += last - first;
            const int64_t n = line / ho_, h = line % ho_ * p_.sh - p_.ph + r * p_.dh;
            if (h < 0 || h >= p_.h) continue;
            const int64_t row = (p_.place(n, p_.x_step) * p_.h + h) * p_.w * p_.c;
            for (int64_t i = std::max(first, touching.begin); i < std::min(last, touching.end); ++i) {
                const int64_t w = i * p_.sw + shift;
                const bool inside = i >= whole.begin && i < whole.end;
                pairs.add(inside ? pixels(pairs, row + w * p_.c, span * channels) : copy_span(pairs, row, w, span),
                          dy_line + i * pitch);
            }
        }
    }

  private:
    // Returns `floats` floats of x from `at` on: where they are, or widened.
    const float* pixels(Pairs& pairs, int64_t at, int64_t floats) const {
        const float* from = of_x_.read(x_, at, floats, pairs.edge_end);
        if (from == pairs.edge_end) pairs.edge_end += floats;
        return from;
    }

    // Copies `span` pixels of an image row from column w on to the edge buffer, zeros where they lie outside.
    const float* copy_span(Pairs& pairs, int64_t row, int64_t w, int64_t span) const {
        const int64_t begin = std::max<int64_t>(w, 0), end = std::min(w + span, p_.w), floats = span * p_.c;
        float* to = pairs.edge_end;
        std::memset(to, 0, static_cast<size_t>(floats) * sizeof(float));
        of_x_.copy(to + (begin - w) * p_.c, x_, row + begin * p_.c, (end - begin) * p_.c);
        pairs.edge_end += floats;
        return to;
    }

    const ConvProblem& p_;
    const float* x_;
    const Conversion of_x_;
    const int64_t ho_, wo_;
};

// Whether pixel m of dy meets pixel m of x only.
bool is_pixelwise(const ConvProblem& p) { return p.taps() == 1 && p.sh == 1 && p.sw == 1 && p.ph == 0 && p.pw == 0; }

// Pixels of y from m on lie together up to the returned one, `end` or the end of their image.
int64_t end_of_image(const ConvProblem& p, int64_t m, int64_t end) {
    const int64_t pixels = p.ho() * p.wo();
    return p.frames ? std::min(end, (m / pixels + 1) * pixels) : end;
}

// Packs pixels [begin, end) of dy.
void pack_pixels(const ConvProblem& p, float* packed, const float* dy, int64_t begin, int64_t end, int64_t columns,
                 const Conversion& convert) {
    while (begin < end) {
        const int64_t stop = end_of_image(p, begin, end);
        const float* from = element(dy, convert.storage, p.pixel_place(begin, p.y_step) * p.k);
        pack_strips(packed, from, stop - begin, p.k, columns, convert);
        packed += (stop - begin) * kStripRows;
        begin = stop;
    }
}

// The sum that one task computes: a part of the pixels, for a chunk of one group's output channels and a slice of its
// input channels.
struct SumTask {
    int64_t part, group, chunk, slice;
};

// Pixels [begin, end) of dy: those of a part that lie in this slice.  continues: earlier slices had its first ones.
struct PixelRange {
    int64_t begin, end;
    bool continues;
};

PixelRange part_pixels(const ConvProblem& p, const Split& split, int64_t part) {
    const int64_t pixels = p.ho() * p.wo(), rows = p.batch() * pixels, first = p.first * pixels;
    const int64_t part_begin = chunk_begin(rows, split.parts, part) - first;
    const int64_t part_end = chunk_begin(rows, split.parts, part + 1) - first;
    return {std::max<int64_t>(part_begin, 0), std::min(part_end, p.n * pixels), part_begin < 0};
}

// The parts that have pixels in this slice.
Range parts_of_slice(const ConvProblem& p, const Split& split) {
    Range parts{0, split.parts};
    while (part_pixels(p, split, parts.begin).end <= 0) ++parts.begin;
    while (part_pixels(p, split, parts.end - 1).begin >= p.n * p.ho() * p.wo()) --parts.end;
    return parts;
}

void compute_sum(const GemmKernels& kernels, const ConvProblem& p, const Split& split, float* dw, const float* x,
                 const float* dy, const SumTask& sum, bool accumulate, Storage of_x, Storage of_dy) {
    const PixelRange pixels = part_pixels(p, split, sum.part);
    const int64_t begin = pixels.begin, end = pixels.end;
    const int64_t first_k = chunk_begin(p.group_k(), split.chunks, sum.chunk);
    const int64_t count_k = chunk_begin(p.group_k(), split.chunks, sum.chunk + 1) - first_k;
    const int64_t k = sum.group * p.group_k() + first_k, pitch = p.taps() * p.group_c();
    const int64_t span = p.row_is_tap() ? p.kw : 1;
    const int64_t first_c = chunk_begin(p.group_c(), split.slices, sum.slice);
    const int64_t count_c = chunk_begin(p.group_c(), split.slices, sum.slice + 1) - first_c;
    const float* sum_x = element(x, of_x, sum.group * p.group_c() + first_c);
    const PairGatherer gatherer(p, sum_x, Conversion(of_x));
    const Conversion convert(of_dy);
    Pairs pairs;
    const float *next_x[kBlockPixels], *next_dy[kBlockPixels];
    union {
        alignas(64) float packed_dy[strips_floats(kTaskChannels)];
        alignas(64) float wide_dy[kBlockPixels * kTaskColumns];  // with lanes over outputs
    };

    OuterBlock block{};
    block.init = accumulate || pixels.continues ? Init::out : Init::zero;
    if (split.lanes_over_outputs) {
        block.x = pairs.dy;
        block.d = pairs.x;
        block.rows = span * p.c;
        block.columns = block.pitch = p.k;
        block.d_strip = kStripRows;
    } else {
        block.x = pairs.x;
        block.d = pairs.dy;
        block.rows = count_k;
        block.columns = span * count_c;
        block.pitch = pitch;
        block.d_strip = kStripFloats;
    }
    for (int64_t m = begin, block_end; m < end; m = block_end) {
        block_end = std::min(m + split.block_pixels, end);
        if (split.lanes_over_outputs) block_end = end_of_image(p, m, block_end);  // dy is read where it lies
        const float* block_dy = element(dy, of_dy, k);
        int64_t dy_pitch = p.k;
        const bool has_next =
            !split.lanes_over_outputs && block_end < end && of_x == Storage::fp32 && of_dy == Storage::fp32;
        if (!split.lanes_over_outputs) {  // every tap and tile reads dy again
            pack_pixels(p, packed_dy, block_dy, m, block_end, count_k, convert);
            block_dy = packed_dy;
            dy_pitch = kStripRows;
        } else {
            block_dy = convert.read(block_dy, p.pixel_place(m, p.y_step) * p.k, (block_end - m) * p.k, wide_dy);
        }
        if (has_next) {
            const float* first_x = sum_x + p.pixel_place(block_end, p.x_step) * p.c;
            const float* first_dy = dy + p.pixel_place(block_end, p.y_step) * p.k + k;
            const int64_t count = end_of_image(p, block_end, end) - block_end;
            for (int64_t i = 0; i < split.block_pixels; ++i) {
                next_x[i] = first_x + std::min(i, count - 1) * p.c;
                next_dy[i] = first_dy + std::min(i, count - 1) * p.k;
            }
        }
        for (int64_t r = 0; r < p.kh; ++r)
            for (int64_t s = 0; s < p.kw; s += span) {
                gatherer.gather(pairs, m, block_end, block_dy, dy_pitch, r, s, span, count_c);
                block.count = pairs.count;
                const bool last_tap = r + 1 == p.kh && s + span >= p.kw;
                block.next_d = has_next && last_tap ? next_dy : nullptr;
                block.next_x = has_next && last_tap && is_pixelwise(p) ? next_x : nullptr;
                const int64_t tap = (r * p.kw + s) * p.group_c() + first_c;
                block.out = dw + (split.lanes_over_outputs ? tap * p.k : k * pitch + tap);
                kernels.outer(block);
            }
        block.init = Init::out;
    }
}

// dw (+)= the sum of the copies [parts][weights]
void add_copies(const ReductionKernels& reduction, const ConvProblem& p, int64_t parts, float* dw, const float* copies,
                bool accumulate) {
    const int64_t floats = p.weights(), pieces = std::clamp<int64_t>(floats / 4096, 1, 64);
    parallel_for(pieces, [&](int64_t i) {  // pieces begin at multiples of 16 floats
        const int64_t begin = chunk_begin(floats / 16, pieces, i) * 16;
        const int64_t end = i + 1 == pieces ? floats : chunk_begin(floats / 16, pieces, i + 1) * 16;
        reduction.sum_rows(dw + begin, copies + begin, floats, parts, end - begin, accumulate);
    });
}

// Adds copies that are [depth][k]; the first one holds their sum.
void add_transposed_copies(const ReductionKernels& reduction, const ConvProblem& p, int64_t parts, float* dw,
                           float* copies, bool accumulate) {
    const int64_t depth = p.taps() * p.c, floats = depth * p.k;
    if (parts > 1) reduction.sum_rows(copies, copies + floats, floats, parts - 1, floats, true);
    for (int64_t k = 0; k < p.k; ++k)
        for (int64_t j = 0; j < depth; ++j) {
            float& out = dw[k * depth + j];
            out = accumulate ? out + copies[j * p.k + k] : copies[j * p.k + k];
        }
}

}  // namespace

// With lanes over outputs, the outputs of a block of pixels are widened as a whole.
bool conv_is_stored(const ConvProblem& p) {
    p.check();
    return !is_depthwise(p) && (is_winograd(p) || !make_split(p).lanes_over_outputs || p.k <= kTaskColumns);
}

// the copies of dw, if there are any
int64_t conv_wgrad_carry_bytes(const ConvProblem& p) {
    p.check();
    if (is_depthwise(p)) return depthwise_wgrad_carry_bytes(p);
    if (is_winograd(p)) return winograd_wgrad_carry_bytes(p);
    const Split split = make_split(p);
    return split.needs_copies() ? aligned_bytes<float>(split.parts * p.weights()) : 0;
}

// workspace: the bytes that slices would carry, except for Winograd
int64_t conv_wgrad_workspace_bytes(const ConvProblem& p) {
    p.check();
    if (!is_depthwise(p) && is_winograd(p)) return winograd_wgrad_workspace_bytes(p);
    return p.is_slice() ? 0 : conv_wgrad_carry_bytes(p);
}

Launch conv_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                  OrNull<void> workspace, OrNull<void> carry, Storage of_x, Storage of_dy) {
    p.check();
    check_stored(p, of_x, of_dy);
    if (p.is_slice() && !carry && conv_wgrad_carry_bytes(p))
        throw std::invalid_argument("convolution: a slice of a batch needs what slices carry of dw");
    if (!is_depthwise(p) && is_winograd(p))
        return winograd_wgrad(p, dw, x, dy, accumulate, workspace, carry, of_x, of_dy);
    float* copies = static_cast<float*>(p.is_slice() ? carry : workspace);
    if (is_depthwise(p)) return depthwise_wgrad(p, dw, x, dy, accumulate, copies);
    return [=, &kernels = gemm_kernels(), &reduction = reduction_kernels(), split = make_split(p)] {
        const int64_t tasks = split.slices * split.chunks;  // tasks of one group and part
        const Range parts = parts_of_slice(p, split);
        parallel_for((parts.end - parts.begin) * p.groups * tasks, [&](int64_t task) {
            const SumTask sum{parts.begin + task / tasks / p.groups, task / tasks % p.groups,
                              task / split.slices % split.chunks, task % split.slices};
            if (split.needs_copies())
                compute_sum(kernels, p, split, copies + sum.part * p.weights(), x, dy, sum, false, of_x, of_dy);
            else
                compute_sum(kernels, p, split, dw, x, dy, sum, accumulate, of_x, of_dy);
        });
        if (!p.is_last()) return;
        if (split.lanes_over_outputs)
            add_transposed_copies(reduction, p, split.parts, dw, copies, accumulate);
        else if (split.needs_copies())
            add_copies(reduction, p, split.parts, dw, copies, accumulate);
    };
}

LAYERMEM_KERNEL(conv_wgrad_workspace_bytes)
LAYERMEM_KERNEL(conv_wgrad_carry_bytes)
LAYERMEM_KERNEL(conv_wgrad)

}  // namespace layermem::cpu
