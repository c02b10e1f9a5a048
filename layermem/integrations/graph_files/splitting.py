"""Recomputation in the given order of a graph: where memory is full, outputs are dropped and run again later.

    order     a b c d e      the peak, over the budget, is at c; a is in memory from its run to e
    move      a b c d a e    a is dropped after its last read before c, and runs again before e

A move splits the residency of an output that no node reads at the peak.  Inputs that would be gone by the second run
either stay until then, or run again before it, recursively.  The move at the peak that removes the most bytes over the
budget per cost is made, until the budget holds; then runs that proved needless are removed.  A move changes live bytes
only between two reads, so candidates are compared by that range, and those whose bytes would be too few for their cost
even with free inputs are skipped.  The answer depends only on the graph and the budget.

source  the retention intervals of Bartan et al., "Moccasin: Efficient Tensor Rematerialization for Neural Networks",
        ICML 2023, chosen greedily instead of by constraint programming
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layermem.integrations.graph_files.node_link import NodeLinkGraph, run_sequence

POWERS = (4.0, 2.0, 1.0, 0.75, 0.5, 0.25)  # powers of the cost of a move, each of which is tried
LAST_POWER = 0.0  # tried if none of them finds a sequence: cost is ignored
MAX_RUNS = 3  # limit of all runs together, as a multiple of the number of nodes

Bytes = npt.NDArray[np.int64]


def split_order(graph: NodeLinkGraph, budget_bytes: int) -> list[int] | None:
    """The cheapest sequence found whose peak is within `budget_bytes`; None if none was found."""
    if budget_bytes < graph.least_bytes:
        return None
    found = [_plan(graph, budget_bytes, power) for power in POWERS]
    if not any(found):
        found = [_plan(graph, budget_bytes, LAST_POWER)]
    fitting = [_without_needless_runs(graph, each, budget_bytes) for each in found if each is not None]
    return min(fitting, key=lambda sequence: run_sequence(graph, sequence)[1], default=None)


def _plan(graph: NodeLinkGraph, budget_bytes: int, power: float) -> list[int] | None:
    """Make the moves with the most bytes per cost to that power; None if no move is left, or after too many."""
    state = _Sequence(graph, list(graph.order), budget_bytes, power)
    while int(state.live.max()) > budget_bytes:
        move = state.best_move()
        if move is None or len(state.runs) > MAX_RUNS * len(graph.bytes):
            return None
        runs = [*state.runs[: move.later], *move.chain, *state.runs[move.later :]]
        state = _Sequence(graph, runs, budget_bytes, power)
    return state.runs


@dataclass(frozen=True)
class _Drop:
    """An output that is not read at the peak: of the run at `position`, with its last read before and first read after
    it."""

    position: int
    last: int
    later: int
    over: float  # bytes over the budget that the drop removes, summed over all runs


@dataclass(frozen=True)
class _Move:
    """Run `chain` before the run at `later`; its last node is the one whose output is dropped before."""

    later: int
    chain: list[int]
    score: float  # lower is better


class _Sequence:
    """A sequence of runs with the residency of each output: live bytes by run, and the runs that read it."""

    def __init__(self, graph: NodeLinkGraph, runs: list[int], budget_bytes: int, power: float):
        self.graph, self.runs, self.budget_bytes, self.power = graph, runs, budget_bytes, power
        self.runs_of: dict[int, list[int]] = {}
        self.readers: list[list[int]] = []
        for position, node in enumerate(runs):
            for read in graph.reads[node]:
                self.readers[self.runs_of[read][-1]].append(position)
            self.runs_of.setdefault(node, []).append(position)
            self.readers.append([])
        self.live = _live(graph, runs, [self._until(position) for position in range(len(runs))])

    def _until(self, position: int) -> int:
        """The last run at which the output of the run at `position` is in memory."""
        return self.readers[position][-1] if self.readers[position] else position

    def _latest(self, node: int, before: int) -> int:
        """The last run of `node` before the run at `before`."""
        positions = self.runs_of[node]
        return positions[bisect_left(positions, before) - 1]

    def best_move(self) -> _Move | None:
        """The move of the lowest score at the first run with the most live bytes; None if none removes bytes."""
        cost, best = self.graph.cost, None
        drops = [(self._score(drop.over, cost[self.runs[drop.position]]), drop) for drop in self._drops()]
        for bound, drop in sorted(drops, key=lambda each: (each[0], each[1].position)):
            limit = best.score if best is not None else 0.0
            if bound >= limit:
                break
            for chain in ([self.runs[drop.position]], self._chain(drop, limit)):
                score = self._score_of(drop, chain) if chain else 0.0
                if score < limit:
                    best, limit = _Move(drop.later, chain, score), score
        return best

    def _score(self, over: float, cost: int) -> float:
        return float(-over / (cost + 1) ** self.power)

    def _drops(self) -> Iterator[_Drop]:
        peak = int(self.live.argmax())
        read_now = set(self.graph.reads[self.runs[peak]])
        for position, node in enumerate(self.runs[:peak]):
            if self._until(position) > peak and node not in read_now:
                readers = self.readers[position]
                after = bisect_right(readers, peak)
                last, later = readers[after - 1] if after else position, readers[after]
                over = self._over(self.live[last + 1 : later])
                over -= self._over(self.live[last + 1 : later] - self.graph.bytes[node])
                yield _Drop(position, last, later, over)

    def _chain(self, drop: _Drop, score_limit: float) -> list[int]:
        """The dropped node after those of its inputs that are not in memory before the run at `later`, in a possible
        order; empty if that is only the node, or certainly not below `score_limit`."""
        chain: dict[int, None] = {}
        stack = [self.runs[drop.position]]
        rest, over, cost = self._rest_bytes(drop) - self.budget_bytes, drop.over, 0
        while stack:
            node = stack[-1]
            reads = (v for v in self.graph.reads[node] if v not in chain and not self._is_held(v, drop))
            missing = next(reads, None)
            if missing is None:
                chain[stack.pop()] = None
                over -= max(0, rest + self.graph.bytes[node])  # lower bound of the bytes while it runs
                cost += self.graph.cost[node]
                if self._score(over, cost) >= score_limit:
                    return []
            else:
                stack.append(missing)
        return [*chain] if len(chain) > 1 else []

    def _is_held(self, node: int, drop: _Drop) -> bool:
        latest = self._latest(node, drop.later)
        return latest != drop.position and self._until(latest) >= drop.later

    def _rest_bytes(self, drop: _Drop) -> int:
        """Bytes in memory before the run at `later`, without the dropped output."""
        nbytes = self.graph.bytes
        return int(self.live[drop.later]) - nbytes[self.runs[drop.later]] - nbytes[self.runs[drop.position]]

    def _score_of(self, drop: _Drop, chain: list[int]) -> float:
        """The score of a move in which inputs of the chain that would be gone by then stay."""
        nbytes, members = self.graph.bytes, set(chain)
        stay: dict[int, int] = {}  # node -> first run at which it is now gone
        for v in {read for node in chain for read in self.graph.reads[node]} - members:
            until = self._until(self._latest(v, drop.later))
            if until < drop.later:
                stay[v] = until + 1
        begin = min([drop.last + 1, *stay.values()])
        before = self.live[begin : drop.later]
        after = before.copy()
        after[drop.last + 1 - begin :] -= nbytes[chain[-1]]
        for v, first in stay.items():
            after[first - begin :] += nbytes[v]
        rest_bytes = self._rest_bytes(drop) + sum(nbytes[v] for v in stay)
        added = self._over(rest_bytes + _live_of_chain(self.graph, chain))
        over = self._over(before) - self._over(after) - added
        return self._score(over, sum(self.graph.cost[v] for v in chain))

    def _over(self, live: Bytes) -> float:
        """Bytes over the budget, summed over runs."""
        return float(np.maximum(live - self.budget_bytes, 0).sum(dtype=np.float64))


def _live(graph: NodeLinkGraph, runs: Sequence[int], until: Sequence[int]) -> Bytes:
    """Live bytes at each run, of outputs that are in memory from their run to `until`."""
    change = np.zeros(len(runs) + 1, np.int64)
    for position, node in enumerate(runs):
        change[position] += graph.bytes[node]
        change[until[position] + 1] -= graph.bytes[node]
    return change.cumsum()[:-1]


def _live_of_chain(graph: NodeLinkGraph, chain: list[int]) -> Bytes:
    """Live bytes of only the outputs of `chain`, each until the last run in it that reads it."""
    until = {node: position for position, node in enumerate(chain)}
    for position, node in enumerate(chain):
        until.update((v, position) for v in graph.reads[node] if v in until)
    return _live(graph, chain, [until[node] for node in chain])


def _without_needless_runs(graph: NodeLinkGraph, sequence: list[int], budget_bytes: int) -> list[int]:
    """The sequence without runs that are not needed; the costliest are tried first."""
    runs = Counter(sequence)
    by_cost = sorted((p for p, v in enumerate(sequence) if runs[v] > 1), key=lambda p: -graph.cost[sequence[p]])
    removed: set[int] = set()
    for position in by_cost:
        if runs[sequence[position]] == 1:
            continue
        tried = [v for p, v in enumerate(sequence) if p != position and p not in removed]
        with suppress(ValueError):  # a node would read one that has not run
            if run_sequence(graph, tried)[0] <= budget_bytes:
                removed.add(position)
                runs[sequence[position]] -= 1
    return [v for p, v in enumerate(sequence) if p not in removed]
