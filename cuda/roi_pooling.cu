// Maxima of a grid of windows over each region of interest.
//   y [R,Ho,Wo,C] float, argmax [R,Ho,Wo,C] int, written     x [N,H,W,C] float, regions [R,5] float, read
//   dx [N,H,W,C] float written or added to                   dy, argmax, regions read
//   launch   roi_pool_*, ps_roi_pool_*: one thread per output (forward) or per element of dx (backward): grid ceil(count / 256), block 256
//   traffic  forward 4|x| per region that covers it + 8|y| bytes, backward 4|dx| + 8|y| per pixel that a window holds,
//            mostly from L2
//   assumes  elements below 2^31
//   ties     the first in row-major order wins, so a recompute gives back the same bits
//   backward gathers: each element visits the windows over it, region by region, and is written once
//   source   layermem/layers/roi_pooling.py; Fast R-CNN's roi_pooling_layer.cu
#include "common.cuh"

using namespace lm;

struct RoiArgs {
    float* y;        // or dx
    const float* x;  // or dy
    const float* regions;
    int* argmax;      // or null, forward
    int* error_flag;  // raised to a region's image where there is none, or 2^31-1 for what is no number
    Divider by_channels, by_columns, by_rows;  // of what is written
    int items, channels, height, width, regions_all, pooled_h, pooled_w;
    int count, accumulate;
    float spatial_scale;
};

struct RoiPlace {
    int item, row, column, channel;
};

LM_FN RoiPlace place_of(const RoiArgs& p, unsigned i) {
    const int pixel = divide(i, p.by_channels), line = divide(pixel, p.by_columns), item = divide(line, p.by_rows);
    return {item, line - item * static_cast<int>(p.by_rows.divisor),
            pixel - line * static_cast<int>(p.by_columns.divisor),
            static_cast<int>(i) - pixel * static_cast<int>(p.by_channels.divisor)};
}

// The image of region r; -1, and a report, for an invalid one.
LM_FN int image_of(const RoiArgs& p, int r) {
    const float* roi = p.regions + 5 * r;
    float finite = 0;
    for (int i = 0; i < 5; ++i) finite += roi[i] * 0.0f;  // NaN where any is not finite
    const int image = finite == 0.0f && roi[0] > -1.0f && roi[0] < 2e9f ? static_cast<int>(roi[0]) : 0x7fffffff;
    if (image < p.items) return image;
    atomicMax(p.error_flag, image);
    return -1;
}

// round(value * scale), halves away from zero; corners beyond 2^24 are taken there.
LM_FN int corner(float value, float scale) {
    const float at = fminf(fmaxf(value * scale, -16777216.0f), 16777216.0f), whole = floorf(fabsf(at));
    const int size = static_cast<int>(whole) + (fabsf(at) - whole >= 0.5f ? 1 : 0);
    return at < 0.0f ? -size : size;
}

// [x, y): the pixels of window i of an axis
LM_FN int2 span_of(const RoiArgs& p, int i, float from, float to, int windows, int size) {
    const int first = corner(from, p.spatial_scale), last = corner(to, p.spatial_scale);
    const float bin = static_cast<float>(max(last - first + 1, 1)) / static_cast<float>(windows);
    const int begin = static_cast<int>(floorf(static_cast<float>(i) * bin)) + first;
    const int end = static_cast<int>(ceilf(static_cast<float>(i + 1) * bin)) + first;
    return make_int2(min(max(begin, 0), size), min(max(end, 0), size));
}

LM_FN int2 rows_of(const RoiArgs& p, int r, int i) {
    return span_of(p, i, p.regions[5 * r + 2], p.regions[5 * r + 4], p.pooled_h, p.height);
}

LM_FN int2 columns_of(const RoiArgs& p, int r, int i) {
    return span_of(p, i, p.regions[5 * r + 1], p.regions[5 * r + 3], p.pooled_w, p.width);
}

LM_KERNEL(roi_pool_forward, RoiArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const RoiPlace at = place_of(p, i);  // item: the region
    const int image = image_of(p, at.item);
    int2 down = make_int2(0, 0), right = make_int2(0, 0);
    if (image >= 0) {
        down = rows_of(p, at.item, at.row);
        right = columns_of(p, at.item, at.column);
    }
    const bool empty = down.x >= down.y || right.x >= right.y;
    float best = empty ? 0.0f : -infinity();
    int winner = empty ? -1 : down.x * p.width + right.x;
    for (int h = down.x; h < down.y; ++h)
        for (int w = right.x; w < right.y; ++w) {
            const float value = p.x[((image * p.height + h) * p.width + w) * p.channels + at.channel];
            if (value > best) {
                best = value;
                winner = h * p.width + w;
            }
        }
    p.y[i] = best;
    if (p.argmax != nullptr) p.argmax[i] = winner;
}

LM_KERNEL(roi_pool_backward, RoiArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const RoiPlace at = place_of(p, i);
    const int mine = at.row * p.width + at.column;
    float sum = 0;
    for (int r = 0; r < p.regions_all; ++r) {
        if (static_cast<int>(p.regions[5 * r]) != at.item) continue;
        for (int row = 0; row < p.pooled_h; ++row) {
            const int2 down = rows_of(p, r, row);
            if (at.row < down.x || at.row >= down.y) continue;
            for (int column = 0; column < p.pooled_w; ++column) {
                const int2 right = columns_of(p, r, column);
                if (at.column < right.x || at.column >= right.y) continue;
                const int window = ((r * p.pooled_h + row) * p.pooled_w + column) * p.channels + at.channel;
                sum += p.argmax[window] == mine ? p.x[window] : 0.0f;
            }
        }
    }
    put(p.y + i, sum, p.accumulate);
}

// ---- PsRoiPool: means, each of a channel of its own -------------------------------------------------------------------
//
//   y [R,g,g,K] float written     x [N,H,W,K g g] float, regions read     argmax null, pooled_h = pooled_w = g

LM_FN float whole(float value) {
    const float at = fminf(fmaxf(value, -16777216.0f), 16777216.0f), size = floorf(fabsf(at) + 0.5f);
    return at < 0.0f ? -size : size;
}

LM_FN int2 mean_span(const RoiArgs& p, int i, float from, float to, int size) {
    const float first = whole(from) * p.spatial_scale, last = (whole(to) + 1.0f) * p.spatial_scale;
    const float bin = fmaxf(last - first, 0.1f) / static_cast<float>(p.pooled_h);
    const int begin = static_cast<int>(floorf(static_cast<float>(i) * bin + first));
    const int end = static_cast<int>(ceilf(static_cast<float>(i + 1) * bin + first));
    return make_int2(min(max(begin, 0), size), min(max(end, 0), size));
}

LM_KERNEL(ps_roi_pool_forward, RoiArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const RoiPlace at = place_of(p, i);  // item: the region
    const int image = image_of(p, at.item);
    float sum = 0, area = 0;
    if (image >= 0) {
        const float* roi = p.regions + 5 * at.item;
        const int2 down = mean_span(p, at.row, roi[2], roi[4], p.height);
        const int2 right = mean_span(p, at.column, roi[1], roi[3], p.width);
        const int channel = (at.channel * p.pooled_h + at.row) * p.pooled_h + at.column;
        area = static_cast<float>(max(down.y - down.x, 0) * max(right.y - right.x, 0));
        for (int h = down.x; h < down.y; ++h)
            for (int w = right.x; w < right.y; ++w)
                sum += p.x[((image * p.height + h) * p.width + w) * p.channels + channel];
    }
    p.y[i] = area > 0.0f ? sum / area : 0.0f;
}

LM_KERNEL(ps_roi_pool_backward, RoiArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const RoiPlace at = place_of(p, i);
    const int grid = p.pooled_h, column = at.channel % grid, row = at.channel / grid % grid;
    const int output = at.channel / (grid * grid), outputs = p.channels / (grid * grid);
    float sum = 0;
    for (int r = 0; r < p.regions_all; ++r) {
        const float* roi = p.regions + 5 * r;
        if (static_cast<int>(roi[0]) != at.item) continue;
        const int2 down = mean_span(p, row, roi[2], roi[4], p.height);
        const int2 right = mean_span(p, column, roi[1], roi[3], p.width);
        if (at.row < down.x || at.row >= down.y || at.column < right.x || at.column >= right.y) continue;
        const float area = static_cast<float>((down.y - down.x) * (right.y - right.x));
        sum += p.x[((r * grid + row) * grid + column) * outputs + output] / area;
    }
    put(p.y + i, sum, p.accumulate);
}
