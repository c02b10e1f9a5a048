#include "planning/recompute/lagrangian_bounds.h"

#include <algorithm>
#include <cmath>

namespace layermem::planning {
namespace {

constexpr double kNoWay = 1e300;
constexpr double kRounding = 1e-6;  // ticks by which a sum of many products may be too high

}  // namespace

Prices::Prices(int sets, Bytes budget, Ticks time) : sets_(sets), budget_(static_cast<double>(budget)) {
    const double scale = std::max<double>(1, static_cast<double>(time)) / std::max(1.0, budget_);
    for (int p = 0; p < kPrices; ++p) prices_[p] = p == 0 ? 0 : scale * std::pow(2.0, p - 5);
}

void Prices::set_row(double centre) {
    if (centre <= 0) return;
    for (int p = 1; p < kPrices; ++p) prices_[p] = centre * std::pow(2.0, (p - kPrices / 2) / 4.0);
}

double Prices::best(Bytes inputs) const {
    int best = 0;
    auto bound = [&](int p) { return from_[p] + prices_[p] * (static_cast<double>(inputs) - budget_); };
    for (int p = 1; p < kPrices; ++p)
        if (bound(p) > bound(best)) best = p;
    return prices_[best];
}

void Prices::fill(std::vector<double>& ways, int set, Bytes kept) {
    ways.assign(static_cast<size_t>(sets_) * kPrices, kNoWay);
    for (int p = 0; p < kPrices; ++p) ways[at(set) + p] = prices_[p] * static_cast<double>(kept);
}

double Prices::rest(int set, Bytes kept) const {
    if (set == sets_ - 1) return 0;
    double most = 0;
    for (int p = 0; p < kPrices; ++p)
        most = std::max(most, from_[at(set) + p] + prices_[p] * (static_cast<double>(kept) - budget_));
    return most - kRounding;
}

double Prices::before(int set, Bytes most_kept) const {
    double most = 0;
    for (int p = 0; p < kPrices; ++p)
        most = std::max(most, to_[at(set) + p] - prices_[p] * static_cast<double>(most_kept));
    return most - kRounding;
}

double Prices::through(int from, int to, Ticks recompute, Bytes bytes) const {
    double most = 0;
    const double *a = &to_[at(from)], *b = &from_[at(to)];
    for (int p = 0; p < kPrices; ++p)
        most = std::max(most, a[p] + b[p] + prices_[p] * (static_cast<double>(bytes) - budget_));
    return static_cast<double>(recompute) + most - kRounding;
}

}  // namespace layermem::planning
