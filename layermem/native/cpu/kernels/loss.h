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
Launch sigmoid_loss_forward(const RowSlice& elements, float* loss, const TargetArgs& args, void* workspace,
                            void* carry);
Launch sigmoid_loss_backward(int64_t count, const TargetArgs& args, const float* dloss, void* workspace,
                             const CountedLabels& counted);

// sum (a - b)^2 / divisor, size = 1;  da = dloss (a - b) / divisor, db = -da
int64_t euclidean_loss_workspace_bytes(int64_t count);
int64_t euclidean_loss_carry_bytes(int64_t count);
Launch euclidean_loss_forward(const RowSlice& elements, float* loss, const PairArgs& args, double divisor,
                              void* workspace, void* carry);
Launch euclidean_loss_backward(int64_t count, const PairArgs& args, const float* dloss, double divisor);

// sum outside f(inside (a - b)) / divisor; f as in microkernels/loss.cpp.  workspace: that of euclidean_loss
int64_t smooth_l1_loss_carry_bytes(int64_t count);
Launch smooth_l1_loss_forward(const RowSlice& elements, float* loss, const SmoothL1Args& args, double divisor,
                              void* workspace, void* carry);
Launch smooth_l1_loss_backward(int64_t count, const SmoothL1Args& args, const float* dloss, double divisor);

// sum over items, by `divisor`, of d^2 where `same`, else of max(margin - d, 0)^2 (legacy: max(margin - d^2, 0)), with
// d = |a - b|
int64_t contrastive_loss_workspace_bytes(int64_t items, int64_t size);
int64_t contrastive_loss_carry_bytes(int64_t items, int64_t size);
Launch contrastive_loss_forward(const RowSlice& items, float* loss, const PairArgs& args, double divisor,
                                void* workspace, void* carry);
Launch contrastive_loss_backward(int64_t items, const PairArgs& args, const float* dloss, double divisor);

// Of the two forward kernels below.
int64_t item_loss_workspace_bytes(int64_t items, int64_t classes);
int64_t item_loss_carry_bytes(int64_t items, int64_t classes);

// sum of max(0, 1 - x) at labels and max(0, 1 + x) elsewhere, or of their squares, by items
Launch hinge_loss_forward(const RowSlice& items, float* loss, const ItemArgs& args, void* workspace, void* carry);
Launch hinge_loss_backward(const RowSlice& items, const ItemArgs& args, const float* dloss);

// -sum ln max(x at the label, 1e-20), by items
Launch logistic_loss_forward(const RowSlice& items, float* loss, const ItemArgs& args, void* workspace, void* carry);
Launch logistic_loss_backward(const RowSlice& items, const ItemArgs& args, const float* dloss);

}  // namespace layermem::cpu
