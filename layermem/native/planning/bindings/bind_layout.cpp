// Python's view of layouts: a graph is built once, plans refer to it by ids.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "planning/bindings/bindings.h"
#include "planning/liveness/layout.h"
#include "planning/liveness/offload_removal.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using namespace liveness;

using GapTuples = std::vector<std::tuple<BufferId, int32_t, int>>;       // (buffer, use, decision)
using OverlayTuples = std::vector<std::tuple<BufferId, BufferId, int>>;  // (out, over, bit of its kind)

BufferId add_buffer(LayoutGraph& g, std::string name, Bytes bytes, bool persistent, Seconds offload_seconds,
                    Seconds prefetch_seconds) {
    return g.add_buffer({std::move(name), bytes, persistent, offload_seconds, prefetch_seconds});
}

OpId add_op(LayoutGraph& g, std::string name, std::vector<BufferId> reads, std::vector<BufferId> updates,
            std::vector<BufferId> writes, const OverlayTuples& overlays, Bytes workspace_bytes, Seconds seconds,
            OpId recompute, bool comm) {
    // Ids are checked by LayoutGraph, whose errors name the op.
    Op op{std::move(name),
          std::move(reads),
          std::move(updates),
          std::move(writes),
          {},
          workspace_bytes,
          seconds,
          recompute,
          comm};
    for (const auto& [out, over, kind] : overlays) op.overlays.push_back({out, over, kind});
    return g.add_op(std::move(op));
}

using Measures = std::pair<Bytes, Seconds>;
using Decisions = py::typing::Dict<py::typing::Tuple<py::str, py::int_>, py::object>;
using BufferIds = py::typing::Dict<py::str, py::int_>;
using Enumerators = py::typing::Tuple<py::object, py::object, py::object>;  // of Decision, by value

// Seconds cost a second pass, so they are computed on demand.
Measures measure(const LayoutGraph& g, const Order& order, const std::vector<Gap>& decisions, const CopyTiming& timing,
                 bool timed) {
    const ReleaseGil unlocked;
    const Layout layout = g.lay_out(order, decisions, timing);
    return {g.peak_live_bytes(timing.overlays, layout), timed ? g.estimate_seconds(layout) : 0.0};
}

Measures measure_ids(const LayoutGraph& g, const std::vector<OpId>& order, const GapTuples& decisions, int overlays,
                     double copy_lead, bool timed, Bytes copy_limit_bytes) {
    std::vector<Gap> gaps;
    for (const auto& [buffer, use, decision] : decisions)
        gaps.push_back({buffer, use, static_cast<Decision>(decision)});
    return measure(g, g.prepare(order), gaps, {copy_lead, copy_limit_bytes, overlays}, timed);
}

// An order of a graph, whose plans are Python dicts from (name of a buffer, use) to a decision.  A strategy passes
// thousands of plans of many gaps each, so the dict is read in place.
class LayoutOrder {
  public:
    LayoutOrder(const LayoutGraph& graph, const std::vector<OpId>& order, BufferIds buffers, Enumerators decisions)
        : graph_(graph), order_(graph.prepare(order)), buffers_(std::move(buffers)), decisions_(std::move(decisions)) {}

    Measures measure(const Decisions& decisions, int overlays, double copy_lead, bool timed,
                     Bytes copy_limit_bytes) const {
        return planning::measure(graph_, order_, read(decisions), {copy_lead, copy_limit_bytes, overlays}, timed);
    }
    std::vector<Bytes> live_profile(const Decisions& decisions, int overlays, double copy_lead,
                                    Bytes copy_limit_bytes) const {
        return graph_.live_profile(overlays,
                                   graph_.lay_out(order_, read(decisions), {copy_lead, copy_limit_bytes, overlays}));
    }
    py::list residencies(const Decisions& decisions, double copy_lead, Bytes copy_limit_bytes, int overlays) const {
        py::list out;
        const CopyTiming timing{copy_lead, copy_limit_bytes, overlays};
        for (const Residency& r : graph_.lay_out(order_, read(decisions), timing).residencies)
            out.append(py::make_tuple(r.buffer, r.begin, r.end, r.release, r.issue, r.offloads, r.permanent));
        return out;
    }

    std::optional<size_t> fewest_offloads(const Decisions& decisions, const Decisions& offloads, int overlays,
                                          double copy_lead, Bytes copy_limit_bytes, Bytes budget_bytes) const {
        const std::vector<Gap> first = read(decisions), others = read(offloads);
        const CopyTiming timing{copy_lead, copy_limit_bytes, overlays};
        const ReleaseGil unlocked;
        return liveness::fewest_offloads(graph_, order_, first, others, timing, budget_bytes);
    }

    std::pair<std::vector<int32_t>, Seconds> without_offloads(const Decisions& decisions,
                                                              const std::vector<std::vector<int32_t>>& groups,
                                                              int overlays, double copy_lead, Bytes copy_limit_bytes,
                                                              Bytes budget_bytes, const py::object& fits_beside) const {
        const std::vector<Gap> gaps = read(decisions);
        std::function<bool(const std::vector<int32_t>&)> fits;
        if (!fits_beside.is_none())
            fits = [&](const std::vector<int32_t>& removed) {
                const py::gil_scoped_acquire locked;
                return fits_beside(removed).cast<bool>();
            };
        const CopyTiming timing{copy_lead, copy_limit_bytes, overlays};
        const ReleaseGil unlocked;
        OffloadRemoval removal =
            remove_offloads(graph_, order_, gaps, groups, timing, budget_bytes, fits, raise_pending_signals);
        return {std::move(removal.removed), removal.seconds};
    }

    std::vector<std::pair<Position, Position>> comm_releases(double copy_lead) const {
        const std::vector<Position> releases = graph_.comm_releases(order_, copy_lead);
        std::vector<std::pair<Position, Position>> out;
        for (size_t i = 0; i < releases.size(); ++i) out.emplace_back(order_.comm[i], releases[i]);
        return out;
    }

  private:
    std::vector<Gap> read(const Decisions& decisions) const {
        std::vector<Gap> gaps;
        gaps.reserve(decisions.size());
        for (const auto& [gap, decision] : decisions) {
            if (!PyTuple_Check(gap.ptr()) || PyTuple_GET_SIZE(gap.ptr()) != 2)
                throw py::type_error("a gap is a tuple (buffer, use)");
            PyObject* buffer = PyDict_GetItemWithError(buffers_.ptr(), PyTuple_GET_ITEM(gap.ptr(), 0));
            if (!buffer && PyErr_Occurred()) throw py::error_already_set();
            if (!buffer) throw py::key_error(py::str(gap));
            gaps.push_back({static_cast<BufferId>(to_long(buffer)),
                            static_cast<int32_t>(to_long(PyTuple_GET_ITEM(gap.ptr(), 1))), code(decision)});
        }
        return gaps;
    }
    static long to_long(PyObject* number) {
        const long value = PyLong_AsLong(number);
        if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
        return value;
    }
    // Enumerators are the same objects everywhere.
    Decision code(py::handle decision) const {
        for (size_t i = 0; i < decisions_.size(); ++i)
            if (PyTuple_GET_ITEM(decisions_.ptr(), static_cast<Py_ssize_t>(i)) == decision.ptr())
                return static_cast<Decision>(i);
        throw py::value_error("no decision is " + std::string(py::repr(decision)));
    }

    const LayoutGraph& graph_;
    const Order order_;
    const BufferIds buffers_;
    const Enumerators decisions_;
};

}  // namespace

void bind_layout(py::module_& m) {
    using namespace py::literals;
    py::class_<LayoutGraph>(m, "LayoutGraph", "Ops over buffers; computes when each buffer is resident under a plan.")
        .def(py::init<>())
        .def("add_buffer", &add_buffer, "name"_a, "bytes"_a, "persistent"_a, "offload_seconds"_a, "prefetch_seconds"_a,
             "A buffer of aligned bytes, with the seconds of a copy each way; returns its id.")
        .def("add_op", &add_op, "name"_a, "reads"_a, "updates"_a, "writes"_a, "overlays"_a, "workspace_bytes"_a,
             "seconds"_a, "recompute"_a = -1, "comm"_a = false,
             "An op over buffer ids; overlays are (out, over, bit of its kind); recompute is the id of the op that "
             "runs in its place from the second time on; comm: it runs beside the ops that follow; returns its id.")
        .def("measure", &measure_ids, "order"_a, "decisions"_a, "overlays"_a, "copy_lead"_a, "timed"_a = false,
             "copy_limit_bytes"_a = kNoLimit,
             "(most bytes in use at one tick, estimated seconds of a step); decisions are (buffer, use, code).");
    py::class_<LayoutOrder>(
        m, "LayoutOrder",
        "An order of the ops of a graph, prepared for the plans that have it.  `buffers`: ids by "
        "name; `decisions`: the enumerators keep, offload and recompute, which plans give for gaps.")
        .def(py::init<const LayoutGraph&, const std::vector<OpId>&, BufferIds, Enumerators>(), "graph"_a, "order"_a,
             "buffers"_a, "decisions"_a, py::keep_alive<1, 2>())
        .def("measure", &LayoutOrder::measure, "decisions"_a, "overlays"_a, "copy_lead"_a, "timed"_a = false,
             "copy_limit_bytes"_a = kNoLimit, "(most bytes in use at one tick, estimated seconds of a step).")
        .def("live_profile", &LayoutOrder::live_profile, "decisions"_a, "overlays"_a, "copy_lead"_a,
             "copy_limit_bytes"_a = kNoLimit, "Bytes in use at each op.")
        .def("fewest_offloads", &LayoutOrder::fewest_offloads, "decisions"_a, "offloads"_a, "overlays"_a, "copy_lead"_a,
             "copy_limit_bytes"_a, "budget_bytes"_a,
             "How many of the offloads, the first ones, have to follow the decisions for the plan to fit; None if all "
             "of "
             "them are too few.")
        .def("without_offloads", &LayoutOrder::without_offloads, "decisions"_a, "groups"_a, "overlays"_a, "copy_lead"_a,
             "copy_limit_bytes"_a, "budget_bytes"_a, "fits_beside"_a = py::none(),
             "(numbers of the groups of offloads that the plan can do without, estimated seconds of the rest); groups: "
             "positions of decisions, which may be in several; they are tried in turn.  fits_beside says whether other "
             "graphs fit without these groups.")
        .def("comm_releases", &LayoutOrder::comm_releases, "copy_lead"_a,
             "(position, position before which its bytes are free) of each op on the stream of communication.")
        .def("residencies", &LayoutOrder::residencies, "decisions"_a, "copy_lead"_a, "copy_limit_bytes"_a = kNoLimit,
             "overlays"_a = 0,
             "The residencies of a plan as tuples (buffer, begin, end, release, issue, offloads, permanent); "
             "ValueError for an inconsistent plan.");
}

}  // namespace layermem::planning
