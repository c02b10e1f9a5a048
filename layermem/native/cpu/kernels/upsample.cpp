// A task is a block of channels of an item, so that no two tasks write one element.
#include "cpu/kernels/upsample.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kChannels = 16;  // of a task: one cache line

void check(int64_t n, int64_t c, int64_t pixels, int64_t plane) {
    if (n < 1 || c < 1 || pixels < 1 || plane < 1) throw std::invalid_argument("unpool: every size must be at least 1");
}

void check_mask(const float* mask, int64_t count, int64_t plane) {
    for (int64_t i = 0; i < count; ++i) {
        if (mask[i] > -1 && mask[i] < static_cast<float>(plane)) continue;
        char text[80];
        std::snprintf(text, sizeof text, "reads index %.9g in its mask", static_cast<double>(mask[i]));
        throw std::invalid_argument(text);
    }
}

template <class Body>
void for_each_block(int64_t n, int64_t c, const Body& body) {
    const int64_t blocks = (c + kChannels - 1) / kChannels;
    parallel_for(n * blocks, [&](int64_t task) {
        const int64_t begin = task % blocks * kChannels;
        body(task / blocks, begin, std::min(c, begin + kChannels));
    });
}

}  // namespace

Launch unpool_forward(int64_t n, int64_t c, int64_t pixels, int64_t plane, float* y, const float* x,
                      const float* mask) {
    check(n, c, pixels, plane);
    return [=] {
        check_mask(mask, n * pixels * c, plane);
        for_each_block(n, c, [&](int64_t item, int64_t begin, int64_t end) {
            float* out = y + item * plane * c;
            for (int64_t p = 0; p < plane; ++p) std::fill(out + p * c + begin, out + p * c + end, 0.0f);
            for (int64_t p = item * pixels; p < (item + 1) * pixels; ++p)
                for (int64_t k = begin; k < end; ++k) out[static_cast<int64_t>(mask[p * c + k]) * c + k] = x[p * c + k];
        });
    };
}

Launch unpool_backward(int64_t n, int64_t c, int64_t pixels, int64_t plane, float* dx, const float* dy,
                       const float* mask, bool accumulate) {
    check(n, c, pixels, plane);
    return [=] {
        for_each_block(n, c, [&](int64_t item, int64_t begin, int64_t end) {
            const float* in = dy + item * plane * c;
            for (int64_t p = item * pixels; p < (item + 1) * pixels; ++p)
                for (int64_t k = begin; k < end; ++k) {
                    const float value = in[static_cast<int64_t>(mask[p * c + k]) * c + k];
                    dx[p * c + k] = accumulate ? dx[p * c + k] + value : value;
                }
        });
    };
}

LAYERMEM_KERNEL(unpool_forward)
LAYERMEM_KERNEL(unpool_backward)

}  // namespace layermem::cpu
