// Vectors of length one, a pixel at a time; lanes are channels.
#include "cpu/microkernels/l2norm.h"

#include "cpu/isa/simd.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// The scales of a register of channels, 1 where there are none to apply.
inline V scales(const L2NormArgs& args, int64_t c, int n) {
    return args.shared ? broadcast(1.0f) : load(args.scale + c, n);
}

void sums(const L2NormArgs& args, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
        const float* x = args.x + p * args.channels;
        V squares = zero(), dots = zero();
        for_each_vector(0, args.channels, [&](int64_t c, auto n) {
            const V v = load(x + c, n);
            squares = fma(v, v, squares);
            if (args.dots) dots = fma(load(args.dy + p * args.channels + c, n) * scales(args, c, n), v, dots);
        });
        args.squares[p] = reduce_add(squares);
        if (args.dots) args.dots[p] = reduce_add(dots);
    }
}

void forward(const L2NormArgs& args, int64_t begin, int64_t end) {
    const float shared = args.shared ? *args.scale : 1;
    for (int64_t p = begin; p < end; ++p) {
        const V inverse = broadcast(args.squares[p / args.group] * shared);
        for_each_vector(0, args.channels, [&](int64_t c, auto n) {
            const int64_t at = p * args.channels + c;
            store(args.out + at, load(args.x + at, n) * inverse * scales(args, c, n), n);
        });
    }
}

void backward(const L2NormArgs& args, int64_t begin, int64_t end) {
    const V shared = broadcast(args.shared ? *args.scale : 1);
    for (int64_t p = begin; p < end; ++p) {
        const float inverse = args.squares[p / args.group], dot = args.dots[p / args.group];
        const V by = broadcast(inverse), along = broadcast(dot * inverse * inverse);
        for_each_vector(0, args.channels, [&](int64_t c, auto n) {
            const int64_t at = p * args.channels + c;
            const V g = load(args.dy + at, n) * scales(args, c, n);
            const V dx = (g - load(args.x + at, n) * along) * by * shared;
            store(args.out + at, args.accumulate ? load(args.out + at, n) + dx : dx, n);
        });
    }
}

void scale_sums(const L2NormArgs& args, int64_t begin, int64_t end, float* out, bool continues) {
    for_each_vector(0, args.channels, [&](int64_t c, auto n) {
        V sum = continues ? load(out + c, n) : zero();
        for (int64_t p = begin; p < end; ++p) {
            const int64_t at = p * args.channels + c;
            sum = fma(load(args.dy + at, n) * load(args.x + at, n), broadcast(args.squares[p / args.group]), sum);
        }
        store(out + c, sum, n);
    });
}

}  // namespace

const L2NormKernels l2norm_kernels = {sums, forward, backward, scale_sums};

}  // namespace layermem::cpu::LAYERMEM_ISA
