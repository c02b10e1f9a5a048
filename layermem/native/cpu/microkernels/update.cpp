// Update rules of the solvers, and the sum of squares that gradient clipping needs.
//
// source   Caffe src/caffe/solvers; h0 and h1 are its history blobs
#include "cpu/microkernels/update.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// step(w, d, h0, h1) changes w and the state in registers; d is the gradient after gain and weight decay.
template <class F>
void update_each(const Update& args, int64_t begin, int64_t end, const F& step) {
    const V gain = broadcast(args.gain), decay = broadcast(args.decay), shrink = broadcast(args.shrink),
            one = broadcast(1.0f);
    for_each_vector(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
        V w = load(args.w + i, n), d = gain * load(args.dw + i, n);
        if (args.decay != 0) d += decay * (args.l1 ? select(w > zero(), one, select(w < zero(), -one, zero())) : w);
        if (args.shrink != 0) w -= shrink * w;
        V h0 = load(args.h0 + i, n), h1 = args.h1 ? load(args.h1 + i, n) : zero();
        step(w, d, h0, h1);
        store(args.w + i, w, n);
        store(args.h0 + i, h0, n);
        if (args.h1) store(args.h1 + i, h1, n);
    });
}

void update(const Update& args, int64_t begin, int64_t end) {
    const V rate = broadcast(args.rate), m = broadcast(args.momentum), m2 = broadcast(args.momentum2);
    const V delta = broadcast(args.delta), one = broadcast(1.0f);
    const auto run = [&](const auto& step) { update_each(args, begin, end, step); };
    switch (args.rule) {
        case UpdateRule::SGD:
            return run([&](V& w, V d, V& h, V&) {
                h = m * h + rate * d;
                w -= h;
            });
        case UpdateRule::Nesterov:  // the step of the momentum after this update, taken already
            return run([&](V& w, V d, V& h, V&) {
                const V v = m * h + rate * d;
                w -= (one + m) * v - m * h;
                h = v;
            });
        case UpdateRule::AdaGrad:
            return run([&](V& w, V d, V& h, V&) {
                h += d * d;
                w -= rate * (d / (sqrt(h) + delta));
            });
        case UpdateRule::RMSProp:  // momentum is the decay of the mean square
            return run([&](V& w, V d, V& h, V&) {
                h = m * h + (one - m) * (d * d);
                w -= rate * (d / (sqrt(h) + delta));
            });
        case UpdateRule::AdaDelta:  // h0: mean square of gradients, h1: of steps
            return run([&](V& w, V d, V& h0, V& h1) {
                h0 = m * h0 + (one - m) * (d * d);
                const V u = d * sqrt((h1 + delta) / (h0 + delta));
                h1 = m * h1 + (one - m) * (u * u);
                w -= rate * u;
            });
        case UpdateRule::AdamW:
        case UpdateRule::Adam:  // h0, h1: first and second moment; rate includes the bias correction
            return run([&](V& w, V d, V& h0, V& h1) {
                h0 = m * h0 + (one - m) * d;
                h1 = m2 * h1 + (one - m2) * (d * d);
                w -= rate * (h0 / (sqrt(h1) + delta));
            });
        case UpdateRule::Accumulate:
            return for_each_vector(begin, end, [&](int64_t i, auto n) {
                store(args.w + i, load(args.w + i, n) + load(args.dw + i, n), n);
            });
    }
}

// Blocks of 1024 in float, whose lane sums are added in one fixed order, and their totals in double.
double sum_of_squares(const float* x, int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t block = begin; block < end; block += 1024) {
        V part = zero();
        for_each_vector(block, block + 1024 < end ? block + 1024 : end, [&](int64_t i, auto n) {
            const V v = load(x + i, n);
            part += v * v;
        });
        sum += static_cast<double>(reduce_add(part));
    }
    return sum;
}

}  // namespace

const UpdateKernels update_kernels = {update, sum_of_squares};

}  // namespace layermem::cpu::LAYERMEM_ISA
