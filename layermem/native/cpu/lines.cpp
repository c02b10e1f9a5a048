// Softmax, its loss and accuracy, LRN, Interp: tasks are stretches of positions, rows or elements fixed by the shape.
#include "lines.h"

#include <algorithm>
#include <stdexcept>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PIECE = 8192;  // elements of a task

int64_t step_of(const Axis& s) { return s.inner == 1 ? std::max<int64_t>(1, PIECE / s.size) : 1; }
int64_t tasks_of(const Axis& s) { return (s.outer + step_of(s) - 1) / step_of(s); }

void run_lines(const Axis& s, void (*kernel)(const SoftmaxArgs&, int64_t, int64_t), const SoftmaxArgs& g) {
    const int64_t step = step_of(s);
    parallel(tasks_of(s), [&](int64_t i) { kernel(g, i * step, std::min(s.outer, (i + 1) * step)); });
}

SoftmaxArgs reading(const Axis& s, const float* x, const Labels& labels) {
    SoftmaxArgs g{};
    g.axis = s, g.a = x, g.labels = labels;
    return g;
}

using Judge = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end, Judged&);

void run_judged(Judge kernel, const SoftmaxArgs& g, double divisor, float* loss, void* scratch) {
    run_loss([&](int64_t begin, int64_t end, Judged& sum) { kernel(g, begin, end, sum); }, g.axis.outer,
             step_of(g.axis), g.axis.size, divisor, loss, scratch);
}

}  // namespace

void Axis::check() const {
    if (outer < 1 || size < 1 || inner < 1) throw std::invalid_argument("outer, size and inner must be at least 1");
}

Launch softmax_forward(const Axis& s, float* y, const float* x) {
    s.check();
    return [=, u = &unit()] {
        SoftmaxArgs g{};
        g.axis = s, g.out = y, g.a = x;
        run_lines(s, u->softmax, g);
    };
}

Launch softmax_backward(const Axis& s, float* dx, const float* y, const float* dy, bool accumulate) {
    s.check();
    return [=, u = &unit()] {
        SoftmaxArgs g{};
        g.axis = s, g.out = dx, g.a = y, g.dy = dy, g.accumulate = accumulate;
        run_lines(s, u->softmax_back, g);
    };
}

int64_t softmax_loss_workspace(const Axis& s) {
    s.check();
    return std::max(judged_bytes(tasks_of(s)), divisor_bytes(s.positions()));
}

Launch softmax_loss_forward(const Axis& s, float* loss, float* y, const float* x, const Labels& labels, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        SoftmaxArgs g = reading(s, x, labels);
        g.out = y;
        run_judged(u->softmax_loss, g, labels.divisor, loss, scratch);
    };
}

Launch softmax_loss_backward(const Axis& s, float* dx, const float* x, const float* dloss, const Labels& labels,
                             bool accumulate, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        SoftmaxArgs g = reading(s, x, labels);
        g.out = dx, g.accumulate = accumulate;
        g.scale = static_cast<float>(static_cast<double>(*dloss) / divisor_of(labels, s.positions(), scratch));
        run_lines(s, u->softmax_loss_back, g);
    };
}

int64_t accuracy_workspace(const Axis& s, bool by_class) {
    s.check();
    const int64_t counts = padded(2 * s.size * static_cast<int64_t>(sizeof(int64_t)));
    return judged_bytes(tasks_of(s)) + (by_class ? counts + padded(s.positions()) : 0);
}

namespace {
// The share of each class, from what is known of each position.
void share_by_class(const SoftmaxArgs& g, float* share, int64_t* all) {
    const int64_t classes = g.axis.size;
    int64_t* found = all + classes;
    std::fill(all, all + 2 * classes, 0);
    for (int64_t i = 0; i < g.axis.positions(); ++i) {
        const int64_t label = static_cast<int64_t>(g.labels.label[i]);
        if (g.labels.ignores && label == g.labels.ignore_label) continue;
        ++all[label], found[label] += g.found[i];
    }
    for (int64_t c = 0; c < classes; ++c)
        share[c] =
            static_cast<float>(static_cast<double>(found[c]) / static_cast<double>(std::max<int64_t>(1, all[c])));
}
}  // namespace

Launch accuracy(const Axis& s, float* share, float* by_class, const float* x, const Labels& labels, int64_t top_k,
                void* scratch) {
    s.check();
    return [=, u = &unit()] {
        char* counts = static_cast<char*>(scratch) + judged_bytes(tasks_of(s));
        SoftmaxArgs g = reading(s, x, labels);
        g.top_k = top_k;
        if (by_class)
            g.found = reinterpret_cast<uint8_t*>(counts + padded(2 * s.size * static_cast<int64_t>(sizeof(int64_t))));
        run_judged(u->accuracy, g, 0, share, scratch);
        if (by_class) share_by_class(g, by_class, reinterpret_cast<int64_t*>(counts));
    };
}

// -- LRN ------------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t LRN_TASKS = 32;

int64_t room_floats(const LrnArgs& g) { return (3 * (g.c + g.size - 1) + 63) / 64 * 64; }
int64_t images_at_once(const LrnArgs& g) { return std::clamp<int64_t>(262144 / (g.h * g.w * g.c), 1, g.n); }

void check(const LrnArgs& g) {
    if (g.n < 1 || g.h < 1 || g.w < 1 || g.c < 1) throw std::invalid_argument("lrn: every size must be at least 1");
    if (g.size < 1 || g.size % 2 == 0) throw std::invalid_argument("lrn: the window must have an odd size");
}

Launch across_channels(const LrnArgs& g, void (*Unit::*kernel)(const LrnArgs&, int64_t, int64_t, float*),
                       void* scratch) {
    return [=, u = &unit()] {
        const int64_t pixels = g.n * g.h * g.w, tasks = std::min(LRN_TASKS, pixels);
        parallel(tasks, [&](int64_t i) {
            float* room = static_cast<float*>(scratch) + i * room_floats(g);
            (u->*kernel)(g, cut(pixels, tasks, i), cut(pixels, tasks, i + 1), room);
        });
    };
}

}  // namespace

int64_t lrn_workspace(int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward) {
    LrnArgs g{};
    g.n = n, g.h = h, g.w = w, g.c = c, g.size = size;
    check(g);
    const int64_t floats = across ? LRN_TASKS * room_floats(g) : backward ? images_at_once(g) * 2 * g.h * g.w * g.c : 0;
    return padded(floats * static_cast<int64_t>(sizeof(float)));
}

Launch lrn_forward(const LrnArgs& g, bool across, void* scratch) {
    check(g);
    if (across) return across_channels(g, &Unit::lrn, scratch);
    return [=, u = &unit()] { parallel(g.n * g.h, [&](int64_t row) { u->lrn_within(g, row, nullptr); }); };
}

Launch lrn_backward(const LrnArgs& g, bool across, void* scratch) {
    check(g);
    if (across) return across_channels(g, &Unit::lrn_back, scratch);
    return [=, u = &unit()] {
        const int64_t group = images_at_once(g), image = 2 * g.h * g.w * g.c;
        float* products = static_cast<float*>(scratch);
        for (int64_t first = 0; first < g.n; first += group) {
            const int64_t rows = std::min(group, g.n - first) * g.h;
            parallel(rows, [&](int64_t r) { u->lrn_within(g, first * g.h + r, products + r / g.h * image); });
            parallel(rows, [&](int64_t r) { u->lrn_within_back(g, first * g.h + r, products + r / g.h * image); });
        }
    };
}

// -- Interp ---------------------------------------------------------------------------------------------------------

namespace {
void check(const InterpArgs& g) {
    if (g.n < 1 || g.c < 1 || g.h < 1 || g.w < 1 || g.ho < 1 || g.wo < 1 || g.size_h < 1 || g.size_w < 1)
        throw std::invalid_argument("interp: every size must be at least 1");
    if (g.first_h < 0 || g.first_w < 0 || g.first_h + g.size_h > g.h || g.first_w + g.size_w > g.w)
        throw std::invalid_argument("interp: the part that is sampled leaves the image");
}
}  // namespace

Launch interp_forward(const InterpArgs& g) {
    check(g);
    return [=, u = &unit()] { parallel(g.n * g.ho, [&](int64_t row) { u->interp(g, row); }); };
}

Launch interp_backward(const InterpArgs& g) {
    check(g);
    return [=, u = &unit()] { parallel(g.n * g.h, [&](int64_t row) { u->interp_back(g, row); }); };
}

}  // namespace layermem::cpu
