// Images that an input layer delivers in bytes.
#include "common.cuh"

using namespace lm;

// transform_images: y = (x - mean) * scale, mirrored left to right where the item's flag is not zero.
//   y         [N,h,w,C] float written     x [N,C,h,w], mirrored [N] bytes, corners [N,2] int read
//   settings  float read: the scale, then the mean: [C], or [C,H,W] from which each item has the window at its corner
//   launch    one thread per pixel of an item, all its channels: grid ceil(N h w / 256), block 256
//   traffic   5 bytes an element, and 4 of a mean image from the cache: bound by memory; a warp reads runs of each channel, and writes one run
//   assumes   N C h w < 2^31
//   source    layermem/ops/images.py, whose bits it has; Caffe data_transformer.cpp
struct ImagesArgs {
    float* y;
    const unsigned char* x;
    const float* settings;
    const int* corners;
    const unsigned char* mirrored;
    Divider by_item, by_row;                  // pixels of an item, and of a row
    int channels, count;                      // of pixels
    int mean_channel, mean_row, mean_column;  // elements from one to the next
};

LM_KERNEL(transform_images, ImagesArgs, p, 256) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= p.count) return;
    const int places = p.by_item.divisor, width = p.by_row.divisor;
    const int item = divide(at, p.by_item), place = at - item * places;
    const int row = divide(place, p.by_row), column = place - row * width;
    const int from = p.mirrored[item] ? width - 1 - column : column;
    const unsigned char* x = p.x + static_cast<long long>(item) * p.channels * places + row * width + from;
    const int mean_row = p.corners[2 * item] + row, mean_column = p.corners[2 * item + 1] + from;
    const float* mean = p.settings + 1 + mean_row * p.mean_row + mean_column * p.mean_column;
    float* y = p.y + static_cast<long long>(at) * p.channels;
    const float scale = p.settings[0];
    for (int c = 0; c < p.channels; ++c) {
        const float difference = static_cast<float>(x[static_cast<long long>(c) * places]) - mean[c * p.mean_channel];
        y[c] = difference * scale;
    }
}
