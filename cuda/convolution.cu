// The sums over windows of conv.cuh in fp32.
#include "ffma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

LM_CONV_TILES(Ffma)
LM_DGRAD_SUMS_TILES(Ffma, float)
LM_CONV_PATCH_TILES(, FfmaOfPatch, float)
