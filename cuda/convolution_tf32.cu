// The sums over windows of conv.cuh on tensor cores: operands rounded to tf32, sums in fp32.  For sm_80 and later.
#include "mma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

LM_CONV(256x128, T256x128, MmaTf32, 4, float)
LM_CONV_ROWS_OF(FpropArgs, DgradArgs, 512x64, T512x64, MmaTf32, 4, float)
LM_WGRAD_WIDE(MmaTf32, 4, float)
LM_CONV_TILES(MmaTf32)
LM_DGRAD_SUMS(256x128, T256x128, MmaTf32, float)
LM_DGRAD_SUMS(512x64, T512x64, MmaTf32, float)
LM_DGRAD_SUMS_TILES(MmaTf32, float)
LM_CONV_PATCH_TILES(, MmaTf32OfPatch, float)
