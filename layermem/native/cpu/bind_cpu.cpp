#include <pybind11/stl.h>

#include "bind.h"
#include "pool.h"
#include "unit.h"

namespace py = pybind11;

namespace layermem {

void bind_cpu(py::module_& parent) {
    using namespace cpu;
    py::module_ m = parent.def_submodule("cpu");
    m.def("threads", &threads, "threads that share out a kernel's tasks, the caller included");
    m.def("set_threads", &set_threads, py::arg("count"), "changes the speed, never a bit of a result");
    m.def("vector_units", &vector_units, "the machine's vector units, slowest first");
    m.def("vector_unit", [] { return std::string(unit().name); }, "the one that new launches use");
    m.def("set_vector_unit", &set_vector_unit, py::arg("name"), "one of vector_units(), or 'auto': the last of them");
    py::class_<Bound>(m, "Launch", "a kernel with pointers and geometry bound; calling it runs it, without the GIL")
        .def("__call__", [](const Bound& b) { b.launch(); }, py::call_guard<py::gil_scoped_release>());
    bind_convolution(m);
}

}  // namespace layermem
