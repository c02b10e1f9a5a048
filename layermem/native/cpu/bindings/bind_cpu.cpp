// layermem._native.cpu: settings of the machine, and kernels by name.
#include <pybind11/stl.h>

#include "cpu/isa/isa.h"
#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"
#include "release_gil.h"

namespace py = pybind11;

namespace layermem {

void bind_cpu(py::module_& parent) {
    using namespace cpu;
    py::module_ m = parent.def_submodule("cpu", "the kernels of the cpu backend, and settings of the machine");
    m.def("threads", &threads, "threads that share a kernel's tasks, the caller included");
    m.def("set_threads", &set_threads, py::arg("count"), "changes the speed, never a bit of a result");
    m.def("available_isas", &available_isas, "instruction sets of this machine, slowest first");
    m.def("active_isa", [] { return std::string(isa_name(active_isa())); }, "the one that new launches use");
    m.def("set_isa", &set_isa, py::arg("name"), "one of available_isas(), or 'auto' for the last of them");

    const auto free_gil = py::call_guard<ReleaseGil>();
    py::class_<Launch>(m, "Launch", "a bound kernel; calling it runs it without the GIL")
        .def("__call__", [](const Launch& run) { run(); }, free_gil);
    py::class_<StepLaunch>(m, "StepLaunch", "a launch that draws random numbers: called with the step of training")
        .def("__call__", [](const StepLaunch& run, uint64_t step) { run(step); }, py::arg("step"), free_gil);
    py::class_<UpdateLaunch>(m, "UpdateLaunch",
                             "an update: called with the learning rate, a factor of the gradient, and the part of the "
                             "parameter that decoupled decay takes")
        .def(
            "__call__", [](const UpdateLaunch& run, float rate, float gain, float shrink) { run(rate, gain, shrink); },
            py::arg("rate"), py::arg("gain") = 1.0f, py::arg("shrink") = 0.0f, free_gil);
    m.def("kernel_names", &kernel_names, "the names that `bind` takes");
    m.def(
        "bind",
        [](const std::string& name, const py::bytes& packed) {
            const auto bytes = static_cast<std::string_view>(packed);
            return bind_kernel(name, bytes.data(), static_cast<int64_t>(bytes.size()));
        },
        py::arg("name"), py::arg("packed"),
        "a launch of the kernel with these arguments, or its answer; layermem/backends/cpu/support/launch.py packs "
        "them");
}

}  // namespace layermem
