"""A plan: the order in which ops run, and a decision for every gap of every buffer.  No times, no offsets.

A forward op may stand more than once in the order; from the second time on it runs as its recomputation.  The *uses* of
a buffer are the positions in the order whose op touches it; a *gap* is the stretch from one use to the next, the last one
wrapping round to the next step.  What the order says about a gap:

    next use writes the buffer anew     RECOMPUTE: the bytes are free in between
    last gap of a transient buffer      RECOMPUTE, by the next step
    anything else                       KEEP, unless the plan says OFFLOAD

so a plan lists only the gaps whose decision differs.  A strategy is a pure function
(graph, costs, budget, evaluator, hints) -> Plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from layermem.errors import InputError
from layermem.graph.ops import Graph, Op, uses_of
from layermem.planning.costs import Costs


class Decision(Enum):
    KEEP = "keep"
    OFFLOAD = "offload"
    RECOMPUTE = "recompute"  # the bytes are free: the next use writes the buffer again


class Gap(NamedTuple):
    """The stretch after use number `use` (from 0) of `buffer`; -1 is the last one, which wraps round the step."""

    buffer: str
    use: int


def _decision(word: str) -> Decision:
    """The decision that a saved plan names; plans of version 0.1.0 say "drop"."""
    return Decision.RECOMPUTE if word == "drop" else Decision(word)


INPLACE = frozenset({"inplace"})
REUSE = frozenset({"inplace", "forward", "gradient"})
INTRA = REUSE | {"intra"}


@dataclass(frozen=True)
class Plan:
    """order      op names; a repeated name is a replay, a fused update stands for the ops that it covers
    decisions  gaps whose decision is not the one that the order implies
    overlays   kinds of overlay (layers.Overlay) that may be used
    copy_lead  share of a copy's duration by which it is moved away from the op that waits for it: 1 hides a copy
               behind computation, 0 holds no bytes longer than needed
    """

    strategy: str
    order: tuple[str, ...]
    decisions: Mapping[Gap, Decision] = field(default_factory=dict)
    overlays: frozenset[str] = INPLACE
    copy_lead: float = 1.0

    def to_json(self, graph: Graph) -> str:
        return json.dumps(
            {
                "strategy": self.strategy,
                "fingerprint": graph.fingerprint,
                "order": self.order,
                "decisions": [[gap.buffer, gap.use, decision.value] for gap, decision in self.decisions.items()],
                "overlays": sorted(self.overlays),
                "copy_lead": self.copy_lead,
            },
            indent=1,
        )

    @staticmethod
    def from_json(text: str, graph: Graph, path: str | None = None) -> Plan:
        """The plan saved in `text`; InputError if it was made for another net, shape, device or precision, or if
        somebody has written into it what the net does not have."""
        try:
            saved = json.loads(text)
            decisions = saved["decisions"] if "decisions" in saved else saved["fates"]
            lead = saved["copy_lead"] if "copy_lead" in saved else saved["ahead"]
            plan = Plan(
                saved["strategy"],
                tuple(saved["order"]),
                {Gap(buffer, use): _decision(word) for buffer, use, word in decisions},
                frozenset(saved["overlays"]),
                float(lead),
            )
            fingerprint = saved["fingerprint"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"is not a plan that layermem saved ({error}); make it again", path=path) from error
        if fingerprint != graph.fingerprint:
            raise InputError(
                f"was made for another net, batch, device or precision (it says {fingerprint}, this is "
                f"{graph.fingerprint}); make it again",
                path=path,
            )
        try:
            plan.validate(graph)
        except ValueError as error:
            raise InputError(f"is not a plan that layermem saved ({error}); make it again", path=path) from error
        return plan

    def validate(self, graph: Graph) -> None:
        """Raise ValueError for the first thing that is not of `graph`, or that no plan says."""
        if not isinstance(self.strategy, str):
            raise ValueError(f"its strategy is {self.strategy!r}")
        for name in self.order:
            if not isinstance(name, str) or name not in graph.by_name:
                raise ValueError(f"it runs {name!r}, which is no op of the net")
        done = {covered for name in self.order for covered in (name, *graph.by_name[name].covers)}
        missing = graph.position.keys() - done
        if missing:
            raise ValueError(f"it never runs '{min(missing, key=lambda name: graph.position[name])}'")
        uses = uses_of(ops_in_order(graph, self.order))
        for buffer, use in self.decisions:
            if buffer not in uses or not isinstance(use, int) or not -1 <= use < len(uses[buffer]):
                raise ValueError(f"it speaks of use {use!r} of {buffer!r}, which is not there")
        if not self.overlays <= INTRA:
            raise ValueError(f"it allows overlays {' '.join(sorted(map(str, self.overlays - INTRA)))}")
        if not 0 <= self.copy_lead <= 1:
            raise ValueError(f"it moves copies {self.copy_lead} of their time ahead")

    def __str__(self) -> str:
        lines = [f"# plan   strategy {self.strategy}   overlays {' '.join(sorted(self.overlays)) or 'none'}"]
        seen: set[str] = set()
        for name in self.order:
            lines.append(f"{name}   # again" if name in seen else name)
            seen.add(name)
        lines += [f"{decision.value:8} {gap.buffer} after use {gap.use}" for gap, decision in self.decisions.items()]
        return "\n".join(lines)


def ops_in_order(graph: Graph, order: tuple[str, ...]) -> list[Op]:
    """The op that runs at each position: itself the first time, its replay afterwards."""
    seen: set[str] = set()
    found = []
    for name in order:
        op = graph.by_name[name]
        if name in seen:
            if op.recompute is None:
                raise ValueError(f"the plan runs '{name}' twice, but it cannot be repeated")
            op = op.recompute
        seen.add(name)
        found.append(op)
    return found


@dataclass(frozen=True)
class Hints:
    """What a user may say beside the budget.

    segment_ends     globs of layer names at whose outputs a segment that is recomputed may end (memonger's mirror
                     stages): the last op of a run under `sublinear`, under `recompute-*` every op of a lower set that
                     nothing else in it depends on; none: anywhere
    keep, recompute  globs of layer names whose outputs every strategy that recomputes keeps, or recomputes
    host_budget      bytes of host arena; None is no limit
    """

    segment_ends: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    host_budget: int | None = None


class PlanEvaluator(Protocol):
    """What a strategy may ask about a plan (schedule/program.py answers, with test nets and updates in mind)."""

    def __call__(self, plan: Plan) -> int:
        """Bytes of arena that it needs, placed."""

    def cached(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gave when this was first asked for: preparations that serve many questions about one graph."""

    def live_bytes(self, plan: Plan) -> int:
        """Most bytes in use at one tick: quick, never above the peak, and nearly always equal to it."""

    def estimate_seconds(self, plan: Plan) -> float:
        """Predicted seconds of a step, as if all bytes that copies free were wanted at once: quick, and never below
        what the placed schedule takes."""


Strategy = Callable[[Graph, Costs, "int | None", PlanEvaluator, Hints], Plan]


class StrategyEntry(NamedTuple):
    name: str
    description: str
    make: Strategy


STRATEGIES: dict[str, StrategyEntry] = {}


def strategy(name: str, description: str) -> Callable[[Strategy], Strategy]:
    """Register a strategy; `says` is what `layermem plan --help` prints."""

    def register(make: Strategy) -> Strategy:
        STRATEGIES[name] = StrategyEntry(name, description, make)
        return make

    return register


def get_strategy(name: str) -> StrategyEntry:
    if name not in STRATEGIES:
        raise InputError(f"there is no strategy '{name}'; choose one of: {' '.join(STRATEGIES)}")
    return STRATEGIES[name]


def default_strategy(budget: int | None) -> str:
    """The strategy of a user who names none."""
    return "liveness" if budget is None else "auto"


def program_order(graph: Graph) -> tuple[str, ...]:
    return tuple(op.name for op in graph.ops)
