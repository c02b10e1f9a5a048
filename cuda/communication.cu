// The kernel of communication between ranks: parts of a gradient from other ranks, added in their order.
#include "common.cuh"

using namespace lm;

// ordered_sum: sum = (sum if it continues, else 0) + part of rank 0 + part of rank 1 .., one addition after the other.
//   sum, own  [count] float written and read     received [ranks - 1][pitch] float read: the other ranks in their order
//   launch   one thread an element: grid ceil(count / 256), block 256
//   traffic  4 (ranks + 1) bytes an element: bound by memory
//   assumes  elements of `received` below 2^32; sum and own may be the same
//   source   layermem/native/distributed/ordered_sum.cpp, whose bits it has
struct OrderedSumArgs {
    float* sum;
    const float* own;  // this rank's part
    const float* received;
    int count, pitch;
    int rank, ranks, continues;
};

constexpr int PARTS = 4;  // whose loads are in flight together

LM_KERNEL(ordered_sum, OrderedSumArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    float sum = p.continues ? p.sum[i] : 0.0f;
    for (int first = 0; first < p.ranks; first += PARTS) {
        float parts[PARTS];
#pragma unroll
        for (int k = 0; k < PARTS; ++k) {
            const int each = first + k, before = each - (each > p.rank);
            if (each < p.ranks)
                parts[k] = *(each == p.rank ? p.own + i : p.received + (static_cast<unsigned>(before) * p.pitch + i));
        }
#pragma unroll
        for (int k = 0; k < PARTS; ++k)
            if (first + k < p.ranks) sum += parts[k];
    }
    p.sum[i] = sum;
}
