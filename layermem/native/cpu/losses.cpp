// Losses against targets, element by element or item by item.
#include "losses.h"

#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PIECE = LOSS_PIECE;

template <class Kernel>
void run_stretches(int64_t total, int64_t step, const Kernel& kernel) {
    parallel(loss_tasks(total, step), [&](int64_t i) { kernel(i * step, std::min(total, (i + 1) * step)); });
}

int64_t items_at_once(int64_t size) { return std::max<int64_t>(1, PIECE / size); }

float share(const float* dloss, double divisor) { return static_cast<float>(static_cast<double>(*dloss) / divisor); }

void check(int64_t items, const ItemArgs& g) {
    if (items < 1 || g.classes < 1 || g.channels < 1 || g.classes % g.channels)
        throw std::invalid_argument("loss: an item has `channels` classes for each of its pixels");
}

void check(int64_t items, const PairArgs& g) {
    if (items < 0 || g.size < 1) throw std::invalid_argument("loss: pairs need at least one element");
}

}  // namespace

int64_t divisor_bytes(int64_t count) {
    return padded(loss_tasks(count, PIECE) * static_cast<int64_t>(sizeof(int64_t)));
}

double divisor_of(const Labels& labels, int64_t count, void* scratch) {
    if (labels.divisor > 0) return labels.divisor;
    if (!labels.ignores) return static_cast<double>(std::max<int64_t>(1, count));
    int64_t* parts = static_cast<int64_t*>(scratch);
    run_stretches(count, PIECE, [&](int64_t begin, int64_t end) {
        int64_t valid = 0;
        for (int64_t i = begin; i < end; ++i) valid += static_cast<int64_t>(labels.label[i]) != labels.ignore_label;
        parts[begin / PIECE] = valid;
    });
    int64_t valid = 0;
    for (int64_t i = 0; i < loss_tasks(count, PIECE); ++i) valid += parts[i];
    return static_cast<double>(std::max<int64_t>(1, valid));
}

// -- SigmoidCrossEntropyLoss ------------------------------------------------------------------------------------------

int64_t sigmoid_loss_workspace(int64_t count) {
    return std::max(judged_bytes(loss_tasks(count, PIECE)), divisor_bytes(count));
}

Launch sigmoid_loss_forward(int64_t count, float* loss, const TargetArgs& g, void* scratch) {
    return [=, u = &unit()] {
        run_loss([&](int64_t from, int64_t till, Judged& sum) { u->sigmoid_loss(g, from, till, sum); }, count, PIECE, 0,
                 g.labels.divisor, loss, scratch);
    };
}

Launch sigmoid_loss_backward(int64_t count, const TargetArgs& bound, const float* dloss, void* scratch) {
    return [=, u = &unit()] {
        TargetArgs g = bound;
        g.scale = share(dloss, divisor_of(g.labels, count, scratch));
        run_stretches(count, PIECE, [&](int64_t from, int64_t till) { u->sigmoid_loss_back(g, from, till); });
    };
}

// -- EuclideanLoss, ContrastiveLoss -----------------------------------------------------------------------------------

int64_t euclidean_loss_workspace(int64_t count) { return judged_bytes(loss_tasks(count, PIECE)); }

Launch euclidean_loss_forward(int64_t count, float* loss, const PairArgs& g, double divisor, void* scratch) {
    check(count, g);
    return [=, u = &unit()] {
        run_loss([&](int64_t from, int64_t till, Judged& sum) { u->euclidean_loss(g, from, till, sum); }, count, PIECE,
                 0, divisor, loss, scratch);
    };
}

Launch euclidean_loss_backward(int64_t count, const PairArgs& bound, const float* dloss, double divisor) {
    check(count, bound);
    return [=, u = &unit()] {
        PairArgs g = bound;
        g.scale = share(dloss, divisor);
        run_stretches(count, PIECE, [&](int64_t from, int64_t till) { u->euclidean_loss_back(g, from, till); });
    };
}

int64_t contrastive_loss_workspace(int64_t items, int64_t size) {
    return judged_bytes(loss_tasks(items, items_at_once(size)));
}

Launch contrastive_loss_forward(int64_t items, float* loss, const PairArgs& g, double divisor, void* scratch) {
    check(items, g);
    return [=, u = &unit()] {
        run_loss([&](int64_t from, int64_t till, Judged& sum) { u->contrastive_loss(g, from, till, sum); }, items,
                 items_at_once(g.size), 0, divisor, loss, scratch);
    };
}

Launch contrastive_loss_backward(int64_t items, const PairArgs& bound, const float* dloss, double divisor) {
    check(items, bound);
    return [=, u = &unit()] {
        PairArgs g = bound;
        g.scale = share(dloss, divisor);
        run_stretches(items, items_at_once(g.size),
                      [&](int64_t from, int64_t till) { u->contrastive_loss_back(g, from, till); });
    };
}

// -- HingeLoss, MultinomialLogisticLoss -------------------------------------------------------------------------------

int64_t item_loss_workspace(int64_t items, int64_t classes) {
    return judged_bytes(loss_tasks(items, items_at_once(classes)));
}

namespace {
using ItemLoss = void (*)(const ItemArgs&, int64_t begin, int64_t end, Judged&);
using ItemBack = void (*)(const ItemArgs&, int64_t begin, int64_t end);

Launch item_loss(ItemLoss kernel, int64_t items, float* loss, const ItemArgs& g, void* scratch) {
    check(items, g);
    return [=] {
        run_loss([&](int64_t from, int64_t till, Judged& sum) { kernel(g, from, till, sum); }, items,
                 items_at_once(g.classes), g.classes, static_cast<double>(items), loss, scratch);
    };
}

Launch item_back(ItemBack kernel, int64_t items, const ItemArgs& bound, const float* dloss) {
    check(items, bound);
    return [=] {
        ItemArgs g = bound;
        g.scale = share(dloss, static_cast<double>(items));
        run_stretches(items, items_at_once(g.classes), [&](int64_t from, int64_t till) { kernel(g, from, till); });
    };
}
}  // namespace

Launch hinge_loss_forward(int64_t items, float* loss, const ItemArgs& g, void* scratch) {
    return item_loss(unit().hinge_loss, items, loss, g, scratch);
}

Launch hinge_loss_backward(int64_t items, const ItemArgs& g, const float* dloss) {
    return item_back(unit().hinge_loss_back, items, g, dloss);
}

Launch logistic_loss_forward(int64_t items, float* loss, const ItemArgs& g, void* scratch) {
    return item_loss(unit().logistic_loss, items, loss, g, scratch);
}

Launch logistic_loss_backward(int64_t items, const ItemArgs& g, const float* dloss) {
    return item_back(unit().logistic_loss_back, items, g, dloss);
}

}  // namespace layermem::cpu
