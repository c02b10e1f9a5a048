// The kernels of BatchNorm with what follows it.
#include "batch_norm_backward.cuh"
