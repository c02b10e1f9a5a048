// Update rules: parameters change by their gradients and their state, up to 64 of them in a launch.  Formulas and order
// as in layermem/backends/reference/update.py.
//   w, h0, h1 [count] float updated     dw [count] float, norm [1] float, step read
//   scaled   dw and norm are loss_scale times the true values; if norm is not finite, nothing is written
//   launch   update_*: one thread per four elements: grid the sum of ceil(count / 1024) blocks over the parameters, block 256
//   traffic  16 (SGD, Nesterov), 20 (AdaGrad, RMSProp) or 28 (AdaDelta, Adam, AdamW) bytes an element: bound by memory
//   assumes  buffers aligned to 16 bytes; w too, unless it has `first` elements of other ranks before it
//   source   Caffe src/caffe/solvers
#include "channel_sums.cuh"
#include "step_scalars.cuh"

using namespace lm;

constexpr int MAX_UPDATES = 64;  // parameters of one launch: the arguments are at most 4 KB

struct UpdateArgs {
    const float* norm;  // of all gradients, where they are clipped
    const StepScalars* step;
    double decay;
    int parameters;
    int l1;
    int scaled;
    float clip, inverse_iter_size;  // clip: negative for none
    float momentum, momentum2, delta, rms_decay;
    float* w[MAX_UPDATES];  // of the whole parameter
    const float* dw[MAX_UPDATES];
    float* h0[MAX_UPDATES];
    float* h1[MAX_UPDATES];  // or null
    double lr_mult[MAX_UPDATES];
    double decay_mult[MAX_UPDATES];
    int first[MAX_UPDATES];  // elements of w; the `count` elements of dw, h0 and h1 are those from `first` on
    int count[MAX_UPDATES];
    int first_block[MAX_UPDATES];  // of the grid, in ascending order
};

// The parameter that this block has elements of.
LM_FN int parameter_of(const UpdateArgs& p) {
    int low = 0, high = p.parameters;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (p.first_block[middle] <= static_cast<int>(blockIdx.x)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

LM_FN float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

// The gradient as the rules see it: without its scale, clipped, divided, decayed, in the order of Caffe's solver.
LM_FN float gradient(const UpdateArgs& p, float decay, float g, float w, float unscale, float clipping) {
    g *= unscale;
    g *= clipping;
    g *= p.inverse_iter_size;
    if (decay != 0.0f) g += decay * (p.l1 ? sign(w) : w);
    return g;
}

struct One {
    float w, h0, h1;
};

// DECOUPLED: decay shrinks the parameter by its learning rate, and does not join the gradient.
template <int HISTORY_COUNT, bool DECOUPLED, class Rule>
LM_FN void update(const UpdateArgs& p, Rule rule) {
    const int which = parameter_of(p);
    const unsigned count = static_cast<unsigned>(p.count[which]);
    const unsigned first = 4u * ((blockIdx.x - p.first_block[which]) * 256u + threadIdx.x);
    if (first >= count) return;
    const float unscale = p.scaled ? 1.0f / p.step->loss_scale : 1.0f;  // exact: a power of two
    const float norm = p.norm != nullptr ? *p.norm * unscale : 0.0f;
    if (p.scaled && !(norm < infinity())) return;
    const float clipping = p.clip >= 0.0f && norm > p.clip ? p.clip / norm : 1.0f;
    const float rate = local_rate(p.step, p.lr_mult[which]);
    const double full_decay = p.decay * p.decay_mult[which];
    const float decay = DECOUPLED ? 0.0f : static_cast<float>(full_decay);  // as rate: rounded once
    const float shrink = DECOUPLED ? static_cast<float>(p.step->rate * p.lr_mult[which] * full_decay) : 0.0f;
    const auto step = [&](float g, One& one) {
        g = gradient(p, decay, g, one.w, unscale, clipping);
        if (DECOUPLED) one.w -= shrink * one.w;
        rule(rate, g, one);
    };
    float* const own = p.w[which] + p.first[which];
    const float* const dw = p.dw[which];
    float* const own_h0 = p.h0[which];
    float* const own_h1 = p.h1[which];
    if (p.first[which] % 4 == 0 && first + 4 <= count) {
        float w[4], g[4], h0[4], h1[4] = {};
        load<4>(w, own + first);
        load<4>(g, dw + first);
        load<4>(h0, own_h0 + first);
        if (HISTORY_COUNT > 1) load<4>(h1, own_h1 + first);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            One one = {w[e], h0[e], h1[e]};
            step(g[e], one);
            w[e] = one.w;
            h0[e] = one.h0;
            h1[e] = one.h1;
        }
        store<4>(own + first, w);
        store<4>(own_h0 + first, h0);
        if (HISTORY_COUNT > 1) store<4>(own_h1 + first, h1);
        return;
    }
    for (unsigned i = first; i < min(first + 4, count); ++i) {
        One one = {own[i], own_h0[i], HISTORY_COUNT > 1 ? own_h1[i] : 0.0f};
        step(dw[i], one);
        own[i] = one.w;
        own_h0[i] = one.h0;
        if (HISTORY_COUNT > 1) own_h1[i] = one.h1;
    }
}

LM_KERNEL(update_sgd, UpdateArgs, p, 256) {
    update<1, false>(p, [&](float rate, float g, One& x) {
        x.h0 = x.h0 * p.momentum + rate * g;
        x.w -= x.h0;
    });
}

LM_KERNEL(update_nesterov, UpdateArgs, p, 256) {
    update<1, false>(p, [&](float rate, float g, One& x) {
        const float v = x.h0 * p.momentum + rate * g;
        x.w -= (1.0f + p.momentum) * v - p.momentum * x.h0;
        x.h0 = v;
    });
}

LM_KERNEL(update_adagrad, UpdateArgs, p, 256) {
    update<1, false>(p, [&](float rate, float g, One& x) {
        x.h0 += g * g;
        x.w -= rate * (g / (sqrtf(x.h0) + p.delta));
    });
}

LM_KERNEL(update_rmsprop, UpdateArgs, p, 256) {
    update<1, false>(p, [&](float rate, float g, One& x) {
        x.h0 = p.rms_decay * x.h0 + (1.0f - p.rms_decay) * (g * g);
        x.w -= rate * (g / (sqrtf(x.h0) + p.delta));
    });
}

LM_KERNEL(update_adadelta, UpdateArgs, p, 256) {
    update<2, false>(p, [&](float rate, float g, One& x) {
        const float m = p.momentum;
        x.h0 = m * x.h0 + (1.0f - m) * (g * g);
        const float u = g * sqrtf((x.h1 + p.delta) / (x.h0 + p.delta));
        x.h1 = m * x.h1 + (1.0f - m) * (u * u);
        x.w -= rate * u;
    });
}

template <bool DECOUPLED>
LM_FN void adam(const UpdateArgs& p) {
    const float correction = p.step->correction;
    update<2, DECOUPLED>(p, [&](float rate, float g, One& x) {
        x.h0 = p.momentum * x.h0 + (1.0f - p.momentum) * g;
        x.h1 = p.momentum2 * x.h1 + (1.0f - p.momentum2) * (g * g);
        x.w -= rate * correction * (x.h0 / (sqrtf(x.h1) + p.delta));
    });
}

LM_KERNEL(update_adam, UpdateArgs, p, 256) { adam<false>(p); }

LM_KERNEL(update_adamw, UpdateArgs, p, 256) { adam<true>(p); }

// accumulate: w += dw, for the gradients of several micro-batches.
//   w [count] float updated     dw [count] float read
//   launch   one thread per four elements: grid ceil(count / 1024), block 256
//   traffic  12 bytes an element: bound by memory
//   assumes  buffers aligned to 16 bytes
struct AccumulateArgs {
    float* w;
    const float* dw;
    int count;
};

LM_KERNEL(accumulate, AccumulateArgs, p, 256) {
    const unsigned first = 4u * (blockIdx.x * 256u + threadIdx.x), count = static_cast<unsigned>(p.count);
    if (first + 4 <= count) {
        float w[4], dw[4];
        load<4>(w, p.w + first);
        load<4>(dw, p.dw + first);
#pragma unroll
        for (int e = 0; e < 4; ++e) w[e] += dw[e];
        store<4>(p.w + first, w);
        return;
    }
    for (unsigned i = first; i < count; ++i) p.w[i] += p.dw[i];
}

// ---- the norm of all gradients --------------------------------------------------------------------------------------
//
// L2 norm for gradient clipping: square_sums for each gradient, channel_sums over all parts, square_root.
//   order    parts of each gradient by its size alone, then all parts in the order of the net
//   source   Caffe src/caffe/solvers/sgd_solver.cpp, ClipGradients

// square_sums: parts[j] = sum of x^2 over part j of one array.     parts [parts] float written     x [count] float read
//   launch   as channel_sums over one column: grid (1, parts), block 256
struct SquareSumsArgs {
    float* parts;
    const float* x;
    Columns at;
};

LM_KERNEL(square_sums, SquareSumsArgs, p, COLUMN_THREADS) {
    sum_columns<1, 1>(
        p.at, {p.x}, [&](int, const float (&in)[1][1], float (&values)[1][1]) { values[0][0] = in[0][0] * in[0][0]; },
        [&](int, float (&sums)[1][1]) { p.parts[blockIdx.y] = sums[0][0]; });
}

// square_root: y = sqrt(x).     y [1] float written     x [1] float read     launch   grid 1, block 1
struct SquareRootArgs {
    float* y;
    const float* x;
};

LM_KERNEL(square_root, SquareRootArgs, p, 1) { *p.y = sqrtf(*p.x); }
