// Pooling: a task is a few rows of the image that is written.
#include "pooling.h"

#include <algorithm>
#include <stdexcept>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

Launch rows(void (*Unit::*row)(const PoolArgs&, int64_t), const PoolArgs& args, bool of_input) {
    args.g.check();
    return [=, u = &unit()] {
        const Pool& g = args.g;
        const int64_t count = g.n * (of_input ? g.h : g.ho), width = (of_input ? g.w : g.wo) * g.c;
        const int64_t step = std::max<int64_t>(1, 4096 / width);
        parallel((count + step - 1) / step, [&](int64_t i) {
            for (int64_t r = i * step; r < std::min(count, (i + 1) * step); ++r) (u->*row)(args, r);
        });
    };
}

}  // namespace

void Pool::check() const {
    const auto wrong = [](const char* what) { throw std::invalid_argument(std::string("pooling: ") + what); };
    if (n < 1 || c < 1 || h < 1 || w < 1 || ho < 1 || wo < 1) wrong("every size must be at least 1");
    if (kh < 1 || kw < 1 || sh < 1 || sw < 1) wrong("kernel and stride must be at least 1");
    if (ph < 0 || pw < 0 || ph >= kh || pw >= kw) wrong("pad must be at least 0 and less than the kernel");
    if ((ho - 1) * sh - ph >= h || (wo - 1) * sw - pw >= w) wrong("the last window lies outside the image");
}

Launch max_pool_forward(const Pool& g, float* y, const float* x, void* argmax) {
    return rows(&Unit::max_pool, {g, y, x, argmax, false}, false);
}

Launch max_pool_backward(const Pool& g, float* dx, const float* dy, const void* argmax, bool accumulate) {
    return rows(&Unit::max_pool_back, {g, dx, dy, const_cast<void*>(argmax), accumulate}, true);
}

Launch average_pool_forward(const Pool& g, float* y, const float* x) {
    return rows(&Unit::average_pool, {g, y, x, nullptr, false}, false);
}

Launch average_pool_backward(const Pool& g, float* dx, const float* dy, bool accumulate) {
    return rows(&Unit::average_pool_back, {g, dx, dy, nullptr, accumulate}, true);
}

}  // namespace layermem::cpu
