// A pass over x is divided into ranges of lines.  Sums over channels are divided along `outer`, since every line has
// all channels (inner = 1) or its part of one channel.
#include "cpu/kernels/channel_ops.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskElements = 16384;  // of one pass
constexpr int64_t kPartElements = 32768;  // of a channel sum: enough to be worth a part
constexpr int64_t kMaxParts = 32;

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

void run_affine(const ChannelKernels& kernels, const ChannelAffine& args) {
    const int64_t step = std::max<int64_t>(1, kTaskElements / args.shape.line());
    parallel_for_ranges(args.shape.lines(), step,
                        [&](int64_t begin, int64_t end) { kernels.affine(args, begin, end); });
}

int64_t sum_parts(const Channels& shape) {
    return std::min(shape.outer, std::clamp<int64_t>(shape.count() / kPartElements, 1, kMaxParts));
}

// Layout: sums [parts][2][channels], then the extra vectors, without padding between them.
int64_t sum_workspace_bytes(const Channels& shape, int64_t extra) {
    shape.check();
    return aligned_bytes<float>(sum_floats(shape) + extra * shape.channels);
}

void run_sums(const ChannelKernels& kernels, const ChannelSum& args, float* sums) {
    const int64_t outer = args.shape.outer, parts = sum_parts(args.shape);
    parallel_for(parts, [&](int64_t i) {
        ChannelSum part = args;
        part.out = sums + i * 2 * args.shape.channels;
        kernels.sum(part, chunk_begin(outer, parts, i), chunk_begin(outer, parts, i + 1));
    });
}

// The parts are rows of a matrix [parts][2 * channels].
void add_parts(const ReductionKernels& kernels, const Channels& shape, float* out, const float* sums, int which,
               bool accumulate) {
    kernels.sum_rows(out, sums + which * shape.channels, 2 * shape.channels, sum_parts(shape), shape.channels,
                     accumulate);
}

}  // namespace layermem::cpu
