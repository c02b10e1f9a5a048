// Scores of classes along one axis: Softmax, SoftmaxWithLoss, InfogainLoss, Accuracy.
//   x, y, dx, dy [outer][classes][inner] float     labels, and positions, [outer][inner]
//   launch   *_warps (inner is 1): a warp a position, grid ceil(positions / 8), block 256
//            *_threads: a thread a position, neighbours along inner: grid ceil(positions / 256), block 256
//   traffic  forward 4|x| read (again from L1 for each pass), 4|x| written: bound by memory
//   assumes  elements below 2^31
//   overlay  every lane reads its own elements of a line before it writes them, and the label's before any lane writes
//   source   Caffe softmax_layer.cu, softmax_loss_layer.cu (with the logarithm taken before rounding),
//            accuracy_layer.cu
#include "labels.cuh"

using namespace lm;

struct SoftmaxArgs {
    float* y;         // softmax, or its gradient; or null
    const float* x;   // scores; y in softmax_backward
    const float* dy;  // of softmax, or of the loss
    float* each;      // [positions][terms]: the loss, or whether the label was found; and whether the label counts
    Labels labels;
    Normalizer normalizer;
    Divider by_inner;
    int positions, classes, terms;
    int top;  // Accuracy: among how many
    int accumulate;
};

// The lanes that share a position, and its line of scores.
template <int TEAM>
struct Line {
    int position, base, step, lane;
};

template <int TEAM>
LM_FN Line<TEAM> my_line(const SoftmaxArgs& p) {
    const int thread = blockIdx.x * 256 + threadIdx.x, position = thread / TEAM, inner = p.by_inner.divisor;
    const int outer = divide(position, p.by_inner);
    return {position, outer * p.classes * inner + position - outer * inner, inner, thread % TEAM};
}

template <int TEAM>
LM_FN float team_sum(float value) {
    return TEAM == WARP ? warp_sum(value) : value;
}

template <int TEAM>
LM_FN float line_max(const SoftmaxArgs& p, const Line<TEAM>& line) {
    float largest = -infinity();
    for (int c = line.lane; c < p.classes; c += TEAM) largest = fmaxf(largest, p.x[line.base + c * line.step]);
    return TEAM == WARP ? warp_max(largest) : largest;
}

template <int TEAM>
LM_FN float line_sum(const SoftmaxArgs& p, const Line<TEAM>& line, float largest) {
    float sum = 0;
    for (int c = line.lane; c < p.classes; c += TEAM) sum += expf(p.x[line.base + c * line.step] - largest);
    return team_sum<TEAM>(sum);
}

template <int TEAM>
LM_FN void softmax_forward(const SoftmaxArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p);
    if (line.position >= p.positions) return;
    const float largest = line_max(p, line), sum = line_sum(p, line, largest);
    for (int c = line.lane; c < p.classes; c += TEAM) {
        const int at = line.base + c * line.step;
        p.y[at] = expf(p.x[at] - largest) / sum;
    }
}

// dx = y (dy - sum of y dy)
template <int TEAM>
LM_FN void softmax_backward(const SoftmaxArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p);
    if (line.position >= p.positions) return;
    float dot = 0;
    for (int c = line.lane; c < p.classes; c += TEAM) {
        const int at = line.base + c * line.step;
        dot += p.x[at] * p.dy[at];
    }
    dot = team_sum<TEAM>(dot);
    for (int c = line.lane; c < p.classes; c += TEAM) {
        const int at = line.base + c * line.step;
        put(p.y + at, p.x[at] * (p.dy[at] - dot), p.accumulate);
    }
}

constexpr float LARGEST_LOSS = 87.33654475f;  // -log(FLT_MIN): Caffe takes no share below FLT_MIN

// each = ln(sum exp(x)) - x_label, at most LARGEST_LOSS (a NaN stays), and the softmax where it is wanted
template <int TEAM>
LM_FN void softmax_loss_forward(const SoftmaxArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p);
    if (line.position >= p.positions) return;
    const float largest = line_max(p, line), sum = line_sum(p, line, largest);
    if (line.lane == 0) {
        const int label = label_at(p.labels, line.position);
        float* each = p.each + line.position * p.terms;
        const float loss = label < 0 ? 0.0f : logf(sum) - (p.x[line.base + label * line.step] - largest);
        each[0] = loss > LARGEST_LOSS ? LARGEST_LOSS : loss;
        if (p.terms > 1) each[1] = label < 0 ? 0.0f : 1.0f;
    }
    if (p.y == nullptr) return;
    if (TEAM == WARP) warp_sync();
    for (int c = line.lane; c < p.classes; c += TEAM) {
        const int at = line.base + c * line.step;
        p.y[at] = expf(p.x[at] - largest) / sum;
    }
}

// dx = (softmax(x) - [c is the label]) dy / normalizer
template <int TEAM>
LM_FN void softmax_loss_backward(const SoftmaxArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p);
    if (line.position >= p.positions) return;
    const float largest = line_max(p, line), sum = line_sum(p, line, largest);
    const float scale = *p.dy / value_of(p.normalizer);
    const int label = label_at(p.labels, line.position);
    for (int c = line.lane; c < p.classes; c += TEAM) {
        const int at = line.base + c * line.step;
        const float share = expf(p.x[at] - largest) / sum;
        put(p.y + at, label < 0 ? 0.0f : scale * (share - (c == label ? 1.0f : 0.0f)), p.accumulate);
    }
}

// each = (found, counts): found if fewer than `top` others are at least the label's own score
template <int TEAM>
LM_FN void accuracy(const SoftmaxArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p);
    if (line.position >= p.positions) return;
    const int label = label_at(p.labels, line.position);
    const float own = p.x[line.base + max(label, 0) * line.step];
    float rivals = 0;
    for (int c = line.lane; c < p.classes; c += TEAM)
        if (p.x[line.base + c * line.step] >= own) rivals += 1.0f;
    rivals = team_sum<TEAM>(rivals) - 1.0f;
    if (line.lane == 0) {
        const bool found = label >= 0 && rivals < static_cast<float>(p.top) && own == own;
        p.each[2 * line.position] = found ? 1.0f : 0.0f;
        p.each[2 * line.position + 1] = label < 0 ? 0.0f : 1.0f;
    }
}

// ---- InfogainLoss ---------------------------------------------------------------------------------------------------

struct InfogainArgs {
    SoftmaxArgs of;         // x: the softmax; y: the gradient of its scores
    const float* matrix;    // [classes][classes]
    const float* row_sums;  // [classes]
};

constexpr float SMALLEST_SHARE = 1e-20f;  // that the logarithm is still taken of

// each = -sum over c of matrix[label][c] ln x_c
template <int TEAM>
LM_FN void infogain_loss_forward(const InfogainArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p.of);
    if (line.position >= p.of.positions) return;
    const int label = label_at(p.of.labels, line.position), classes = p.of.classes;
    float sum = 0;
    for (int c = line.lane; label >= 0 && c < classes; c += TEAM) {
        const float share = p.of.x[line.base + c * line.step];
        sum -= p.matrix[label * classes + c] * logf(share < SMALLEST_SHARE ? SMALLEST_SHARE : share);
    }
    sum = team_sum<TEAM>(sum);
    if (line.lane != 0) return;
    float* each = p.of.each + line.position * p.of.terms;
    each[0] = sum;
    if (p.of.terms > 1) each[1] = label < 0 ? 0.0f : 1.0f;
}

// dx = (x_c sum of matrix[label] - matrix[label][c]) dy / normalizer
template <int TEAM>
LM_FN void infogain_loss_backward(const InfogainArgs& p) {
    const Line<TEAM> line = my_line<TEAM>(p.of);
    if (line.position >= p.of.positions) return;
    const float scale = *p.of.dy / value_of(p.of.normalizer);
    const int label = label_at(p.of.labels, line.position), classes = p.of.classes;
    const float sum = label < 0 ? 0.0f : p.row_sums[label];
    for (int c = line.lane; c < classes; c += TEAM) {
        const int at = line.base + c * line.step;
        const float slope = label < 0 ? 0.0f : scale * (p.of.x[at] * sum - p.matrix[label * classes + c]);
        put(p.of.y + at, slope, p.of.accumulate);
    }
}
LM_KERNEL(infogain_loss_forward_warps, InfogainArgs, p, 256) { infogain_loss_forward<WARP>(p); }
LM_KERNEL(infogain_loss_forward_threads, InfogainArgs, p, 256) { infogain_loss_forward<1>(p); }
LM_KERNEL(infogain_loss_backward_warps, InfogainArgs, p, 256) { infogain_loss_backward<WARP>(p); }
LM_KERNEL(infogain_loss_backward_threads, InfogainArgs, p, 256) { infogain_loss_backward<1>(p); }

#define LM_TEAMS(name)                                              \
    LM_KERNEL(name##_warps, SoftmaxArgs, p, 256) { name<WARP>(p); } \
    LM_KERNEL(name##_threads, SoftmaxArgs, p, 256) { name<1>(p); }

LM_TEAMS(softmax_forward)
LM_TEAMS(softmax_backward)
LM_TEAMS(softmax_loss_forward)
LM_TEAMS(softmax_loss_backward)
LM_TEAMS(accuracy)

// count_labels: each = 1 where a label counts.
//   each [positions] float written     labels [positions] read
//   launch   one thread a position: grid ceil(positions / 256), block 256
LM_KERNEL(count_labels, SoftmaxArgs, p, 256) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < p.positions) p.each[i] = label_at(p.labels, i) < 0 ? 0.0f : 1.0f;
}

// class_accuracy: y[c] = labels of class c that were found / labels of class c (at least 1).
//   y [classes] float written     each [positions][2] float, labels [positions] read
//   launch   one block a class: grid classes, block 256
struct ClassArgs {
    float* y;
    const float* each;  // of accuracy
    Labels labels;
    int positions;
};

LM_KERNEL(class_accuracy, ClassArgs, p, 256) {
    LM_SHARED(float, lanes, [33]);
    float found = 0, counted = 0;
    for (int i = threadIdx.x; i < p.positions; i += 256) {
        const bool mine = label_at(p.labels, i) == static_cast<int>(blockIdx.x);
        counted += mine ? 1.0f : 0.0f;
        found += mine ? p.each[2 * i] : 0.0f;
    }
    found = block_sum(found, lanes);
    counted = block_sum(counted, lanes);
    if (threadIdx.x == 0) p.y[blockIdx.x] = found / fmaxf(counted, 1.0f);
}

// loss_ratio: y = factor sum / normalizer.     y [1] float written     sum [1] float read     launch   grid 1, block 1
struct RatioArgs {
    float* y;
    const float* sum;
    Normalizer normalizer;
    float factor;
};

LM_KERNEL(loss_ratio, RatioArgs, p, 1) { *p.y = p.factor * *p.sum / value_of(p.normalizer); }
