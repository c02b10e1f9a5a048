// The sums over windows of conv.cuh on tensor cores: operands in two parts of tf32 each, sums in fp32.  For sm_80 and
// later.
#include "mma.cuh"
#include "conv.cuh"

using namespace lm;

template <class T, bool A_ROWS, bool B_ROWS>
using Product = Mma<T, A_ROWS, B_ROWS, Precision::FP32X3>;

LM_CONV_TILES(Product)
