// MVN: mean and variance removed along the axis of [outer][size][inner].
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/mvn.h"

namespace layermem::cpu {

// y = (x - mean) / (deviation + eps), or x - mean; y over x.  inv_std [outer][inner]: 1 / (deviation + eps), or null
Launch mvn_forward(const MvnArgs& args);

// dx (+)= (dy - mean of dy - y mean of (y dy)) inv_std; without y dy - mean of dy.  dx over dy or y
Launch mvn_backward(const MvnBackwardArgs& args);

}  // namespace layermem::cpu
