// What the binding files of this room share.  They only translate: addresses to pointers, keywords to geometry.
#pragma once
#include <pybind11/pybind11.h>

#include "launch.h"

namespace layermem::cpu {

struct Bound {
    Launch launch;
};

void bind_convolution(pybind11::module_& m);

}  // namespace layermem::cpu
