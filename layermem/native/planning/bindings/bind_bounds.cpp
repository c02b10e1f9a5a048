// Python's view of the bounds of a step: buffers and ops in, bytes and seconds out.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "planning/bindings/bindings.h"
#include "planning/bounds/step_bounds.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using bounds::Form;
using bounds::StepBounds;

using FormTuple = std::tuple<Seconds, Bytes, std::vector<bounds::BufferId>, std::vector<bounds::BufferId>,
                             std::vector<bounds::BufferId>, std::vector<std::pair<bounds::BufferId, bounds::BufferId>>>;

Form to_bound_form(FormTuple tuple) {
    auto& [seconds, workspace_bytes, reads, updates, writes, overlays] = tuple;
    return {seconds, workspace_bytes, std::move(reads), std::move(updates), std::move(writes), std::move(overlays)};
}

bounds::OpId add_bound_op(StepBounds& step, FormTuple first, std::optional<FormTuple> again) {
    std::optional<Form> form;
    if (again) form = to_bound_form(std::move(*again));
    return step.add_op(to_bound_form(std::move(first)), std::move(form));
}

}  // namespace

void bind_bounds(py::module_& m) {
    using namespace py::literals;
    using Release = py::call_guard<ReleaseGil>;
    py::class_<StepBounds>(
        m, "StepBounds",
        "Bytes and seconds below which no order of a step's ops can be, with recomputation any number "
        "of times and copies to the host.")
        .def(py::init([](double d2h, double h2d) { return StepBounds({d2h, h2d}); }), "d2h"_a, "h2d"_a,
             "d2h, h2d: bytes per second of the link.")
        .def("add_buffer", &StepBounds::add_buffer, "bytes"_a, "is_persistent"_a, "Its id, counted from 0.")
        .def("add_op", &add_bound_op, "first"_a, "again"_a = py::none(),
             "An op, in an order that runs; its id.  first, and again if it can be recomputed: (seconds, workspace "
             "bytes, reads, updates, writes, pairs (written, read) that may lie on the same bytes).")
        .def("least_bytes", &StepBounds::least_bytes, "host_bytes"_a = py::none(), Release(),
             "Bytes of the device with at most `host_bytes` on the host; None is no limit.")
        .def("least_seconds", &StepBounds::least_seconds, "budgets"_a, "host_bytes"_a = py::none(), Release(),
             "Seconds within each budget; infinite where no order fits.");
}

}  // namespace layermem::planning
