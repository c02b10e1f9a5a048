// The sums over windows of conv.cuh on tensor cores: operands in two parts of tf32 each, sums in fp32; blobs in
// bfloat16.  For sm_80 and later.
#include "mma.cuh"
#include "conv.cuh"

using namespace lm;

LM_CONV_NARROW_TILES(MmaFp32x3, Bf16)
