// Drivers of the convolution kernels: each says which sums it wants as a Sweep (forward, data gradient) or as rows of
// pixels to multiply (weight gradient), packs what it must, and leaves the arithmetic to the vector unit.
#include "convolution.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "activation.h"
#include "depthwise.h"
#include "pool.h"
#include "sweep.h"
#include "winograd.h"

namespace layermem::cpu {
namespace {

Sweep forward_sweep(const Conv& g) {
    Sweep s{};
    const bool rows = g.whole_rows();
    s.images = g.n, s.rows_h = g.ho(), s.rows_w = g.wo();
    s.in_h = g.h, s.in_w = g.w, s.in_pitch = g.c, s.in_step_h = g.sh, s.in_step_w = g.sw;
    s.out_h = g.ho(), s.out_w = g.wo(), s.out_pitch = g.k, s.out_step_h = s.out_step_w = 1;
    for (int64_t r = 0; r < g.kh; ++r)
        for (int64_t t = 0; t < (rows ? 1 : g.kw); ++t) s.taps.push_back({r * g.dh - g.ph, t * g.dw - g.pw});
    s.span = rows ? g.kw : 1, s.length = s.span * g.cg();
    s.columns = g.kg(), s.groups = g.groups, s.packed_pitch = packed_floats(g.taps() * g.cg(), g.kg());
    return s;
}

// The pixels of x with h = first (mod stride) meet the same taps; such a class is a convolution of dy with stride 1.
struct Class {
    Sweep sweep;
    std::vector<int64_t> taps;  // r * kw + s of each tap of the sweep
};

// Taps r for which (first + pad - r * dilation) is a multiple of the stride, with that quotient.
std::vector<Tap> meeting(int64_t first, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    std::vector<Tap> all;
    for (int64_t r = 0; r < kernel; ++r)
        if ((first + pad - r * dilation) % stride == 0) all.push_back({r, (first + pad - r * dilation) / stride});
    return all;
}

std::vector<Class> data_classes(const Conv& g) {
    std::vector<Class> all;
    for (int64_t a = 0; a < std::min(g.sh, g.h); ++a)
        for (int64_t b = 0; b < std::min(g.sw, g.w); ++b) {
            Class one{};
            Sweep& s = one.sweep;
            s.images = g.n, s.rows_h = (g.h - a + g.sh - 1) / g.sh, s.rows_w = (g.w - b + g.sw - 1) / g.sw;
            s.in_h = g.ho(), s.in_w = g.wo(), s.in_pitch = g.k, s.in_step_h = s.in_step_w = 1;
            s.out_h = g.h, s.out_w = g.w, s.out_pitch = g.c;
            s.out_first_h = a, s.out_first_w = b, s.out_step_h = g.sh, s.out_step_w = g.sw;
            for (const Tap& r : meeting(a, g.kh, g.sh, g.ph, g.dh))
                for (const Tap& t : meeting(b, g.kw, g.sw, g.pw, g.dw)) {
                    s.taps.push_back({r.w, t.w});
                    one.taps.push_back(r.h * g.kw + t.h);
                }
            s.span = 1, s.length = g.kg(), s.columns = g.cg(), s.groups = g.groups;
            s.packed_pitch = packed_floats(static_cast<int64_t>(s.taps.size()) * g.kg(), g.cg());
            all.push_back(std::move(one));
        }
    return all;
}

void pack_forward(const Unit& u, const Conv& g, float* packed, const float* w) {
    const int64_t depth = g.taps() * g.cg(), pitch = packed_floats(depth, g.kg());
    const auto all = panels(u, g.kg());
    const int64_t count = static_cast<int64_t>(all.size()), parts = std::clamp<int64_t>(depth / 64, 1, 16);
    parallel(g.groups * count * parts, [&](int64_t task) {
        const int64_t group = task / count / parts, from = cut(depth, parts, task % parts);
        const Panel& p = all[task / parts % count];
        const int64_t width = p.vectors * u.lanes;
        u.pack_columns(packed + group * pitch + p.offset * depth + from * width,
                       w + (group * g.kg() + p.column) * depth + from, depth,
                       cut(depth, parts, task % parts + 1) - from, width - u.lanes + p.last, width);
    });
}

// Each group's weights of one class: [tap][k][c], where c is contiguous in w already.
void pack_backward(const Unit& u, const Conv& g, const Class& one, float* packed, const float* w) {
    const int64_t taps = static_cast<int64_t>(one.taps.size()), depth = taps * g.kg(), pitch = g.taps() * g.cg();
    const auto all = panels(u, g.cg());
    const int64_t count = static_cast<int64_t>(all.size());
    parallel(g.groups * count * taps, [&](int64_t task) {
        const int64_t group = task / count / taps, tap = task % taps;
        const Panel& p = all[task / taps % count];
        const int64_t width = p.vectors * u.lanes;
        u.pack_rows(packed + group * one.sweep.packed_pitch + p.offset * depth + tap * g.kg() * width,
                    w + group * g.kg() * pitch + one.taps[tap] * g.cg() + p.column, pitch, g.kg(),
                    width - u.lanes + p.last, width);
    });
}

}  // namespace

void Conv::check() const {
    const auto wrong = [](const std::string& what) { throw std::invalid_argument("convolution: " + what); };
    if (n < 1 || c < 1 || h < 1 || w < 1 || k < 1) wrong("every size must be at least 1");
    if (kh < 1 || kw < 1 || sh < 1 || sw < 1 || dh < 1 || dw < 1 || groups < 1)
        wrong("kernel, stride, dilation and groups must be at least 1");
    if (ph < 0 || pw < 0) wrong("pad must not be negative");
    if (c % groups || k % groups) wrong("channels must be divisible by groups");
    if (h + 2 * ph < dh * (kh - 1) + 1 || w + 2 * pw < dw * (kw - 1) + 1)
        wrong("the window is larger than the padded image");
}

int64_t conv_forward_workspace(const Conv& g) {
    g.check();
    if (is_depthwise(g)) return depthwise_workspace(g);
    if (is_winograd(g)) return winograd_workspace(g);
    return padded(g.groups * packed_floats(g.taps() * g.cg(), g.kg()) * static_cast<int64_t>(sizeof(float)));
}

Launch conv_forward(const Conv& g, float* y, const float* x, const float* w, const float* bias, bool accumulate,
                    bool relu, uint8_t* mask, void* scratch) {
    g.check();
    if (accumulate && bias) throw std::invalid_argument("convolution: a bias is added to a fresh output only");
    if (is_depthwise(g)) return depthwise_forward(g, y, x, w, bias, accumulate, relu, mask, scratch);
    if (is_winograd(g)) return winograd_forward(g, y, x, w, bias, accumulate, relu, mask, scratch);
    float* packed = static_cast<float*>(scratch);
    return [=, u = &unit(), sweep = forward_sweep(g)] {
        pack_forward(*u, g, packed, w);
        run_sweep(*u, sweep, y, x, packed, bias, accumulate, relu);
        if (mask) write_mask(*u, sweep.rows() * g.k, y, mask);
    };
}

int64_t conv_backward_data_workspace(const Conv& g) {
    g.check();
    if (is_depthwise(g)) return depthwise_workspace(g);
    if (is_winograd(g)) return winograd_workspace(g);
    int64_t floats = 0;
    for (const Class& one : data_classes(g)) floats += g.groups * one.sweep.packed_pitch;
    return padded(floats * static_cast<int64_t>(sizeof(float)));
}

Launch conv_backward_data(const Conv& g, float* dx, const float* dy, const float* w, const float* bias, bool accumulate,
                          void* scratch) {
    g.check();
    if (accumulate && bias) throw std::invalid_argument("convolution: a bias is added to a fresh output only");
    if (is_depthwise(g)) return depthwise_backward_data(g, dx, dy, w, bias, accumulate, scratch);
    if (is_winograd(g)) return winograd_backward_data(g, dx, dy, w, bias, accumulate, scratch);
    return [=, u = &unit(), classes = data_classes(g)] {
        float* packed = static_cast<float*>(scratch);
        for (const Class& one : classes) {
            if (one.taps.empty() && accumulate) continue;
            pack_backward(*u, g, one, packed, w);
            run_sweep(*u, one.sweep, dx, dy, packed, bias, accumulate, false);
            packed += g.groups * one.sweep.packed_pitch;
        }
    };
}

}  // namespace layermem::cpu
