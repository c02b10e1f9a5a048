// layermem._native: native planning and the kernels of the cpu device, for Python.
// Each component has a function that binds it; this file calls them.
#include "planning/bindings/bindings.h"

#include <pybind11/pybind11.h>

#include "bus_error.h"

namespace layermem {
void bind_cpu(pybind11::module_& m);  // cpu/bindings/bind_cpu.cpp: kernels on pointers
namespace distributed {
void bind_distributed(pybind11::module_& m);  // distributed/bindings/bind_distributed.cpp: sums of ranks
}
}  // namespace layermem

PYBIND11_MODULE(_native, m) {
    m.doc() = "native planning and CPU kernels of layermem";
    layermem::planning::find_main_thread();
    layermem::planning::bind_recompute(m);
    layermem::planning::bind_layout(m);
    layermem::planning::bind_nested(m);
    layermem::planning::bind_bounds(m);
    layermem::planning::bind_polish(m);
    layermem::planning::bind_placement(m);
    layermem::bind_cpu(m);
    layermem::distributed::bind_distributed(m);
    m.def("exit_on_bus_error", &layermem::exit_on_bus_error,
          "End the process with a sentence and exit code 4, not with a signal, where a mapped file fails.");
}
