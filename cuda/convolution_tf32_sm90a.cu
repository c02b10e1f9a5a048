// The sums over windows of conv.cuh by warpgroups: operands rounded to tf32, sums in fp32.  For compute capability 9.0 alone.
#include "conv_warpgroup.cuh"

using namespace lm;

using Large = W256x128<Precision::TF32>;
using Small = W128x64<Precision::TF32>;

LM_WARPGROUP_CONV(256x128, Large)
LM_WARPGROUP_CONV(128x64, Small)
LM_WARPGROUP_UNITS(256x128, Large)
LM_WARPGROUP_UNITS(128x64, Small)
