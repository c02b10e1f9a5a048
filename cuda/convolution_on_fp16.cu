// The sums over windows of conv.cuh in fp32; blobs in float16.
#include "ffma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

LM_CONV_NARROW_TILES(Ffma, Fp16)
LM_DGRAD_SUMS_TILES(Ffma, Fp16)
LM_CONV_PATCH_TILES(data_, FfmaOfPatch, Fp16)
