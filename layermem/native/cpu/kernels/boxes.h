// Boxes of detectors: corners in images, their overlap, their codes relative to a prior box, and rows of detections.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace layermem::cpu {

struct Box {
    float left, top, right, bottom;
};

enum class BoxCode : int64_t { kCorner = 1, kCenterSize = 2, kCornerSize = 3 };  // PriorBoxParameter.CodeType

struct BoxCoder {
    BoxCode code;
    bool in_target;  // variances are no part of the code
};

inline float box_area(const Box& box) {
    return box.right < box.left || box.bottom < box.top ? 0.0f : (box.right - box.left) * (box.bottom - box.top);
}

// Area in common / area of both together.
inline float box_overlap(const Box& a, const Box& b) {
    if (b.left > a.right || b.right < a.left || b.top > a.bottom || b.bottom < a.top) return 0;
    const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
    const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
    if (!(width > 0 && height > 0)) return 0;
    const float common = width * height;
    return common / (box_area(a) + box_area(b) - common);
}

inline Box clipped(const Box& box) {
    const auto inside = [](float at) { return std::max(0.0f, std::min(at, 1.0f)); };
    return {inside(box.left), inside(box.top), inside(box.right), inside(box.bottom)};
}

inline bool box_crosses(const Box& box) {
    const auto outside = [](float at) { return at < 0 || at > 1; };
    return outside(box.left) || outside(box.top) || outside(box.right) || outside(box.bottom);
}

// The code of `box`, from which decode_box gives it again.
inline void encode_box(const BoxCoder& coder, const Box& prior, const float* variance, const Box& box, float* code) {
    const float width = prior.right - prior.left, height = prior.bottom - prior.top;
    if (coder.code == BoxCode::kCenterSize) {
        code[0] = ((box.left + box.right) / 2 - (prior.left + prior.right) / 2) / width;
        code[1] = ((box.top + box.bottom) / 2 - (prior.top + prior.bottom) / 2) / height;
        code[2] = std::log((box.right - box.left) / width);
        code[3] = std::log((box.bottom - box.top) / height);
    } else {
        const bool sized = coder.code == BoxCode::kCornerSize;
        const float w = sized ? width : 1, h = sized ? height : 1;
        code[0] = (box.left - prior.left) / w;
        code[1] = (box.top - prior.top) / h;
        code[2] = (box.right - prior.right) / w;
        code[3] = (box.bottom - prior.bottom) / h;
    }
    if (!coder.in_target)
        for (int k = 0; k < 4; ++k) code[k] /= variance[k];
}

inline Box decode_box(const BoxCoder& coder, const Box& prior, const float* variance, const float* code) {
    float v[4];
    for (int k = 0; k < 4; ++k) v[k] = coder.in_target ? code[k] : variance[k] * code[k];
    const float width = prior.right - prior.left, height = prior.bottom - prior.top;
    if (coder.code == BoxCode::kCenterSize) {
        const float x = v[0] * width + (prior.left + prior.right) / 2;
        const float y = v[1] * height + (prior.top + prior.bottom) / 2;
        const float w = std::exp(v[2]) * width / 2, h = std::exp(v[3]) * height / 2;
        return {x - w, y - h, x + w, y + h};
    }
    const bool sized = coder.code == BoxCode::kCornerSize;
    const float w = sized ? width : 1, h = sized ? height : 1;
    return {prior.left + v[0] * w, prior.top + v[1] * h, prior.right + v[2] * w, prior.bottom + v[3] * h};
}

constexpr int64_t kDetection = 7;  // floats of a row

// Moves the detections of all items together: y has `row` floats for each item, the first counts[n] rows of them in use.
// Floats behind the last detection become -1.
inline void join_detections(float* y, const int64_t* counts, int64_t items, int64_t row) {
    float* end = y;
    for (int64_t n = 0; n < items; ++n) {
        const int64_t floats = counts[n] * kDetection;
        std::memmove(end, y + n * row, static_cast<size_t>(floats) * sizeof(float));
        end += floats;
    }
    std::fill(end, y + items * row, -1.0f);
}

}  // namespace layermem::cpu
