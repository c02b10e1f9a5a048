// Depthwise convolution, one row of pixels at a time; lanes are channels.
//
// fprop computes four neighbouring outputs together where none of their taps leaves the row, so that each register of
// weights is loaded once for four products.  dgrad gathers, as pooling does.
#include "cpu/microkernels/depthwise.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// These are ConvProblem::ho(), wo() and its places of images, but with internal linkage: see isa/simd.h.
inline int64_t out_h(const ConvProblem& p) { return (p.h + 2 * p.ph - p.dh * (p.kh - 1) - 1) / p.sh + 1; }
inline int64_t place(const ConvProblem& p, int64_t i, int64_t step) {
    return p.frames ? i / p.frames + i % p.frames * step : i;
}
inline int64_t out_w(const ConvProblem& p) { return (p.w + 2 * p.pw - p.dw * (p.kw - 1) - 1) / p.sw + 1; }

// kPixels outputs from `out` on, of the window at (h0, w0), for one register of channels.  Taps above or below the
// image are skipped; to the left or right they are checked for a single pixel only.
template <int kPixels, class N>
LAYERMEM_INLINE void fprop_pixels(const DepthwiseArgs& args, const float* image, int64_t h0, int64_t w0, float* out,
                                  int64_t c, N n) {
    const ConvProblem& p = args.problem;
    V sum[kPixels];
#pragma GCC unroll 4
    for (int i = 0; i < kPixels; ++i)
        sum[i] = args.accumulate ? load(out + i * p.c + c, n) : args.bias ? load(args.bias + c, n) : zero();
    for (int64_t r = 0; r < p.kh; ++r) {
        const int64_t h = h0 + r * p.dh;
        if (h < 0 || h >= p.h) continue;
        for (int64_t s = 0; s < p.kw; ++s) {
            const int64_t w = w0 + s * p.dw;
            if (kPixels == 1 && (w < 0 || w >= p.w)) continue;
            const V f = load(args.w + (r * p.kw + s) * args.pitch + c, n);
            const float* x = image + (h * p.w + w) * p.c + c;
#pragma GCC unroll 4
            for (int i = 0; i < kPixels; ++i) sum[i] = fma(load(x + i * p.sw * p.c, n), f, sum[i]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPixels; ++i) store(out + i * p.c + c, args.relu ? relu(sum[i]) : sum[i], n);
}

// Row `row` of n * ho rows of y.
void fprop(const DepthwiseArgs& args, int64_t row) {
    const ConvProblem& p = args.problem;
    const int64_t ho = out_h(p), wo = out_w(p);
    const int64_t h0 = row % ho * p.sh - p.ph;
    const float* image = args.in + row / ho * p.h * p.w * p.c;
    for (int64_t ow = 0; ow < wo;) {
        const int64_t w0 = ow * p.sw - p.pw;
        float* out = args.out + (row * wo + ow) * p.c;
        if (w0 >= 0 && ow + 4 <= wo && w0 + 3 * p.sw + (p.kw - 1) * p.dw < p.w) {
            for_each_vector(0, p.c, [&](int64_t c, auto n) { fprop_pixels<4>(args, image, h0, w0, out, c, n); });
            ow += 4;
        } else {
            for_each_vector(0, p.c, [&](int64_t c, auto n) { fprop_pixels<1>(args, image, h0, w0, out, c, n); });
            ++ow;
        }
    }
}

// Row `row` of n * h rows of dx: each dx is gathered from the outputs [oh0, oh1) x [ow0, ow1) whose windows reach over
// it, of which those count that have a tap exactly on it.
void dgrad(const DepthwiseArgs& args, int64_t row) {
    const ConvProblem& p = args.problem;
    const int64_t ho = out_h(p), wo = out_w(p);
    const int64_t h = row % p.h + p.ph, extent_h = p.dh * (p.kh - 1), extent_w = p.dw * (p.kw - 1);
    const int64_t oh0 = h < extent_h ? 0 : ceil_div(h - extent_h, p.sh), oh1 = min(ho, h / p.sh + 1);
    for (int64_t x = 0; x < p.w; ++x) {
        const int64_t w = x + p.pw, ow0 = w < extent_w ? 0 : ceil_div(w - extent_w, p.sw), ow1 = min(wo, w / p.sw + 1);
        float* out = args.out + (row * p.w + x) * p.c;
        for_each_vector(0, p.c, [&](int64_t c, auto n) {
            V sum = args.accumulate ? load(out + c, n) : args.bias ? load(args.bias + c, n) : zero();
            for (int64_t oh = oh0; oh < oh1; ++oh) {
                const int64_t r = h - oh * p.sh;
                if (r % p.dh) continue;
                for (int64_t ow = ow0; ow < ow1; ++ow) {
                    const int64_t s = w - ow * p.sw;
                    if (s % p.dw) continue;
                    const V f = load(args.w + (r / p.dh * p.kw + s / p.dw) * args.pitch + c, n);
                    sum = fma(load(args.in + ((row / p.h * ho + oh) * wo + ow) * p.c + c, n), f, sum);
                }
            }
            store(out + c, sum, n);
        });
    }
}

// out[tap][c] (+)= the sum of dy x over rows [begin, end) of n * ho; [ow_begin, ow_end) are the outputs whose tap is
// inside the row.
void wgrad(const DepthwiseSums& args, int64_t begin, int64_t end) {
    const ConvProblem& p = args.problem;
    const int64_t ho = out_h(p), wo = out_w(p);
    if (!args.accumulate)
        for (int64_t i = 0; i < p.kh * p.kw * p.c; ++i) args.out[i] = 0;
    for (int64_t row = begin; row < end; ++row) {
        const float* dy = args.dy + (place(p, row / ho, p.y_step) * ho + row % ho) * wo * p.c;
        for (int64_t r = 0; r < p.kh; ++r) {
            const int64_t h = row % ho * p.sh - p.ph + r * p.dh;
            if (h < 0 || h >= p.h) continue;
            const float* line = args.x + (place(p, row / ho, p.x_step) * p.h + h) * p.w * p.c;
            for (int64_t s = 0; s < p.kw; ++s) {
                const int64_t shift = s * p.dw - p.pw;
                const int64_t ow_begin = shift >= 0 ? 0 : ceil_div(-shift, p.sw);
                const int64_t ow_end = shift >= p.w ? 0 : min(wo, (p.w - 1 - shift) / p.sw + 1);
                float* out = args.out + (r * p.kw + s) * p.c;
                for_each_vector(0, p.c, [&](int64_t c, auto n) {
                    V sum = zero();
                    for (int64_t ow = ow_begin; ow < ow_end; ++ow)
                        sum = fma(load(dy + ow * p.c + c, n), load(line + (ow * p.sw + shift) * p.c + c, n), sum);
                    store(out + c, load(out + c, n) + sum, n);
                });
            }
        }
    }
}

}  // namespace

const DepthwiseKernels depthwise_kernels = {fprop, dgrad, wgrad};

}  // namespace layermem::cpu::LAYERMEM_ISA
