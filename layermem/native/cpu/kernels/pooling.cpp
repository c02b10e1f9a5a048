// Pooling: a task is a few rows of the image that is written.
//
//     forward   writes y [n][ho][wo][c]; a row reads kh rows of x
//     backward  writes dx [n][h][w][c] by gathering: each pixel adds up the windows that contain it.  Scattering dy
//               would let two tasks write one pixel, and its sum would depend on their order.
#include "cpu/kernels/pooling.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskFloats = 4096;  // that a task writes, unless one row is longer

using RowKernel = void (*)(const PoolArgs&, int64_t row);

// `rows` rows of `width` floats are written, each by one call of the kernel.
Launch over_rows(RowKernel kernel, const PoolArgs& args, int64_t rows, int64_t width) {
    args.problem.check();
    return [=] {
        const int64_t step = std::max<int64_t>(1, kTaskFloats / width);
        parallel_for_ranges(rows, step, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) kernel(args, row);
        });
    };
}

Launch forward(RowKernel kernel, const PoolArgs& args) {
    const PoolProblem& p = args.problem;
    return over_rows(kernel, args, p.n * p.ho, p.wo * p.c);
}

Launch backward(RowKernel kernel, const PoolArgs& args) {
    const PoolProblem& p = args.problem;
    return over_rows(kernel, args, p.n * p.h, p.w * p.c);
}

}  // namespace

void PoolProblem::check() const {
    const auto fail = [](const char* what) { throw std::invalid_argument(std::string("pooling: ") + what); };
    if (n < 1 || c < 1 || h < 1 || w < 1 || ho < 1 || wo < 1) fail("every size must be at least 1");
    if (kh < 1 || kw < 1 || sh < 1 || sw < 1) fail("kernel and stride must be at least 1");
    if (ph < 0 || pw < 0 || ph >= kh || pw >= kw) fail("pad must be at least 0 and less than the kernel");
    // Every window meets the image: Caffe clips the output size likewise, and a maximum of nothing does not exist.
    if ((ho - 1) * sh - ph >= h || (wo - 1) * sw - pw >= w) fail("the last window lies outside the image");
}

Launch max_pool_forward(const PoolProblem& p, float* y, const float* x, void* argmax) {
    return forward(pooling_kernels().max_pool, {p, y, x, argmax, false});
}

Launch max_pool_backward(const PoolProblem& p, float* dx, const float* dy, const void* argmax, bool accumulate) {
    return backward(pooling_kernels().max_pool_backward, {p, dx, dy, const_cast<void*>(argmax), accumulate});
}

Launch average_pool_forward(const PoolProblem& p, float* y, const float* x) {
    return forward(pooling_kernels().average_pool, {p, y, x, nullptr, false});
}

Launch average_pool_backward(const PoolProblem& p, float* dx, const float* dy, bool accumulate) {
    return backward(pooling_kernels().average_pool_backward, {p, dx, dy, nullptr, accumulate});
}

// -- Mask and STOCHASTIC ----------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kChunk = 256;  // channels that are worked on side by side

// Writes the index of tap `tap` of an output where it is wanted.
void put_tap(const PoolProblem& p, void* argmax, int64_t at, int32_t tap) {
    if (argmax == nullptr) return;
    if (p.argmax_is_int32())
        static_cast<int32_t*>(argmax)[at] = tap;
    else
        static_cast<uint8_t*>(argmax)[at] = static_cast<uint8_t>(tap);
}

// visit(tap, element of x at channel 0) for the taps of a window that lie in the image, row by row.
template <class Visit>
void visit_window(const PoolProblem& p, int64_t item, int64_t row, int64_t column, const Visit& visit) {
    for (int64_t r = 0; r < p.kh; ++r)
        for (int64_t s = 0; s < p.kw; ++s) {
            const int64_t h = row * p.sh - p.ph + r, w = column * p.sw - p.pw + s;
            if (h < 0 || h >= p.h || w < 0 || w >= p.w) continue;
            visit(static_cast<int32_t>(r * p.kw + s), ((item * p.h + h) * p.w + w) * p.c);
        }
}

// Word number `element` of the generator (microkernels/dropout.cpp) as a number from 0 to 1.
struct Random {
    uint32_t key0, key1;
    uint64_t step;

    float operator()(uint64_t element) const {
        uint32_t c[4] = {static_cast<uint32_t>(element / 4), static_cast<uint32_t>(element / 4 >> 32),
                         static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)};
        uint32_t k0 = key0, k1 = key1;
        for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            const uint64_t m0 = uint64_t{0xD2511F53u} * c[0], m1 = uint64_t{0xCD9E8D57u} * c[2];
            c[0] = static_cast<uint32_t>(m1 >> 32) ^ c[1] ^ k0;
            c[1] = static_cast<uint32_t>(m1);
            c[2] = static_cast<uint32_t>(m0 >> 32) ^ c[3] ^ k1;
            c[3] = static_cast<uint32_t>(m0);
        }
        return static_cast<float>(c[element % 4]) * 0x1p-32f;
    }
};

// The first element of each window at which the running sum reaches a random part of the whole; the last one where it
// never does.
void draw(const PoolArgs& args, const Random& random, int64_t line, int64_t column) {
    const PoolProblem& p = args.problem;
    const int64_t item = line / p.ho, row = line % p.ho, at = (line * p.wo + column) * p.c;
    for (int64_t first = 0; first < p.c; first += kChunk) {
        const int64_t width = std::min(kChunk, p.c - first);
        float total[kChunk] = {}, threshold[kChunk], partial[kChunk] = {};
        bool searching[kChunk];
        visit_window(p, item, row, column, [&](int32_t, int64_t from) {
            for (int64_t c = 0; c < width; ++c) total[c] += args.in[from + first + c];
        });
        for (int64_t c = 0; c < width; ++c) {
            threshold[c] = random(static_cast<uint64_t>(at + first + c)) * total[c];
            searching[c] = true;
        }
        visit_window(p, item, row, column, [&](int32_t tap, int64_t from) {
            for (int64_t c = 0; c < width; ++c) {
                if (!searching[c]) continue;
                const float x = args.in[from + first + c];
                partial[c] += x;
                args.out[at + first + c] = x;
                put_tap(p, args.argmax, at + first + c, tap);
                searching[c] = !(partial[c] >= threshold[c]);
            }
        });
    }
}

}  // namespace

Launch max_pool_mask(const PoolProblem& p, float* mask, const void* argmax) {
    p.check();
    return [=] {
        parallel_for(p.n * p.ho, [&](int64_t line) {
            for (int64_t i = line * p.wo * p.c; i < (line + 1) * p.wo * p.c; ++i) {
                const int64_t tap = p.argmax_is_int32() ? static_cast<const int32_t*>(argmax)[i]
                                                        : static_cast<const uint8_t*>(argmax)[i];
                const int64_t h = line % p.ho * p.sh - p.ph + tap / p.kw;
                const int64_t w = i / p.c % p.wo * p.sw - p.pw + tap % p.kw;
                mask[i] = static_cast<float>(h * p.w + w);
            }
        });
    };
}

StepLaunch stochastic_pool_forward(const PoolProblem& p, float* y, const float* x, void* argmax, uint64_t seed,
                                   uint32_t stream) {
    p.check();
    return [=](uint64_t step) {
        const PoolArgs args{p, y, x, argmax, false};
        const Random random{static_cast<uint32_t>(seed), stream, step};
        parallel_for(p.n * p.ho, [&](int64_t line) {
            for (int64_t column = 0; column < p.wo; ++column) draw(args, random, line, column);
        });
    };
}

Launch stochastic_pool_average(const PoolProblem& p, float* y, const float* x) {
    p.check();
    return [=] {
        parallel_for(p.n * p.ho, [&](int64_t line) {
            for (int64_t i = line * p.wo; i < (line + 1) * p.wo; ++i)
                for (int64_t c = 0; c < p.c; ++c) {
                    float total = 0, squares = 0;
                    visit_window(p, line / p.ho, line % p.ho, i % p.wo, [&](int32_t, int64_t from) {
                        total += x[from + c];
                        squares += x[from + c] * x[from + c];
                    });
                    y[i * p.c + c] = total > 0 ? squares / total : 0;
                }
        });
    };
}

}  // namespace layermem::cpu
