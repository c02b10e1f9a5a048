// Channel-wise functions and sums.
//
// Lanes are channels where inner = 1 (channels-last images), and neighbours within one channel otherwise.  Both cases
// share their formulas: a formula gets a function that returns a channel's number, as a register of neighbouring
// channels or as one number in all lanes.
//
// Formulas are inlined into the loops (always_inline): a call per register would cost more than the arithmetic, and all
// of these are bound by memory.
#include "cpu/microkernels/channels.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// body(offset, n, of_channel) for every register of lines [begin, end); of_channel(p) is p of its channels.
template <class Body>
LAYERMEM_INLINE void along(const Channels& s, int64_t begin, int64_t end, const Body& body) {
    if (s.inner == 1) {
        for (int64_t line = begin; line < end; ++line)
            for_each_vector(0, s.channels, [&](int64_t c, auto n) __attribute__((always_inline)) {
                body(line * s.channels + c, n,
                     [&](const float* p) __attribute__((always_inline)) { return load(p + c, n); });
            });
        return;
    }
    for (int64_t line = begin; line < end; ++line) {
        const int64_t c = line % s.channels;
        for_each_vector(0, s.inner, [&](int64_t i, auto n) __attribute__((always_inline)) {
            body(line * s.inner + i, n, [&](const float* p) __attribute__((always_inline)) { return broadcast(p[c]); });
        });
    }
}

// out (+)= f(a) on lines [begin, end), with the formulas of AffineKind.
void affine(const ChannelAffine& args, int64_t begin, int64_t end) {
    const auto run = [&](const auto& f) __attribute__((always_inline)) {
        along(args.shape, begin, end, [&](int64_t i, auto n, const auto& of_channel) __attribute__((always_inline)) {
            const V v = f(load(args.a + i, n), i, n, of_channel);
            store(args.out + i, args.accumulate ? load(args.out + i, n) + v : v, n);
        });
    };
    switch (args.kind) {
        case AffineKind::scale:
            if (args.bias)
                return run([&](V a, int64_t, auto, const auto& at) { return a * at(args.scale) + at(args.bias); });
            return run([&](V a, int64_t, auto, const auto& at) { return a * at(args.scale); });
        case AffineKind::shift: return run([&](V a, int64_t, auto, const auto& at) { return a + at(args.bias); });
        case AffineKind::normalize:
            return run([&](V a, int64_t, auto, const auto& at) { return (a - at(args.mean)) * at(args.scale); });
        case AffineKind::normalize_backward:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                return at(args.scale) *
                       (a - at(args.mean_dy) - (load(args.x + i, n) - at(args.mean)) * at(args.covariance));
            });
        case AffineKind::fused:
            return run([&](V a, int64_t, auto, const auto& at) {
                const V y = fma(a - at(args.mean), at(args.scale), at(args.bias));
                return args.relu ? relu(y) : y;
            });
        case AffineKind::fused_residual:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                return fma(a - at(args.mean), at(args.scale), at(args.bias)) + load(args.x + i, n);
            });
        case AffineKind::fused_backward:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                const V x = load(args.x + i, n) - at(args.mean);
                if (args.relu)
                    a = select(fma(x, at(args.scale), at(args.bias)) > broadcast(args.largest_zero), a, zero());
                return at(args.scale) * (a - at(args.mean_dy) - x * at(args.covariance));
            });
        case AffineKind::prelu:
            return run([&](V a, int64_t, auto, const auto& at) { return select(a > zero(), a, at(args.scale) * a); });
        case AffineKind::prelu_backward:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                return select(load(args.x + i, n) > zero(), a, at(args.scale) * a);
            });
    }
}

// Sums are taken over blocks of kSumLines lines, which stay in cache for all channels, and the blocks' sums are added:
// this also keeps the rounding error of long sums small.

// Lines [begin, end) of kGroup registers of columns, from column c on: out0, out1 [channels] begin with `init`, and the
// lines are one block, or a piece of it.  terms(offset, n, of_channel, sum0, sum1) adds one register's terms; out1 may be null.
template <int kGroup, class N, class Terms>
LAYERMEM_INLINE void sum_columns(const Channels& s, int64_t c, N n, VectorGroup<kGroup>, int64_t begin, int64_t end,
                                 SumInit init, float* out0, float* out1, const Terms& terms) {
    const bool more = init == SumInit::blocks;
    V sum0[kGroup], sum1[kGroup];
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) {
        sum0[i] = init == SumInit::lines ? load(out0 + c + i * kLanes, n) : zero();
        sum1[i] = init == SumInit::lines && out1 ? load(out1 + c + i * kLanes, n) : zero();
    }
    for (int64_t line = begin; line < end; ++line)
#pragma GCC unroll 4
        for (int i = 0; i < kGroup; ++i) {
            const int64_t at = c + i * kLanes;
            const auto of_channel = [&](const float* p) __attribute__((always_inline)) { return load(p + at, n); };
            terms(line * s.channels + at, n, of_channel, sum0[i], sum1[i]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) {
        const int64_t at = c + i * kLanes;
        store(out0 + at, more ? load(out0 + at, n) + sum0[i] : sum0[i], n);
        if (out1) store(out1 + at, more ? load(out1 + at, n) + sum1[i] : sum1[i], n);
    }
}

// out0, out1 [channels] = or += the sums of `terms`, as above, over [begin, end) of outer.  With inner > 1 each channel's
// lanes are added up at the end of a block.
template <class Terms>
LAYERMEM_INLINE void sum_terms(const ChannelSum& args, int64_t begin, int64_t end, float* out0, float* out1,
                               const Terms& terms) {
    const Channels& s = args.shape;
    if (s.inner == 1) {
        for (int64_t block = begin; block < end; block += kSumLines)
            for_each_vector_group(0, s.channels, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
                const SumInit init = block > begin ? SumInit::blocks : args.init;
                sum_columns(s, c, n, group, block, min(end, block + kSumLines), init, out0, out1, terms);
            });
        return;
    }
    for (int64_t c = 0; c < s.channels; ++c) {
        const bool more = args.init != SumInit::zero;
        float all0 = more ? out0[c] : 0, all1 = more && out1 ? out1[c] : 0;  // of this channel: blocks in order
        const auto of_channel = [&](const float* p) __attribute__((always_inline)) { return broadcast(p[c]); };
        for (int64_t o = begin; o < end; ++o) {
            const int64_t first = (o * s.channels + c) * s.inner;
            for (int64_t block = 0; block < s.inner; block += kSumLines * kLanes) {
                V sum0 = zero(), sum1 = zero();
                for_each_vector(block, min(s.inner, block + kSumLines * kLanes),
                                [&](int64_t i, auto n) __attribute__((always_inline)) {
                                    V term0 = zero(), term1 = zero();
                                    terms(first + i, n, of_channel, term0, term1);
                                    sum0 += clear_tail(term0, n);
                                    sum1 += clear_tail(term1, n);
                                });
                all0 += reduce_add(sum0);
                all1 += reduce_add(sum1);
            }
        }
        out0[c] = all0;
        if (out1) out1[c] = all1;
    }
}

// The pairwise update of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances", 1979: stable for any order of magnitude of the mean.
// Mean and sum of squared differences of `added` numbers are merged into those of `before` numbers (Chan et al. 1979).
inline void merge_moments(V& mean, V& m2, float before, V mean_added, V m2_added, float added) {
    const V delta = mean_added - mean;
    const float share = added / (before + added);
    mean += delta * share;
    m2 += m2_added + delta * delta * (before * share);
}

// Lines [begin, end) of kGroup registers of columns are merged into args.out, which has the moments of `before` lines.
template <int kGroup, class N>
LAYERMEM_INLINE void moments_of_columns(const ChannelSum& args, int64_t c, N n, VectorGroup<kGroup>, int64_t begin,
                                        int64_t end, int64_t before) {
    const int64_t channels = args.shape.channels;
    const float count = static_cast<float>(end - begin);
    V block_mean[kGroup], squares[kGroup];
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) block_mean[i] = squares[i] = zero();
    for (int64_t line = begin; line < end; ++line)
#pragma GCC unroll 4
        for (int i = 0; i < kGroup; ++i) block_mean[i] += load(args.a + line * channels + c + i * kLanes, n);
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) block_mean[i] /= count;
    for (int64_t line = begin; line < end; ++line)
#pragma GCC unroll 4
        for (int i = 0; i < kGroup; ++i) {
            const V d = load(args.a + line * channels + c + i * kLanes, n) - block_mean[i];
            squares[i] += d * d;
        }
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) {
        float *mean_at = args.out + c + i * kLanes, *m2_at = mean_at + channels;
        V mean = before ? load(mean_at, n) : zero(), m2 = before ? load(m2_at, n) : zero();
        merge_moments(mean, m2, static_cast<float>(before), block_mean[i], squares[i], count);
        store(mean_at, mean, n);
        store(m2_at, m2, n);
    }
}

// Block by block: the mean of a block, then squares around it while the block is in cache.  E[x^2] - E[x]^2 would
// cancel.
void moments(const ChannelSum& args, int64_t begin, int64_t end) {
    const Channels& s = args.shape;
    if (s.inner == 1) {
        for (int64_t block = begin; block < end; block += kSumLines)
            for_each_vector_group(0, s.channels, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
                moments_of_columns(args, c, n, group, block, min(end, block + kSumLines), args.before + block - begin);
            });
        return;
    }
    for (int64_t c = 0; c < s.channels; ++c) {
        V mean = args.before ? broadcast(args.out[c]) : zero();
        V m2 = args.before ? broadcast(args.out[s.channels + c]) : zero();
        for (int64_t o = begin; o < end; ++o) {
            const float* x = args.a + (o * s.channels + c) * s.inner;
            V sum = zero(), squares = zero();
            for_each_vector(0, s.inner, [&](int64_t i, auto n) { sum += load(x + i, n); });
            const float block_mean = reduce_add(sum) / static_cast<float>(s.inner);
            for_each_vector(0, s.inner, [&](int64_t i, auto n) {
                const V d = clear_tail(load(x + i, n) - block_mean, n);
                squares += d * d;
            });
            merge_moments(mean, m2, static_cast<float>((args.before + o - begin) * s.inner), broadcast(block_mean),
                          broadcast(reduce_add(squares)), static_cast<float>(s.inner));
        }
        args.out[c] = mean[0];
        args.out[s.channels + c] = m2[0];
    }
}

// args.out [2][channels] = the sums of SumKind (channels.h) over [begin, end) of outer.
void sum(const ChannelSum& args, int64_t begin, int64_t end) {
    float *out0 = args.out, *out1 = args.out + args.shape.channels;
    switch (args.kind) {
        case SumKind::moments: return moments(args, begin, end);
        case SumKind::plain:
            return sum_terms(args, begin, end, out0, nullptr,
                             [&](int64_t i, auto n, const auto&, V& total, V&) { total += load(args.a + i, n); });
        case SumKind::product:
            return sum_terms(args, begin, end, out0, out1, [&](int64_t i, auto n, const auto&, V& sum0, V& sum1) {
                const V a = load(args.a + i, n);
                sum0 += a * load(args.x + i, n);
                sum1 += a;
            });
        case SumKind::normalized:
            return sum_terms(args, begin, end, out0, out1, [&](int64_t i, auto n, const auto& at, V& sum0, V& sum1) {
                const V a = load(args.a + i, n);
                sum0 += a * ((load(args.x + i, n) - at(args.mean)) * at(args.inv_std));
                sum1 += a;
            });
        case SumKind::fused:
            return sum_terms(args, begin, end, out0, out1, [&](int64_t i, auto n, const auto& at, V& sum0, V& sum1) {
                const V x = load(args.x + i, n) - at(args.mean);
                V a = load(args.a + i, n);
                if (args.relu)
                    a = select(fma(x, at(args.scale), at(args.bias)) > broadcast(args.largest_zero), a, zero());
                sum0 += a * (x * at(args.inv_std));
                sum1 += a;
            });
        case SumKind::prelu:
            return sum_terms(args, begin, end, out0, nullptr, [&](int64_t i, auto n, const auto&, V& total, V&) {
                total += load(args.a + i, n) * min(load(args.x + i, n), zero());
            });
    }
}

}  // namespace

const ChannelKernels channel_kernels = {affine, sum};

}  // namespace layermem::cpu::LAYERMEM_ISA
