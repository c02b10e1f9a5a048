// Python's view of the recomputation planner: StepGraph, LowerSetPlanner, ChainReport.  Translation only.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "planning/bindings/bindings.h"
#include "planning/recompute/shared_planner.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using namespace py::literals;
using liveness::Action;
using liveness::ActionKind;
using liveness::Model;
using recompute::ChainReport;
using recompute::Objective;
using recompute::SegmentReport;
using recompute::SharedPlanner;

// ---- words to enumerators -----------------------------------------------------------------------------------------

template <class T>
using Words = std::vector<std::pair<const char*, T>>;

// Returns the enumerator of a word; throws ValueError with the known words.
template <class T>
T parse(const std::string& name, const Words<T>& words, const char* what) {
    std::string choices;
    for (const auto& [word, value] : words) {
        if (name == word) return value;
        choices += std::string(choices.empty() ? "" : ", ") + word;
    }
    throw py::value_error("no " + std::string(what) + " is called '" + name + "'; choose one of " + choices);
}

const Words<Family> kFamilyWords = {
    {"approx", Family::approx}, {"extended", Family::extended}, {"exact", Family::exact}};
const Words<Model> kModelWords = {{"paper", Model::paper}, {"live", Model::live}};
const Words<Objective> kObjectiveWords = {{"time", Objective::time}, {"memory", Objective::memory}};
const Words<ActionKind> kActionKindWords = {
    {"forward", ActionKind::forward}, {"recompute", ActionKind::recompute}, {"backward", ActionKind::backward}};

// ---- actions ------------------------------------------------------------------------------------------------------

using ActionTuples = std::vector<std::pair<std::string, int32_t>>;

// ('forward' | 'recompute', node) or ('backward', step); kActionKindWords is in the order of the enumerators.
py::list to_tuples(const std::vector<Action>& actions) {
    py::list out;
    for (const Action& a : actions) out.append(py::make_tuple(kActionKindWords[static_cast<int>(a.kind)].first, a.id));
    return out;
}

std::vector<Action> to_actions(const StepGraph& g, const ActionTuples& tuples) {
    std::vector<Action> actions;
    for (const auto& [name, id] : tuples) {
        const ActionKind kind = parse(name, kActionKindWords, "action");
        if (id < 0 || id >= (kind == ActionKind::backward ? g.step_count() : g.node_count()))
            throw py::index_error("the graph has no " + name + " " + std::to_string(id));
        actions.push_back({kind, id});
    }
    return actions;
}

// ---- StepGraph ----------------------------------------------------------------------------------------------------

constexpr const char* kStepGraphDoc =
    R"(Forward nodes and backward steps of one training step, and the bytes between them.

Add values, nodes (in topological order), gradients and steps (in the order of the plain backward pass); every
add_* returns the new id, counted from 0 per kind.  Times are in any unit; whole numbers stay exact.)";

Node add_node(StepGraph& g, std::vector<Value> reads, std::vector<Value> writes, double time,
              std::optional<double> recompute_time, Bytes workspace_bytes, std::vector<Overlay> overlays) {
    return g.add_node(std::move(reads), std::move(writes), time, recompute_time.value_or(time), workspace_bytes,
                      std::move(overlays));
}

Bytes peak(const StepGraph& g, const ActionTuples& actions) {
    return liveness::compute_peak(g, to_actions(g, actions));
}

void bind_graph(py::module_& m) {
    const std::vector<Overlay> none;
    py::class_<StepGraph>(m, "StepGraph", kStepGraphDoc)
        .def(py::init<>())
        .def("add_value", &StepGraph::add_value, "bytes"_a, "kept"_a = false, "inner"_a = false,
             "A value of `bytes`.  Without a node that writes it: an input, resident from the start.  kept: never "
             "freed before its last use and never recomputed (batch statistics, say).  inner: of a node that stands "
             "for several ops; read by backward only, it is freed even where the node's outputs are kept.")
        .def("add_node", &add_node, "reads"_a, "writes"_a, "time"_a, "recompute_time"_a = py::none(),
             "workspace_bytes"_a = 0, "overlays"_a = none,
             "A forward op.  recompute_time: the cost of running it again, `time` by default.  overlays: pairs (value "
             "written, value read) that may share bytes when the read is the last one.")
        .def("add_gradient", &StepGraph::add_gradient, "bytes"_a, "final"_a = false,
             "A gradient: its first write allocates, later ones accumulate.  final: stays to the end.")
        .def("add_step", &StepGraph::add_step, "owner"_a, "values"_a, "reads"_a, "writes"_a, "time"_a = 0.0,
             "workspace_bytes"_a = 0, "over_values"_a = none, "over_grads"_a = none,
             "A backward op of node `owner` that reads `values` and gradients `reads` and writes gradients `writes`.  "
             "over_values, over_grads: pairs (gradient written, value or gradient read) that may share bytes.")
        .def_static("value_gradients", &StepGraph::value_gradients, "time"_a, "bytes"_a, "edges"_a,
                    "The paper's model: one value and one gradient per node; the gradient of v reads the gradients of "
                    "its readers and every value they read.")
        .def("finish", &StepGraph::finish, "Checks the graph; additions are rejected afterwards.")
        .def_property_readonly("nodes", &StepGraph::node_count)
        .def_property_readonly("steps", &StepGraph::step_count)
        .def("peak", &peak, "actions"_a, "Exact liveness peak, in bytes, of actions as a plan lists them.");
}

// ---- ChainReport ----------------------------------------------------------------------------------------------------

void bind_plan(py::module_& m) {
    py::class_<ChainReport>(m, "ChainReport", "A chain of lower sets and everything that runs because of it.")
        .def_readonly("lower_sets", &ChainReport::lower_sets, "The chain L1 < ... < Lk = V, as lists of nodes.")
        .def_readonly("recompute_time", &ChainReport::recompute_time,
                      "Time of all recomputations, in the unit of the graph.")
        .def_property_readonly(
            "kept_bytes", [](const ChainReport& r) { return r.plan.kept; }, "M(U_k): bytes kept after the forward.")
        .def_property_readonly(
            "model_peak_bytes", [](const ChainReport& r) { return r.plan.peak; },
            "Highest bytes by the planner's model, which the budget bounds.")
        .def_readonly("peak_bytes", &ChainReport::peak_bytes, "Exact liveness peak of `actions`.")
        .def_property_readonly(
            "proven_optimal", [](const ChainReport& r) { return r.plan.proven; }, "No chain of the family is better.")
        .def_readonly("seconds", &ChainReport::seconds, "Wall time of the search.")
        .def_property_readonly(
            "actions", [](const ChainReport& r) { return to_tuples(r.actions); },
            "All that runs, in order: ('forward' | 'recompute', node) or ('backward', step).");
}

// ---- LowerSetPlanner ----------------------------------------------------------------------------------------------

constexpr const char* kPlannerDoc = R"(Least recomputation within a budget, over chains of lower sets.

family  approx, extended (default) or exact: the lower sets at which segments may end
model   live (exact liveness of every segment) or paper (the formula of Kusumoto et al. 2019)
The costs of segments are computed once and stored, so use one planner for many budgets.)";

// Solves run without the GIL; arguments and results are converted with it.
using Release = py::call_guard<ReleaseGil>;

std::unique_ptr<SharedPlanner> make_planner(StepGraph graph, const std::string& family, const std::string& model,
                                            size_t max_sets, const std::optional<std::vector<Node>>& ends) {
    return std::make_unique<SharedPlanner>(std::move(graph), parse(family, kFamilyWords, "family"),
                                           parse(model, kModelWords, "model"), max_sets, ends);
}

using MaybeFamily = std::optional<std::string>;  // none: that of the planner

Family family_of(const SharedPlanner& p, const MaybeFamily& family) {
    return family ? parse(*family, kFamilyWords, "family") : p.planner().family();
}

std::optional<ChainReport> solve(SharedPlanner& p, Bytes budget_bytes, const std::string& objective,
                                 Seconds step_seconds, const MaybeFamily& family) {
    return p.solve(budget_bytes, parse(objective, kObjectiveWords, "objective"), family_of(p, family), step_seconds,
                   raise_pending_signals);
}

ChainReport minimum(SharedPlanner& p, Seconds step_seconds, const MaybeFamily& family) {
    return p.minimum(family_of(p, family), step_seconds, raise_pending_signals);
}

bool may_fit(SharedPlanner& p, Bytes budget_bytes, Seconds step_seconds, const MaybeFamily& family) {
    return p.may_fit(budget_bytes, family_of(p, family), step_seconds, raise_pending_signals);
}

py::dict segment(SharedPlanner& p, SetIndex lower, SetIndex upper) {
    // A running search holds the planner's mutex and may wait for the GIL, so waiting with the GIL would deadlock.
    SegmentReport s;
    {
        const ReleaseGil unlocked;
        s = p.segment(lower, upper);
    }
    py::dict out;
    out["recompute"] = s.recompute;
    out["kept"] = s.kept;
    out["peak"] = s.peak;
    out["peak_bound"] = s.peak_bound;
    return out;
}

void bind_planner(py::module_& m) {
    py::class_<SharedPlanner>(m, "LowerSetPlanner", kPlannerDoc)
        .def(py::init(&make_planner), "graph"_a, "family"_a = "extended", "model"_a = "live",
             "max_sets"_a = size_t{200000}, "ends"_a = py::none(),
             "ends: the nodes at which a segment may end; all by default.")
        .def("solve", &solve, "budget_bytes"_a, "objective"_a = "time", "step_seconds"_a = 0.0, "family"_a = py::none(),
             Release(),
             "The best plan within `budget_bytes`, or None if there is none (or none was found in `step_seconds`; "
             "0: no limit).  objective: time (least recomputation) or memory (most, the paper's rule).  "
             "family: "
             "the planner's own, or one within it.")
        .def("minimum", &minimum, "step_seconds"_a = 0.0, "family"_a = py::none(), Release(),
             "A plan of the least peak; its model_peak_bytes is the least feasible budget if proven_optimal.")
        .def("may_fit", &may_fit, "budget_bytes"_a, "step_seconds"_a = 0.0, "family"_a = py::none(), Release(),
             "Whether a chain may need at most `budget_bytes`; without `step_seconds`, whether one does.")
        .def_property_readonly(
            "proven_infeasible", [](const SharedPlanner& p) { return p.planner().proven_infeasible(); },
            "The last solve() returned None because no chain of the family fits.")
        .def_property_readonly("searched_step_seconds", &SharedPlanner::searched,
                               "Of all searches so far: steps, not the clock.")
        .def_property_readonly(
            "lower_sets", [](const SharedPlanner& p) { return p.planner().sets().size(); },
            "How many lower sets the family has.")
        .def_property_readonly(
            "truncated", [](const SharedPlanner& p) { return p.planner().sets().truncated(); },
            "exact was requested, but there are more than max_sets; this is extended.")
        .def("sets", &SharedPlanner::members_of_sets, "The lower sets, as lists of nodes, by size; {} first, V last.")
        .def("segment", &segment, "lower"_a, "upper"_a,
             "Costs of the segment between two sets, by their indices in sets(): recompute, kept, peak (above what is "
             "kept below it), and the lower bound of the peak that the search uses.");
}

}  // namespace

void bind_recompute(py::module_& m) {
    bind_graph(m);
    bind_plan(m);
    bind_planner(m);
}

}  // namespace layermem::planning
