"""What the search for plans may spend, and where it looks: every number that was chosen by trial.

Work is counted, never timed, so one input has one plan on every machine.  A number of seconds limits work that is
counted in steps.  `native` has the numbers of the search in native code (native/planning/settings.h).  Where a number
has a value at which its mechanism is off, tests plan with that value (tests/planning/test_settings.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from layermem import _native


@dataclass(frozen=True)
class Settings:
    """Factors of seconds and of bytes say what they multiply."""

    # ---- requests for fewer bytes, where a placed plan is over the budget (budget_search.py)
    request_doublings: int = 6  # requests below the budget, each twice as far below it as the one before
    first_request_share: int = 32  # the first is at most this part of the budget below it, however far placement missed
    request_halvings: int = 4  # between a request that fits and one that does not, for a faster program
    copy_limit_halvings: int = 7  # bisections of the highest copy limit that can be placed
    hopeful_seconds: float = 1.1  # times a program's: a plan that is estimated to take no more may be faster, placed
    as_good_seconds: float = 1.001  # times a program's: another one is no better
    near_seconds: float = 1.02  # times the lower bound: a program this close to it is not improved further
    rungs_per_octave: int = 32  # of a ladder of smaller budgets, the same for every budget
    rungs: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)  # that are tried, counted from the budget down
    rung_work: int = 60_000  # ops of a step, squared, times its rungs: a long step has none

    # ---- offsets (schedule/place.py)
    place_seconds: float = 1.0  # of work for the offsets of a program
    place_limited_seconds: float = 0.1  # with a copy limit: a lower limit gains more than a longer search
    joined_shares: tuple[int, ...] = (64, 32, 16)  # parts of the live bytes that joined updates leave free, if need be

    # ---- optional fusions (fusion_choice.py)
    fusion_bound_seconds: float = 1.1  # times the lower bound: a program that one with fewer fusions is compared with
    fusion_seconds: float = 1.001  # times a program with fewer fusions: what these save is not all in its costs

    # ---- plans that recompute and offload (strategies/auto.py)
    chains: int = 8  # of lower sets, for budgets between the user's and that of no recomputation
    chain_seconds: float = 0.1  # of work for each of them (native/planning/recompute/deadline.h)
    least_link_share: float = 0.01  # of the budget: a link that moves less in a step changes little
    hopeless_seconds: float = 1.5  # times the ops' own: a plan this slow does not become faster than one that is not
    nearly_seconds: float = 1.05  # times the best plan's: a plan this close to it may become faster than it
    negligible_seconds: float = 1.0005  # times the ops' own: a plan this close to it needs no better
    removal_starts: int = 4  # plans with the same state on the host from which offloads are removed
    removal_ops: int = 400_000  # ops visited while offloads are removed
    large_share: int = 10_000  # of the budget: the copy of a smaller buffer is not removed alone
    short_gap_ops: int = 2  # over so few ops, a copy to the host and back is not worth it (offloading.py)

    # ---- nested recomputation (nested_search.py, integrations/graph_files)
    edits: int = 24_000  # of annealing, at most
    edits_per_op: int = 50  # in steps of fewer ops
    large_step_ops: int = 1_500  # from so many ops on, edits are fewer in proportion
    graph_edits: int = 80_000  # the same numbers for graph files
    graph_edits_per_value: int = 1_500
    large_graph_values: int = 600
    graph_work_percent: int = 50  # of the limits of the native search there, since annealing improves its plan

    # ---- chains of lower sets (lower_sets.py)
    time_units: int = 1000  # of a forward pass: fine enough to rank, coarse enough to be quick
    most_nodes: int = 700  # longer nets are planned in groups of ops
    groups: int = 200  # of these
    most_sets: int = 20_000  # lower sets of the exact family
    request_tries: int = 8  # chains for fewer and fewer bytes, until the plan of one fits
    slack: tuple[float, ...] = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5)  # times the model's minimum: plans there may need less
    memory_slack: float = 1.1  # the most of these with objective "memory"
    near_bound_bytes: float = 1 + 1 / 256  # times those below which no plan is: a search for fewer can gain hardly any
    near_least_bytes: float = 1 + 1 / 512  # times those of the model's least chain: plans hardly ever need less
    least_of_minimum: float = 0.985  # no plan needs less than this share of the least that the model counts for any
    least_of_model: float = 0.97  # a plan hardly needs less than this share of what the model counts for its chain
    all_chains_seconds: float = 20.0  # of work for all questions to one planner; a guard, seldom met
    one_chain_share: float = 0.5  # of what remains of it, the most that one question takes

    # ---- batch slices and bands of rows (slice_search.py, slice_candidates.py)
    unsliced_seconds: float = 1.005  # times the ops' own: slices cannot gain enough
    unbanded_seconds: float = 1.2  # the same of bands of rows beside slices
    planned_cuts: int = 5  # cuts for which the strategy makes a plan, unless nothing fits yet
    planned_ops: int = 800  # in all of them but the last
    most_planned_ops: int = 3000  # the same, while nothing fits
    judged_ops: int = 6000  # in all cuts that are judged
    tight_share: float = 0.97  # of the budget: where an op needs more beside the persistent buffers, these are copied
    state_copies: int = 6  # times that they are
    refinements: int = 2  # of slices with bands of rows: pairs of others that are planned
    slice_counts: tuple[int, ...] = (2, 4, 8, 16)  # of a range, and of bands
    bottlenecks: int = 4  # ends of ranges from the input, at most
    band_share: float = 0.25  # of the budget: what one band may need
    most_norms: int = 8  # BatchNorms in a range
    least_behind: float = 0.1  # of all ops: a range that leaves fewer is the whole step, more or less

    native: _native.SearchSettings = field(default_factory=_native.SearchSettings)


SETTINGS = Settings()
