// Labels in blobs: floats that name a class.
#pragma once
#include "common.cuh"

namespace lm {

struct Labels {
    const float* labels;
    int* error_flag;  // raised to a label that is no class; lowest int as long as all are
    int classes;
    int ignore, has_ignore;
};

// Returns the class at position i, or -1 if it is ignored; an invalid label is reported, and ignored.
LM_FN int label_at(const Labels& of, int i) {
    const float value = of.labels[i];
    const int label = value > -2e9f && value < 2e9f ? static_cast<int>(value) : 0x7fffffff;
    if (of.has_ignore && label == of.ignore) return -1;
    if (static_cast<unsigned>(label) < static_cast<unsigned>(of.classes)) return label;
    atomicMax(of.error_flag, label);
    return -1;
}

// The divisor of a loss: the number of counted labels, or a given number; at least 1.
struct Normalizer {
    const float* counted;  // or null
    float otherwise;
};

LM_FN float value_of(const Normalizer& by) { return fmaxf(by.counted != nullptr ? *by.counted : by.otherwise, 1.0f); }

}  // namespace lm
