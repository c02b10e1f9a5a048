// Losses: what stretches of elements or items add to a sum is found by tasks, and added in order.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "launch.h"
#include "pool.h"

namespace layermem::cpu {

struct Labels {
    const float* label;
    bool ignores;
    int64_t ignore_label;
    double divisor;  // of the sum; 0: the labels that are not ignored, at least 1
};

struct Judged {  // what a stretch of positions adds to a loss
    double loss;
    int64_t valid;
    int64_t wrong;    // positions whose label is no class
    int64_t example;  // one such label
};

struct TargetArgs {  // elements x against targets
    float* out;
    const float* x;
    Labels labels;
    float scale;  // of the gradient
    bool accumulate;
};

struct PairArgs {  // a and b, [items][size]
    int64_t size;
    float *out_a, *out_b;  // their gradients, or null; each may lie on a or b
    const float *a, *b;
    const float* same;  // [items], not 0 where a and b are alike
    float scale, margin;
    bool legacy, accumulate_a, accumulate_b;
};

struct ItemArgs {  // x [items][classes], a label for each item
    int64_t classes;
    int64_t channels;  // an item is [classes / channels][channels] in memory; its classes count the other way round
    float* out;
    const float* x;
    const float* label;
    float scale;
    bool squared, accumulate;
};

constexpr int64_t LOSS_PIECE = 8192;  // elements of a task

inline int64_t loss_tasks(int64_t total, int64_t step) { return (total + step - 1) / step; }
inline int64_t judged_bytes(int64_t tasks) { return padded(tasks * static_cast<int64_t>(sizeof(Judged))); }

// *loss = the sum over [0, total) in stretches of `step`, kernel(begin, end, Judged&) each, by `divisor` (0: by what
// counts); std::invalid_argument for a label that is none of `classes`.  scratch: judged_bytes(loss_tasks(total, step))
template <class Kernel>
void run_loss(const Kernel& kernel, int64_t total, int64_t step, int64_t classes, double divisor, float* loss,
              void* scratch) {
    Judged* parts = static_cast<Judged*>(scratch);
    const int64_t tasks = loss_tasks(total, step);
    parallel(tasks, [&](int64_t i) {
        parts[i] = Judged{};
        kernel(i * step, std::min(total, (i + 1) * step), parts[i]);
    });
    Judged sum{};
    for (int64_t i = 0; i < tasks; ++i) {
        sum.loss += parts[i].loss, sum.valid += parts[i].valid, sum.wrong += parts[i].wrong;
        if (parts[i].wrong) sum.example = parts[i].example;
    }
    if (sum.wrong)
        throw std::invalid_argument("label " + std::to_string(sum.example) + " is no class: 0 to " +
                                    std::to_string(classes - 1));
    *loss =
        static_cast<float>(sum.loss / (divisor > 0 ? divisor : static_cast<double>(std::max<int64_t>(1, sum.valid))));
}

// What a loss is divided by, when only its labels are at hand.
int64_t divisor_bytes(int64_t count);
double divisor_of(const Labels&, int64_t count, void* scratch);

// sum max(x, 0) - x t + log(1 + exp(-|x|)); a target whose whole part is ignore_label does not count
int64_t sigmoid_loss_workspace(int64_t count);
Launch sigmoid_loss_forward(int64_t count, float* loss, const TargetArgs&, void* scratch);
Launch sigmoid_loss_backward(int64_t count, const TargetArgs&, const float* dloss, void* scratch);

// sum (a - b)^2 / divisor, size = 1;  d = dloss (a - b) / divisor and -d
int64_t euclidean_loss_workspace(int64_t count);
Launch euclidean_loss_forward(int64_t count, float* loss, const PairArgs&, double divisor, void* scratch);
Launch euclidean_loss_backward(int64_t count, const PairArgs&, const float* dloss, double divisor);

// sum over items of d^2 where a and b are the same, else of max(margin - d, 0)^2 (legacy: max(margin - d^2, 0)), by
// `divisor`;  d = |a - b|
int64_t contrastive_loss_workspace(int64_t items, int64_t size);
Launch contrastive_loss_forward(int64_t items, float* loss, const PairArgs&, double divisor, void* scratch);
Launch contrastive_loss_backward(int64_t items, const PairArgs&, const float* dloss, double divisor);

// sum of max(0, 1 - x) at labels and max(0, 1 + x) elsewhere, or of its squares, by items
int64_t item_loss_workspace(int64_t items, int64_t classes);
Launch hinge_loss_forward(int64_t items, float* loss, const ItemArgs&, void* scratch);
Launch hinge_loss_backward(int64_t items, const ItemArgs&, const float* dloss);

// -sum ln max(x at the label, 1e-20), by items
Launch logistic_loss_forward(int64_t items, float* loss, const ItemArgs&, void* scratch);
Launch logistic_loss_backward(int64_t items, const ItemArgs&, const float* dloss);

}  // namespace layermem::cpu
