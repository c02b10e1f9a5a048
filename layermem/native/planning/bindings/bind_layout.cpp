// Python's view of layouts: a graph is built once, plans refer to it by ids.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "planning/bindings/bindings.h"
#include "planning/liveness/layout.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using namespace liveness;

using GapTuples = std::vector<std::tuple<BufferId, int32_t, int>>;       // (buffer, use, decision)
using OverlayTuples = std::vector<std::tuple<BufferId, BufferId, int>>;  // (out, over, bit of its kind)

// Plans come as tuples of ids, not as objects: a strategy passes thousands of them.
Plan make_plan(std::vector<OpId> order, const GapTuples& gaps, int overlays, double copy_lead) {
    Plan plan{std::move(order), {}, overlays, copy_lead};
    for (const auto& [buffer, use, decision] : gaps) {
        plan.decisions.push_back({buffer, use, static_cast<Decision>(decision)});
    }
    return plan;
}

BufferId add_buffer(LayoutGraph& g, std::string name, Bytes bytes, bool persistent, Seconds offload_seconds,
                    Seconds prefetch_seconds) {
    return g.add_buffer({std::move(name), bytes, persistent, offload_seconds, prefetch_seconds});
}

OpId add_op(LayoutGraph& g, std::string name, std::vector<BufferId> reads, std::vector<BufferId> updates,
            std::vector<BufferId> writes, const OverlayTuples& overlays, Bytes workspace_bytes, Seconds seconds,
            OpId recompute) {
    // Ids are checked by LayoutGraph, whose errors name the op.
    Op op{std::move(name), std::move(reads), std::move(updates), std::move(writes), {},
          workspace_bytes, seconds,          recompute};
    for (const auto& [out, over, kind] : overlays) op.overlays.push_back({out, over, kind});
    return g.add_op(std::move(op));
}

py::list list_residencies(const LayoutGraph& g, std::vector<OpId> order, const GapTuples& decisions, int overlays,
                          double copy_lead) {
    py::list out;
    for (const Residency& r : g.lay_out(make_plan(std::move(order), decisions, overlays, copy_lead)).residencies) {
        out.append(py::make_tuple(r.buffer, r.begin, r.end, r.release, r.issue, r.offloads, r.permanent));
    }
    return out;
}

// Strategies call this thousands of times: seconds cost a second pass, so they are computed on demand.
std::pair<Bytes, Seconds> measure(const LayoutGraph& g, std::vector<OpId> order, const GapTuples& decisions,
                                  int overlays, double copy_lead, bool timed) {
    const Plan plan = make_plan(std::move(order), decisions, overlays, copy_lead);
    const ReleaseGil unlocked;
    const Layout layout = g.lay_out(plan);
    return {g.peak_live_bytes(plan, layout), timed ? g.estimate_seconds(layout) : 0.0};
}

}  // namespace

void bind_layout(py::module_& m) {
    using namespace py::literals;
    py::class_<LayoutGraph>(m, "LayoutGraph", "Ops over buffers; computes when each buffer is resident under a plan.")
        .def(py::init<>())
        .def("add_buffer", &add_buffer, "name"_a, "bytes"_a, "persistent"_a, "offload_seconds"_a, "prefetch_seconds"_a,
             "A buffer of aligned bytes, with the seconds of a copy each way; returns its id.")
        .def("add_op", &add_op, "name"_a, "reads"_a, "updates"_a, "writes"_a, "overlays"_a, "workspace_bytes"_a,
             "seconds"_a, "recompute"_a = -1,
             "An op over buffer ids; overlays are (out, over, bit of its kind); recompute is the id of the op that "
             "runs in "
             "its place from the second time on; returns its id.")
        .def("residencies", &list_residencies, "order"_a, "decisions"_a, "overlays"_a, "copy_lead"_a,
             "The residencies of a plan as tuples (buffer, begin, end, release, issue, offloads, permanent); "
             "ValueError for an inconsistent plan.")
        .def("measure", &measure, "order"_a, "decisions"_a, "overlays"_a, "copy_lead"_a, "timed"_a = false,
             "(most bytes in use at one tick, estimated seconds of a step).");
}

}  // namespace layermem::planning
