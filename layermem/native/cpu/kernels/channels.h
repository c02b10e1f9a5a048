// Functions that Scale, Bias, BatchNorm and PReLU share: a pass over x with numbers per channel, and sums over
// channels.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/channels.h"
#include "cpu/microkernels/half.h"
#include "cpu/microkernels/reduction.h"

namespace layermem::cpu {

// The arguments of a pass over `shape`, with all channel vectors null.
ChannelAffine affine_args(const Channels& shape, AffineKind kind, float* out, const float* a, bool accumulate = false);
void run_affine(const ChannelKernels& kernels, const ChannelAffine& args, Storage storage = Storage::fp32);

// Runs the pass for elements [begin, begin + size) of blobs with inner = 1; the pointers of `args` are those of the
// piece.
void affine_of_piece(const ChannelKernels& kernels, const ChannelAffine& args, int64_t begin, int64_t size);

// Sums over a channel are taken in parts of x, whose number depends on the shape only, and then added in order.
int64_t sum_parts(const Channels& shape);

// Bytes of the sums of all parts, [parts][2][channels], and of `extra` more vectors [channels] behind them.
int64_t sum_workspace_bytes(const Channels& shape, int64_t extra = 0);
inline int64_t sum_floats(const Channels& shape) { return sum_parts(shape) * 2 * shape.channels; }

// Writes the sums of every part to sums [parts][2][channels]; args.out is not read.
void run_sums(const ChannelKernels& kernels, const ChannelSum& args, float* sums, Storage storage = Storage::fp32);

// out [channels] (+)= the total of the parts: of the first (which = 0) or second (1) number of each channel.
void add_parts(const ReductionKernels& kernels, const Channels& shape, float* out, const float* sums, int which,
               bool accumulate);

// out [channels] (+)= the first number of each channel of `args`, for a slice of a batch: `outer` are the outer indices of
// args.shape in it.  Slices, in rising order, carry the sums of the whole batch's parts; the last one alone writes `out`.
int64_t channel_sums_carry_bytes(const Channels& whole, int64_t each);  // each: outer indices of a slice
void run_sums_of_slice(const ChannelKernels& kernels, const ReductionKernels& reduction, const ChannelSum& args,
                       const RowSlice& outer, float* carried);

// Computes moments slice by slice.  The slices carry the moments of the parts, and the lines of an incomplete block.
int64_t moments_carry_bytes(const Channels& whole, int64_t each);
void run_moments_of_slice(const ChannelKernels& kernels, const ChannelSum& args, const RowSlice& outer, float* carried);

Launch channel_sums(const Channels& shape, SumKind kind, OrNull<float> out, const float* a, OrNull<const float> x,
                    bool accumulate, void* carry, int64_t first = 0, int64_t of = 0);

}  // namespace layermem::cpu
