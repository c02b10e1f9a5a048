// Python's view of the annealing of orders: orders of op ids in, orders of op ids out.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "planning/bindings/bindings.h"
#include "planning/nested/editable_order.h"
#include "planning/nested/polish.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using liveness::BufferId;
using liveness::LayoutGraph;
using liveness::OpId;
using nested::EditableOrder;

std::vector<OpId> polish_order(const LayoutGraph& graph, const std::vector<OpId>& order,
                               const std::vector<BufferId>& evictable, const std::vector<BufferId>& dropped,
                               int overlays, Bytes budget_bytes, int64_t edits, const SearchSettings& settings,
                               bool is_free) {
    const ReleaseGil unlocked;
    return nested::polish(graph, order, evictable, dropped, overlays, budget_bytes, edits, is_free, settings,
                          raise_pending_signals);
}

}  // namespace

void bind_polish(py::module_& m) {
    using namespace py::literals;
    m.def(
        "polish_order", &polish_order, "graph"_a, "order"_a, "evictable"_a, "dropped"_a, "overlays"_a, "budget_bytes"_a,
        "edits"_a, py::arg_v("settings", SearchSettings(), "..."), "is_free"_a = false,
        "An order with less recomputation, if simulated annealing of so many edits finds one; order has to run within "
        "budget_bytes.  Recomputations that write a dropped buffer stay; is_free: other ops may change places.");
    m.def(
        "lowest_order",
        [](const LayoutGraph& graph, const std::vector<OpId>& order, int overlays, Bytes budget_bytes, int64_t edits,
           const SearchSettings& settings) {
            const ReleaseGil unlocked;
            return nested::lowest_order(graph, order, overlays, budget_bytes, edits, settings, raise_pending_signals);
        },
        "graph"_a, "order"_a, "overlays"_a, "budget_bytes"_a, "edits"_a, py::arg_v("settings", SearchSettings(), "..."),
        "The same ops in an order of a lower peak, if simulated annealing of so many edits finds one; it ends within "
        "budget_bytes.");
    py::class_<EditableOrder>(m, "EditableOrder", "An order of ops with its live bytes after each edit.")
        .def(py::init<const LayoutGraph&, const std::vector<OpId>&, int>(), "graph"_a, "order"_a, "overlays"_a,
             py::keep_alive<1, 2>())
        .def_property_readonly("peak_bytes", &EditableOrder::peak_bytes, "Most bytes in use at one op.")
        .def_property_readonly("recompute_seconds", &EditableOrder::recompute_seconds, "Of all that runs again.")
        .def_property_readonly("order", &EditableOrder::order, "Ids of ops.")
        .def("insert", &EditableOrder::insert_at, "position"_a, "op"_a,
             "Puts the recomputation of op before the op at a position.")
        .def("remove", &EditableOrder::remove_at, "position"_a, "Takes out the recomputation at a position.")
        .def("move", &EditableOrder::move_at, "position"_a, "next"_a,
             "Puts the op at a position before the op at another one.")
        .def("begin_edit", &EditableOrder::spread, "Edits from here on can be undone, and find free slots.")
        .def("undo_edit", [](EditableOrder& order) { order.undo_edit(); }, "Back to begin_edit().");
}

}  // namespace layermem::planning
