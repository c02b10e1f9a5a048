// Pooling, one row of pixels at a time; lanes are channels.
//
// Forward reads the windows of each output; backward gathers, for each input, the outputs whose windows contain it, so
// that every dx is written once, by one task, in a fixed order.
//
// `row` counts the rows of all images, n * ho of y (forward) or n * h of dx (backward).  argmax [n][ho][wo][c] holds
// the tap r * kw + s of the maximum, as uint8 where the window has at most 256 taps and as int32 otherwise.
#include "cpu/microkernels/pooling.h"

#include "cpu/isa/simd_half.h"
#include "cpu/microkernels/philox.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Whether the argmax is int32, not uint8.  No member of PoolProblem, for internal linkage: see isa/simd.h.
inline bool wide_argmax(const PoolProblem& p) { return p.kh * p.kw > 256; }

// The blobs, of elements T: float, Bf16 or Fp16.
template <class T>
inline const T* input(const PoolArgs& args) {
    return reinterpret_cast<const T*>(args.in);
}
template <class T>
inline T* output(const PoolArgs& args) {
    return reinterpret_cast<T*>(args.out);
}

// y = the maximum over the window clipped to the image, taps [r0, r1) x [s0, s1).  Of equal values the first in
// row-major order wins, so that a recomputation gives the same argmax: `>` and not `>=`.
template <class T>
void max_pool(const PoolArgs& args, int64_t row) {
    const PoolProblem& p = args.problem;
    const int64_t h0 = row % p.ho * p.sh - p.ph, r0 = max(0, -h0), r1 = min(p.kh, p.h - h0);
    const T* image = input<T>(args) + row / p.ho * p.h * p.w * p.c;
    for (int64_t ow = 0; ow < p.wo; ++ow) {
        const int64_t w0 = ow * p.sw - p.pw, s0 = max(0, -w0), s1 = min(p.kw, p.w - w0);
        const int64_t at = (row * p.wo + ow) * p.c;
        for_each_vector(0, p.c, [&](int64_t c, auto n) {
            V best = broadcast(-__builtin_inff());
            I where{};  // tap 0 where nothing is above -inf, NaN included
            for (int64_t r = r0; r < r1; ++r) {
                const T* x = image + ((h0 + r) * p.w + w0 + s0) * p.c + c;
                for (int64_t s = s0; s < s1; ++s, x += p.c) {
                    const V v = load(x, n);
                    const I more = v > best;
                    best = select(more, v, best);
                    where = (more & static_cast<int32_t>(r * p.kw + s)) | (~more & where);
                }
            }
            store(output<T>(args) + at + c, best, n);
            if (!args.argmax) return;
            if (wide_argmax(p))
                __builtin_memcpy(static_cast<int32_t*>(args.argmax) + at + c, &where, static_cast<size_t>(n) * 4);
            else
                store_bytes(static_cast<uint8_t*>(args.argmax) + at + c, where, n);
        });
    }
}

// dx (+)= the sum of term(offset of y, tap, oh, ow, n) over the outputs (oh, ow) whose windows contain the input: those
// of [oh0, oh1) x [ow0, ow1), which the input is tap (h - oh * sh, w - ow * sw) of.
template <class T, class Term>
inline void gather_row(const PoolArgs& args, int64_t row, const Term& term) {
    const PoolProblem& p = args.problem;
    const int64_t h = row % p.h + p.ph, n = row / p.h;
    const int64_t oh0 = h < p.kh ? 0 : (h - p.kh) / p.sh + 1, oh1 = min(p.ho, h / p.sh + 1);
    for (int64_t x = 0; x < p.w; ++x) {
        const int64_t w = x + p.pw, ow0 = w < p.kw ? 0 : (w - p.kw) / p.sw + 1, ow1 = min(p.wo, w / p.sw + 1);
        T* out = output<T>(args) + (row * p.w + x) * p.c;
        for_each_vector_group(0, p.c, [&](int64_t c, auto lanes, auto group) __attribute__((always_inline)) {
            constexpr int kGroup = size_of(group);
            V sum[kGroup];
#pragma GCC unroll 4
            for (int i = 0; i < kGroup; ++i) sum[i] = args.accumulate ? load(out + c + i * kLanes, lanes) : zero();
            for (int64_t oh = oh0; oh < oh1; ++oh)
                for (int64_t ow = ow0; ow < ow1; ++ow) {
                    const int64_t tap = (h - oh * p.sh) * p.kw + w - ow * p.sw;
                    const int64_t at = ((n * p.ho + oh) * p.wo + ow) * p.c + c;
#pragma GCC unroll 4
                    for (int i = 0; i < kGroup; ++i) sum[i] += term(at + i * kLanes, tap, oh, ow, lanes);
                }
#pragma GCC unroll 4
            for (int i = 0; i < kGroup; ++i) store(out + c + i * kLanes, sum[i], lanes);
        });
    }
}

// An output passes its dy to the tap that argmax names.
template <class T>
void max_pool_backward(const PoolArgs& args, int64_t row) {
    if (wide_argmax(args.problem))
        return gather_row<T>(
            args, row, [&](int64_t at, int64_t tap, int64_t, int64_t, auto n) __attribute__((always_inline)) {
                I where{};
                __builtin_memcpy(&where, static_cast<const int32_t*>(args.argmax) + at, static_cast<size_t>(n) * 4);
                return select(where == static_cast<int32_t>(tap), load(input<T>(args) + at, n), zero());
            });
    gather_row<T>(args, row, [&](int64_t at, int64_t tap, int64_t, int64_t, auto n) __attribute__((always_inline)) {
        const I where = load_bytes(static_cast<const uint8_t*>(args.argmax) + at, n);
        return select(where == static_cast<int32_t>(tap), load(input<T>(args) + at, n), zero());
    });
}

// Pixels of window i along one axis, clipped to the padded image: Caffe divides by these, zeros included.
inline int64_t extent(int64_t i, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
    const int64_t begin = i * stride - pad;
    return min(begin + kernel, size + pad) - begin;
}

// y = the sum over the window clipped to the image / its area in the padded image.
template <class T>
void average_pool(const PoolArgs& args, int64_t row) {
    const PoolProblem& p = args.problem;
    const int64_t h0 = row % p.ho * p.sh - p.ph, r0 = max(0, -h0), r1 = min(p.kh, p.h - h0);
    const int64_t height = extent(row % p.ho, p.sh, p.ph, p.kh, p.h);
    const T* image = input<T>(args) + row / p.ho * p.h * p.w * p.c;
    for (int64_t ow = 0; ow < p.wo; ++ow) {
        const int64_t w0 = ow * p.sw - p.pw, s0 = max(0, -w0), s1 = min(p.kw, p.w - w0);
        const V divisor = broadcast(static_cast<float>(height * extent(ow, p.sw, p.pw, p.kw, p.w)));
        for_each_vector(0, p.c, [&](int64_t c, auto n) {
            V sum = zero();
            for (int64_t r = r0; r < r1; ++r) {
                V line = zero();
                const T* x = image + ((h0 + r) * p.w + w0 + s0) * p.c + c;
                for (int64_t s = s0; s < s1; ++s, x += p.c) line += load(x, n);
                sum += line;
            }
            store(output<T>(args) + (row * p.wo + ow) * p.c + c, sum / divisor, n);
        });
    }
}

// Each output passes dy / area to all pixels of its window: the same area as forward, computed again.
template <class T>
void average_pool_backward(const PoolArgs& args, int64_t row) {
    const PoolProblem& p = args.problem;
    gather_row<T>(args, row, [&](int64_t at, int64_t, int64_t oh, int64_t ow, auto n) __attribute__((always_inline)) {
        const int64_t area = extent(oh, p.sh, p.ph, p.kh, p.h) * extent(ow, p.sw, p.pw, p.kw, p.w);
        return load(input<T>(args) + at, n) / broadcast(static_cast<float>(area));
    });
}

// -- Mask and STOCHASTIC ----------------------------------------------------------------------------------------------

// Row and column of a tap of at most 256 by a multiplication: (tap + 1/2) / kw is 1/512 or more from an integer.
void max_pool_mask(const PoolArgs& args, int64_t row) {
    const PoolProblem& p = args.problem;
    const int64_t h0 = row % p.ho * p.sh - p.ph;
    for (int64_t ow = 0; ow < p.wo; ++ow) {
        const int64_t at = (row * p.wo + ow) * p.c, corner = h0 * p.w + ow * p.sw - p.pw;
        if (wide_argmax(p)) {
            const auto* taps = static_cast<const int32_t*>(args.argmax) + at;
            for (int64_t c = 0; c < p.c; ++c)
                args.out[at + c] = static_cast<float>(corner + taps[c] / p.kw * p.w + taps[c] % p.kw);
            continue;
        }
        const V by_width = broadcast(1.0f / static_cast<float>(p.kw));
        const auto beyond_row = static_cast<int32_t>(p.w - p.kw);
        for_each_vector(0, p.c, [&](int64_t c, auto n) {
            const I tap = load_bytes(static_cast<const uint8_t*>(args.argmax) + at + c, n);
            const I r = __builtin_convertvector((__builtin_convertvector(tap, V) + 0.5f) * by_width, I);
            const I place = tap + r * beyond_row + static_cast<int32_t>(corner);
            store(args.out + at + c, __builtin_convertvector(place, V), n);
        });
    }
}

// visit(tap, element of x at channel 0) for the taps of window (row, ow) that lie in the image, row by row.
template <class Visit>
LAYERMEM_INLINE void visit_window(const PoolProblem& p, int64_t row, int64_t ow, const Visit& visit) {
    const int64_t h0 = row % p.ho * p.sh - p.ph, r0 = max(0, -h0), r1 = min(p.kh, p.h - h0);
    const int64_t w0 = ow * p.sw - p.pw, s0 = max(0, -w0), s1 = min(p.kw, p.w - w0);
    const int64_t image = row / p.ho * p.h;
    for (int64_t r = r0; r < r1; ++r)
        for (int64_t s = s0; s < s1; ++s)
            visit(static_cast<int32_t>(r * p.kw + s), ((image + h0 + r) * p.w + w0 + s) * p.c);
}

// Random numbers of neighbouring elements, made many at a time.
class RandomNumbers {
  public:
    explicit RandomNumbers(const PoolRandom& random) : random_(random) {}

    // The numbers of elements [at, at + count), count at most kAtOnce.
    const float* of(int64_t at, int64_t count) {
        if (at < begin_ || at + count > begin_ + kMade) make(at);
        return made_ + (at - begin_);
    }

    static constexpr int64_t kAtOnce = 256;

  private:
    static constexpr int64_t kMade = 2 * kAtOnce, kWords = 2 * kLanes;

    void make(int64_t at) {
        begin_ = at / 4 * 4;
        for (int64_t i = 0; i < kMade; i += kWords) {
            uint32_t words[kWords];
            philox(words, static_cast<uint64_t>((begin_ + i) / 4), random_.step, random_.key);
            for (int64_t j = 0; j < kWords; ++j) made_[i + j] = static_cast<float>(words[j]) * 0x1p-32f;
        }
    }

    const PoolRandom& random_;
    int64_t begin_ = -kMade;
    float made_[kMade];
};

// y = the first element of the window at which the running sum reaches a random part of the whole; the last one where
// it never does.
void stochastic_pool(const PoolArgs& args, const PoolRandom& random, int64_t row) {
    const PoolProblem& p = args.problem;
    RandomNumbers numbers(random);
    for (int64_t ow = 0; ow < p.wo; ++ow) {
        const int64_t at = (row * p.wo + ow) * p.c;
        for (int64_t first = 0; first < p.c; first += RandomNumbers::kAtOnce) {
            const int64_t width = min(RandomNumbers::kAtOnce, p.c - first);
            const float* drawn = numbers.of(random.first + at + first, width);
            for_each_vector(0, width, [&](int64_t i, auto n) {
                const int64_t c = first + i;
                V total = zero(), partial = zero(), y = zero();
                visit_window(p, row, ow, [&](int32_t, int64_t from) { total += load(args.in + from + c, n); });
                const V threshold = load(drawn + i, n) * total;
                I searching = I{} == 0, where{};
                visit_window(p, row, ow, [&](int32_t tap, int64_t from) {
                    const V x = load(args.in + from + c, n);
                    partial += x;
                    y = select(searching, x, y);
                    where = (searching & tap) | (~searching & where);
                    searching &= ~(partial >= threshold);
                });
                store(args.out + at + c, y, n);
                if (!args.argmax) return;
                if (wide_argmax(p))
                    __builtin_memcpy(static_cast<int32_t*>(args.argmax) + at + c, &where, static_cast<size_t>(n) * 4);
                else
                    store_bytes(static_cast<uint8_t*>(args.argmax) + at + c, where, n);
            });
        }
    }
}

// y = the mean of the window's elements, each weighted by itself; 0 where their sum is not positive.
void stochastic_average(const PoolArgs& args, int64_t row) {
    const PoolProblem& p = args.problem;
    for (int64_t ow = 0; ow < p.wo; ++ow)
        for_each_vector(0, p.c, [&](int64_t c, auto n) {
            V total = zero(), squares = zero();
            visit_window(p, row, ow, [&](int32_t, int64_t from) {
                const V x = load(args.in + from + c, n);
                total += x;
                squares += x * x;
            });
            store(args.out + (row * p.wo + ow) * p.c + c, select(total > zero(), squares / total, zero()), n);
        });
}

}  // namespace

const PoolingKernels pooling_kernels = {
    {max_pool<float>, max_pool<Bf16>, max_pool<Fp16>},
    {average_pool<float>, average_pool<Bf16>, average_pool<Fp16>},
    {max_pool_backward<float>, max_pool_backward<Bf16>, max_pool_backward<Fp16>},
    {average_pool_backward<float>, average_pool_backward<Bf16>, average_pool_backward<Fp16>},
    max_pool_mask,
    stochastic_pool,
    stochastic_average};

}  // namespace layermem::cpu::LAYERMEM_ISA
