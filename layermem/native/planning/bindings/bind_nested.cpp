// Python's view of the nested planner: orders of op ids in, orders of op ids out.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <mutex>
#include <tuple>

#include "planning/bindings/bindings.h"
#include "planning/nested/nested_planner.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using liveness::BufferId;
using liveness::LayoutGraph;
using liveness::OpId;
using nested::Chain;
using nested::ChainProgram;
using nested::ChainStep;
using nested::MixedPlan;
using nested::NestedPlan;
using nested::NestedPlanner;

// A planner whose walks share their state, so threads take turns; mixed plans have separate walks.
struct SharedNestedPlanner {
    SharedNestedPlanner(const LayoutGraph& graph, std::vector<OpId> order, const std::vector<BufferId>& evictable,
                        const std::vector<BufferId>& dropped, liveness::Position drop_at, int overlays,
                        const SearchSettings& settings)
        : planner(graph, std::move(order), evictable, dropped, drop_at, overlays, settings) {}
    std::mutex mutex;
    NestedPlanner planner;
};

std::optional<NestedPlan> plan_nested(SharedNestedPlanner& shared, Bytes budget_bytes,
                                      const std::vector<std::vector<OpId>>& starts, double steps_share, int64_t edits,
                                      bool is_free) {
    const ReleaseGil unlocked;
    const std::lock_guard<std::mutex> locked(shared.mutex);
    return shared.planner.plan(budget_bytes, starts, steps_share, edits, is_free, raise_pending_signals);
}

void walk_nested(SharedNestedPlanner& shared, Bytes budget_bytes) {
    const ReleaseGil unlocked;
    const std::lock_guard<std::mutex> locked(shared.mutex);
    shared.planner.walked(budget_bytes, 100, raise_pending_signals);
}

std::optional<MixedPlan> plan_mixed(const SharedNestedPlanner& shared, Bytes budget_bytes,
                                    const std::vector<std::vector<OpId>>& starts,
                                    const std::vector<BufferId>& activations, const std::vector<BufferId>& state,
                                    Bytes host_bytes, liveness::Position short_gap, Seconds limit_seconds,
                                    Bytes copy_limit_bytes) {
    const ReleaseGil unlocked;
    return shared.planner.mixed_plan(budget_bytes, starts,
                                     {activations, state, host_bytes, short_gap, copy_limit_bytes}, limit_seconds,
                                     raise_pending_signals);
}

NestedPlan nested_minimum(SharedNestedPlanner& shared) {
    const ReleaseGil unlocked;
    const std::lock_guard<std::mutex> locked(shared.mutex);
    return shared.planner.minimum(raise_pending_signals);
}

// Per first block: (end, kept, forward, backward bytes, forward, backward seconds) of each plan.
using PlanTuples = std::vector<std::vector<std::tuple<int32_t, Bytes, Bytes, Bytes, Seconds, Seconds>>>;
using StepTuple = std::tuple<int32_t, int32_t, int32_t, bool>;  // begin, end, plan, is_forward

ChainProgram make_chain_program(std::vector<Bytes> boundary_bytes, std::vector<Bytes> base_bytes,
                                std::vector<Bytes> forward_bytes, std::vector<Seconds> forward_seconds,
                                const PlanTuples& plans, Bytes most_bytes, int32_t units) {
    Chain chain{
        std::move(boundary_bytes), std::move(base_bytes), std::move(forward_bytes), std::move(forward_seconds), {}};
    for (const auto& of_block : plans) {
        chain.plans.emplace_back();
        for (const auto& [end, kept, forward, backward, again, recomputed] : of_block)
            chain.plans.back().push_back({end, kept, forward, backward, again, recomputed});
    }
    return ChainProgram(std::move(chain), most_bytes, units);
}

std::vector<StepTuple> chain_steps(const ChainProgram& program, int32_t units) {
    std::vector<StepTuple> steps;
    for (const ChainStep& step : program.steps(units))
        steps.emplace_back(step.begin, step.end, step.plan, step.is_forward);
    return steps;
}

}  // namespace

void bind_nested(py::module_& m) {
    using namespace py::literals;
    py::class_<SearchSettings>(m, "SearchSettings", "What the search may spend, and where it looks (setting_list.h).")
        .def(py::init<>())
#define SETTING(type, name, ...) .def_readwrite(#name, &SearchSettings::name)
#include "planning/setting_list.h"
        ;
    py::class_<ChainProgram>(m, "ChainProgram", "Least recomputation of a chain of blocks (chain_program.h).")
        .def(py::init(&make_chain_program), "boundary_bytes"_a, "base_bytes"_a, "forward_bytes"_a, "forward_seconds"_a,
             "plans"_a, "most_bytes"_a, "units"_a,
             "plans: per first block (end, kept, forward and backward bytes, forward and backward seconds) of each.")
        .def("least_seconds", &ChainProgram::least_seconds, "units"_a,
             "Within so many units; infinite if nothing fits.")
        .def("units_of", &ChainProgram::units_of, "nbytes"_a, "Whole units above the least base; -1 below it.")
        .def("steps", &chain_steps, "units"_a, "(begin, end, plan, is_forward) of each step.");
    py::class_<NestedPlan>(m, "NestedPlan", "An order of ops in which some run again, perhaps more than once.")
        .def_readonly("order", &NestedPlan::order, "Ids of ops; one that stands again runs as its recomputation.")
        .def_readonly("recompute_seconds", &NestedPlan::recompute_seconds, "Of all that runs again.")
        .def_readonly("live_bytes", &NestedPlan::live_bytes, "Most bytes in use at one op.");
    py::class_<MixedPlan>(m, "MixedPlan", "An order of ops in which some run again, and what is copied to the host.")
        .def_readonly("order", &MixedPlan::order, "Ids of ops; one that stands again runs as its recomputation.")
        .def_property_readonly(
            "offloads",
            [](const MixedPlan& plan) {
                std::vector<std::pair<BufferId, int32_t>> offloads;
                for (const liveness::Gap& gap : plan.decisions) offloads.emplace_back(gap.buffer, gap.use);
                return offloads;
            },
            "(buffer, use) of the gaps over which bytes are on the host.")
        .def_readonly("seconds", &MixedPlan::seconds, "Of a step, copies included.")
        .def_readonly("live_bytes", &MixedPlan::live_bytes, "Most bytes in use at one op.");
    py::class_<SharedNestedPlanner>(m, "NestedPlanner",
                                    "Least recomputation within a budget by eviction with the future known.")
        .def(py::init<const LayoutGraph&, std::vector<OpId>, const std::vector<BufferId>&, const std::vector<BufferId>&,
                      liveness::Position, int, const SearchSettings&>(),
             "graph"_a, "order"_a, "evictable"_a, "dropped"_a, "drop_at"_a, "overlays"_a,
             py::arg_v("settings", SearchSettings(), "..."),
             "order: every op once; evictable: buffers that may be recomputed; dropped: those that are evicted before "
             "position drop_at whatever the budget; overlays: mask of the kinds allowed.")
        .def("plan", &plan_nested, "budget_bytes"_a, "starts"_a, "steps_share"_a = 1.0, "edits"_a = 0,
             "is_free"_a = false,
             "The plan with the least recomputation that was found, or None; starts are orders to improve on; "
             "steps_share: of the usual steps of the search; edits: that annealing of the best plan tries; is_free: "
             "it may also change the order of first runs.")
        .def("walk", &walk_nested, "budget_bytes"_a,
             "Does what plan() begins with, before its starts are known: with the same budget it is quick then.")
        .def(
            "least_bytes_with_offloads",
            [](const SharedNestedPlanner& shared, const std::vector<BufferId>& activations,
               const std::vector<BufferId>& state) { return shared.planner.least_mixed_bytes({activations, state}); },
            "activations"_a, "state"_a, "No plan with these offloads that keeps the order needs fewer bytes.")
        .def("plan_with_offloads", &plan_mixed, "budget_bytes"_a, "starts"_a, "activations"_a, "state"_a,
             "host_bytes"_a, "short_gap"_a, "limit_seconds"_a, "copy_limit_bytes"_a,
             "The quickest plan that was found, or None. activations: buffers that may be copied to the host, within "
             "host_bytes; state: persistent buffers that are there between steps; gaps of short_gap ops stay; "
             "copy_limit_bytes: as of a layout; "
             "what takes longer than limit_seconds before it is improved is left.")
        .def("minimum", &nested_minimum, "The plan of the fewest live bytes that was found.");
}

}  // namespace layermem::planning
