// Layouts for Python: a graph is added once, plans are asked about by ids.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "planning/liveness/layout.h"

namespace py = pybind11;

namespace layermem {
namespace {

using namespace layout;

Plan plan_of(std::vector<Id> order, const std::vector<std::tuple<Id, int32_t, int>>& fates, int overlays, double ahead) {
    Plan plan{std::move(order), {}, overlays, ahead};
    for (const auto& [buffer, use, fate] : fates) plan.fates.push_back({buffer, use, static_cast<Fate>(fate)});
    return plan;
}

}  // namespace

void bind_layout(py::module_& m) {
    using namespace py::literals;
    py::class_<Graph>(m, "LayoutGraph", "Ops over buffers, asked when each buffer is resident under a plan.")
        .def(py::init<>())
        .def(
            "add_buffer",
            [](Graph& g, std::string name, Bytes bytes, bool persistent, double offload, double prefetch) {
                return g.add_buffer({std::move(name), bytes, persistent, offload, prefetch});
            },
            "name"_a, "bytes"_a, "persistent"_a, "offload"_a, "prefetch"_a,
            "A buffer of aligned bytes, with the seconds of a copy each way; its id.")
        .def(
            "add_op",
            [](Graph& g, std::string name, std::vector<Id> reads, std::vector<Id> updates, std::vector<Id> writes,
               const std::vector<std::tuple<Id, Id, int>>& overlays, Bytes workspace, double seconds, Id replay) {
                Op op{std::move(name), std::move(reads), std::move(updates), std::move(writes), {}, workspace, seconds, replay};
                for (const auto& [out, over, kind] : overlays) op.overlays.push_back({out, over, kind});
                return g.add_op(std::move(op));
            },
            "name"_a, "reads"_a, "updates"_a, "writes"_a, "overlays"_a, "workspace"_a, "seconds"_a, "replay"_a = -1,
            "An op over buffer ids; overlays are (out, over, bit of its kind); replay is the id of its second form.")
        .def(
            "stays",
            [](const Graph& g, std::vector<Id> order, const std::vector<std::tuple<Id, int32_t, int>>& fates, int overlays,
               double ahead) {
                py::list out;
                for (const Stay& s : g.lay_out(plan_of(std::move(order), fates, overlays, ahead)).stays)
                    out.append(py::make_tuple(s.buffer, s.first, s.last, s.release, s.issue, s.offloads, s.whole));
                return out;
            },
            "order"_a, "fates"_a, "overlays"_a, "ahead"_a,
            "Tuples (buffer, first, last, release, issue, offloads, whole) of a plan; ValueError if it makes no sense.")
        .def(
            "measure",
            [](const Graph& g, std::vector<Id> order, const std::vector<std::tuple<Id, int32_t, int>>& fates, int overlays,
               double ahead, bool timed) {
                const Plan plan = plan_of(std::move(order), fates, overlays, ahead);
                py::gil_scoped_release unlocked;
                const Layout laid = g.lay_out(plan);
                return std::pair<Bytes, double>(g.live(plan, laid), timed ? g.seconds(laid) : 0.0);
            },
            "order"_a, "fates"_a, "overlays"_a, "ahead"_a, "timed"_a = false,
            "(most bytes in use at one tick, estimated seconds of a step).");
}

}  // namespace layermem
