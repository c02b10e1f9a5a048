"""From a plan to rows: residencies for every stretch that must be held, copies where the plan says OFFLOAD.

    uses of a buffer in the order     w . . r . . . . . . r . r        w writes, r reads
    fates of its gaps                  KEEP    OFFLOAD     KEEP  DROP
    residencies                       |#######|        |#####|
    rows                                     ^offload ^prefetch

An offload is issued right after the use before its gap and a prefetch some time before the use after it.  `ahead`
decides how long the bytes stay beside the copy: the copies' queues are laid out in the modelled time of the ops, each
offload as early and each prefetch as late as its queue permits, and the residency covers that share of the copy.
(When each stretch begins and ends is counted by native code: planning/layout.h, asked through layout.py.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from layermem.graph.ops import Op
from layermem.planning.base import Plan, ops_in_order
from layermem.schedule.ir import COMPUTE, D2H, H2D, Instruction, Residency
from layermem.schedule.layout import Layout, Stay, may_overlay


@dataclass(frozen=True)
class Lowered:
    """Rows whose residencies have no offsets yet."""

    instructions: list[Instruction]
    residencies: list[Residency]


def lower(layout: Layout, plan: Plan) -> Lowered:
    """Rows and residencies of `plan`, to be placed (place.py)."""
    return _Emitter(layout, plan).emit()


UNKNOWN = -1  # the end of a residency that goes on


class _Emitter:
    """Writes rows position by position; ends are known once all positions have their ticks."""

    def __init__(self, layout: Layout, plan: Plan):
        self.buffers, self.overlays = layout.graph.buffers, plan.overlays
        self.ops = ops_in_order(layout.graph, plan.order)
        self.instructions: list[Instruction] = []
        self.residencies: list[Residency] = []
        self.stay_of: dict[int, Stay] = {}  # of residencies on the device
        self.here: dict[str, int] = {}  # buffer -> the residency that ops find now
        self.fetched: dict[tuple[str, int], int] = {}  # (buffer, position that waits for it) -> residency
        self.host: dict[str, int] = {}  # buffer -> its newest residency in the host arena
        self.first_tick: list[int] = []  # of each position: its prefetches, then its op, then its offloads
        self.op_tick: list[int] = []
        self.overlaid: set[int] = set()  # residencies whose bytes another one took over
        stays = layout.stays(plan)
        self.starts = {(stay.buffer, stay.first): stay for stay in stays}
        self.prefetches: dict[int, list[Stay]] = defaultdict(list)
        self.offloads: dict[int, list[Stay]] = defaultdict(list)
        for stay in stays:
            if stay.offloads:
                self.offloads[stay.last].append(stay)
        for stay in sorted(stays, key=lambda stay: stay.first):
            if stay.issue is not None:
                self.prefetches[stay.issue].append(stay)

    def emit(self) -> Lowered:
        seen: set[str] = set()
        for position, op in enumerate(self.ops):
            self.first_tick.append(len(self.instructions))
            for stay in self.prefetches[position]:
                self._prefetch(stay)
            for buffer in op.touches:
                if (buffer, position) in self.starts:
                    self.here[buffer] = self._arriving(self.starts[buffer, position])
            self.op_tick.append(len(self.instructions))
            self._op(op, position, is_recompute=op.name in seen)
            seen.add(op.name)
            for stay in self.offloads[position]:
                self._offload(stay)
        self.first_tick.append(len(self.instructions))
        return Lowered(self.instructions, self._ended())

    # -- rows --------------------------------------------------------------------------------------------------

    def _prefetch(self, stay: Stay) -> None:
        source = self._host(stay.buffer, fresh=False)
        self.fetched[stay.buffer, stay.first] = target = self._begin(stay)
        self._copy(H2D, "prefetch", stay.buffer, source, target)

    def _offload(self, stay: Stay) -> None:
        self._copy(D2H, "offload", stay.buffer, self.here[stay.buffer], self._host(stay.buffer, fresh=True))

    def _copy(self, stream: str, kind: str, buffer: str, source: int, target: int) -> None:
        self.instructions.append(
            Instruction(len(self.instructions), stream, kind, buffer, None, {}, (source,), (target,))
        )

    def _op(self, op: Op, position: int, is_recompute: bool) -> None:
        tick = len(self.instructions)
        for overlay in op.overlays:
            if overlay.kind in self.overlays:
                self._overlay(self.here[overlay.out], self.here[overlay.over], position)
        roles = {role: self.here[buffer] for role, buffer in op.roles.items()}
        reads = tuple(self.here[b] for b in (*op.reads, *op.updates))
        writes = tuple(self.here[b] for b in (*op.updates, *op.writes))
        if op.workspace:
            roles["workspace"] = self._residency(f"{op.name}.workspace", tick, op.workspace, end=tick + 1)
            writes = (*writes, roles["workspace"])
        self.instructions.append(
            Instruction(tick, COMPUTE, op.kind, op.name, op, roles, reads, writes, is_recompute=is_recompute)
        )

    # -- residencies -------------------------------------------------------------------------------------------

    def _residency(self, buffer: str, begin: int, nbytes: int, *, end: int = UNKNOWN, host: bool = False) -> int:
        rid = len(self.residencies)
        self.residencies.append(Residency(rid, buffer, begin, end, nbytes, host=host))
        return rid

    def _begin(self, stay: Stay) -> int:
        begin = 0 if stay.whole else len(self.instructions)
        rid = self._residency(stay.buffer, begin, self.buffers[stay.buffer].nbytes)
        self.stay_of[rid] = stay
        return rid

    def _arriving(self, stay: Stay) -> int:
        """The residency that begins at an op, or that a prefetch has begun for it."""
        return self._begin(stay) if stay.issue is None else self.fetched[stay.buffer, stay.first]

    def _host(self, buffer: str, *, fresh: bool) -> int:
        """Where `buffer` lies in the host arena; a persistent one has one place there, others one for each offload."""
        persistent = self.buffers[buffer].persistent
        if buffer not in self.host or (fresh and not persistent):
            begin = 0 if persistent else len(self.instructions)
            self.host[buffer] = self._residency(buffer, begin, self.buffers[buffer].nbytes, host=True)
        return self.host[buffer]

    def _overlay(self, out: int, over: int, position: int) -> None:
        """Let `out` take the bytes of `over`, if the one begins here and the other ends, and both are free to."""
        mine, theirs = self.stay_of[out], self.stay_of[over]
        free = self.residencies[out].over is None and over not in self.overlaid
        if free and mine.first == position == theirs.last and may_overlay(mine, theirs):
            self.overlaid.add(over)
            self.residencies[out] = self.residencies[out]._replace(over=over)

    def _ended(self) -> list[Residency]:
        last: dict[int, Instruction] = {}
        for instruction in self.instructions:
            last.update(dict.fromkeys((*instruction.reads, *instruction.writes), instruction))
        return [r if r.end != UNKNOWN else r._replace(end=self._end(r, last[r.id])) for r in self.residencies]

    def _end(self, r: Residency, last: Instruction) -> int:
        """The tick from which the bytes may be given away; `last` is the last row that touches them."""
        if r.host:
            if self.buffers[r.buffer].persistent:
                return len(self.instructions)
            if last.kind == "prefetch":  # surely done when the op that waits for it runs
                return self.op_tick[self.stay_of[last.writes[0]].first] + 1
            return last.tick + 1
        stay = self.stay_of[r.id]
        if stay.whole:
            return len(self.instructions)
        if stay.release > stay.last + 1:  # not before its copy is done, in the modelled time
            return max(last.tick + 1, self.first_tick[min(stay.release, len(self.ops))])
        return last.tick + 1
