// Scale, Bias, BatchNorm, PReLU: sums over a channel in parts fixed by the shape, then one pass that uses them.
#include "channels.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t TASK_ELEMENTS = 16384;
constexpr int64_t JOINED = 64;  // channels whose statistics a task joins

void run_blend(const Unit& u, const BlendArgs& g) {
    const int64_t lines = g.shape.lines(), step = std::max<int64_t>(1, TASK_ELEMENTS / g.shape.line());
    parallel((lines + step - 1) / step, [&](int64_t i) { u.blend(g, i * step, std::min(lines, (i + 1) * step)); });
}

BlendArgs blending(const Channels& s, Blend blend, float* out, const float* a, bool accumulate = false) {
    BlendArgs g{};
    g.shape = s, g.blend = blend, g.out = out, g.a = a, g.accumulate = accumulate;
    return g;
}

// Each part's numbers lie in scratch as [2][channels].
void run_parts(const Unit& u, SumArgs g, float* scratch) {
    const int64_t parts = parts_of(g.shape);
    parallel(parts, [&](int64_t i) {
        SumArgs part = g;
        part.out = scratch + i * 2 * g.shape.channels;
        u.channel_sum(part, cut(g.shape.outer, parts, i), cut(g.shape.outer, parts, i + 1));
    });
}

// out (+)= the parts' sums: the first or the second number of each
void add_parts(const Unit& u, const Channels& s, float* out, const float* scratch, int which, bool accumulate) {
    u.add_rows(out, scratch + which * s.channels, 2 * s.channels, parts_of(s), s.channels,
               accumulate ? Start::out : Start::zero);
}

int64_t parts_bytes(const Channels& s, int64_t more = 0) {
    s.check();
    return padded((parts_of(s) * 2 + more) * s.channels * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

void Channels::check() const {
    if (outer < 1 || channels < 1 || inner < 1)
        throw std::invalid_argument("channels: outer, channels and inner must be at least 1");
}

int64_t parts_of(const Channels& s) { return std::min(s.outer, std::clamp<int64_t>(s.count() / 32768, 1, PARTS)); }

Launch scale_forward(const Channels& s, float* y, const float* x, const float* factor, const float* bias) {
    s.check();
    return [=, u = &unit()] {
        BlendArgs g = blending(s, Blend::affine, y, x);
        g.f = factor, g.g = bias;
        run_blend(*u, g);
    };
}

Launch bias_forward(const Channels& s, float* y, const float* x, const float* bias) {
    s.check();
    return [=, u = &unit()] {
        BlendArgs g = blending(s, Blend::shift, y, x);
        g.g = bias;
        run_blend(*u, g);
    };
}

int64_t scale_backward_workspace(const Channels& s) { return parts_bytes(s); }

Launch scale_backward(const Channels& s, const ScaleBackward& p, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        float* sums = static_cast<float*>(scratch);
        SumArgs sum{};
        sum.shape = s, sum.a = p.dy, sum.b = p.x;
        if (p.dfactor || p.dbias) {  // before dx, which may lie over x or dy
            sum.sum = p.dfactor ? Sum::product : Sum::plain;
            run_parts(*u, sum, sums);
        }
        if (p.dfactor) add_parts(*u, s, p.dfactor, sums, 0, p.accumulate_dfactor);
        if (p.dbias) add_parts(*u, s, p.dbias, sums, p.dfactor ? 1 : 0, p.accumulate_dbias);
        if (!p.dx) return;
        BlendArgs g = blending(s, Blend::affine, p.dx, p.dy, p.accumulate_dx);
        g.f = p.factor;
        run_blend(*u, g);
    };
}

int64_t batch_norm_forward_workspace(const Channels& s) { return parts_bytes(s); }

namespace {
// Mean and inverse deviation of a batch; the moving averages, where there are any, move.
void take_statistics(const Unit& u, const Channels& s, const float* x, float* mean, float* inv_std,
                     const Averages& averages, float eps, float* moments) {
    SumArgs sum{};
    sum.shape = s, sum.sum = Sum::moments, sum.a = x;
    run_parts(u, sum, moments);
    const int64_t parts = parts_of(s);
    const double count = static_cast<double>(s.outer * s.inner);
    const auto join_parts = [&](int64_t c) {
        double middle = 0, m2 = 0, before = 0;
        for (int64_t i = 0; i < parts; ++i) {  // joined as in Chan et al. 1979
            const float* part = moments + i * 2 * s.channels + c;
            const double added = static_cast<double>((cut(s.outer, parts, i + 1) - cut(s.outer, parts, i)) * s.inner);
            const double gap = part[0] - middle, share = added / (before + added);
            middle += gap * share;
            m2 += part[s.channels] + gap * gap * before * share;
            before += added;
        }
        mean[c] = static_cast<float>(middle);
        inv_std[c] = static_cast<float>(1 / std::sqrt(m2 / count + static_cast<double>(eps)));
        if (averages.mean) {
            const float unbiased = static_cast<float>(m2 / std::max(count - 1, 1.0));
            averages.mean[c] = averages.mean[c] * averages.fraction + mean[c];
            averages.variance[c] = averages.variance[c] * averages.fraction + unbiased;
        }
    };
    parallel((s.channels + JOINED - 1) / JOINED, [&](int64_t i) {
        for (int64_t c = i * JOINED; c < std::min(s.channels, (i + 1) * JOINED); ++c) join_parts(c);
    });
    if (averages.mean) *averages.factor = *averages.factor * averages.fraction + 1;
}
}  // namespace

Launch batch_norm_forward(const Channels& s, float* y, const float* x, float* mean, float* inv_std,
                          const Averages& averages, float eps, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        take_statistics(*u, s, x, mean, inv_std, averages, eps, static_cast<float*>(scratch));
        BlendArgs g = blending(s, Blend::normalize, y, x);
        g.f = mean, g.g = inv_std;
        run_blend(*u, g);
    };
}

Launch batch_norm_replay(const Channels& s, float* y, const float* x, const float* mean, const float* inv_std) {
    s.check();
    return [=, u = &unit()] {
        BlendArgs g = blending(s, Blend::normalize, y, x);
        g.f = mean, g.g = inv_std;
        run_blend(*u, g);
    };
}

namespace {
// mean and inverse deviation of the moving averages, into scratch [2][channels]
void settle(const Channels& s, const Averages& averages, float eps, float* scratch) {
    const double factor = *averages.factor, share = factor == 0 ? 0 : 1 / factor;
    for (int64_t c = 0; c < s.channels; ++c) {
        scratch[c] = static_cast<float>(averages.mean ? averages.mean[c] * share : 0);
        const double variance = averages.variance[c] * share;
        scratch[s.channels + c] = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(eps)));
    }
}
}  // namespace

int64_t batch_norm_global_workspace(const Channels& s) {
    s.check();
    return padded(2 * s.channels * static_cast<int64_t>(sizeof(float)));
}

Launch batch_norm_global_forward(const Channels& s, float* y, const float* x, const Averages& averages, float eps,
                                 void* scratch) {
    s.check();
    return [=, u = &unit()] {
        float* settled = static_cast<float*>(scratch);
        settle(s, averages, eps, settled);
        BlendArgs g = blending(s, Blend::normalize, y, x);
        g.f = settled, g.g = settled + s.channels;
        run_blend(*u, g);
    };
}

Launch batch_norm_global_backward(const Channels& s, float* dx, const float* dy, const Averages& averages, float eps,
                                  bool accumulate, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        float* settled = static_cast<float*>(scratch);
        settle(s, averages, eps, settled);
        BlendArgs g = blending(s, Blend::affine, dx, dy, accumulate);
        g.f = settled + s.channels;
        run_blend(*u, g);
    };
}

int64_t batch_norm_backward_workspace(const Channels& s) { return parts_bytes(s, 2); }

// dx = inv_std (dy - mean dy - xhat mean(dy xhat)),  xhat = (x - mean) inv_std
Launch batch_norm_backward(const Channels& s, float* dx, const float* x, const float* dy, const float* mean,
                           const float* inv_std, bool accumulate, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        float* sums = static_cast<float*>(scratch);
        float *slope = sums + parts_of(s) * 2 * s.channels, *middle = slope + s.channels;
        SumArgs sum{};
        sum.shape = s, sum.sum = Sum::normalized, sum.a = dy, sum.b = x, sum.f = mean, sum.g = inv_std;
        run_parts(*u, sum, sums);
        add_parts(*u, s, slope, sums, 0, false);
        add_parts(*u, s, middle, sums, 1, false);
        const float share = static_cast<float>(1.0 / static_cast<double>(s.outer * s.inner));
        for (int64_t c = 0; c < s.channels; ++c) middle[c] *= share, slope[c] *= share * inv_std[c];
        BlendArgs g = blending(s, Blend::gradient, dx, dy, accumulate);
        g.b = x, g.f = middle, g.g = mean, g.h = inv_std, g.k = slope;
        run_blend(*u, g);
    };
}

int64_t batch_norm_fused_workspace(const Channels& s) { return parts_bytes(s, 3); }

namespace {
void blend_fused(const Unit& u, const FusedNorm& p, float* y, const float* mean, const float* inv_std, float* slope) {
    for (int64_t c = 0; c < p.shape.channels; ++c) slope[c] = inv_std[c] * p.factor[c];
    BlendArgs g = blending(p.shape, Blend::fused, y, p.x);
    g.f = mean, g.g = p.bias, g.h = slope, g.relu = p.relu;
    run_blend(u, g);
}
}  // namespace

Launch batch_norm_fused_forward(const FusedNorm& p, float* y, const Averages& averages, float eps, bool replay,
                                void* scratch) {
    p.shape.check();
    return [=, u = &unit()] {
        float* room = static_cast<float*>(scratch);
        if (!replay) take_statistics(*u, p.shape, p.x, p.mean, p.inv_std, averages, eps, room);
        blend_fused(*u, p, y, p.mean, p.inv_std, room);
    };
}

Launch batch_norm_fused_global_forward(const FusedNorm& p, float* y, const Averages& averages, float eps,
                                       void* scratch) {
    p.shape.check();
    return [=, u = &unit()] {
        float *settled = static_cast<float*>(scratch), *inv_std = settled + p.shape.channels;
        settle(p.shape, averages, eps, settled);
        blend_fused(*u, p, y, settled, inv_std, inv_std);
    };
}

Launch batch_norm_fused_backward(const FusedNorm& p, const FusedGradients& d, const float* dy, void* scratch) {
    p.shape.check();
    return [=, u = &unit()] {
        const Channels& s = p.shape;
        float *sums = static_cast<float*>(scratch), *slope = sums + parts_of(s) * 2 * s.channels;
        float *tilt = slope + s.channels, *middle = tilt + s.channels;
        for (int64_t c = 0; c < s.channels; ++c) slope[c] = p.inv_std[c] * p.factor[c];
        SumArgs sum{};
        sum.shape = s, sum.sum = Sum::fused, sum.a = dy, sum.b = p.x, sum.relu = p.relu;
        sum.f = p.mean, sum.g = p.inv_std, sum.h = slope, sum.e = p.bias;
        run_parts(*u, sum, sums);
        if (d.dfactor) add_parts(*u, s, d.dfactor, sums, 0, d.accumulate_dfactor);
        if (d.dbias) add_parts(*u, s, d.dbias, sums, 1, d.accumulate_dbias);
        if (!d.dx) return;
        add_parts(*u, s, tilt, sums, 0, false);
        add_parts(*u, s, middle, sums, 1, false);
        const float share = static_cast<float>(1.0 / static_cast<double>(s.outer * s.inner));
        for (int64_t c = 0; c < s.channels; ++c) middle[c] *= share, tilt[c] *= share * p.inv_std[c];
        BlendArgs g = blending(s, Blend::fused_dx, d.dx, dy, d.accumulate_dx);
        g.b = p.x, g.f = middle, g.g = p.mean, g.h = slope, g.k = tilt, g.e = p.bias, g.relu = p.relu;
        run_blend(*u, g);
    };
}

Launch prelu_forward(const Channels& s, float* y, const float* x, const float* slope) {
    s.check();
    return [=, u = &unit()] {
        BlendArgs g = blending(s, Blend::prelu, y, x);
        g.f = slope;
        run_blend(*u, g);
    };
}

int64_t prelu_backward_workspace(const Channels& s) { return parts_bytes(s); }

Launch prelu_backward(const Channels& s, float* dx, float* dslope, const float* x, const float* dy, const float* slope,
                      bool accumulate_dx, bool accumulate_dslope, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        if (dslope) {
            SumArgs sum{};
            sum.shape = s, sum.sum = Sum::prelu, sum.a = dy, sum.b = x;
            run_parts(*u, sum, static_cast<float*>(scratch));
            add_parts(*u, s, dslope, static_cast<float*>(scratch), 0, accumulate_dslope);
        }
        if (!dx) return;
        BlendArgs g = blending(s, Blend::prelu_dx, dx, dy, accumulate_dx);
        g.b = x, g.f = slope;
        run_blend(*u, g);
    };
}

}  // namespace layermem::cpu
