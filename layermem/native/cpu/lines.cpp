// Softmax and the losses, LRN, Interp: tasks are stretches of positions, rows or elements fixed by the shape.
#include "lines.h"

#include <algorithm>
#include <stdexcept>
#include <string>

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

using Judge = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end, Judged&);

// The loss over [0, total) in pieces of `step`, added in order; std::invalid_argument for a label that is no class.
void run_loss(Judge kernel, const SoftmaxArgs& g, int64_t total, int64_t step, double divisor, float* loss, void* scratch) {
    Judged* parts = static_cast<Judged*>(scratch);
    const int64_t tasks = (total + step - 1) / step;
    parallel(tasks, [&](int64_t i) {
        parts[i] = Judged{};
        kernel(g, i * step, std::min(total, (i + 1) * step), parts[i]);
    });
    Judged sum{};
    for (int64_t i = 0; i < tasks; ++i) {
        sum.loss += parts[i].loss, sum.valid += parts[i].valid, sum.wrong += parts[i].wrong;
        if (parts[i].wrong) sum.example = parts[i].example;
    }
    if (sum.wrong)
        throw std::invalid_argument("label " + std::to_string(sum.example) + " is no class: 0 to " +
                                    std::to_string(g.axis.size - 1));
    *loss = static_cast<float>(sum.loss / (divisor > 0 ? divisor : static_cast<double>(std::max<int64_t>(1, sum.valid))));
}

// What a loss is divided by, when only its labels are at hand.
double divisor_of(const Labels& labels, int64_t count, void* scratch) {
    if (labels.divisor > 0) return labels.divisor;
    if (!labels.ignores) return static_cast<double>(std::max<int64_t>(1, count));
    int64_t* parts = static_cast<int64_t*>(scratch);
    const int64_t tasks = (count + PIECE - 1) / PIECE;
    parallel(tasks, [&](int64_t i) {
        int64_t valid = 0;
        for (int64_t j = i * PIECE; j < std::min(count, (i + 1) * PIECE); ++j)
            valid += static_cast<int64_t>(labels.label[j]) != labels.ignore_label;
        parts[i] = valid;
    });
    int64_t valid = 0;
    for (int64_t i = 0; i < tasks; ++i) valid += parts[i];
    return static_cast<double>(std::max<int64_t>(1, valid));
}

int64_t judged_bytes(int64_t tasks, int64_t positions) {
    const int64_t counting = (positions + PIECE - 1) / PIECE * static_cast<int64_t>(sizeof(int64_t));
    return padded(std::max(tasks * static_cast<int64_t>(sizeof(Judged)), counting));
}

SoftmaxArgs reading(const Axis& s, const float* x, const Labels& labels) {
    SoftmaxArgs g{};
    g.axis = s, g.a = x, g.label = labels.label, g.ignores = labels.ignores, g.ignore_label = labels.ignore_label;
    return g;
}

template <class Kernel>
void run_elements(int64_t count, const Kernel& kernel) {
    parallel((count + PIECE - 1) / PIECE, [&](int64_t i) { kernel(i * PIECE, std::min(count, (i + 1) * PIECE)); });
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
    return judged_bytes(tasks_of(s), s.positions());
}

Launch softmax_loss_forward(const Axis& s, float* loss, float* y, const float* x, const Labels& labels, void* scratch) {
    s.check();
    return [=, u = &unit()] {
        SoftmaxArgs g = reading(s, x, labels);
        g.out = y;
        run_loss(u->softmax_loss, g, s.outer, step_of(s), labels.divisor, loss, scratch);
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

int64_t sigmoid_loss_workspace(int64_t count) { return judged_bytes((count + PIECE - 1) / PIECE, count); }

Launch sigmoid_loss_forward(int64_t count, float* loss, const float* x, const Labels& labels, void* scratch) {
    return [=, u = &unit()] {
        run_loss(u->sigmoid_loss, reading({}, x, labels), count, PIECE, labels.divisor, loss, scratch);
    };
}

Launch sigmoid_loss_backward(int64_t count, float* dx, const float* x, const float* dloss, const Labels& labels,
                             bool accumulate, void* scratch) {
    return [=, u = &unit()] {
        SoftmaxArgs g = reading({}, x, labels);
        g.out = dx, g.accumulate = accumulate;
        g.scale = static_cast<float>(static_cast<double>(*dloss) / divisor_of(labels, count, scratch));
        run_elements(count, [&](int64_t from, int64_t till) { u->sigmoid_loss_back(g, from, till); });
    };
}

int64_t euclidean_loss_workspace(int64_t count) { return judged_bytes((count + PIECE - 1) / PIECE, 0); }

Launch euclidean_loss_forward(int64_t count, float* loss, const float* a, const float* b, double divisor, void* scratch) {
    return [=, u = &unit()] {
        run_loss(u->euclidean_loss, reading({}, a, {b, false, 0, divisor}), count, PIECE, divisor, loss, scratch);
    };
}

Launch euclidean_loss_backward(int64_t count, float* dx, const float* a, const float* b, const float* dloss,
                               double divisor, bool accumulate) {
    return [=, u = &unit()] {
        SoftmaxArgs g = reading({}, a, {b, false, 0, divisor});
        g.out = dx, g.accumulate = accumulate, g.scale = static_cast<float>(static_cast<double>(*dloss) / divisor);
        run_elements(count, [&](int64_t from, int64_t till) { u->euclidean_loss_back(g, from, till); });
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

Launch across_channels(const LrnArgs& g, void (*Unit::*kernel)(const LrnArgs&, int64_t, int64_t, float*), void* scratch) {
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
    const int64_t floats = across     ? LRN_TASKS * room_floats(g)
                           : backward ? images_at_once(g) * 2 * g.h * g.w * g.c
                                      : 0;
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
