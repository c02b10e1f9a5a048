// dropout: y = x scale where the element's random word reaches the threshold, else 0.  Backward is the same on dy.
//   y [count] float written or added to     x [count] float, step read; both in 16 bits in dropout_bf16, _fp16
//   launch   four elements, and one call of the generator, a thread: grid ceil(count / 1024), block 256
//   traffic  8 bytes per element, 4 in 16 bits; about 25 integer operations each: bound by memory, nearly by arithmetic
//   assumes  count + first below 2^32
//   source   layermem/layers/dropout.py: key (seed, stream), counter (e / 4, 0, step), word e % 4, where e counts from
//            the first element of the batch, of which these elements begin at `first`
#include "pointwise.cuh"
#include "step_scalars.cuh"

using namespace lm;

template <class T>
struct DropoutArgs {
    T* y;
    const T* x;
    const StepScalars* step;
    int count, accumulate;
    unsigned first;
    unsigned threshold, stream;
    float scale;
};

template <class T>
LM_FN void dropout_of(const DropoutArgs<T>& p) {
    const unsigned group = blockIdx.x * POINTWISE_THREADS + threadIdx.x + p.first / 4;
    const StepScalars now = *p.step;
    const uint4 random = philox(make_uint4(group, 0, now.step_low, now.step_high), now.seed, p.stream);
    uint4 next = random;  // the four elements of a thread are of two groups where `first` is no multiple of 4
    if (p.first % 4 != 0) next = philox(make_uint4(group + 1, 0, now.step_low, now.step_high), now.seed, p.stream);
    pointwise<1, 1>(p.y, {p.x}, p.count, p.accumulate, [&](const float (&in)[1], unsigned i) {
        const unsigned e = (i + p.first) % 4;
        const uint4& of = i % 4 + p.first % 4 < 4 ? random : next;
        const unsigned word = e == 0 ? of.x : e == 1 ? of.y : e == 2 ? of.z : of.w;
        return word >= p.threshold ? in[0] * p.scale : 0.0f;
    });
}
LM_KERNEL_OF_ELEMENTS(dropout, DropoutArgs, POINTWISE_THREADS, dropout_of)
