// Labels, and what a part of a batch adds to a loss.
#pragma once
#include <cstdint>

namespace layermem::cpu {

struct Labels {
    const float* label;  // integers as floats
    bool ignores;        // whether positions with ignore_label do not count
    int64_t ignore_label;
    double divisor;  // of the loss; 0: the number of labels that count, at least 1
};

struct LossPartial {  // sums over the positions of one task
    double loss;
    int64_t valid;       // positions whose label counts
    int64_t bad_labels;  // positions whose label is out of range
    int64_t bad_label;   // one such label
};

}  // namespace layermem::cpu
