"""A slow and simple oracle for the native layout: residencies of a plan, times of copies, live bytes and seconds.

Positions number the plan's order.  An op at position p starts at `starts[p]` in the modelled time of the ops.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from layermem.graph.ops import uses_of
from layermem.planning.plan import Decision, Gap, ops_in_order
from layermem.schedule.ir import allocations
from layermem.schedule.layout import OrderResidency, may_overlay
from layermem.utils.units import aligned


@dataclass
class LayoutOracle:
    graph: object
    costs: object
    plan: object

    def __post_init__(self):
        self.ops = ops_in_order(self.graph, self.plan.order)
        seconds = [self.costs.op(op) for op in self.ops]
        self.starts = [sum(seconds[:p]) for p in range(len(seconds) + 1)]

    def nbytes(self, buffer):
        return self.graph.buffers[buffer].nbytes

    # -- residencies -------------------------------------------------------------------------------------------

    def residencies(self):
        found = []
        uses = uses_of(self.ops)
        for buffer in self.graph.buffers:  # in the order of copies at one position
            found += self._residencies_of(buffer, uses.get(buffer, []))
        found = self._later(self._earlier(found))
        return found if self.plan.copy_limit_bytes is None else self._within_limit(found)

    def _residencies_of(self, buffer, uses):
        if not uses:
            return []
        persistent = self.graph.buffers[buffer].persistent
        last_gap = self.plan.decisions.get(Gap(buffer, -1))
        if (persistent and last_gap is not Decision.OFFLOAD) or (not persistent and last_gap is Decision.KEEP):
            begin, end = uses[0].position, uses[-1].position + 1
            return [OrderResidency(buffer, begin, end, end, None, False, True)]
        groups = [[uses[0]]]
        for number, use in enumerate(uses[1:]):
            offloaded = self.plan.decisions.get(Gap(buffer, number)) is Decision.OFFLOAD
            if not use.reads or offloaded:
                groups.append([])
            groups[-1].append(use)
        on_host = persistent  # whether the host holds the newest bytes
        found = []
        for index, group in enumerate(groups):
            begin, end = group[0].position, group[-1].position + 1
            on_host = on_host and not any(use.writes for use in group)
            wanted_later = groups[index + 1][0].reads if index + 1 < len(groups) else persistent
            offloads = wanted_later and not on_host
            prefetch_at = begin if group[0].reads else None
            found.append(OrderResidency(buffer, begin, end, end, prefetch_at, offloads, False))
            on_host = on_host or offloads
        return found

    # -- times of copies ---------------------------------------------------------------------------------------

    def _later(self, residencies):
        """Releases of offloaded buffers: when that share of the copy is done, with copies in sequence."""
        queue = 0.0
        released = {}
        for r in sorted((s for s in residencies if s.offloads), key=lambda s: s.end):
            duration = self.costs.offload(self.nbytes(r.buffer))
            begin = max(queue, self.starts[r.end])
            queue = begin + duration
            if self.plan.copy_lead > 0:
                done = begin + duration * self.plan.copy_lead
                after = [p for p in range(len(self.ops)) if self.starts[p] >= done]
                released[r] = max(r.end, min(after, default=len(self.ops)))
        return [s._replace(release=released.get(s, s.release)) for s in residencies]

    def _earlier(self, residencies):
        """Issues of prefetches: early enough that the share of the copy is done when its op starts."""
        queue = self.starts[-1]
        issued = {}
        for r in sorted((s for s in reversed(residencies) if s.prefetch_at is not None), key=lambda s: -s.begin):
            duration = self.costs.prefetch(self.nbytes(r.buffer))
            queue = min(queue, self.starts[r.begin]) - duration
            begin = queue if self.plan.copy_lead == 1 else self.starts[r.begin] - duration * self.plan.copy_lead
            running = [p for p in range(len(self.ops)) if self.starts[p] <= begin]
            left = [s.end for s in residencies if s.buffer == r.buffer and s.end <= r.begin]
            issued[r] = min(r.begin, max([0, max(running, default=0), *left]))
        return [s._replace(prefetch_at=issued.get(s, s.prefetch_at)) for s in residencies]

    def _within_limit(self, residencies):
        """Residencies with copies that hold bytes next to the waiting op, unless all live bytes there are within the
        limit: copies out from the last one, then copies in from the first one."""
        if max(self._live(residencies), default=0) <= self.plan.copy_limit_bytes:
            return residencies
        wanted = residencies
        held = [
            r._replace(
                release=r.end if r.offloads else r.release, prefetch_at=None if r.prefetch_at is None else r.begin
            )
            for r in residencies
        ]

        def extend(number, **change):
            """Make the change of the residency if the limit permits it, and return whether it does."""
            changed = [*held[:number], held[number]._replace(**change), *held[number + 1 :]]
            before, after = self._live(held), self._live(changed)
            fits = all(b == a or a <= self.plan.copy_limit_bytes for b, a in zip(before, after))
            if fits:
                held[number] = changed[number]
            return fits

        numbers = range(len(wanted))
        for number in sorted((n for n in numbers if wanted[n].offloads), key=lambda n: -wanted[n].end):
            while held[number].release < wanted[number].release and extend(number, release=held[number].release + 1):
                pass
        fetched = (n for n in numbers if wanted[n].prefetch_at is not None)
        for number in sorted(fetched, key=lambda n: wanted[n].begin):
            issue = held[number].prefetch_at
            while issue > wanted[number].prefetch_at and extend(number, prefetch_at=issue - 1):
                issue -= 1
        return held

    def _live(self, residencies):
        """Aligned live bytes at each position; overlays share them at the op where one begins and one ends."""
        live = [aligned(op.workspace_bytes) for op in self.ops]
        for r in residencies:
            begin = r.begin if r.prefetch_at is None else r.prefetch_at
            whole = range(len(live)) if r.whole_step else range(begin, min(r.release, len(live)))
            for p in whole:
                live[p] += aligned(self.nbytes(r.buffer))
        for p, op in enumerate(self.ops):
            shared = set()
            for overlay in op.overlays:
                outs = [r for r in residencies if r.buffer == overlay.out and r.begin == p]
                overs = [r for r in residencies if r.buffer == overlay.over and r.end == p + 1]
                parties = {overlay.out, overlay.over}
                if overlay.kind not in self.plan.overlays or not outs or not overs or shared & parties:
                    continue
                if may_overlay(outs[0], overs[0]):
                    shared |= parties
                    for q in range(len(live)) if outs[0].whole_step else (p,):
                        live[q] -= aligned(self.nbytes(overlay.out))
        return live

    # -- live bytes and seconds --------------------------------------------------------------------------------

    def seconds(self, residencies):
        """Ends of all ops and copies: an op waits for its prefetches and for all copies out of bytes that are
        reused."""
        at = defaultdict(list)
        for r in residencies:
            if r.prefetch_at is not None:
                at["in", r.prefetch_at].append(r)
            if r.offloads:
                at["out", r.end - 1].append(r)
        gone, back = {}, {}
        compute = d2h = h2d = 0.0
        for position, op in enumerate(self.ops):
            compute = max([compute, *(t for s, t in gone.items() if s.release <= position)])
            for r in sorted(at["in", position], key=lambda s: s.begin):
                # It must be copied out before it is copied back.
                mine = [t for s, t in gone.items() if s.buffer == r.buffer]
                h2d = max([h2d, compute, *mine]) + self.costs.prefetch(self.nbytes(r.buffer))
                back[r] = h2d
            compute = max([compute, *(t for s, t in back.items() if s.begin == position)]) + self.costs.op(op)
            for r in at["out", position]:
                d2h = max(d2h, compute) + self.costs.offload(self.nbytes(r.buffer))
                gone[r] = d2h
        return max(compute, d2h, h2d)


def live_bytes_by_instruction(instructions, residencies):
    """The most aligned bytes on the device at one tick, from the instructions; a chain of overlays counts once."""
    return max(
        sum(nbytes for begin, end, nbytes in allocations(tuple(residencies)) if begin <= instruction.tick < end)
        for instruction in instructions
    )
