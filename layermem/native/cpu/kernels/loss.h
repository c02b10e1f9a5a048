// Losses against targets, pairs and labels; *loss and *dloss are one number each.
//
// `args` has the inputs, and for backward the gradients to write; any gradient may lie over its input.  A forward of a
// slice of a batch takes no workspace, but what slices carry (loss_partials.h), in the bytes of the whole batch.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/kernels/loss_partials.h"
#include "cpu/microkernels/loss.h"

namespace layermem::cpu {

// sum max(x, 0) - x t + log(1 + exp(-|x|)); a target whose integer part is ignore_label does not count
int64_t sigmoid_loss_workspace_bytes(int64_t count);
int64_t sigmoid_loss_carry_bytes(int64_t count);
Launch sigmoid_loss_forward(int64_t count, float* loss, const float* x, const float* target,
                            const std::optional<int64_t>& ignore_label, double divisor, OrNull<void> workspace,
                            int64_t first = 0, int64_t of = 0, void* carry = nullptr);
Launch sigmoid_loss_backward(int64_t count, float* dx, const float* x, const float* target, const float* dloss,
                             const std::optional<int64_t>& ignore_label, double divisor, bool accumulate,
                             OrNull<void> workspace, const float* counted = nullptr, int64_t of = 0);

// sum (a - b)^2 / divisor, size = 1;  da = dloss (a - b) / divisor, db = -da
int64_t euclidean_loss_workspace_bytes(int64_t count);
int64_t euclidean_loss_carry_bytes(int64_t count);
Launch euclidean_loss_forward(int64_t count, float* loss, const float* a, const float* b, double divisor,
                              OrNull<void> workspace, int64_t first = 0, int64_t of = 0, void* carry = nullptr);
Launch euclidean_loss_backward(int64_t count, OrNull<float> da, OrNull<float> db, const float* a, const float* b,
                               const float* dloss, double divisor, bool accumulate_da, bool accumulate_db);

// sum outside f(inside (a - b)) / divisor; f as in microkernels/loss.cpp.  workspace: that of euclidean_loss
int64_t smooth_l1_loss_carry_bytes(int64_t count);
Launch smooth_l1_loss_forward(int64_t count, float* loss, const float* a, const float* b, OrNull<const float> inside,
                              OrNull<const float> outside, float sigma, double divisor, OrNull<void> workspace,
                              int64_t first = 0, int64_t of = 0, void* carry = nullptr);
Launch smooth_l1_loss_backward(int64_t count, OrNull<float> da, OrNull<float> db, const float* a, const float* b,
                               OrNull<const float> inside, OrNull<const float> outside, const float* dloss, float sigma,
                               double divisor, bool accumulate_da, bool accumulate_db);

// sum over items, by `divisor`, of d^2 where `same`, else of max(margin - d, 0)^2 (legacy: max(margin - d^2, 0)), with
// d = |a - b|
int64_t contrastive_loss_workspace_bytes(int64_t items, int64_t size);
int64_t contrastive_loss_carry_bytes(int64_t items, int64_t size);
Launch contrastive_loss_forward(int64_t items, int64_t size, float* loss, const float* a, const float* b,
                                const float* same, float margin, bool legacy, double divisor, OrNull<void> workspace,
                                int64_t first = 0, int64_t of = 0, void* carry = nullptr);
Launch contrastive_loss_backward(int64_t items, int64_t size, OrNull<float> da, OrNull<float> db, const float* a,
                                 const float* b, const float* same, const float* dloss, float margin, bool legacy,
                                 double divisor, bool accumulate_da, bool accumulate_db);

// Bytes of the two forward kernels below.
int64_t item_loss_workspace_bytes(int64_t items, int64_t classes);
int64_t item_loss_carry_bytes(int64_t items, int64_t classes);

// sum of max(0, 1 - x) at labels and max(0, 1 + x) elsewhere, or of their squares, by items
Launch hinge_loss_forward(int64_t items, int64_t classes, int64_t channels, float* loss, const float* x,
                          const float* label, bool squared, OrNull<void> workspace, int64_t first = 0, int64_t of = 0,
                          void* carry = nullptr);
Launch hinge_loss_backward(int64_t items, int64_t classes, int64_t channels, float* dx, const float* x,
                           const float* label, const float* dloss, bool squared, bool accumulate, int64_t of = 0);

// -sum ln max(x at the label, 1e-20), by items
Launch logistic_loss_forward(int64_t items, int64_t classes, int64_t channels, float* loss, const float* x,
                             const float* label, bool squared, OrNull<void> workspace, int64_t first = 0,
                             int64_t of = 0, void* carry = nullptr);
Launch logistic_loss_backward(int64_t items, int64_t classes, int64_t channels, float* dx, const float* x,
                              const float* label, const float* dloss, bool squared, bool accumulate, int64_t of = 0);

}  // namespace layermem::cpu
