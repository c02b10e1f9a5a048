// The sums over windows of conv.cuh in fp32.
#include "ffma.cuh"
#include "conv.cuh"

using namespace lm;

using T128x128 = Tile<128, 128, 32, 64, 2>;  // on sm_75 one at a time: its shared memory is too small for two
using T128x64 = Tile<128, 64, 32, 64, 3>;
using T64x64 = Tile<64, 64, 32, 64, 6>;
using T128x32 = Tile<128, 32, 32, 32, 3>;

LM_CONV_TILES(Ffma)
