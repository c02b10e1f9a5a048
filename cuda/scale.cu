// Scale and Bias: x with an operand that spans some of its axes.
//   y [count] float written (or added to, as dx)     x [count], factor, bias float read     any of factor and bias may be
//   absent; the operand's strides give its element for each of x
//   launch   scale: one thread per V elements: grid ceil(count / (256 V)), block 256
//   traffic  8 bytes per element: bound by memory
//   overlay  a thread reads x before it writes, so y may lie on it
//   assumes  _v4: the last axis is a multiple of 4 and the operand's stride along it 0 or 1 (`run`)
//   source   Caffe scale_layer.cu, bias_layer.cu
#include "strided_index.cuh"

namespace lm {

struct ScaleArgs {
    float* y;
    const float* x;
    const float* factor;
    const float* bias;
    StridedIndex operand;
    int count, accumulate;
};

template <int V>
LM_FN void load_operand(float (&to)[V], const float* operand, int run) {
    if (V == 1 || run == 1)
        load<V>(to, operand);
    else
#pragma unroll
        for (int v = 0; v < V; ++v) to[v] = *operand;
}

template <int V>
LM_FN void scale(const ScaleArgs& p) {
    const unsigned i = (blockIdx.x * 256u + threadIdx.x) * V;
    if (i >= static_cast<unsigned>(p.count)) return;
    const int at = strided_offset(i, p.operand);
    float x[V], operand[V];
    load<V>(x, p.x + i);
    if (p.factor != nullptr) {
        load_operand(operand, p.factor + at, p.operand.stride3);
#pragma unroll
        for (int v = 0; v < V; ++v) x[v] *= operand[v];
    }
    if (p.bias != nullptr) {
        load_operand(operand, p.bias + at, p.operand.stride3);
#pragma unroll
        for (int v = 0; v < V; ++v) x[v] += operand[v];
    }
    put<V>(p.y + i, x, p.accumulate);
}
LM_KERNEL(scale_v4, ScaleArgs, p, 256) { scale<4>(p); }
LM_KERNEL(scale_v1, ScaleArgs, p, 256) { scale<1>(p); }

}  // namespace lm
