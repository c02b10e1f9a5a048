// The sums over windows of conv.cuh on tensor cores: operands rounded to tf32, sums in fp32.  For sm_80 and later.
#include "mma.cuh"
#include "conv.cuh"

using namespace lm;

template <class T, bool A_ROWS, bool B_ROWS>
using Product = Mma<T, A_ROWS, B_ROWS, Precision::TF32>;

LM_CONV_TILES(Product)
