// The sums over windows of conv.cuh on tensor cores: operands rounded to tf32, sums in fp32; blobs in bfloat16.  For
// sm_80 and later.
#include "mma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

LM_CONV_NARROW_TILES(MmaTf32, Bf16)
LM_DGRAD_SUMS_TILES(MmaTf32, Bf16)
LM_CONV_PATCH_TILES(data_, MmaTf32OfPatch, Bf16)
