// The sums over windows of conv.cuh on tensor cores: operands in two parts of tf32 each, sums in fp32.  For sm_80 and
// later.
#include "mma.cuh"
#include "conv_patch.cuh"
#include "conv_pool.cuh"
#include "conv_sums.cuh"

using namespace lm;

using T64x64Few =
    Tile<64, 64, 32, 32, 3>;          // four blocks leave too few registers for addresses beside operands in parts
using P128x64Few = PatchTile<64, 2>;  // the same

LM_TILES(LM_CONV, LM_CONV, MmaFp32x3, float)
LM_WGRAD_FEW(, 64x64, T64x64Few, MmaFp32x3, WgradArgs<float>)
LM_WGRAD_FEW(, 64x32, T64x32, MmaFp32x3, WgradArgs<float>)
LM_DGRAD_SUMS_TILES(MmaFp32x3, float)
LM_CONV_PATCH(, 128x96, P128x96, MmaFp32x3OfPatch, float)
LM_CONV_PATCH(, 128x64, P128x64Few, MmaFp32x3OfPatch, float)
LM_CONV_POOL_TILES(MmaFp32x3, 4, FpropPoolArgs<float>)
