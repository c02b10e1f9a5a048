// What the binding files share.  Bindings only translate: addresses to pointers, keywords to structs, names to enums.
// Every check of an argument is in kernels/.
#pragma once
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

using Address = uint64_t;                  // a pointer as Python passes it; 0 is none
using Pair = std::pair<int64_t, int64_t>;  // (h, w)

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

template <class T>
std::vector<T*> at_each(const std::vector<Address>& addresses) {
    std::vector<T*> pointers;
    pointers.reserve(addresses.size());
    for (const Address address : addresses) pointers.push_back(at<T>(address));
    return pointers;
}

// Rows first .. first + count - 1 `of` a batch; 0: all there are.
inline RowSlice row_slice(int64_t count, int64_t first, int64_t of) { return {first, count, of ? of : count}; }

// Launches as Python objects, which are called without the GIL.
struct BoundLaunch {  // launch()
    Launch run;
};
struct BoundStepLaunch {  // launch(step)
    StepLaunch run;
};
struct BoundUpdateLaunch {  // launch(rate, gain)
    UpdateLaunch run;
};

void bind_activation(pybind11::module_& m);
void bind_convolution(pybind11::module_& m);
void bind_copy(pybind11::module_& m);
void bind_detection(pybind11::module_& m);
void bind_eltwise(pybind11::module_& m);
void bind_gather(pybind11::module_& m);
void bind_infogain(pybind11::module_& m);
void bind_inner_product(pybind11::module_& m);
void bind_l2norm(pybind11::module_& m);
void bind_loss(pybind11::module_& m);
void bind_mvn(pybind11::module_& m);
void bind_normalization(pybind11::module_& m);
void bind_pooling(pybind11::module_& m);
void bind_prior_box(pybind11::module_& m);
void bind_recurrent(pybind11::module_& m);
void bind_reduction(pybind11::module_& m);
void bind_roi_pooling(pybind11::module_& m);
void bind_softmax(pybind11::module_& m);
void bind_update(pybind11::module_& m);
void bind_yolo(pybind11::module_& m);

}  // namespace layermem::cpu
