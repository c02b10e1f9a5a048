// The loss of locations and scores of prior boxes against true boxes (SSD); layers/detection.py defines it.
#pragma once
#include "cpu/isa/isa.h"
#include "cpu/kernels/boxes.h"
#include "cpu/kernels/launch.h"

namespace layermem::cpu {

enum class Mining : int64_t { kNone = 0, kMaxNegative = 1, kHardExample = 2 };  // MultiBoxLossParameter.MiningType

// Values of `match` for priors without a true box; other values are rows of truth, from 0 on.
constexpr int32_t kUnmatched = -1, kIgnored = -2, kNegative = -3;

struct MultiBoxProblem {
    int64_t items, priors, classes, loc_classes, rows, background;
    BoxCoder coder;
    Mining mining;
    int64_t sample_size;
    int64_t top_k;            // candidates that suppression considers; 0: no suppression
    float overlap_threshold;  // of PER_PREDICTION; below 0: bipartite matching
    float neg_pos_ratio, neg_overlap, nms_threshold, loc_weight;
    double normalizer;  // 0: the matches
    bool prior_matching, prior_suppression, difficult, agnostic, ignore_crossing, bp_inside, l2, logistic, loc, conf;
};

struct MultiBoxData {
    const float* locations;  // [items][priors][loc_classes][4]
    const float* scores;     // [items][priors][classes]
    const float* boxes;      // [2][priors][4]: priors, then their variances
    const float* truth;      // [rows][8]
    OrNull<int32_t> match;   // [items][loc_classes][priors]; forward writes it, or where it is null workspace
};

int64_t multibox_loss_workspace_bytes(const MultiBoxProblem& problem, bool forward, bool match);
// A launch throws std::invalid_argument where a true box is in no item, of no class, or not finite.
Launch multibox_loss_forward(const MultiBoxProblem& problem, const MultiBoxData& data, float* loss, void* workspace);
// dlocations and dscores may be null, and may be locations and scores.
Launch multibox_loss_backward(const MultiBoxProblem& problem, const MultiBoxData& data, OrNull<float> dlocations,
                              OrNull<float> dscores, const float* dloss, bool accumulate_dlocations,
                              bool accumulate_dscores, void* workspace);

}  // namespace layermem::cpu
