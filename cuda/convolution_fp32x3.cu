// The sums over windows of conv.cuh on tensor cores: operands in two parts of tf32 each, sums in fp32.  For sm_80 and
// later.
#include "mma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

namespace fp32x3 {

// A warp has two sums for each element of C, so that 64 x 32 is the most.
using T128x128 = Tile<128, 128, 64, 32, 1>;
using T128x64 = Tile<128, 64, 64, 32, 2>;
using T64x64 = Tile<64, 64, 32, 32, 3>;
using T128x32 = Tile<128, 32, 32, 32, 3>;
using T64x32 = Tile<64, 32, 32, 32, 6>;
using P128x64 = PatchTile<64, 2>;

LM_TILES(LM_CONV, LM_CONV, MmaFp32x3, float)
LM_WGRAD_FEW_TILES(, MmaFp32x3, WgradArgs<float>)
LM_DGRAD_SUMS_TILES(MmaFp32x3, float)
LM_CONV_PATCH(, 128x64, P128x64, MmaFp32x3OfPatch, float)

}  // namespace fp32x3
