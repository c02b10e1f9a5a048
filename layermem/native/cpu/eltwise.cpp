#include "eltwise.h"

#include <algorithm>
#include <stdexcept>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PIECE = 16384;   // elements of a task
constexpr int64_t BUFFER = 16384;  // floats in which results wait until all are complete: 64 KiB
constexpr size_t MOST = 256;       // arrays of one op

void check(int64_t count, size_t arrays, size_t others, size_t least) {
    if (count < 0) throw std::invalid_argument("eltwise: the number of elements must not be negative");
    if (arrays < least || arrays > MOST || others != arrays)
        throw std::invalid_argument("eltwise: takes " + std::to_string(least) + " to " + std::to_string(MOST) +
                                    " arrays, with a coefficient or flag for each where they are asked for");
}

void copy(const Unit& u, float* out, const float* in, int64_t count, float factor, bool accumulate) {
    if (factor == 1)
        u.copy_rows({out, in, 1, count, 0, 0, accumulate}, 0, 1);
    else
        u.map({Op::scale, out, in, nullptr, factor, 0, 0, accumulate}, 0, count);
}

constexpr int64_t STRETCH = 4096;

// body(from, size) for stretches that stay in cache; each begins on a whole byte of a mask.
template <class Body>
void stretches(int64_t count, const Body& body) {
    parallel((count + PIECE - 1) / PIECE, [&](int64_t task) {
        for (int64_t from = task * PIECE; from < std::min(count, (task + 1) * PIECE); from += STRETCH)
            body(from, std::min({STRETCH, count - from, (task + 1) * PIECE - from}));
    });
}

// For each stretch: compute(i, buffer, from, size) for every array that is wanted, then all are stored.
template <class Compute>
void complete_then_store(const Unit& u, int64_t count, const std::vector<float*>& outs,
                         const std::vector<bool>& accumulate, const Compute& compute) {
    const int64_t wanted = std::count_if(outs.begin(), outs.end(), [](const float* out) { return out != nullptr; });
    if (wanted == 0) return;
    const int64_t part = std::min<int64_t>(2048, BUFFER / wanted / 16 * 16);
    parallel((count + PIECE - 1) / PIECE, [&](int64_t task) {
        alignas(64) float buffer[BUFFER];
        for (int64_t from = task * PIECE; from < std::min(count, (task + 1) * PIECE); from += part) {
            const int64_t size = std::min({part, count - from, (task + 1) * PIECE - from});
            float* to = buffer;
            for (size_t i = 0; i < outs.size(); ++i)
                if (outs[i]) compute(i, to, from, size), to += part;
            to = buffer;
            for (size_t i = 0; i < outs.size(); ++i)
                if (outs[i]) copy(u, outs[i] + from, to, size, 1, accumulate[i]), to += part;
        }
    });
}

}  // namespace

Launch eltwise_sum(int64_t count, float* y, std::vector<const float*> xs, std::vector<float> coefficients, bool relu,
                   uint8_t* mask) {
    check(count, xs.size(), coefficients.size(), 2);
    return [=, u = &unit()] {
        const auto sum_of = [&](float* sum, int64_t from, int64_t size) {
            u->map({Op::add, sum, xs[0] + from, xs[1] + from, coefficients[0], coefficients[1], 0, false}, 0, size);
            for (size_t i = 2; i < xs.size(); ++i)
                u->map({Op::add, sum, sum, xs[i] + from, 1, coefficients[i], 0, false}, 0, size);
            if (relu || mask) u->relu_forward({sum, sum, mask ? mask + from / 8 : nullptr, 0, false}, 0, size);
        };
        if (xs.size() == 2) return stretches(count, [&](int64_t from, int64_t size) { sum_of(y + from, from, size); });
        complete_then_store(*u, count, {y}, {false},
                            [&](size_t, float* sum, int64_t from, int64_t size) { sum_of(sum, from, size); });
    };
}

Launch eltwise_product(int64_t count, float* y, std::vector<const float*> xs) {
    check(count, xs.size(), xs.size(), 2);
    return [=, u = &unit()] {
        complete_then_store(*u, count, {y}, {false}, [&](size_t, float* product, int64_t from, int64_t size) {
            u->map({Op::multiply, product, xs[0] + from, xs[1] + from, 0, 0, 0, false}, 0, size);
            for (size_t i = 2; i < xs.size(); ++i)
                u->map({Op::multiply, product, product, xs[i] + from, 0, 0, 0, false}, 0, size);
        });
    };
}

Launch eltwise_max(int64_t count, float* y, std::vector<const float*> xs, uint8_t* winner) {
    check(count, xs.size(), xs.size(), 2);
    return [=, u = &unit()] {
        complete_then_store(*u, count, {y}, {false}, [&](size_t, float* best, int64_t from, int64_t size) {
            for (size_t i = 0; i < xs.size(); ++i)
                u->choose_forward(
                    {best, xs[i] + from, winner ? winner + from : nullptr, static_cast<int32_t>(i), false}, 0, size);
        });
    };
}

// A gradient that lies on dy is written last.  Of a rectified sum each stretch is read whole before any is written.
Launch eltwise_sum_backward(int64_t count, std::vector<float*> dxs, const float* dy, std::vector<float> coefficients,
                            std::vector<bool> accumulate, const uint8_t* mask, const float* y) {
    check(count, dxs.size(), coefficients.size(), 1);
    check(count, dxs.size(), accumulate.size(), 1);
    std::vector<size_t> order;
    for (const bool last : {false, true})
        for (size_t i = 0; i < dxs.size(); ++i)
            if (dxs[i] && (dxs[i] == dy) == last) order.push_back(i);
    return [=, u = &unit()] {
        stretches(count, [&](int64_t from, int64_t size) {
            alignas(64) float passed[STRETCH];
            const float* slope = dy + from;
            if (mask) {
                u->relu_backward({passed, slope, const_cast<uint8_t*>(mask) + from / 8, 0, false}, 0, size);
                slope = passed;
            } else if (y) {
                u->map({Op::relu_slope, passed, slope, y + from, 0, 0, 0, false}, 0, size);
                slope = passed;
            }
            for (size_t i : order) copy(*u, dxs[i] + from, slope, size, coefficients[i], accumulate[i]);
        });
    };
}

Launch eltwise_product_backward(int64_t count, std::vector<float*> dxs, std::vector<const float*> xs, const float* dy,
                                std::vector<bool> accumulate) {
    check(count, xs.size(), dxs.size(), 2);
    check(count, xs.size(), accumulate.size(), 2);
    return [=, u = &unit()] {
        complete_then_store(*u, count, dxs, accumulate, [&](size_t i, float* dx, int64_t from, int64_t size) {
            const float* so_far = dy + from;
            for (size_t j = 0; j < xs.size(); ++j) {
                if (j == i) continue;
                u->map({Op::multiply, dx, so_far, xs[j] + from, 0, 0, 0, false}, 0, size);
                so_far = dx;
            }
        });
    };
}

Launch eltwise_max_backward(int64_t count, std::vector<float*> dxs, const float* dy, const uint8_t* winner,
                            std::vector<bool> accumulate) {
    check(count, dxs.size(), accumulate.size(), 1);
    return [=, u = &unit()] {
        complete_then_store(*u, count, dxs, accumulate, [&](size_t i, float* dx, int64_t from, int64_t size) {
            u->choose_backward({dx, dy + from, const_cast<uint8_t*>(winner) + from, static_cast<int32_t>(i), false}, 0,
                               size);
        });
    };
}

}  // namespace layermem::cpu
