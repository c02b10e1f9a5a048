#include "activation.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PIECE = 16384;  // elements of a task; a multiple of 64, so masks and counters start afresh

template <class Body>
void pieces(int64_t count, const Body& body) {
    parallel((count + PIECE - 1) / PIECE, [&](int64_t i) { body(i * PIECE, std::min(count, (i + 1) * PIECE)); });
}

void check(int64_t count) {
    if (count < 0) throw std::invalid_argument("a kernel was asked for a negative number of elements");
}

}  // namespace

Launch map_elements(int64_t count, const Map& g) {
    check(count);
    return [=, u = &unit()] { pieces(count, [&](int64_t from, int64_t till) { u->map(g, from, till); }); };
}

Launch relu_forward(int64_t count, const Relu& g) {
    check(count);
    return [=, u = &unit()] { pieces(count, [&](int64_t from, int64_t till) { u->relu_forward(g, from, till); }); };
}

Launch relu_backward(int64_t count, const Relu& g) {
    check(count);
    return [=, u = &unit()] { pieces(count, [&](int64_t from, int64_t till) { u->relu_backward(g, from, till); }); };
}

void write_mask(const Unit& u, int64_t count, const float* y, uint8_t* mask) {
    pieces(count, [&](int64_t from, int64_t till) { u.relu_forward({nullptr, y, mask, 0, false}, from, till); });
}

Launch clip_forward(int64_t count, const Clip& g) {
    check(count);
    return [=, u = &unit()] { pieces(count, [&](int64_t from, int64_t till) { u->clip_forward(g, from, till); }); };
}

SteppedLaunch dropout(int64_t count, float* out, const float* in, double ratio, uint64_t seed, uint32_t stream,
                      bool accumulate) {
    check(count);
    if (!(ratio >= 0 && ratio < 1)) throw std::invalid_argument("dropout: the ratio must be at least 0 and below 1");
    const auto bound = static_cast<uint32_t>(std::floor(ratio * 4294967296.0));
    const Dropout g{out,       in, {static_cast<uint32_t>(seed), stream}, 0, bound, static_cast<float>(1 / (1 - ratio)),
                    accumulate};
    return [=, u = &unit()](uint64_t step) {
        Dropout now = g;
        now.step = step;
        pieces(count, [&](int64_t from, int64_t till) { u->dropout(now, from, till); });
    };
}

RatedLaunch update(int64_t count, const Update& g) {
    check(count);
    return [=, u = &unit()](float rate, float gain) {
        Update now = g;
        now.rate = rate, now.gain = gain;
        pieces(count, [&](int64_t from, int64_t till) { u->update(now, from, till); });
    };
}

Launch sum_of_squares(float* out, const std::vector<const float*>& xs, const std::vector<int64_t>& counts, bool root) {
    if (xs.size() != counts.size()) throw std::invalid_argument("sum_of_squares: as many counts as arrays are needed");
    for (int64_t count : counts) check(count);
    return [=, u = &unit()] {
        constexpr int64_t PARTS = 64;  // of an array, at most: enough to share out
        double parts[PARTS], sum = 0;
        for (size_t a = 0; a < xs.size(); ++a) {
            const int64_t count = counts[a],
                          step = std::max(PIECE, (count + PARTS * PIECE - 1) / (PARTS * PIECE) * PIECE);
            const int64_t tasks = (count + step - 1) / step;
            parallel(tasks,
                     [&](int64_t i) { parts[i] = u->squares(xs[a], i * step, std::min(count, (i + 1) * step)); });
            for (int64_t i = 0; i < tasks; ++i) sum += parts[i];
        }
        *out = static_cast<float>(root ? std::sqrt(sum) : sum);
    };
}

}  // namespace layermem::cpu
