// A LowerSetPlanner that several threads may call, with answers in terms of nodes instead of lower sets.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "planning/liveness/actions.h"
#include "planning/recompute/lower_set_planner.h"

namespace layermem::planning::recompute {

// A chain, and the actions that run because of it.
struct ChainReport {
    ChainPlan plan;
    std::vector<std::vector<Node>> lower_sets;  // of the chain
    double recompute_time = 0;                  // in the unit of the graph
    Seconds seconds = 0;                        // wall time of the search
    Bytes peak_bytes = 0;                       // exact liveness peak of the actions
    std::vector<liveness::Action> actions;
};

// The costs of a segment, and the lower bound of its peak that the search uses.
struct SegmentReport {
    double recompute = 0;  // in the unit of the graph
    Bytes kept = 0;
    Bytes peak = 0, peak_bound = 0;
};

// The planner stores segment costs from call to call, so each call holds the mutex.
class SharedPlanner {
  public:
    using Interrupt = std::function<void()>;  // called now and then during a search; throws to end it

    // The constructor finishes the graph.
    SharedPlanner(StepGraph graph, Family family, liveness::Model model, size_t max_sets,
                  const std::optional<std::vector<Node>>& ends);

    // A limit of 0 `step_seconds` means none.  An `upto` larger than the planner's family throws std::invalid_argument.
    std::optional<ChainReport> solve(Bytes budget_bytes, Objective objective, Family upto, Seconds step_seconds,
                                     const Interrupt& interrupt);
    ChainReport minimum(Family upto, Seconds step_seconds, const Interrupt& interrupt);
    // Returns whether a chain may fit in `budget_bytes`: true if the limit comes first.
    bool may_fit(Bytes budget_bytes, Family upto, Seconds step_seconds, const Interrupt& interrupt);
    // Throws std::out_of_range unless the first set lies inside the second.
    SegmentReport segment(SetIndex lower, SetIndex upper);

    std::vector<std::vector<Node>> members_of_sets() const;
    const LowerSetPlanner& planner() const { return planner_; }
    // Returns the step seconds of all searches so far.
    Seconds searched() const { return searched_; }

  private:
    ChainReport report(ChainPlan plan, const Deadline& deadline);
    void require_family(Family upto) const;

    LowerSetPlanner planner_;
    std::atomic<Seconds> searched_{0};  // written with the mutex held, read without it
    std::mutex mutex_;
};

}  // namespace layermem::planning::recompute
