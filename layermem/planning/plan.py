"""A plan: the order in which ops run, and a decision for every gap of every buffer.  No times, no offsets.

A forward op may stand more than once in the order; from the second time on it is recomputed.  The *uses* of a buffer
are the positions in the order whose op touches it; a *gap* is the interval from one use to the next, the last one
wrapping round to the next step.  The order implies a decision for each gap:

    uses of a buffer     w . . r . . . . . . w . r        w writes it, r reads it
    number of the gap    0     1             2   -1
    implied decision     KEEP  RECOMPUTE     KEEP RECOMPUTE

RECOMPUTE frees the bytes, because the next use writes the buffer again: in this step or, after the last use of a
transient buffer, in the next one.  The last gap of a persistent buffer is KEEP.  A plan may replace KEEP by OFFLOAD, so
it lists only the gaps whose decision differs.  A strategy (registry.py) makes a plan for a number of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from layermem.errors import InputError
from layermem.graph.ops import Graph, Op, uses_of
from layermem.graph.step_slicer import title_of_slices


class Decision(Enum):
    """The decision about a buffer's bytes during a gap."""

    KEEP = "keep"
    OFFLOAD = "offload"  # copied to the host, and back before the next use
    RECOMPUTE = "recompute"  # freed: the next use writes the buffer again


class Gap(NamedTuple):
    """The interval after use number `use` (from 0) of `buffer`; -1 is the last gap, which wraps to the next step."""

    buffer: str
    use: int


# Kinds of overlay (layers.Overlay) that plans allow.
INPLACE = frozenset({"inplace"})
REUSE = frozenset({"inplace", "forward", "gradient"})
INTRA = REUSE | {"intra"}
NO_LIMIT_BYTES = 2**63 - 1  # in native code


@dataclass(frozen=True)
class Plan:
    """order      op names; a repeated name is a recomputation, a fused update stands for the ops that it covers
    decisions  gaps whose decision is not the one that the order implies
    overlays   kinds of overlay (layers.Overlay) that may be used
    copy_lead  share of a copy's duration by which it is moved away from the op that waits for it: 1 hides a copy
               behind computation, 0 holds no bytes longer than needed
    base       strategy that this plan started from, if `strategy` combines others, else ""
    slices     the slices of the graph that it was made for (graph/step_slicer.py), or ""
    spill      the file system of the spill file whose rates it was made with, or ""
    fingerprint   of the graph that it was made for; "" if unknown

    copy_limit_bytes  live bytes of the graph up to which copies hold bytes; beyond, ops wait for copies; None: no limit
    """

    strategy: str
    order: tuple[str, ...]
    decisions: Mapping[Gap, Decision] = field(default_factory=dict)
    overlays: frozenset[str] = INPLACE
    copy_lead: float = 1.0
    copy_limit_bytes: int | None = None
    base: str = field(default="", compare=False)
    slices: str = ""
    spill: str = field(default="", compare=False)
    fingerprint: str = field(default="", compare=False)

    def to_json(self, graph: Graph, spill: Mapping[str, object] | None = None) -> str:
        """The text of a saved plan; `spill`: the spill file that it was planned with (spill.py)."""
        return json.dumps(
            {
                "strategy": self.strategy,
                "fingerprint": graph.fingerprint,
                **({"slices": graph.slices} if graph.slices else {}),
                "order": self.order,
                "decisions": [[gap.buffer, gap.use, decision.value] for gap, decision in self.decisions.items()],
                "overlays": sorted(self.overlays),
                "copy_lead": self.copy_lead,
                **({} if self.copy_limit_bytes is None else {"copy_limit_bytes": self.copy_limit_bytes}),
                **({"base": self.base} if self.base else {}),
                **({} if spill is None else {"spill": spill}),
            },
            indent=1,
        )

    @staticmethod
    def from_json(text: str, graph: Graph, path: str | None = None) -> Plan:
        """The plan saved in `text`; InputError if it was made for another net, shape, device or precision, or was
        edited so that it does not match the net."""
        saved = _read_json(text, path)
        try:
            decisions = saved["decisions"] if "decisions" in saved else saved["fates"]
            lead = saved["copy_lead"] if "copy_lead" in saved else saved["ahead"]
            plan = Plan(
                saved["strategy"],
                tuple(saved["order"]),
                {Gap(buffer, use): _decision_named(word) for buffer, use, word in decisions},
                frozenset(saved["overlays"]),
                float(lead),
                saved.get("copy_limit_bytes"),
                str(saved.get("base", "")),
                graph.slices,
                str(saved["spill"]["file_system"]) if "spill" in saved else "",
                graph.fingerprint,
            )
            fingerprint = saved["fingerprint"]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(f"is not a plan that layermem saved ({error}); make it again", path=path) from error
        slices = saved.get("slices", "")
        if slices != graph.slices:
            made, here = (title_of_slices(str(each)) for each in (slices, graph.slices))
            raise InputError(f"was made {made}, and this step is planned {here}; plan it the same way", path=path)
        if fingerprint != graph.fingerprint:
            raise InputError(
                f"was made for another net, batch, device, precision or storage (it says {str(fingerprint)[:40]}, "
                f"this is {graph.fingerprint}); make it again",
                path=path,
            )
        try:
            plan.validate(graph)
        except ValueError as error:
            raise InputError(f"is not a plan that layermem saved ({error}); make it again", path=path) from error
        return plan

    def validate(self, graph: Graph) -> None:
        """Raise ValueError for the first entry that does not match `graph` or is no valid plan."""
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
                raise ValueError(f"it names use {use!r} of {buffer!r}, which is not there")
        if not self.overlays <= INTRA:
            raise ValueError(f"it allows overlays {' '.join(sorted(map(str, self.overlays - INTRA)))}")
        if not 0 <= self.copy_lead <= 1:
            raise ValueError(f"it moves copies {self.copy_lead} of their time ahead")
        if self.copy_limit_bytes is not None and not is_size(self.copy_limit_bytes):
            raise ValueError(f"it limits copies to {self.copy_limit_bytes!r} bytes")

    def __str__(self) -> str:
        lines = [f"# plan   strategy {self.strategy}   overlays {' '.join(sorted(self.overlays)) or 'none'}"]
        seen: set[str] = set()
        for name in self.order:
            lines.append(f"{name}   # recompute" if name in seen else name)
            seen.add(name)
        lines += [f"{decision.value:8} {gap.buffer} after use {gap.use}" for gap, decision in self.decisions.items()]
        return "\n".join(lines)


def saved_slices(text: str) -> str:
    """The slices (graph/step_slicer.py) of the step that a saved plan is for; "" if it has none, or is no plan."""
    try:
        slices = json.loads(text)["slices"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return slices if isinstance(slices, str) else ""


def saved_fingerprint(text: str) -> str:
    """The fingerprint of the graph that a saved plan is for; "" if it is no such plan."""
    try:
        return str(json.loads(text)["fingerprint"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def ops_in_order(graph: Graph, order: tuple[str, ...]) -> list[Op]:
    """The op that runs at each position: itself the first time, its recomputation afterwards."""
    seen: set[str] = set()
    ops = []
    for name in order:
        op = graph.by_name[name]
        if name in seen:
            if op.recompute is None:
                raise ValueError(f"the plan runs '{name}' twice, but it cannot be repeated")
            op = op.recompute
        seen.add(name)
        ops.append(op)
    return ops


def program_order(graph: Graph) -> tuple[str, ...]:
    """Every op once, in the graph's own order."""
    return tuple(op.name for op in graph.ops)


def is_size(value: object) -> bool:
    """Whether `value` is a number of bytes that the native layout accepts."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NO_LIMIT_BYTES


def _read_json(text: str, path: str | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = "is not a plan that layermem saved: it is no JSON; give a file that `layermem plan --save` wrote"
        raise InputError(message, path=path) from error


def _decision_named(word: str) -> Decision:
    """The decision that a saved plan names; plans of version 0.1.0 say "drop"."""
    return Decision.RECOMPUTE if word == "drop" else Decision(word)
