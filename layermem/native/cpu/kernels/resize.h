// Interp: bilinear interpolation of a region of each image.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/resize.h"

namespace layermem::cpu {

Launch interp_forward(const InterpArgs& args);
Launch interp_backward(const InterpArgs& args);

}  // namespace layermem::cpu
