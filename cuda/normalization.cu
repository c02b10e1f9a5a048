// Normalization: the kernels of BatchNorm with what follows it (batch_norm.cuh), of LRN
// (lrn.cuh), and of Scale and Bias (scale.cuh).
#include "batch_norm_backward.cuh"
#include "lrn.cuh"
#include "scale.cuh"
