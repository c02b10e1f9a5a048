// Python's view of the recomputation planner: StepGraph, LowerSetPlanner, ChainPlan.  Translation only.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <mutex>

#include "planning/bindings/bindings.h"
#include "planning/recompute/lower_set_planner.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

template <class T>
T one_of(const std::string& name, const std::vector<std::pair<const char*, T>>& choices, const char* what) {
    std::string known;
    for (const auto& [word, value] : choices) {
        if (name == word) return value;
        known += std::string(known.empty() ? "" : ", ") + word;
    }
    throw py::value_error("no " + std::string(what) + " is called '" + name + "'; choose one of " + known);
}

Family family_of(const std::string& name) {
    return one_of<Family>(
        name, {{"approx", Family::approx}, {"extended", Family::extended}, {"exact", Family::exact}}, "family");
}
Model model_of(const std::string& name) {
    return one_of<Model>(name, {{"paper", Model::paper}, {"live", Model::live}}, "model");
}
Objective objective_of(const std::string& name) {
    return one_of<Objective>(name, {{"time", Objective::time}, {"memory", Objective::memory}}, "objective");
}

struct PlanView {
    ChainPlan plan;
    std::vector<std::vector<Node>> lower_sets;
    double recompute_time = 0, seconds = 0;
    Bytes peak_bytes = 0;
    std::vector<Action> actions;
};

// The planner with a lock: it remembers segments from call to call.
class SharedPlanner {
  public:
    SharedPlanner(StepGraph graph, const std::string& family, const std::string& model, size_t max_sets,
                  const std::optional<std::vector<Node>>& ends)
        : planner_(finished(std::move(graph)), family_of(family), model_of(model), max_sets, ends ? &*ends : nullptr) {}

    py::object solve(Bytes budget, const std::string& objective, double time_limit) {
        const Objective wanted = objective_of(objective);
        std::optional<PlanView> view;
        {
            py::gil_scoped_release unlocked;
            const std::lock_guard<std::mutex> alone(mutex_);
            Watch watch(time_limit, raise_pending_signals);
            if (auto plan = planner_.solve(budget, wanted, watch)) view = show(std::move(*plan), watch);
        }
        return view ? py::cast(std::move(*view)) : py::none();
    }
    PlanView minimum(double time_limit) {
        py::gil_scoped_release unlocked;
        const std::lock_guard<std::mutex> alone(mutex_);
        Watch watch(time_limit, raise_pending_signals);
        return show(planner_.minimum(watch), watch);
    }
    py::dict segment(int lower, int upper) {
        const LowerSets& sets = planner_.sets();
        if (lower < 0 || upper <= lower || upper >= sets.size() || !sets.subset(lower, upper))
            throw py::index_error("segment() takes the indices of two lower sets, the first inside the second");
        const std::lock_guard<std::mutex> alone(mutex_);
        SegmentCosts& costs = planner_.costs();
        const Segment cost = costs.evaluate(lower, upper);
        constexpr int64_t kFull = std::numeric_limits<int64_t>::max() / 4, kHasty = -1;  // never, or at once, enough
        const Bytes peak = std::max(costs.peak_bound(lower, upper, kFull), costs.peak_bound(lower, upper, kHasty));
        const Ticks time = std::max(costs.time_bound(lower, upper, kFull), costs.time_bound(lower, upper, kHasty));
        py::dict out;
        out["recompute"] = planner_.graph().time_of(cost.recompute);
        out["kept"] = cost.kept;
        out["peak"] = cost.peak;
        out["peak_bound"] = peak;
        out["recompute_bound"] = planner_.graph().time_of(time);
        out["kept_bound"] = costs.kept_bound(lower, upper);
        return out;
    }
    std::vector<std::vector<Node>> sets() const {
        std::vector<std::vector<Node>> out;
        for (int set = 0; set < planner_.sets().size(); ++set) out.push_back(planner_.sets().members(set));
        return out;
    }
    const LowerSetPlanner& planner() const { return planner_; }

  private:
    static StepGraph finished(StepGraph graph) {
        graph.finish();
        return graph;
    }
    PlanView show(ChainPlan plan, const Watch& watch) {
        PlanView view;
        for (int set : plan.chain) view.lower_sets.push_back(planner_.sets().members(set));
        view.recompute_time = planner_.graph().time_of(plan.recompute);
        view.actions = planner_.costs().actions(plan.chain);
        view.peak_bytes = peak_of(planner_.graph(), view.actions);
        view.plan = std::move(plan);
        view.seconds = watch.seconds();
        return view;
    }
    LowerSetPlanner planner_;
    std::mutex mutex_;
};

py::list actions_as_tuples(const std::vector<Action>& actions) {
    static const char* const kNames[] = {"forward", "replay", "backward"};
    py::list out;
    for (const Action& a : actions) out.append(py::make_tuple(kNames[static_cast<int>(a.verb)], a.id));
    return out;
}

void bind_graph(py::module_& m) {
    py::class_<StepGraph>(m, "StepGraph", R"(Forward nodes and backward steps of one training step, and the bytes between them.

Add values, nodes (in topological order), gradients and steps (in the order of the plain backward pass); every
add_* returns the new id, counted from 0 per kind.  Times are in any unit; whole numbers stay exact.)")
        .def(py::init<>())
        .def("add_value", &StepGraph::add_value, py::arg("bytes"), py::arg("kept") = false, py::arg("inner") = false,
             "A value of `bytes`.  Not written by any node: an input, resident from the start.  kept: never dropped "
             "before its last use and never replayed (batch statistics, a value that cannot be computed twice).  "
             "inner: of a node that stands for several ops; what is read by backward only is dropped with the rest, and "
             "does not stay with the node's outputs.")
        .def(
            "add_node",
            [](StepGraph& g, std::vector<Value> reads, std::vector<Value> writes, double time,
               std::optional<double> replay_time, Bytes workspace, std::vector<Overlay> overlays) {
                return g.add_node(std::move(reads), std::move(writes), time, replay_time.value_or(time), workspace,
                                  std::move(overlays));
            },
            py::arg("reads"), py::arg("writes"), py::arg("time"), py::arg("replay_time") = py::none(),
            py::arg("workspace") = 0, py::arg("overlays") = std::vector<Overlay>{},
            "A forward op.  replay_time: what running it again costs, if not `time`.  overlays: pairs (value written, "
            "value read) that may share bytes when the read is the last one.")
        .def("add_gradient", &StepGraph::add_gradient, py::arg("bytes"), py::arg("final") = false,
             "A gradient: allocated by its first write, added to by later ones.  final: stays to the end.")
        .def("add_step", &StepGraph::add_step, py::arg("owner"), py::arg("values"), py::arg("reads"),
             py::arg("writes"), py::arg("time") = 0.0, py::arg("workspace") = 0,
             py::arg("over_values") = std::vector<Overlay>{}, py::arg("over_grads") = std::vector<Overlay>{},
             "A backward op of node `owner` that reads `values` and gradients `reads` and writes gradients `writes`.  "
             "over_values, over_grads: pairs (gradient written, value or gradient read) that may share bytes.")
        .def_static("value_gradients", &StepGraph::value_gradients, py::arg("time"), py::arg("bytes"),
                    py::arg("edges"),
                    "The paper's model: one value and one gradient per node; the gradient of v reads the gradients "
                    "of its readers and every value they read.")
        .def("finish", &StepGraph::finish, "Checks the graph; nothing can be added afterwards.")
        .def("node_bytes", [](const StepGraph& g, Node v) {
            if (v < 0 || v >= g.node_count()) throw py::index_error("there is no node " + std::to_string(v));
            return g.node_bytes(v);
        })
        .def_property_readonly("nodes", &StepGraph::node_count)
        .def_property_readonly("steps", &StepGraph::step_count)
        .def(
            "peak",
            [](const StepGraph& g, const std::vector<std::pair<std::string, int32_t>>& actions) {
                std::vector<Action> list;
                for (const auto& [verb, id] : actions) {
                    const Verb v = one_of<Verb>(
                        verb, {{"forward", Verb::forward}, {"replay", Verb::replay}, {"backward", Verb::backward}},
                        "action");
                    if (id < 0 || id >= (v == Verb::backward ? g.step_count() : g.node_count()))
                        throw py::index_error("the graph has no " + verb + " " + std::to_string(id));
                    list.push_back({v, id});
                }
                return peak_of(g, list);
            },
            py::arg("actions"), "Exact liveness peak, in bytes, of actions as a plan lists them.");
}

void bind_plan(py::module_& m) {
    py::class_<PlanView>(m, "ChainPlan", "A chain of lower sets and everything that runs because of it.")
        .def_readonly("lower_sets", &PlanView::lower_sets, "The chain L1 < ... < Lk = V, as lists of nodes.")
        .def_readonly("recompute_time", &PlanView::recompute_time, "Time of all replays, in the unit of the graph.")
        .def_property_readonly("kept_bytes", [](const PlanView& p) { return p.plan.kept; },
                               "M(U_k): bytes kept when the forward is done.")
        .def_property_readonly("model_peak", [](const PlanView& p) { return p.plan.peak; },
                               "Highest bytes by the planner's model, which the budget bounds.")
        .def_readonly("peak_bytes", &PlanView::peak_bytes, "Exact liveness peak of `actions`.")
        .def_property_readonly("proven_optimal", [](const PlanView& p) { return p.plan.proven; },
                               "No chain of the family does better.")
        .def_readonly("seconds", &PlanView::seconds)
        .def_property_readonly("actions", [](const PlanView& p) { return actions_as_tuples(p.actions); },
                               "All that runs, in order: ('forward' | 'replay', node) or ('backward', step).");
}

}  // namespace

void bind_recompute(py::module_& m) {
    bind_graph(m);
    bind_plan(m);
    py::class_<SharedPlanner>(m, "LowerSetPlanner", R"(Least recomputation within a budget, over chains of lower sets.

family  approx, extended (default) or exact: the lower sets that may be cut at
model   live (exact liveness of every segment) or paper (the formula of Kusumoto et al. 2019)
What a segment costs is computed once and remembered, so ask one planner for many budgets.)")
        .def(py::init<StepGraph, const std::string&, const std::string&, size_t,
                      const std::optional<std::vector<Node>>&>(),
             py::arg("graph"), py::arg("family") = "extended", py::arg("model") = "live",
             py::arg("max_sets") = size_t{200000}, py::arg("ends") = py::none(),
             "ends: the nodes at which a segment may end, all without it.")
        .def("solve", &SharedPlanner::solve, py::arg("budget"), py::arg("objective") = "time",
             py::arg("time_limit") = 0.0,
             "The best plan within `budget` bytes, or None if there is none (or none was found in `time_limit` "
             "seconds; 0: no limit).  objective: time (least recomputation) or memory (most, the paper's rule).")
        .def("minimum", &SharedPlanner::minimum, py::arg("time_limit") = 0.0,
             "A plan of the least peak; its model_peak is the least feasible budget if proven_optimal.")
        .def_property_readonly("proven_infeasible",
                               [](const SharedPlanner& p) { return p.planner().proven_infeasible(); },
                               "The last solve() gave None because no chain of the family fits.")
        .def_property_readonly("lower_sets", [](const SharedPlanner& p) { return p.planner().sets().size(); },
                               "How many lower sets the family has.")
        .def_property_readonly("truncated", [](const SharedPlanner& p) { return p.planner().sets().truncated(); },
                               "exact was asked for, but there are more than max_sets; this is extended.")
        .def("sets", &SharedPlanner::sets, "The lower sets, as lists of nodes, by size; {} first, V last.")
        .def("segment", &SharedPlanner::segment, py::arg("lower"), py::arg("upper"),
             "What the segment between two sets costs, by their indices in sets(): recompute, kept, peak (above what "
             "is kept below it), and the quick lower bounds of all three that the search goes by.")
        .def_property_readonly("segments_known", [](const SharedPlanner& p) { return p.planner().segments_known(); },
                               "Pairs of sets that were looked at.")
        .def_property_readonly("segments_settled", [](const SharedPlanner& p) { return p.planner().segments_settled(); },
                               "Those of them that were walked through op by op.");
}

}  // namespace layermem::planning
