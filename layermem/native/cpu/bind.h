// What the binding files of this room share.  They only translate: addresses to pointers, keywords to geometry.
#pragma once
#include <pybind11/pybind11.h>

#include <vector>

#include "activation.h"
#include "launch.h"

namespace layermem::cpu {

struct Bound {  // called as launch()
    Launch run;
};
struct Stepped {  // launch(step)
    SteppedLaunch run;
};
struct Rated {  // launch(rate, gain)
    RatedLaunch run;
};

template <class T>
std::vector<T*> at_each(const std::vector<Address>& addresses) {
    std::vector<T*> pointers;
    for (Address address : addresses) pointers.push_back(at<T>(address));
    return pointers;
}

void bind_convolution(pybind11::module_& m);
void bind_elements(pybind11::module_& m);
void bind_channels(pybind11::module_& m);
void bind_lines(pybind11::module_& m);
void bind_losses(pybind11::module_& m);
void bind_pooling(pybind11::module_& m);
void bind_moves(pybind11::module_& m);
void bind_reduction(pybind11::module_& m);

}  // namespace layermem::cpu
