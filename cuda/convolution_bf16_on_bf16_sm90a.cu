// The sums over windows of conv.cuh by warpgroups: blobs in bfloat16, whose operands are copied unchanged, with
// weights rounded before; sums in fp32.  For compute capability 9.0 alone.
#include "conv_warpgroup.cuh"

using namespace lm;

LM_WARPGROUP_PACKED(192x256, Bf16)
LM_WARPGROUP_PACKED_WGRAD(256x192, Bf16)
LM_WARPGROUP_PACKED_WGRAD(256x128, Bf16)
