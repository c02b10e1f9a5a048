"""Types of native planning; the docstrings of the module explain it, and native/planning.

Written by tools/native_stub.py.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from layermem import _native_cpu as cpu

__all__ = ["cpu"]

class ChainProgram:
    def __init__(
        self,
        boundary_bytes: Sequence[int],
        base_bytes: Sequence[int],
        forward_bytes: Sequence[int],
        forward_seconds: Sequence[float],
        plans: Sequence[Sequence[tuple[int, int, int, int, float, float]]],
        most_bytes: int,
        units: int,
    ) -> None: ...
    def least_seconds(self, units: int) -> float: ...
    def steps(self, units: int) -> list[tuple[int, int, int, bool]]: ...
    def units_of(self, nbytes: int) -> int: ...

class ChainReport:
    @property
    def actions(self) -> list[tuple[str, int]]: ...
    @property
    def kept_bytes(self) -> int: ...
    @property
    def lower_sets(self) -> list[list[int]]: ...
    @property
    def model_peak_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def proven_optimal(self) -> bool: ...
    @property
    def recompute_time(self) -> float: ...
    @property
    def seconds(self) -> float: ...

class EditableOrder:
    def __init__(self, graph: LayoutGraph, order: Sequence[int], overlays: int) -> None: ...
    def begin_edit(self) -> None: ...
    def insert(self, position: int, op: int) -> None: ...
    def move(self, position: int, next: int) -> None: ...
    @property
    def order(self) -> list[int]: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def recompute_seconds(self) -> float: ...
    def remove(self, position: int) -> None: ...
    def undo_edit(self) -> None: ...

class LayoutGraph:
    def __init__(self) -> None: ...
    def add_buffer(
        self, name: str, bytes: int, persistent: bool, offload_seconds: float, prefetch_seconds: float
    ) -> int: ...
    def add_op(
        self,
        name: str,
        reads: Sequence[int],
        updates: Sequence[int],
        writes: Sequence[int],
        overlays: Sequence[tuple[int, int, int]],
        workspace_bytes: int,
        seconds: float,
        recompute: int = -1,
        comm: bool = False,
    ) -> int: ...
    def measure(
        self,
        order: Sequence[int],
        decisions: Sequence[tuple[int, int, int]],
        overlays: int,
        copy_lead: float,
        timed: bool = False,
        copy_limit_bytes: int = 9223372036854775807,
    ) -> tuple[int, float]: ...

class LayoutOrder:
    def __init__(
        self,
        graph: LayoutGraph,
        order: Sequence[int],
        buffers: dict[str, int],
        decisions: tuple[object, object, object],
    ) -> None: ...
    def comm_releases(self, copy_lead: float) -> list[tuple[int, int]]: ...
    def fewest_offloads(
        self,
        decisions: dict[tuple[str, int], object],
        offloads: dict[tuple[str, int], object],
        overlays: int,
        copy_lead: float,
        copy_limit_bytes: int,
        budget_bytes: int,
    ) -> int | None: ...
    def live_profile(
        self,
        decisions: dict[tuple[str, int], object],
        overlays: int,
        copy_lead: float,
        copy_limit_bytes: int = 9223372036854775807,
    ) -> list[int]: ...
    def measure(
        self,
        decisions: dict[tuple[str, int], object],
        overlays: int,
        copy_lead: float,
        timed: bool = False,
        copy_limit_bytes: int = 9223372036854775807,
    ) -> tuple[int, float]: ...
    def residencies(
        self,
        decisions: dict[tuple[str, int], object],
        copy_lead: float,
        copy_limit_bytes: int = 9223372036854775807,
        overlays: int = 0,
    ) -> list[tuple[int, int, int, int, int, bool, bool]]: ...
    def without_offloads(
        self,
        decisions: dict[tuple[str, int], object],
        groups: Sequence[Sequence[int]],
        overlays: int,
        copy_lead: float,
        copy_limit_bytes: int,
        budget_bytes: int,
        fits_beside: object = None,
    ) -> tuple[list[int], float]: ...

class LowerSetPlanner:
    def __init__(
        self,
        graph: StepGraph,
        family: str = "extended",
        model: str = "live",
        max_sets: int = 200000,
        ends: Sequence[int] | None = None,
    ) -> None: ...
    @property
    def lower_sets(self) -> int: ...
    def may_fit(self, budget_bytes: int, step_seconds: float = 0.0, family: str | None = None) -> bool: ...
    def minimum(self, step_seconds: float = 0.0, family: str | None = None) -> ChainReport: ...
    @property
    def proven_infeasible(self) -> bool: ...
    @property
    def searched_step_seconds(self) -> float: ...
    def segment(self, lower: int, upper: int) -> dict[str, float]: ...
    def sets(self) -> list[list[int]]: ...
    def solve(
        self, budget_bytes: int, objective: str = "time", step_seconds: float = 0.0, family: str | None = None
    ) -> ChainReport | None: ...
    @property
    def truncated(self) -> bool: ...

class MixedPlan:
    @property
    def live_bytes(self) -> int: ...
    @property
    def offloads(self) -> list[tuple[int, int]]: ...
    @property
    def order(self) -> list[int]: ...
    @property
    def seconds(self) -> float: ...

class NestedPlan:
    @property
    def live_bytes(self) -> int: ...
    @property
    def order(self) -> list[int]: ...
    @property
    def recompute_seconds(self) -> float: ...

class NestedPlanner:
    def __init__(
        self,
        graph: LayoutGraph,
        order: Sequence[int],
        evictable: Sequence[int],
        dropped: Sequence[int],
        drop_at: int,
        overlays: int,
        settings: SearchSettings = ...,
    ) -> None: ...
    def least_bytes_with_offloads(self, activations: Sequence[int], state: Sequence[int]) -> int: ...
    def minimum(self) -> NestedPlan: ...
    def plan(
        self,
        budget_bytes: int,
        starts: Sequence[Sequence[int]],
        steps_share: float = 1.0,
        edits: int = 0,
        is_free: bool = False,
    ) -> NestedPlan | None: ...
    def plan_with_offloads(
        self,
        budget_bytes: int,
        starts: Sequence[Sequence[int]],
        activations: Sequence[int],
        state: Sequence[int],
        host_bytes: int,
        short_gap: int,
        limit_seconds: float,
        copy_limit_bytes: int,
    ) -> MixedPlan | None: ...
    def walk(self, budget_bytes: int) -> None: ...

class Placement:
    @property
    def bound(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def max_live(self) -> int: ...
    @property
    def method(self) -> str: ...
    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def seconds(self) -> float: ...

class SearchSettings:
    def __init__(self) -> None: ...
    bisected_exponents: int
    blocks_from: float
    chain_highest: float
    chain_lowest: float
    chain_ratio: float
    chain_units: int
    exchange_percent: int
    exchange_ratio: float
    fill_draws: int
    fill_failures: int
    fitted_per_level: int
    high_levels: list[float]
    hopeless: float
    hottest: float
    hottest_peak: float
    improve_rounds: int
    improve_steps: int
    improved_mixed: int
    improved_walks: int
    least_blocks: int
    levels: list[float]
    lower_walk_steps: int
    lower_walks: int
    mixed_exponents: int
    mixed_fit_steps: int
    mixed_halvings: int
    mixed_improve_steps: int
    mixed_walk_steps: int
    much_less: float
    repair_candidates: int
    repair_depth: int
    repair_draws: int
    repairs: int
    shift_percent: int
    tried_per_peak: int
    walk_halvings: int
    walk_highest: float
    walk_lowest: float
    walk_steps: int

class StepBounds:
    def __init__(self, d2h: float, h2d: float) -> None: ...
    def add_buffer(self, bytes: int, is_persistent: bool) -> int: ...
    def add_op(
        self,
        first: tuple[float, int, Sequence[int], Sequence[int], Sequence[int], Sequence[tuple[int, int]]],
        again: tuple[float, int, Sequence[int], Sequence[int], Sequence[int], Sequence[tuple[int, int]]] | None = None,
    ) -> int: ...
    def least_bytes(self, host_bytes: int | None = None) -> int: ...
    def least_seconds(self, budgets: Sequence[int], host_bytes: int | None = None) -> list[float]: ...

class StepGraph:
    def __init__(self) -> None: ...
    def add_gradient(self, bytes: int, final: bool = False) -> int: ...
    def add_node(
        self,
        reads: Sequence[int],
        writes: Sequence[int],
        time: float,
        recompute_time: float | None = None,
        workspace_bytes: int = 0,
        overlays: Sequence[tuple[int, int]] = [],
    ) -> int: ...
    def add_step(
        self,
        owner: int,
        values: Sequence[int],
        reads: Sequence[int],
        writes: Sequence[int],
        time: float = 0.0,
        workspace_bytes: int = 0,
        over_values: Sequence[tuple[int, int]] = [],
        over_grads: Sequence[tuple[int, int]] = [],
    ) -> int: ...
    def add_value(self, bytes: int, kept: bool = False, inner: bool = False) -> int: ...
    def finish(self) -> None: ...
    @property
    def nodes(self) -> int: ...
    def peak(self, actions: Sequence[tuple[str, int]]) -> int: ...
    @property
    def steps(self) -> int: ...
    @staticmethod
    def value_gradients(time: Sequence[float], bytes: Sequence[int], edges: Sequence[tuple[int, int]]) -> StepGraph: ...

def add_parts(
    sums: Sequence[int], own: Sequence[int], counts: Sequence[int], received: Sequence[int], rank: int, continues: bool
) -> None: ...
def exit_on_bus_error() -> None: ...
def find_waits(
    streams: Sequence[int],
    last: Sequence[int],
    reads: Sequence[Sequence[int]],
    writes: Sequence[Sequence[int]],
    residencies: Sequence[tuple[int, int, bool]],
) -> list[tuple[int, list[int]]]: ...
def lowest_order(
    graph: LayoutGraph,
    order: Sequence[int],
    overlays: int,
    budget_bytes: int,
    edits: int,
    settings: SearchSettings = ...,
) -> list[int]: ...
def max_live(begin: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64], align: int = 256) -> int: ...
def peak_profile(
    begin: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64], align: int = 256
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def place(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    size: NDArray[np.int64],
    align: int = 256,
    step_seconds: float = 1.0,
    floor: int = 0,
    fixed: NDArray[np.int64] | None = None,
    target: int = 0,
) -> Placement: ...
def polish_order(
    graph: LayoutGraph,
    order: Sequence[int],
    evictable: Sequence[int],
    dropped: Sequence[int],
    overlays: int,
    budget_bytes: int,
    edits: int,
    settings: SearchSettings = ...,
    is_free: bool = False,
) -> list[int]: ...
