"""Limits and thresholds of the search for plans: every number that was chosen by trial.

Work is counted, never timed, so one input has one plan on every machine.  A limit in step seconds is a number of steps:
those of a slow core in so many seconds.  `native` has the numbers of the search in native code
(native/planning/setting_list.h).  If a mechanism is off at some value of its number, tests plan with that value
(tests/planning/test_settings.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from layermem import _native


@dataclass(frozen=True)
class Settings:
    """The comment of a ratio names the seconds or bytes that it multiplies; that of a divisor, what it divides."""

    # ---- requests for fewer bytes, if a placed plan is over the budget (budget_search.py)
    request_doublings: int = 6  # requests below the budget, each twice as far below it as the one before
    first_request_divisor: int = 32  # the first is below the budget by at most 1/divisor of it
    requests_per_octave: int = 256  # steps per octave of the ladder of requests
    request_halvings: int = 4  # between a request that fits and one that does not, for a faster program
    copy_limit_halvings: int = 7  # bisections of the highest copy limit that can be placed
    hopeful_ratio: float = 1.1  # times a program's: a plan with a lower estimate may be faster when placed
    as_good_ratio: float = 1.001  # times a program's: a program this close counts as no better
    near_ratio: float = 1.02  # times the lower bound: a program this close to it is not improved further
    rungs_per_octave: int = 32  # steps per octave of a fixed ladder of budgets
    rungs: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)  # rungs that are tried, counted from the budget down
    rung_op_pairs: int = 60_000  # limit of the pairs of ops of a step times rungs: long steps try none

    # ---- offsets (schedule/place.py)
    place_step_seconds: float = 1.0  # limit of the search for the offsets of a program
    place_limited_step_seconds: float = 0.1  # with a copy limit: a lower limit gains more than a longer search
    joined_divisors: tuple[int, ...] = (64, 32, 16)  # 1/divisor of the live bytes stays free, if necessary

    # ---- optional fusions (fusion_search.py)
    fusion_bound_ratio: float = 1.1  # times the lower bound: slower programs are compared with fewer fusions
    fusion_ratio: float = 1.001  # times a program with fewer fusions, whose costs omit part of what fusions save

    # ---- plans that recompute and offload (strategies/auto.py)
    chains: int = 8  # of lower sets, for budgets between the user's and one without recomputation
    chain_step_seconds: float = 0.1  # limit of each (native/planning/recompute/deadline.h)
    least_link_share: float = 0.01  # of the budget: a link that copies less per step is ignored
    hopeless_ratio: float = 1.5  # times the ops' own: a plan this slow cannot become the fastest
    nearly_ratio: float = 1.05  # times the best plan's: a plan this close may become faster
    negligible_ratio: float = 1.0005  # times the ops' own: a plan this close is good enough
    removal_starts: int = 4  # plans with the same state on the host from which offloads are removed
    removal_ops: int = 400_000  # ops visited while offloads are removed
    large_divisor: int = 10_000  # 1/divisor of the budget: copies of smaller buffers are not removed one by one
    short_gap_ops: int = 2  # gaps of at most so many ops are not offloaded (offloading.py)

    # ---- nested recomputation (nested_search.py, integrations/graph_files)
    edits: int = 24_000  # of annealing, at most
    edits_per_op: int = 50  # limit in steps of fewer ops
    large_step_ops: int = 1_500  # beyond this, edits decrease in proportion
    graph_edits: int = 80_000  # the same numbers for graph files
    graph_edits_per_value: int = 1_500
    edits_of_order: int = 20  # times as many to lower the peak of an order: each costs a third
    large_graph_values: int = 600
    graph_steps_share: float = 0.5  # of the steps of the native search there, since annealing improves its plan

    # ---- chains of lower sets (lower_sets.py)
    time_units: int = 1000  # per forward pass: fine enough to rank, coarse enough to be quick
    most_nodes: int = 700  # nets with more are planned in groups of ops
    groups: int = 200  # number of these groups
    most_sets: int = 20_000  # lower sets of the exact family
    request_tries: int = 8  # chains for decreasing bytes, until the plan of one fits
    slack_ratios: tuple[float, ...] = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5)  # times its minimum: plans there may need less
    memory_slack_ratio: float = 1.1  # the largest of these with objective "memory"
    near_bound_ratio: float = 1 + 1 / 256  # times the lower bound: fewer bytes are hardly possible
    near_least_ratio: float = 1 + 1 / 512  # times the model's least chain: plans hardly ever need less
    least_minimum_ratio: float = 0.985  # of the model's minimum: no plan needs less
    least_model_ratio: float = 0.97  # of the model's bytes of a chain: its plan hardly needs less
    all_chains_step_seconds: float = 20.0  # limit of all questions to one planner, seldom reached
    one_chain_share: float = 0.5  # of the rest of this limit: the most that one question takes

    # ---- batch slices and bands of rows (slice_search.py, slice_candidates.py)
    unsliced_ratio: float = 1.005  # times the ops' own: below it, slices cannot gain enough
    unbanded_ratio: float = 1.2  # the same for bands of rows with slices
    planned_cuts: int = 5  # cuts for which the strategy makes a plan, unless nothing fits yet
    planned_ops: int = 800  # ops of all these cuts but the last
    most_planned_ops: int = 3000  # the same while nothing fits
    judged_ops: int = 6000  # ops of all cuts that are judged
    tight_share: float = 0.97  # of the budget: if an op needs more, persistent buffers are copied
    state_copies: int = 6  # number of these copies per byte
    refinements: int = 2  # pairs of alternatives to slices with bands of rows that are planned
    slice_counts: tuple[int, ...] = (2, 4, 8, 16)  # counts of slices of a range, and of bands
    bottlenecks: int = 4  # at most so many ends of ranges from the input
    band_share: float = 0.25  # of the budget: limit of one band
    most_norms: int = 8  # BatchNorms in a range
    least_behind_share: float = 0.1  # of all ops: a range that leaves fewer after it is nearly the whole step

    native: _native.SearchSettings = field(default_factory=_native.SearchSettings)


SETTINGS = Settings()
