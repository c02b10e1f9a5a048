// The default boxes of a map of scores: corners in images, then variances.
//   y [2][boxes][4] float written; boxes counts rows, columns, sizes
//   launch   one thread per box: grid ceil(boxes / 256), block 256
//   traffic  32 bytes per box: bound by memory
//   assumes  at most 64 sizes (layers/prior_box.py guarantees it)
//   source   layermem/layers/prior_box.py; the SSD fork's prior_box_layer.cpp, which has no CUDA kernel
#include "common.cuh"

using namespace lm;

struct PriorBoxArgs {
    float* y;
    float widths[64], heights[64];  // in pixels of the image
    float variance[4];
    Divider by_sizes, by_columns;
    int boxes, image_h, image_w, clip;
    float step_h, step_w, offset;
};

LM_FN float clipped(float at, int clip) { return clip ? fminf(fmaxf(at, 0.0f), 1.0f) : at; }

LM_KERNEL(prior_box, PriorBoxArgs, p, 256) {
    const unsigned box = blockIdx.x * 256u + threadIdx.x;
    if (box >= static_cast<unsigned>(p.boxes)) return;
    const int pixel = divide(box, p.by_sizes), row = divide(pixel, p.by_columns);
    const int size = static_cast<int>(box) - pixel * static_cast<int>(p.by_sizes.divisor);
    const int column = pixel - row * static_cast<int>(p.by_columns.divisor);
    const float x = (static_cast<float>(column) + p.offset) * p.step_w, half_w = 0.5f * p.widths[size];
    const float y = (static_cast<float>(row) + p.offset) * p.step_h, half_h = 0.5f * p.heights[size];
    const float w = static_cast<float>(p.image_w), h = static_cast<float>(p.image_h);
    const float corners[4] = {clipped((x - half_w) / w, p.clip), clipped((y - half_h) / h, p.clip),
                              clipped((x + half_w) / w, p.clip), clipped((y + half_h) / h, p.clip)};
    store<4>(p.y + 4 * box, corners);
    store<4>(p.y + 4 * (p.boxes + box), p.variance);
}
