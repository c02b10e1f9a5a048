// A pass over x is divided into ranges of lines.  Sums over channels are divided along `outer`, since every line has
// all channels (inner = 1) or its part of one channel.
#include "cpu/kernels/channels.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kPartElements = 32768;  // least elements of a part of a channel sum
constexpr int64_t kMaxSumParts = 32;
constexpr int64_t kSlab = 64;  // channels of a block of lines that are widened at a time

// Numbers of channels from `channel` on.
const float* from_channel(const float* numbers, int64_t channel) { return numbers ? numbers + channel : nullptr; }

// Does the work of run_sums for blobs in 16 bits with inner = 1: a block of lines of kSlab channels at a time.
void sum_stored(const ChannelKernels& kernels, const ChannelSum& args, const Conversion& convert, int64_t begin,
                int64_t end) {
    alignas(64) float a[kSumLines * kSlab], x[kSumLines * kSlab], sums[2 * kSlab];
    const int64_t channels = args.shape.channels;
    for (int64_t block = begin; block < end; block += kSumLines)
        for (int64_t c = 0; c < channels; c += kSlab) {
            const int64_t lines = std::min(end - block, kSumLines), width = std::min(channels - c, kSlab);
            const auto widen = [&](const float* blob, float* to) {
                if (width == channels) return convert.read(blob, block * channels, lines * channels, to);
                for (int64_t i = 0; i < lines; ++i)
                    if (!convert.read(blob, (block + i) * channels + c, width, to + i * width)) return blob;
                return static_cast<const float*>(to);
            };
            ChannelSum piece = args;
            piece.shape = {lines, width, 1};
            piece.a = widen(args.a, a);
            piece.x = widen(args.x, x);
            piece.mean = from_channel(args.mean, c);
            piece.inv_std = from_channel(args.inv_std, c);
            piece.scale = from_channel(args.scale, c);
            piece.bias = from_channel(args.bias, c);
            piece.out = sums;
            piece.init = block > begin ? SumInit::blocks : SumInit::zero;
            piece.before = block - begin;
            if (block > begin) {
                std::copy_n(args.out + c, width, sums);
                std::copy_n(args.out + channels + c, width, sums + width);
            }
            kernels.sum(piece, 0, lines);
            std::copy_n(sums, width, args.out + c);
            std::copy_n(sums + width, width, args.out + channels + c);
        }
}

}  // namespace

void Channels::check() const {
    if (outer < 1 || channels < 1 || inner < 1)
        throw std::invalid_argument("channels: outer, channels and inner must be at least 1");
}

ChannelAffine affine_args(const Channels& shape, AffineKind kind, float* out, const float* a, bool accumulate) {
    ChannelAffine args{};
    args.shape = shape;
    args.kind = kind;
    args.out = out;
    args.a = a;
    args.accumulate = accumulate;
    return args;
}

void affine_of_piece(const ChannelKernels& kernels, const ChannelAffine& args, int64_t begin, int64_t size) {
    const int64_t channels = args.shape.channels;
    for (int64_t i = 0; i < size;) {
        // Whole lines, or the piece's share of one line.
        const int64_t c = (begin + i) % channels, lines = c ? 0 : (size - i) / channels;
        const int64_t width = lines ? channels : std::min(channels - c, size - i);
        ChannelAffine part = args;
        part.shape = {std::max<int64_t>(lines, 1), width, 1};
        part.a = args.a + i;
        part.x = args.x ? args.x + i : nullptr;
        part.out = args.out + i;
        part.mean = from_channel(args.mean, c);
        part.scale = from_channel(args.scale, c);
        part.bias = from_channel(args.bias, c);
        part.mean_dy = from_channel(args.mean_dy, c);
        part.covariance = from_channel(args.covariance, c);
        kernels.affine(part, 0, part.shape.outer);
        i += part.shape.count();
    }
}

void run_affine(const ChannelKernels& kernels, const ChannelAffine& args, Storage storage) {
    if (storage != Storage::fp32) {
        for_each_stored_piece(args.shape.count(), storage,
                              [&, convert = Conversion(storage)](int64_t begin, int64_t size) {
                                  alignas(64) float a[kPieceFloats], x[kPieceFloats], out[kPieceFloats];
                                  ChannelAffine piece = args;
                                  piece.a = convert.read(args.a, begin, size, a);
                                  piece.x = convert.read(args.x, begin, size, x);
                                  piece.out = convert.open(args.out, begin, size, out, args.accumulate);
                                  affine_of_piece(kernels, piece, begin, size);
                                  convert.write(args.out, begin, size, out);
                              });
        return;
    }
    const int64_t step = std::max<int64_t>(1, kTaskElements / args.shape.line());
    parallel_for_ranges(args.shape.lines(), step,
                        [&](int64_t begin, int64_t end) { kernels.affine(args, begin, end); });
}

int64_t sum_parts(const Channels& shape) {
    return std::min(shape.outer, std::clamp<int64_t>(shape.count() / kPartElements, 1, kMaxSumParts));
}

// Layout: sums [parts][2][channels], then the extra vectors, without padding between them.
int64_t sum_workspace_bytes(const Channels& shape, int64_t extra) {
    shape.check();
    return aligned_bytes<float>(sum_floats(shape) + extra * shape.channels);
}

void run_sums(const ChannelKernels& kernels, const ChannelSum& args, float* sums, Storage storage) {
    const int64_t outer = args.shape.outer, parts = sum_parts(args.shape);
    parallel_for(parts, [&](int64_t i) {
        ChannelSum part = args;
        part.out = sums + i * 2 * args.shape.channels;
        const int64_t begin = chunk_begin(outer, parts, i), end = chunk_begin(outer, parts, i + 1);
        if (storage == Storage::fp32)
            kernels.sum(part, begin, end);
        else
            sum_stored(kernels, part, Conversion(storage), begin, end);
    });
}

// The parts are rows of a matrix [parts][2 * channels].
void add_parts(const ReductionKernels& kernels, const Channels& shape, float* out, const float* sums, int which,
               bool accumulate) {
    kernels.sum_rows(out, sums + which * shape.channels, 2 * shape.channels, sum_parts(shape), shape.channels,
                     accumulate);
}

void run_sums_of_slice(const ChannelKernels& kernels, const ReductionKernels& reduction, const ChannelSum& args,
                       const RowSlice& outer, float* carried) {
    const int64_t parts = sum_parts({outer.all, args.shape.channels, args.shape.inner}),
                  end = outer.first + outer.count;
    const int64_t columns = 2 * args.shape.channels;
    const bool has_blocks = args.shape.inner == 1;
    float* block = carried + parts * columns;
    // Outer indices [from, to) of the batch, in the part that begins at `first` and ends at `last`.
    const auto sum = [&](float* out, SumInit init, int64_t from, int64_t to) {
        ChannelSum piece = args;
        piece.out = out;
        piece.init = init;
        kernels.sum(piece, from - outer.first, to - outer.first);
    };
    const auto add = [&](int64_t i, int64_t from, int64_t to) {
        const int64_t first = chunk_begin(outer.all, parts, i), last = chunk_begin(outer.all, parts, i + 1);
        float* out = carried + i * columns;
        if (!has_blocks) return sum(out, from > first ? SumInit::blocks : SumInit::zero, from, to);
        while (from < to) {
            const int64_t begun = first + (from - first) / kSumLines * kSumLines,
                          ends = std::min(last, begun + kSumLines);
            const SumInit init = begun > first ? SumInit::blocks : SumInit::zero;
            if (from == begun && ends <= to) {  // whole blocks, as many as there are
                const int64_t stop = to == last ? to : first + (to - first) / kSumLines * kSumLines;
                sum(out, init, from, stop);
                from = stop;
                continue;
            }
            const int64_t stop = std::min(ends, to);
            sum(block, from > begun ? SumInit::lines : SumInit::zero, from, stop);
            if (stop == ends) reduction.sum_rows(out, block, columns, 1, columns, init == SumInit::blocks);
            from = stop;
        }
    };
    // First completes the block that the last slice has begun.
    int64_t begun = outer.first;
    for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = chunk_begin(outer.all, parts, i), last = chunk_begin(outer.all, parts, i + 1);
        if (outer.first <= first || outer.first >= last) continue;
        begun = std::min({end, last, first + ceil_div(outer.first - first, kSumLines) * kSumLines});
        if (begun > outer.first) add(i, outer.first, begun);
    }
    parallel_for(parts, [&](int64_t i) {
        const int64_t from = std::max(begun, chunk_begin(outer.all, parts, i));
        const int64_t to = std::min(end, chunk_begin(outer.all, parts, i + 1));
        if (from < to) add(i, from, to);
    });
}

// The parts' moments [parts][2][channels], then with inner = 1 the lines of a block that two slices share.
int64_t moments_carry_bytes(const Channels& whole, int64_t each) {
    whole.check();
    const int64_t lines = whole.inner == 1 ? longest_divided_block(each, whole.outer, sum_parts(whole), kSumLines) : 0;
    return aligned_bytes<float>(sum_floats(whole) + lines * whole.channels);
}

// A block is merged once it has all its lines; until then slices carry the lines themselves.
void run_moments_of_slice(const ChannelKernels& kernels, const ChannelSum& args, const RowSlice& outer,
                          float* carried) {
    const int64_t channels = args.shape.channels, end = outer.first + outer.count;
    const int64_t parts = sum_parts({outer.all, channels, args.shape.inner});
    const int64_t block = args.shape.inner == 1 ? kSumLines : 1;
    float* lines = carried + parts * 2 * channels;
    const auto line = [&](int64_t index) { return args.a + (index - outer.first) * channels; };  // with inner = 1
    // Lines [from, to) of the batch are merged into part i, whose first is `first`; they lie at `a`.
    const auto merge = [&](int64_t i, int64_t first, int64_t from, int64_t to, const float* a) {
        ChannelSum piece = args;
        piece.out = carried + i * 2 * channels;
        piece.a = a;
        piece.before = from - first;
        kernels.sum(piece, 0, to - from);
    };
    // The part whose last block an earlier slice has begun; the block is merged if this slice has its other lines.
    int64_t begun = outer.first;
    for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = chunk_begin(outer.all, parts, i), last = chunk_begin(outer.all, parts, i + 1);
        if (outer.first <= first || outer.first >= last || (outer.first - first) % block == 0) continue;
        const int64_t from = first + (outer.first - first) / block * block, to = std::min(from + block, last);
        begun = std::min(end, to);
        std::copy(line(outer.first), line(begun), lines + (outer.first - from) * channels);
        if (begun == to) merge(i, first, from, to, lines);
    }
    parallel_for(parts, [&](int64_t i) {
        const int64_t first = chunk_begin(outer.all, parts, i), last = chunk_begin(outer.all, parts, i + 1);
        const int64_t from = std::max(begun, first), to = std::min(end, last);
        if (from >= to) return;
        const int64_t whole = to == last ? to : first + (to - first) / block * block;  // the end of whole blocks
        const int64_t at = args.shape.inner == 1 ? 1 : args.shape.inner;
        if (from < whole) merge(i, first, from, whole, args.a + (from - outer.first) * channels * at);
        if (whole < to) std::copy(line(whole), line(to), lines);
    });
}

// The parts' sums, then those of a block that two slices share.
int64_t channel_sums_carry_bytes(const Channels& whole, int64_t each) {
    whole.check();
    const bool has_block =
        whole.inner == 1 && longest_divided_block(each, whole.outer, sum_parts(whole), kSumLines) > 0;
    return aligned_bytes<float>(sum_floats(whole) + (has_block ? 2 * whole.channels : 0));
}

Launch channel_sums(const Channels& shape, SumKind kind, OrNull<float> out, const float* a, OrNull<const float> x,
                    bool accumulate, void* carry, int64_t first, int64_t of) {
    if (kind != SumKind::plain && kind != SumKind::product && kind != SumKind::prelu)
        throw std::invalid_argument("channel_sums: takes plain sums, products and prelu");
    ChannelSum args{};
    args.shape = shape;
    args.kind = kind;
    args.a = a;
    args.x = x;
    const RowSlice outer = row_slice(shape.outer, first, of);
    args.shape.check();
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        auto* sums = static_cast<float*>(carry);
        run_sums_of_slice(kernels, reduction, args, outer, sums);
        const Channels whole{outer.all, args.shape.channels, args.shape.inner};
        if (outer.is_last()) add_parts(reduction, whole, out, sums, 0, accumulate);
    };
}

LAYERMEM_KERNEL(channel_sums_carry_bytes)
LAYERMEM_KERNEL(moments_carry_bytes)
LAYERMEM_KERNEL(channel_sums)

}  // namespace layermem::cpu
