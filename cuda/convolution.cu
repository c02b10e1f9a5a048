// The sums over windows of conv.cuh in fp32, and the sum of a weight gradient's parts.
#include "ffma.cuh"
#include "conv.cuh"

using namespace lm;

using T128x128 = Tile<128, 128, 32, 64, 2>;  // on sm_75 one at a time: its shared memory is too small for two
using T128x64 = Tile<128, 64, 32, 64, 3>;
using T64x64 = Tile<64, 64, 32, 64, 6>;
using T128x32 = Tile<128, 32, 32, 32, 3>;

LM_CONV_TILES(Ffma)

// sum_parts: y = sum of `parts` arrays that lie one behind the other, always in their order.
//   y [count] float written or added to     parts [splits][count] float read
//   begun [count] float read, or null: the sum of the parts before these; may be y
//   left [count] float written, or null: the array behind the parts, which is not complete (wgrad_slices.py)
//   launch   one thread per element: grid ceil(count/256), block 256
//   traffic  4 (splits + 1) bytes per element, and 4 or 8 for `begun` and `left`: bound by memory
//   assumes  count below 2^31
//   source   the split of a weight gradient in layermem/backends/cuda/implicit_gemm.py
struct PartsArgs {
    float* y;
    const float* begun;
    const float* parts;
    float* left;
    int count, splits, accumulate;
};

LM_KERNEL(sum_parts, PartsArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const int first = p.begun == nullptr;
    float sum = first ? p.parts[i] : p.begun[i];
    for (int split = first; split < p.splits; ++split) sum += p.parts[static_cast<long long>(split) * p.count + i];
    put(p.y + i, sum, p.accumulate);
    if (p.left != nullptr) p.left[i] = p.parts[static_cast<long long>(p.splits) * p.count + i];
}
