#include "depthwise.h"

#include <algorithm>

#include "activation.h"
#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PARTS = 16;  // most copies of dw

int64_t pitch_of(const Conv& g) { return (g.c + 15) / 16 * 16; }
int64_t parts_of(const Conv& g) {
    return std::clamp<int64_t>(g.n * g.ho() * g.wo() * g.c / 65536, 1, std::min(PARTS, g.n * g.ho()));
}

void run_rows(int64_t rows, int64_t width, void (*row)(const DepthwiseArgs&, int64_t), const DepthwiseArgs& a) {
    const int64_t step = std::max<int64_t>(1, 4096 / width);
    parallel((rows + step - 1) / step, [&](int64_t i) {
        for (int64_t r = i * step; r < std::min(rows, (i + 1) * step); ++r) row(a, r);
    });
}

// With stride 1 the data gradient is the convolution of dy with the window turned round.
bool is_turned_forward(const Conv& g) {
    return g.sh == 1 && g.sw == 1 && g.dh * (g.kh - 1) >= g.ph && g.dw * (g.kw - 1) >= g.pw;
}

Conv turned_round(const Conv& g) {
    Conv back = g;
    back.h = g.ho(), back.w = g.wo();
    back.ph = g.dh * (g.kh - 1) - g.ph, back.pw = g.dw * (g.kw - 1) - g.pw;
    return back;
}

}  // namespace

int64_t depthwise_workspace(const Conv& g) {
    return padded(g.taps() * pitch_of(g) * static_cast<int64_t>(sizeof(float)));
}

Launch depthwise_forward(const Conv& g, float* y, const float* x, const float* w, const float* bias, bool accumulate,
                         bool relu, uint8_t* mask, void* scratch) {
    return [=, u = &unit()] {
        float* packed = static_cast<float*>(scratch);
        u->pack_columns(packed, w, g.taps(), g.taps(), g.c, pitch_of(g));
        run_rows(g.n * g.ho(), g.wo() * g.c, u->depthwise, {g, y, x, packed, bias, pitch_of(g), accumulate, relu});
        if (mask) write_mask(*u, g.n * g.ho() * g.wo() * g.c, y, mask);
    };
}

Launch depthwise_backward_data(const Conv& g, float* dx, const float* dy, const float* w, const float* bias,
                               bool accumulate, void* scratch) {
    return [=, u = &unit()] {
        float* packed = static_cast<float*>(scratch);
        const int64_t pitch = pitch_of(g), rows = g.n * g.h, width = g.w * g.c;
        u->pack_columns(packed, w, g.taps(), g.taps(), g.c, pitch);
        if (!is_turned_forward(g))
            return run_rows(rows, width, u->depthwise_back, {g, dx, dy, packed, bias, pitch, accumulate, false});
        for (int64_t a = 0, b = g.taps() - 1; a < b; ++a, --b)
            std::swap_ranges(packed + a * pitch, packed + (a + 1) * pitch, packed + b * pitch);
        run_rows(rows, width, u->depthwise, {turned_round(g), dx, dy, packed, bias, pitch, accumulate, false});
    };
}

int64_t depthwise_weights_workspace(const Conv& g) {
    return padded(parts_of(g) * g.taps() * g.c * static_cast<int64_t>(sizeof(float)));
}

Launch depthwise_backward_weights(const Conv& g, float* dw, const float* x, const float* dy, bool accumulate,
                                  void* scratch) {
    return [=, u = &unit()] {
        float* copies = static_cast<float*>(scratch);
        const int64_t parts = parts_of(g), rows = g.n * g.ho(), taps = g.taps(), floats = taps * g.c;
        parallel(parts, [&](int64_t i) {
            u->depthwise_sums({g, copies + i * floats, x, dy}, cut(rows, parts, i), cut(rows, parts, i + 1));
        });
        if (parts > 1) u->add_rows(copies, copies + floats, floats, parts - 1, floats, Start::out);
        for (int64_t c = 0; c < g.c; ++c)
            for (int64_t tap = 0; tap < taps; ++tap) {
                float& out = dw[c * taps + tap];
                out = accumulate ? out + copies[tap * g.c + c] : copies[tap * g.c + c];
            }
    };
}

}  // namespace layermem::cpu
