// layermem._native.cpu: settings of the machine, launches, and the kernels of every family.
#include <pybind11/stl.h>

#include "cpu/bindings/bind.h"
#include "cpu/bindings/kernel_docs.h"
#include "cpu/isa/isa.h"
#include "cpu/threads/thread_pool.h"
#include "release_gil.h"

namespace py = pybind11;

namespace layermem {

void bind_cpu(py::module_& parent) {
    using namespace cpu;
    py::module_ m = parent.def_submodule("cpu", kKernelDocs);
    m.def("threads", &threads, "threads that share a kernel's tasks, the caller included");
    m.def("set_threads", &set_threads, py::arg("count"), "changes the speed, never a bit of a result");
    m.def("available_isas", &available_isas, "instruction sets of this machine, slowest first");
    m.def("active_isa", [] { return std::string(isa_name(active_isa())); }, "the one that new launches use");
    m.def("set_isa", &set_isa, py::arg("name"), "one of available_isas(), or 'auto' for the last of them");
    const auto free_gil = py::call_guard<ReleaseGil>();
    py::class_<BoundLaunch>(m, "Launch",
                            "a kernel with pointers and geometry bound; calling it runs it without the GIL")
        .def("__call__", [](const BoundLaunch& launch) { launch.run(); }, free_gil);
    py::class_<BoundStepLaunch>(m, "StepLaunch", "a launch that draws random numbers: called with the step of training")
        .def(
            "__call__", [](const BoundStepLaunch& launch, uint64_t step) { launch.run(step); }, py::arg("step"),
            free_gil);
    py::class_<BoundUpdateLaunch>(m, "UpdateLaunch",
                                  "an update: called with the learning rate, and a factor of the gradient")
        .def(
            "__call__", [](const BoundUpdateLaunch& launch, float rate, float gain) { launch.run(rate, gain); },
            py::arg("rate"), py::arg("gain") = 1.0f, free_gil);
    bind_convolution(m);
    bind_inner_product(m);
    bind_pooling(m);
    bind_normalization(m);  // defines Channels, which signatures of bind_activation name
    bind_activation(m);
    bind_eltwise(m);
    bind_update(m);
    bind_yolo(m);
    bind_softmax(m);  // defines Axis, likewise for bind_reduction
    bind_l2norm(m);
    bind_loss(m);
    bind_infogain(m);
    bind_reduction(m);
    bind_mvn(m);
    bind_recurrent(m);
    bind_copy(m);
    bind_detection(m);
    bind_prior_box(m);
    bind_roi_pooling(m);
    bind_gather(m);
}

}  // namespace layermem
