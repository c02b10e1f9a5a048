// The sums over windows of conv.cuh in fp32.
#include "ffma.cuh"
#include "conv.cuh"

using namespace lm;

LM_CONV_TILES(Ffma)
