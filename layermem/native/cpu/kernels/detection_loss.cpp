// A task is an item of the batch, in forward and in backward; the sums of the items are added in their order.
//
// Workspace of an item: `seen` [priors] the largest overlap with a true box, `nearest` [priors] that box, then `order`
// [priors] of the candidates, `cost` [priors] their loss, `flag` [priors] those chosen or suppressed, `decoded`
// [priors] predicted boxes where they are needed, and for the true boxes of the item `row`, `best`, `best_overlap`
// [rows].
#include "cpu/kernels/detection_loss.h"

#include <cstdio>
#include <limits>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTruth = 8;                      // floats of a row
constexpr float kLeastOverlap = 1e-6f;             // least overlap of a match
constexpr float kLeastArea = 1e-5f;                // least area of a box that suppression keeps
constexpr double kLargestLoss = 87.3365447505531;  // -ln FLT_MIN

struct Sums {
    double loc, conf;
    int64_t matches;
};

struct ItemWorkspace {
    float* seen;
    int32_t* nearest;
    int32_t* order;
    float* cost;
    uint8_t* flag;
    Box* decoded;
    int32_t* row;
    int32_t* best;
    float* best_overlap;
};

bool decodes(const MultiBoxProblem& p) { return !p.prior_matching || (p.top_k > 0 && !p.prior_suppression); }

int64_t sum_bytes(const MultiBoxProblem& p) { return aligned_bytes<Sums>(p.items); }

int64_t match_bytes(const MultiBoxProblem& p) { return aligned_bytes<int32_t>(p.items * p.loc_classes * p.priors); }

int64_t item_bytes(const MultiBoxProblem& p) {
    return 4 * aligned_bytes<float>(p.priors) + aligned_bytes<uint8_t>(p.priors) +
           (decodes(p) ? aligned_bytes<Box>(p.priors) : 0) + 3 * aligned_bytes<float>(p.rows);
}

ItemWorkspace item_workspace(const MultiBoxProblem& p, char* at) {
    const auto take = [&](int64_t bytes) {
        char* part = at;
        at += bytes;
        return part;
    };
    const int64_t each = aligned_bytes<float>(p.priors), truth = aligned_bytes<float>(p.rows);
    ItemWorkspace w{};
    w.seen = reinterpret_cast<float*>(take(each));
    w.nearest = reinterpret_cast<int32_t*>(take(each));
    w.order = reinterpret_cast<int32_t*>(take(each));
    w.cost = reinterpret_cast<float*>(take(each));
    w.flag = reinterpret_cast<uint8_t*>(take(aligned_bytes<uint8_t>(p.priors)));
    w.decoded = decodes(p) ? reinterpret_cast<Box*>(take(aligned_bytes<Box>(p.priors))) : nullptr;
    w.row = reinterpret_cast<int32_t*>(take(truth));
    w.best = reinterpret_cast<int32_t*>(take(truth));
    w.best_overlap = reinterpret_cast<float*>(take(truth));
    return w;
}

void check(const MultiBoxProblem& p) {
    if (p.items < 1 || p.priors < 1 || p.classes < 1 || p.rows < 0 ||
        (p.loc_classes != 1 && p.loc_classes != p.classes))
        throw std::invalid_argument("multibox_loss: every size must be at least 1");
}

Box box_at(const float* at) { return {at[0], at[1], at[2], at[3]}; }

int64_t class_of(const MultiBoxProblem& p, float label) {
    return p.agnostic ? p.background + 1 : static_cast<int64_t>(label);
}

// True boxes are data: they are checked when the launch runs.
void check_truth(const MultiBoxProblem& p, const float* truth) {
    for (int64_t r = 0; r < p.rows; ++r) {
        const float* row = truth + r * kTruth;
        if (row[0] == -1) continue;
        char text[200];
        bool finite = true;
        for (int i = 0; i < 8; ++i) finite = finite && std::isfinite(row[i]);
        if (!finite || !(row[0] > -1) || !(row[0] < static_cast<float>(p.items))) {
            std::snprintf(text, sizeof text,
                          "reads a true box of item %.9g from %.9g, %.9g to %.9g, %.9g, but has %lld items: 0 to %lld, "
                          "or -1 for an unused row",
                          static_cast<double>(row[0]), static_cast<double>(row[3]), static_cast<double>(row[4]),
                          static_cast<double>(row[5]), static_cast<double>(row[6]), static_cast<long long>(p.items),
                          static_cast<long long>(p.items - 1));
            throw std::invalid_argument(text);
        }
        const float end = static_cast<float>(p.agnostic ? std::numeric_limits<int32_t>::max() : p.classes);
        if (row[1] > -1 && row[1] < end && (p.agnostic || static_cast<int64_t>(row[1]) != p.background)) continue;
        std::snprintf(text, sizeof text,
                      "reads a true box of label %.9g, but has %lld classes: 0 to %lld without the background, %lld",
                      static_cast<double>(row[1]), static_cast<long long>(p.classes),
                      static_cast<long long>(p.classes - 1), static_cast<long long>(p.background));
        throw std::invalid_argument(text);
    }
}

// -- one item ---------------------------------------------------------------------------------------------------------

struct Item {
    const MultiBoxProblem& p;
    const MultiBoxData& data;
    ItemWorkspace w;
    const float* locations;
    const float* scores;
    int32_t* match;

    const float* variance(int64_t prior) const { return data.boxes + (p.priors + prior) * 4; }
    Box prior(int64_t i) const { return box_at(data.boxes + i * 4); }
    const float* location(int64_t i, int64_t c) const { return locations + (i * p.loc_classes + c) * 4; }
    Box truth(int32_t row) const { return box_at(data.truth + row * kTruth + 3); }

    void decode(int64_t c) {
        for (int64_t i = 0; i < p.priors; ++i)
            w.decoded[i] = decode_box(p.coder, prior(i), variance(i), location(i, c));
    }

    // Finds the rows of truth of this item, of one class or (-1) of all, and returns how many.
    int64_t find_rows(int64_t number, int64_t label) {
        int64_t count = 0;
        for (int64_t r = 0; r < p.rows; ++r) {
            const float* row = data.truth + r * kTruth;
            if (row[0] == -1 || static_cast<int64_t>(row[0]) != number || (!p.difficult && row[7] != 0)) continue;
            if (label < 0 || static_cast<int64_t>(row[1]) == label) w.row[count++] = static_cast<int32_t>(r);
        }
        return count;
    }

    // The prior that is free and overlaps true box g most, the first of equals.
    template <class BoxOf>
    void find_best(int64_t g, const int32_t* matched, const BoxOf& box_of) {
        w.best[g] = -1;
        w.best_overlap[g] = kLeastOverlap;
        for (int64_t i = 0; i < p.priors; ++i) {
            if (matched[i] != kUnmatched) continue;
            const float overlap = box_overlap(box_of(i), truth(w.row[g]));
            if (overlap > w.best_overlap[g]) {
                w.best_overlap[g] = overlap;
                w.best[g] = static_cast<int32_t>(i);
            }
        }
    }

    // Match the boxes of `box_of` to the first `count` rows.
    template <class BoxOf>
    void find_matches(int64_t count, int32_t* matched, const BoxOf& box_of) {
        for (int64_t g = 0; g < count; ++g) {
            w.best[g] = -1;
            w.best_overlap[g] = kLeastOverlap;
        }
        for (int64_t i = 0; i < p.priors; ++i) {
            const Box box = box_of(i);
            matched[i] = p.ignore_crossing && count > 0 && box_crosses(box) ? kIgnored : kUnmatched;
            w.seen[i] = 0;
            w.nearest[i] = -1;
            if (matched[i] == kIgnored) continue;
            for (int64_t g = 0; g < count; ++g) {
                const float overlap = box_overlap(box, truth(w.row[g]));
                if (!(overlap > kLeastOverlap)) continue;
                if (overlap > w.seen[i]) {
                    w.seen[i] = overlap;
                    w.nearest[i] = w.row[g];
                }
                if (overlap > w.best_overlap[g]) {
                    w.best_overlap[g] = overlap;
                    w.best[g] = static_cast<int32_t>(i);
                }
            }
        }
        for (int64_t left = count; left > 0; --left) {  // the best pair first, then the best remaining one
            int64_t first = -1;
            for (int64_t g = 0; g < count; ++g) {
                if (w.best[g] < 0) continue;
                if (first < 0 || w.best_overlap[g] > w.best_overlap[first] ||
                    (w.best_overlap[g] == w.best_overlap[first] && w.best[g] < w.best[first]))
                    first = g;
            }
            if (first < 0) break;
            const int32_t taken = w.best[first];
            matched[taken] = w.row[first];
            w.seen[taken] = w.best_overlap[first];
            w.best[first] = -1;
            for (int64_t g = 0; g < count; ++g)
                if (w.best[g] == taken) find_best(g, matched, box_of);
        }
        if (p.overlap_threshold < 0) return;
        for (int64_t i = 0; i < p.priors; ++i)
            if (matched[i] == kUnmatched && w.nearest[i] >= 0 && w.seen[i] >= p.overlap_threshold)
                matched[i] = w.nearest[i];
    }

    void find_matches(int64_t count, int32_t* matched) {
        if (p.prior_matching)
            find_matches(count, matched, [this](int64_t i) { return prior(i); });
        else
            find_matches(count, matched, [this](int64_t i) { return w.decoded[i]; });
    }

    // Finds the matches of every class, and returns the number of true boxes of this item.
    int64_t match_classes(int64_t number) {
        const int64_t boxes = find_rows(number, -1);
        if (p.loc_classes == 1) {
            if (decodes(p)) decode(0);
            find_matches(boxes, match);
            return boxes;
        }
        int32_t* last = match + (p.loc_classes - 1) * p.priors;
        if (p.prior_matching) find_matches(boxes, last);
        for (int64_t c = 0; c < p.loc_classes; ++c) {
            int32_t* matched = match + c * p.priors;
            if (c == p.background) {
                if (matched != last || !p.prior_matching) std::fill(matched, matched + p.priors, kUnmatched);
            } else if (!p.prior_matching) {
                decode(c);
                find_matches(find_rows(number, c), matched);
            } else {
                for (int64_t i = 0; i < p.priors; ++i) {
                    const int32_t row = last[i];
                    const bool mine = row >= 0 && static_cast<int64_t>(data.truth[row * kTruth + 1]) == c;
                    matched[i] = mine ? row : kUnmatched;
                }
            }
        }
        if (p.prior_matching && p.background == p.loc_classes - 1) std::fill(last, last + p.priors, kUnmatched);
        return boxes;
    }

    // The class that a prior's score is compared with.
    int64_t class_of_prior(int64_t i) const {
        int64_t label = p.background;
        for (int64_t c = 0; c < p.loc_classes; ++c)
            if (match[c * p.priors + i] >= 0) label = class_of(p, data.truth[match[c * p.priors + i] * kTruth + 1]);
        return label;
    }

    // The targets of a prior's scores, where the loss is logistic: several classes may match it.
    bool targeted(int64_t i, int64_t wanted) const {
        bool any = false;
        for (int64_t c = 0; c < p.loc_classes; ++c) {
            const int32_t row = match[c * p.priors + i];
            if (row < 0) continue;
            any = true;
            if (class_of(p, data.truth[row * kTruth + 1]) == wanted) return true;
        }
        return !any && wanted == p.background;
    }

    double score_loss(int64_t i) const {
        const float* x = scores + i * p.classes;
        double loss = 0;
        if (p.logistic) {
            for (int64_t c = 0; c < p.classes; ++c) {
                const double z = x[c], target = targeted(i, c) ? 1 : 0;
                loss -= z * (target - (z >= 0 ? 1 : 0)) - std::log1p(std::exp(-std::fabs(z)));
            }
            return loss;
        }
        const double top = *std::max_element(x, x + p.classes);
        for (int64_t c = 0; c < p.classes; ++c) loss += std::exp(x[c] - top);
        loss = std::log(loss) - (x[class_of_prior(i)] - top);
        return loss > kLargestLoss ? kLargestLoss : loss;
    }

    // code - location of a matched prior, divided by its variance where the code is not.
    void difference(int64_t i, int64_t c, float* d) const {
        const Box box = prior(i);
        const float *location = this->location(i, c), *v = variance(i);
        float code[4];
        encode_box(p.coder, box, v, truth(match[c * p.priors + i]), code);
        bool counts[4] = {true, true, true, true};
        if (p.bp_inside) {
            const Box at = p.prior_matching ? box : decode_box(p.coder, box, v, location);
            const float corners[4] = {at.left, at.top, at.right, at.bottom};
            for (int k = 0; k < 4; ++k) counts[k] = !(corners[k] < 0 || corners[k] > 1);
        }
        for (int k = 0; k < 4; ++k) {
            d[k] = counts[k] ? location[k] - code[k] : 0;
            if (p.coder.in_target) d[k] /= v[k];
        }
    }

    double location_loss(int64_t i, int64_t c) const {
        float d[4];
        difference(i, c, d);
        double loss = 0;
        for (int k = 0; k < 4; ++k) {
            const double size = std::fabs(static_cast<double>(d[k]));
            loss += p.l2 || size < 1 ? 0.5 * size * size : size - 0.5;
        }
        return loss;
    }

    // -- mining: of one class of locations ----------------------------------------------------------------------------

    bool eligible(int64_t i) const {
        return p.mining == Mining::kHardExample || (match[i] == kUnmatched && w.seen[i] < p.neg_overlap);
    }

    // Chooses the priors that count besides the matches, or (HARD_EXAMPLE) among all priors.
    void mine() {
        int64_t count = 0, matches = 0;
        for (int64_t i = 0; i < p.priors; ++i) {
            matches += match[i] >= 0;
            w.flag[i] = 0;
            if (!eligible(i)) continue;
            double cost = score_loss(i);
            if (p.mining == Mining::kHardExample && match[i] >= 0) cost += location_loss(i, 0);
            w.cost[i] = std::isnan(cost) ? std::numeric_limits<float>::infinity() : static_cast<float>(cost);
            w.order[count++] = static_cast<int32_t>(i);
        }
        const auto wanted = p.mining == Mining::kHardExample
                                ? p.sample_size
                                : static_cast<int64_t>(static_cast<float>(matches) * p.neg_pos_ratio);
        int64_t chosen = std::min(wanted, count);
        const int64_t sorted = p.top_k > 0 ? std::min(p.top_k, count) : chosen;
        std::partial_sort(w.order, w.order + sorted, w.order + count, [this](int32_t a, int32_t b) {
            return w.cost[a] > w.cost[b] || (w.cost[a] == w.cost[b] && a < b);
        });
        if (p.top_k > 0) chosen = std::min(chosen, suppress(sorted));
        for (int64_t n = 0; n < chosen; ++n) w.flag[w.order[n]] = 1;
        for (int64_t i = 0; i < p.priors; ++i) {
            if (match[i] >= 0 && p.mining == Mining::kHardExample && !w.flag[i])
                match[i] = kUnmatched;
            else if (match[i] == kUnmatched && w.flag[i])
                match[i] = kNegative;
        }
    }

    // Keeps those of the first `count` candidates that no better one overlaps, and returns how many.
    int64_t suppress(int64_t count) {
        const auto box = [this](int32_t i) { return p.prior_suppression ? prior(i) : w.decoded[i]; };
        int64_t kept = 0;
        for (int64_t n = 0; n < count; ++n) {
            const Box candidate = box(w.order[n]);
            bool keep = !(box_area(candidate) < kLeastArea);
            for (int64_t k = 0; k < kept && keep; ++k)
                keep = !(box_overlap(box(w.order[k]), candidate) > p.nms_threshold);
            if (keep) w.order[kept++] = w.order[n];
        }
        return kept;
    }

    bool counts(int64_t i) const { return p.mining == Mining::kNone || match[i] >= 0 || match[i] == kNegative; }

    Sums forward(int64_t number) {
        Sums sums{};
        const int64_t boxes = match_classes(number);
        if (p.mining != Mining::kNone && boxes > 0) mine();
        for (int64_t c = 0; c < p.loc_classes; ++c)
            for (int64_t i = 0; i < p.priors; ++i) {
                if (match[c * p.priors + i] < 0) continue;
                ++sums.matches;
                if (p.loc) sums.loc += location_loss(i, c);
            }
        for (int64_t i = 0; i < p.priors && p.conf; ++i)
            if (counts(i)) sums.conf += score_loss(i);
        return sums;
    }

    void location_gradient(float* dlocations, float scale, bool accumulate) const {
        for (int64_t i = 0; i < p.priors; ++i)
            for (int64_t c = 0; c < p.loc_classes; ++c) {
                float d[4] = {0, 0, 0, 0};
                if (match[c * p.priors + i] >= 0) difference(i, c, d);
                float* out = dlocations + (i * p.loc_classes + c) * 4;
                for (int k = 0; k < 4; ++k) {
                    float slope = p.l2 ? d[k] : std::min(std::max(d[k], -1.0f), 1.0f);
                    if (p.coder.in_target) slope /= variance(i)[k];
                    out[k] = slope * scale + (accumulate ? out[k] : 0);
                }
            }
    }

    void score_gradient(float* dscores, float scale, bool accumulate) const {
        for (int64_t i = 0; i < p.priors; ++i) {
            const float* x = scores + i * p.classes;
            float* out = dscores + i * p.classes;
            if (!counts(i)) {
                if (!accumulate) std::fill(out, out + p.classes, 0.0f);
                continue;
            }
            const int64_t label = class_of_prior(i);
            double top = 0, sum = 0;
            if (!p.logistic) {
                top = *std::max_element(x, x + p.classes);
                for (int64_t c = 0; c < p.classes; ++c) sum += std::exp(x[c] - top);
            }
            for (int64_t c = 0; c < p.classes; ++c) {
                const double z = x[c];
                const double share = p.logistic ? 1 / (1 + std::exp(-z)) : std::exp(z - top) / sum;
                const bool target = p.logistic ? targeted(i, c) : c == label;
                out[c] = static_cast<float>(share - (target ? 1 : 0)) * scale + (accumulate ? out[c] : 0);
            }
        }
    }
};

Item item_of(const MultiBoxProblem& p, const MultiBoxData& data, int64_t number, char* workspace) {
    const ItemWorkspace w = workspace ? item_workspace(p, workspace + number * item_bytes(p)) : ItemWorkspace{};
    return {p,
            data,
            w,
            data.locations + number * p.priors * p.loc_classes * 4,
            data.scores + number * p.priors * p.classes,
            data.match + number * p.loc_classes * p.priors};
}

double normalizer(const MultiBoxProblem& p, const Sums* sums) {
    if (p.normalizer > 0) return p.normalizer;
    int64_t matches = 0;
    for (int64_t n = 0; n < p.items; ++n) matches += sums[n].matches;
    return static_cast<double>(std::max<int64_t>(1, matches));
}

}  // namespace

int64_t multibox_loss_workspace_bytes(const MultiBoxProblem& p, bool forward, bool match) {
    check(p);
    return sum_bytes(p) + (forward ? p.items * item_bytes(p) + (match ? 0 : match_bytes(p)) : 0);
}

Launch multibox_loss_forward(const MultiBoxProblem& p, const MultiBoxData& data, float* loss, void* workspace) {
    check(p);
    auto* sums = static_cast<Sums*>(workspace);
    char* items = static_cast<char*>(workspace) + sum_bytes(p);
    MultiBoxData with_match = data;
    if (!data.match) with_match.match = reinterpret_cast<int32_t*>(items + p.items * item_bytes(p));
    return [=] {
        check_truth(p, with_match.truth);
        parallel_for(p.items, [&](int64_t n) { sums[n] = item_of(p, with_match, n, items).forward(n); });
        double loc = 0, conf = 0;
        for (int64_t n = 0; n < p.items; ++n) {
            loc += sums[n].loc;
            conf += sums[n].conf;
        }
        *loss = static_cast<float>((static_cast<double>(p.loc_weight) * loc + conf) / normalizer(p, sums));
    };
}

Launch multibox_loss_backward(const MultiBoxProblem& p, const MultiBoxData& data, OrNull<float> dlocations,
                              OrNull<float> dscores, const float* dloss, bool accumulate_dlocations,
                              bool accumulate_dscores, void* workspace) {
    check(p);
    auto* sums = static_cast<Sums*>(workspace);
    return [=] {
        const int64_t each = p.loc_classes * p.priors;
        parallel_for(p.items, [&](int64_t n) {
            const int32_t* match = data.match + n * each;
            sums[n].matches = std::count_if(match, match + each, [](int32_t m) { return m >= 0; });
        });
        const double rate = static_cast<double>(*dloss) / normalizer(p, sums);
        const auto loc = static_cast<float>(p.loc ? rate * static_cast<double>(p.loc_weight) : 0.0);
        const auto conf = static_cast<float>(p.conf ? rate : 0.0);
        parallel_for(p.items, [&](int64_t n) {
            const Item item = item_of(p, data, n, nullptr);
            if (dlocations) item.location_gradient(dlocations + n * each * 4, loc, accumulate_dlocations);
            if (dscores) item.score_gradient(dscores + n * p.priors * p.classes, conf, accumulate_dscores);
        });
    };
}

LAYERMEM_KERNEL(multibox_loss_workspace_bytes)
LAYERMEM_KERNEL(multibox_loss_forward)
LAYERMEM_KERNEL(multibox_loss_backward)

}  // namespace layermem::cpu
