// Normalization: the kernels of BatchNorm with what follows it (batch_norm.cuh, and batch_norm_pool.cuh with a pooling),
// of LRN (lrn.cuh), and of Scale and Bias (scale.cuh).
#include "batch_norm_pool.cuh"
#include "lrn.cuh"
#include "scale.cuh"
