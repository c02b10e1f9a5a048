#include <pybind11/pybind11.h>

namespace layermem {
void bind_place(pybind11::module_& m) { (void)m; }
}  // namespace layermem
