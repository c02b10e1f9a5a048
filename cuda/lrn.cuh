// LRN: y = x s^-beta, s = k + alpha * (sum of squares around x);
// dx = dy s^-beta - 2 alpha beta x sum_around(dy x s^(-beta-1)).
//   x, y, dy, dx [N,H,W,C] float
//   across channels   a block takes `pixels` whole pixels into shared memory, so that outputs may lie on inputs
//     launch   grid ceil(N H W / pixels), block 256, dynamic shared 4 pixels C bytes forward, 12 backward
//     assumes  C <= 4096
//   within a channel  a thread takes one element and looks at the size x size pixels around
//     launch   grid ceil(count / 256), block 256; backward in two kernels, through `ratio` [N,H,W,C] in the workspace
//   traffic  8 bytes per element forward, 12 backward; a power each: bound by memory, nearly by arithmetic
//   source   Caffe lrn_layer.cu, which keeps s; here it is rebuilt
#pragma once
#include "common.cuh"

namespace lm {

struct LrnArgs {
    float* y;  // or dx
    const float* x;
    const float* dy;  // backward
    float* ratio;     // dy x s^(-beta-1), of the backward within a channel
    int pixels_all, pixels, height, width, channels;
    int size;
    Divider by_channels, by_width, by_height;
    float alpha, k, beta;  // alpha: Caffe's, over the number of elements summed
    int accumulate;
};

// ---- across channels ------------------------------------------------------------------------------------------------

struct Pixels {
    int first, count;  // elements of the block's pixels
};

LM_FN Pixels my_pixels(const LrnArgs& p) {
    const int first = blockIdx.x * p.pixels, end = min(first + p.pixels, p.pixels_all);
    return {first * p.channels, (end - first) * p.channels};
}

// The sum over the channels around element i of a pixel's row in `shared`: of squares, or of the values themselves.
template <bool SQUARES>
LM_FN float sum_across(const LrnArgs& p, const float* shared, int i) {
    const int c = i - divide(i, p.by_channels) * p.channels, half = p.size / 2;
    const int begin = max(-half, -c), end = min(half, p.channels - 1 - c);
    float sum = 0;
    for (int d = begin; d <= end; ++d) {
        const float value = shared[i + d];
        sum += SQUARES ? value * value : value;
    }
    return sum;
}

LM_KERNEL(lrn_across_forward, LrnArgs, p, 256) {
    LM_DYN_SHARED(float, x);
    const Pixels mine = my_pixels(p);
    for (int i = threadIdx.x; i < mine.count; i += 256) x[i] = p.x[mine.first + i];
    block_sync();
    for (int i = threadIdx.x; i < mine.count; i += 256)
        p.y[mine.first + i] = x[i] * powf(p.k + p.alpha * sum_across<true>(p, x, i), -p.beta);
}

LM_KERNEL(lrn_across_backward, LrnArgs, p, 256) {
    LM_DYN_SHARED(float, x);
    const Pixels mine = my_pixels(p);
    float* direct = x + p.pixels * p.channels;
    float* ratio = direct + p.pixels * p.channels;
    for (int i = threadIdx.x; i < mine.count; i += 256) x[i] = p.x[mine.first + i];
    block_sync();
    for (int i = threadIdx.x; i < mine.count; i += 256) {
        const float s = p.k + p.alpha * sum_across<true>(p, x, i);
        direct[i] = p.dy[mine.first + i] * powf(s, -p.beta);
        ratio[i] = direct[i] * x[i] / s;
    }
    block_sync();
    for (int i = threadIdx.x; i < mine.count; i += 256) {
        const float dx = direct[i] - 2.0f * p.alpha * p.beta * x[i] * sum_across<false>(p, ratio, i);
        put(p.y + mine.first + i, dx, p.accumulate);
    }
}

// ---- within a channel -----------------------------------------------------------------------------------------------

// The sum over the pixels around element i, in the same channel.
template <bool SQUARES>
LM_FN float sum_within(const LrnArgs& p, const float* of, unsigned i) {
    const int pixel = divide(i, p.by_channels), line = divide(pixel, p.by_width);
    const int w = pixel - line * p.width, h = line - divide(line, p.by_height) * p.height, half = p.size / 2;
    float sum = 0;
    for (int down = max(-half, -h); down <= min(half, p.height - 1 - h); ++down)
        for (int right = max(-half, -w); right <= min(half, p.width - 1 - w); ++right) {
            const float value = of[static_cast<int>(i) + (down * p.width + right) * p.channels];
            sum += SQUARES ? value * value : value;
        }
    return sum;
}

LM_FN bool beyond(const LrnArgs& p, unsigned i) { return i >= static_cast<unsigned>(p.pixels_all) * p.channels; }

LM_KERNEL(lrn_within_forward, LrnArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (beyond(p, i)) return;
    p.y[i] = p.x[i] * powf(p.k + p.alpha * sum_within<true>(p, p.x, i), -p.beta);
}

LM_KERNEL(lrn_within_ratio, LrnArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (beyond(p, i)) return;
    const float s = p.k + p.alpha * sum_within<true>(p, p.x, i);
    p.ratio[i] = p.dy[i] * powf(s, -p.beta) * p.x[i] / s;
}

LM_KERNEL(lrn_within_backward, LrnArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (beyond(p, i)) return;
    const float s = p.k + p.alpha * sum_within<true>(p, p.x, i);
    const float around = sum_within<false>(p, p.ratio, i);
    put(p.y + i, p.dy[i] * powf(s, -p.beta) - 2.0f * p.alpha * p.beta * p.x[i] * around, p.accumulate);
}

}  // namespace lm
