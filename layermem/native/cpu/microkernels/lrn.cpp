// Local response normalization; lanes are channels.
#include "cpu/microkernels/lrn.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// -- across channels --------------------------------------------------------------------------------------------------
//
// Pixel by pixel.  The workspace holds three rows of c + size - 1 floats: squares, scales, and (backward) products.
// Squares and products begin at size / 2; their ends beyond the channels are zeros, so that no window needs a check.

// out[i] = the sum of padded[i .. i + size)
inline void window_sums(float* out, const float* padded, int64_t c, int64_t size) {
    for_each_vector(0, c, [&](int64_t i, auto n) {
        V sum = load(padded + i, n);
        for (int64_t j = 1; j < size; ++j) sum += load(padded + i + j, n);
        store(out + i, sum, n);
    });
}

// scales[i] = k + alpha * (the sum of x^2 over the window of channel i)
inline void lrn_scales(const LrnArgs& args, const float* x, float* squares, float* scales) {
    const int64_t half = args.size / 2;
    for_each_vector(0, args.c, [&](int64_t i, auto n) {
        const V v = load(x + i, n);
        store(squares + half + i, v * v, n);
    });
    window_sums(scales, squares, args.c, args.size);
    for_each_vector(0, args.c, [&](int64_t i, auto n) {
        store(scales + i, fma(broadcast(args.alpha), load(scales + i, n), broadcast(args.k)), n);
    });
}

// y = x s^-beta
void across(const LrnArgs& args, int64_t begin, int64_t end, float* workspace) {
    const int64_t row = args.c + args.size - 1;
    float *squares = workspace, *scales = workspace + row;
    for (int64_t i = 0; i < row; ++i) squares[i] = 0;
    for (int64_t p = begin; p < end; ++p) {
        const float* x = args.x + p * args.c;
        lrn_scales(args, x, squares, scales);
        for_each_vector(0, args.c, [&](int64_t i, auto n) {
            store(args.out + p * args.c + i, load(x + i, n) * pow(load(scales + i, n), -args.beta), n);
        });
    }
}

// dx = dy s^-beta - 2 alpha beta x * (sum over the window of dy x s^(-beta-1))
void across_backward(const LrnArgs& args, int64_t begin, int64_t end, float* workspace) {
    const int64_t row = args.c + args.size - 1, half = args.size / 2;
    float *squares = workspace, *scales = workspace + row, *products = workspace + 2 * row;
    for (int64_t i = 0; i < row; ++i) squares[i] = products[i] = 0;
    for (int64_t p = begin; p < end; ++p) {
        const float *x = args.x + p * args.c, *dy = args.dy + p * args.c;
        float* dx = args.out + p * args.c;
        lrn_scales(args, x, squares, scales);
        for_each_vector(0, args.c, [&](int64_t i, auto n) {
            const V s = load(scales + i, n), straight = load(dy + i, n) * pow(s, -args.beta);
            store(products + half + i, straight * load(x + i, n) / s, n);
            store(scales + i, straight, n);
        });
        // The sums overwrite the squares, whose leading zeros are restored below for the next pixel.
        window_sums(squares, products, args.c, args.size);
        const V factor = broadcast(2 * args.alpha * args.beta);
        for_each_vector(0, args.c, [&](int64_t i, auto n) {
            const V v = load(scales + i, n) - factor * load(x + i, n) * load(squares + i, n);
            store(dx + i, args.accumulate ? load(dx + i, n) + v : v, n);
        });
        for (int64_t i = 0; i < half; ++i) squares[i] = 0;
    }
}

// -- within a channel -------------------------------------------------------------------------------------------------

// The sum over the size x size pixels around (y, x) of term(offset of the pixel), for a register of channels.
template <class Term>
LAYERMEM_INLINE V sum_window(const LrnArgs& args, int64_t y, int64_t x, const Term& term) {
    const int64_t half = args.size / 2;
    V sum = zero();
    for (int64_t h = max(0, y - half); h < min(args.h, y + half + 1); ++h) {
        V line = zero();
        for (int64_t w = max(0, x - half); w < min(args.w, x + half + 1); ++w) line += term((h * args.w + w) * args.c);
        sum += line;
    }
    return sum;
}

// Row y of an image: y = x s^-beta, or with products the first pass of backward, see lrn.h.
void within(const LrnArgs& args, int64_t row, float* products) {
    const int64_t y = row % args.h, image = row / args.h * args.h * args.w * args.c;
    for (int64_t x = 0; x < args.w; ++x)
        for_each_vector(0, args.c, [&](int64_t c, auto n) {
            const V sum = sum_window(args, y, x, [&](int64_t at) {
                const V v = load(args.x + image + at + c, n);
                return v * v;
            });
            const V s = fma(broadcast(args.alpha), sum, broadcast(args.k));
            const int64_t at = image + (y * args.w + x) * args.c + c;
            if (!products) return store(args.out + at, load(args.x + at, n) * pow(s, -args.beta), n);
            const int64_t own = (y * args.w + x) * args.c + c;
            store(products + own, load(args.dy + at, n) * load(args.x + at, n) * pow(s, -args.beta - 1), n);
            const V straight = load(args.dy + at, n) * pow(s, -args.beta);
            store(products + args.h * args.w * args.c + own, straight, n);
        });
}

// dx = dy s^-beta - 2 alpha beta x * (the sum over the window of products)
void within_backward(const LrnArgs& args, int64_t row, const float* products) {
    const int64_t y = row % args.h, image = row / args.h * args.h * args.w * args.c;
    for (int64_t x = 0; x < args.w; ++x)
        for_each_vector(0, args.c, [&](int64_t c, auto n) {
            const V sum = sum_window(args, y, x, [&](int64_t at) { return load(products + at + c, n); });
            const int64_t own = (y * args.w + x) * args.c + c, at = image + own;
            const V straight = load(products + args.h * args.w * args.c + own, n);
            const V v = straight - broadcast(2 * args.alpha * args.beta) * load(args.x + at, n) * sum;
            store(args.out + at, args.accumulate ? load(args.out + at, n) + v : v, n);
        });
}

}  // namespace

const LrnKernels lrn_kernels = {across, across_backward, within, within_backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
