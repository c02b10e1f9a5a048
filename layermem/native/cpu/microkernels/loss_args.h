// Labels, and what a part of a batch adds to a loss.
#pragma once
#include <cstdint>
#include <limits>

namespace layermem::cpu {

// The class of a label: its integer part, as in Caffe; the lowest int64 for NaN and for what no int64 holds.
inline int64_t label_class(float label) {
    return label > -9e18f && label < 9e18f ? static_cast<int64_t>(label) : std::numeric_limits<int64_t>::min();
}

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
    double bad_label;    // one such label
};

}  // namespace layermem::cpu
