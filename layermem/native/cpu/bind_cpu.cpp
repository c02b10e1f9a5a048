#include <pybind11/stl.h>

#include "bind.h"
#include "catalogue.h"
#include "pool.h"
#include "unit.h"

namespace py = pybind11;

namespace layermem {

void bind_cpu(py::module_& parent) {
    using namespace cpu;
    py::module_ m = parent.def_submodule("cpu", CATALOGUE);
    m.def("threads", &threads, "threads that share out a kernel's tasks, the caller included");
    m.def("set_threads", &set_threads, py::arg("count"), "changes the speed, never a bit of a result");
    m.def("vector_units", &vector_units, "the machine's vector units, slowest first");
    m.def("vector_unit", [] { return std::string(unit().name); }, "the one that new launches use");
    m.def("set_vector_unit", &set_vector_unit, py::arg("name"), "one of vector_units(), or 'auto': the last of them");
    const auto free_gil = py::call_guard<py::gil_scoped_release>();
    py::class_<Bound>(m, "Launch", "a kernel with pointers and geometry bound; calling it runs it, without the GIL")
        .def("__call__", [](const Bound& b) { b.run(); }, free_gil);
    py::class_<Stepped>(m, "SteppedLaunch", "a launch that draws random numbers: called with the step of training")
        .def("__call__", [](const Stepped& b, uint64_t step) { b.run(step); }, py::arg("step"), free_gil);
    py::class_<Rated>(m, "RatedLaunch", "an update: called with the local rate, and a factor for the gradient")
        .def(
            "__call__", [](const Rated& b, float rate, float gain) { b.run(rate, gain); }, py::arg("rate"),
            py::arg("gain") = 1.0f, free_gil);
    bind_convolution(m);
    bind_pooling(m);
    bind_elements(m);
    bind_channels(m);
    bind_lines(m);
    bind_losses(m);
    bind_moves(m);
    bind_reduction(m);
}

}  // namespace layermem
