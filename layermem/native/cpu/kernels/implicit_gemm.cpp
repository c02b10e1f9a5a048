// Loop order, from outside in:
//
//     tasks: blocks of up to kBlockRows output pixels x groups x shares of the panels
//         K slices: parts of the reduction whose operands stay in cache; rows are gathered once for all panels
//             panels: one GemmBlock each
//
// Rows of a block are pointers to pixels.  A row that lies outside the image points to zeros; one that is partly
// outside (span > 1) is copied to an edge buffer with zeros beside it.
//
// For an image in 16 bits, all rows of a K slice are widened into a buffer in the second-level cache.  For an output in
// 16 bits, the sums of a block stay in another buffer until they are complete, and are rounded once.
#include "cpu/kernels/implicit_gemm.h"

#include <algorithm>
#include <cstring>

#include "cpu/kernels/stored.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kMaxTaps = 32;        // most taps of one K slice: bounds the table of pointers
constexpr int64_t kEdgeFloats = 12288;  // floats of the edge buffer: 48 KiB
constexpr int64_t kSumColumns = 512;    // most columns of a task whose output is in 16 bits: its sums take 192 KiB
constexpr int64_t kMinTasks = 64;       // enough to share out evenly among any number of threads
alignas(64) const float kZeros[kBlockDepth] = {};

// A part of the reduction that one GemmBlock sums: `taps` whole taps, or `length` floats from `first` of one long tap.
struct KSlice {
    int64_t tap, taps, first, length;
};

std::vector<KSlice> make_slices(int64_t taps, int64_t length) {
    if (taps == 0) return {{0, 0, 0, length}};  // nothing to add, but the initial value is still to be written
    std::vector<KSlice> slices;
    if (length > kBlockDepth) {
        const int64_t parts = ceil_div(length, kBlockDepth);
        for (int64_t tap = 0; tap < taps; ++tap)
            for (int64_t part = 0; part < parts; ++part) {
                const int64_t first = chunk_begin(length, parts, part);
                slices.push_back({tap, 1, first, chunk_begin(length, parts, part + 1) - first});
            }
        return slices;
    }
    const int64_t most = std::min(kMaxTaps, std::max<int64_t>(1, kBlockDepth / length));
    const int64_t parts = ceil_div(taps, most);
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t tap = chunk_begin(taps, parts, part);
        slices.push_back({tap, chunk_begin(taps, parts, part + 1) - tap, 0, length});
    }
    return slices;
}

struct Pixel {           // an output pixel
    float* out;          // where its sums go
    const float* image;  // the image that it reads
    int64_t h, w;        // pixel of the image from which taps are counted
    uint64_t inside;     // bit set of the taps that lie inside the image
};

// The rows [begin, begin + count) of the GEMM, as pointers.
class RowBlock {
  public:
    RowBlock(const ConvGemm& gemm, int64_t begin, int64_t count, float* out, const float* in, const Conversion& of_in,
             Storage of_out)
        : gemm_(gemm), count_(count), of_in_(of_in) {
        int64_t x = begin % gemm.grid_w, y = begin / gemm.grid_w % gemm.grid_h, n = begin / gemm.grid_w / gemm.grid_h;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t oh = y * gemm.out_step_h + gemm.out_first_h, ow = x * gemm.out_step_w + gemm.out_first_w;
            pixels_[i] = {element(out, of_out, ((n * gemm.out_h + oh) * gemm.out_w + ow) * gemm.out_pitch),
                          element(in, of_in.storage, n * gemm.in_h * gemm.in_w * gemm.in_pitch), y * gemm.in_step_h,
                          x * gemm.in_step_w, 0};
            if (++x == gemm.grid_w) {
                x = 0;
                if (++y == gemm.grid_h) {
                    y = 0;
                    ++n;
                }
            }
        }
        // Worth it only where a tile's rows often lie at the border, that is in small images.
        if (gemm.taps.size() > 1 && gemm.taps.size() <= 64 && gemm.grid_w <= 32) sort_by_taps();
        for (int64_t i = 0; i < count; ++i) out_rows_[i] = pixels_[i].out;
    }

    // Points in_rows() to the pixels that the taps of `slice` read, tap by tap.
    void gather_rows(const KSlice& slice) {
        float* edge = of_in_.storage == Storage::fp32 ? edge_ : wide_;
        for (int64_t t = 0; t < slice.taps; ++t) {
            const Tap tap = gemm_.taps[static_cast<size_t>(slice.tap + t)];
            const float** rows = in_rows_ + t * kBlockRows;
            for (int64_t i = 0; i < count_; ++i) {
                const Pixel& p = pixels_[i];
                const int64_t h = p.h + tap.h, w = p.w + tap.w;
                if (h < 0 || h >= gemm_.in_h || w <= -gemm_.span || w >= gemm_.in_w) {
                    rows[i] = kZeros;
                } else if (w >= 0 && w + gemm_.span <= gemm_.in_w) {
                    const int64_t at = (h * gemm_.in_w + w) * gemm_.in_pitch + slice.first;
                    rows[i] = of_in_.read(p.image, at, slice.length, edge);
                    if (rows[i] == edge) edge += slice.length;
                } else {
                    copy_row_of_window(edge, p.image, h * gemm_.in_w * gemm_.in_pitch, w);
                    rows[i] = edge;
                    edge += gemm_.length;
                }
            }
            // The last tile may reach beyond the rows of the block.
            for (int64_t i = count_; i < std::min(count_ + kTileRows - 1, kBlockRows); ++i) rows[i] = kZeros;
        }
    }

    const float* const* in_rows() const { return in_rows_; }
    float* const* out_rows() const { return out_rows_; }

  private:
    // A tile skips a tap that is outside the image for all of its rows, so rows that miss the same taps are brought
    // together.  The order of the rows does not change any sum.
    void sort_by_taps() {
        bool all_equal = true;
        for (int64_t i = 0; i < count_; ++i) {
            Pixel& p = pixels_[i];
            for (const Tap& tap : gemm_.taps) {
                const int64_t h = p.h + tap.h, w = p.w + tap.w;
                const bool inside = h >= 0 && h < gemm_.in_h && w > -gemm_.span && w < gemm_.in_w;
                p.inside = p.inside << 1 | static_cast<uint64_t>(inside);
            }
            all_equal &= p.inside == pixels_[0].inside;
        }
        if (all_equal) return;
        std::stable_sort(pixels_, pixels_ + count_, [](const Pixel& a, const Pixel& b) { return a.inside > b.inside; });
    }

    // Returns `span` pixels of the image row at `row` from column w on, zeros where they lie outside.
    void copy_row_of_window(float* to, const float* image, int64_t row, int64_t w) const {
        const int64_t c = gemm_.in_pitch, begin = std::max<int64_t>(w, 0), end = std::min(w + gemm_.span, gemm_.in_w);
        std::memset(to, 0, static_cast<size_t>(gemm_.length) * sizeof(float));
        of_in_.copy(to + (begin - w) * c, image, row + begin * c, (end - begin) * c);
    }

    const ConvGemm& gemm_;
    const int64_t count_;
    const Conversion of_in_;
    Pixel pixels_[kBlockRows];
    float* out_rows_[kBlockRows];
    const float* in_rows_[kMaxTaps * kBlockRows];  // [tap of the slice][row]
    union {
        alignas(64) float edge_[kEdgeFloats];
        alignas(64) float wide_[kBlockRows * kBlockDepth];  // all rows of a slice
    };
};

// The destination of a block's sums: the output's rows, or a buffer until they are complete.
class StoredSums {
  public:
    StoredSums(const Conversion& convert, float* const* out_rows, int64_t count, const Panel& first, const Panel& last,
               const GemmKernels& kernels)
        : convert_(convert), out_rows_(out_rows), count_(count) {
        if (convert.storage == Storage::fp32) return;
        first_column_ = first.column;
        width_ = last.column + used_columns(kernels, last) - first.column;
        for (int64_t i = 0; i < count; ++i) rows_[i] = sums_ + i * width_;
    }
    float* const* rows() const { return width_ ? rows_ : out_rows_; }
    int64_t first_column() const { return first_column_; }
    void read() {
        for (int64_t i = 0; i < count_ && width_; ++i)
            convert_.open(out_rows_[i], first_column_, width_, rows_[i], true);
    }
    void write() const {
        for (int64_t i = 0; i < count_ && width_; ++i) convert_.write(out_rows_[i], first_column_, width_, rows_[i]);
    }

  private:
    const Conversion convert_;
    float* const* const out_rows_;
    const int64_t count_;
    int64_t first_column_ = 0, width_ = 0;  // of the buffer
    float* rows_[kBlockRows];
    alignas(64) float sums_[kBlockRows * kSumColumns];
};

}  // namespace

std::vector<Panel> make_panels(const GemmKernels& kernels, int64_t columns) {
    const int64_t lanes = kernels.lanes, vectors = ceil_div(columns, lanes);
    const int64_t count = ceil_div(vectors, kernels.max_vectors);
    std::vector<Panel> panels;
    for (int64_t p = 0, v = 0; p < count; ++p) {  // as equal in width as possible
        const int64_t width = ceil_div(vectors - v, count - p), end = (v + width) * lanes;
        const int64_t last = end <= columns ? lanes : columns - end + lanes;
        panels.push_back({v * lanes, static_cast<int>(width), static_cast<int>(last), v * lanes});
        v += width;
    }
    return panels;
}

void run_implicit_gemm(const GemmKernels& kernels, const ConvGemm& gemm, float* out, const float* in,
                       const float* packed, const float* bias, bool accumulate, bool relu, Storage of_in,
                       Storage of_out) {
    const auto taps = static_cast<int64_t>(gemm.taps.size());
    const auto slices = make_slices(taps, gemm.length);
    const auto panels = make_panels(kernels, gemm.columns);
    const auto panel_count = static_cast<int64_t>(panels.size());
    const int64_t depth = taps * gemm.length, rows = gemm.rows();

    // With span > 1 a block is so low that all its rows fit into the edge buffer.
    int64_t block_rows = kBlockRows;
    if (gemm.span > 1)
        block_rows = std::min(kEdgeFloats / std::min(kBlockDepth, depth) / kTileRows * kTileRows, kBlockRows);
    const int64_t blocks = ceil_div(rows, block_rows);
    // Panels are divided among tasks only where there are too few blocks: each share gathers its rows again.
    const int64_t few_panels =
        of_out == Storage::fp32 ? 1 : ceil_div(panel_count * kernels.max_vectors * kernels.lanes, kSumColumns);
    const int64_t shares =
        std::clamp<int64_t>(std::max(ceil_div(kMinTasks, blocks * gemm.groups), few_panels), 1, panel_count);
    const Conversion from(of_in), to(of_out);

    parallel_for(blocks * gemm.groups * shares, [&](int64_t task) {
        const int64_t share = task % shares, group = task / shares % gemm.groups;
        const int64_t begin = task / shares / gemm.groups * block_rows, count = std::min(block_rows, rows - begin);
        const int64_t first_panel = chunk_begin(panel_count, shares, share);
        const int64_t last_panel = chunk_begin(panel_count, shares, share + 1);
        RowBlock block(gemm, begin, count, element(out, of_out, group * gemm.columns),
                       element(in, of_in, group * gemm.length), from, of_out);
        StoredSums sums(to, block.out_rows(), count, panels[static_cast<size_t>(first_panel)],
                        panels[static_cast<size_t>(last_panel - 1)], kernels);
        if (accumulate) sums.read();
        GemmBlock args{};
        args.in_rows = block.in_rows();
        args.out_rows = sums.rows();
        args.pitch = kBlockRows;
        args.zero_row = kZeros;
        args.rows = count;
        args.init = accumulate ? Init::out : bias ? Init::bias : Init::zero;
        for (const KSlice& slice : slices) {
            block.gather_rows(slice);
            args.slices = slice.taps;
            args.length = slice.length;
            args.relu = relu && &slice == &slices.back();
            for (int64_t p = first_panel; p < last_panel; ++p) {
                const Panel& panel = panels[static_cast<size_t>(p)];
                const int64_t width = panel.vectors * int64_t{kernels.lanes};
                args.vectors = panel.vectors;
                args.last_lanes = panel.last_lanes;
                args.column = panel.column - sums.first_column();
                args.packed = packed + group * gemm.packed_pitch + panel.offset * depth +
                              (slice.tap * gemm.length + slice.first) * width;
                args.bias = bias ? bias + group * gemm.columns + panel.column : nullptr;
                kernels.gemm(args);
            }
            args.init = Init::out;  // later slices add to the sums of the first
        }
        sums.write();
    });
}

}  // namespace layermem::cpu
