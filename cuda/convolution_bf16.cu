// The sums over windows of conv.cuh on tensor cores: operands rounded to bfloat16, sums in fp32.  For sm_80 and later.
#include "mma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

using T64x64Few = Tile<64, 64, 32, 32, 3>;  // four blocks leave too few registers for addresses on sm_90

LM_CONV(256x128, T256x128, MmaBf16, 4, float)
LM_CONV_ROWS_OF(FpropArgs, DgradArgs, 512x64, T512x64, MmaBf16, 4, float)
LM_WGRAD_WIDE(MmaBf16, 4, float)
LM_TILES(LM_CONV, LM_CONV, MmaBf16, float)
LM_WGRAD_FEW(, 64x64, T64x64Few, MmaBf16, WgradArgs<float>)
LM_WGRAD_FEW(, 64x32, T64x32, MmaBf16, WgradArgs<float>)
LM_DGRAD_SUMS(256x128, T256x128, MmaBf16, float)
LM_DGRAD_SUMS(512x64, T512x64, MmaBf16, float)
LM_DGRAD_SUMS_TILES(MmaBf16, float)
LM_CONV_PATCH_TILES(, MmaBf16OfPatch, float)
