"""Jobs by size, which strategies share: those of the last sizes, and that of the largest one that fits.

What combines other strategies begins at the largest size of these: the job holds what they have computed there.
Jobs of two sizes are built from their nets; the graphs of other sizes are those at other places of the same lines
(graph/resized.py), which takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from layermem.distributed.ranks import Ranks
from layermem.graph.op_builder import Device
from layermem.graph.resized import Lines, NoLine, ResizedGraph
from layermem.job import NO_SLICES, Job
from layermem.ops import MAX_COUNT, Tensor

JOBS_KEPT = 12  # of the last sizes


class SizedJobs:
    """`make` as a function that remembers.

    device  of the jobs, where those of different sizes are the same net with other batches; they have no nets then
    """

    def __init__(self, make: Callable[[int], Job], device: Device | None = None):
        self._make, self._device = make, device
        self._first: tuple[int, Job] | None = None
        self._resized: ResizedJob | None = None
        self._recent: dict[int, Job] = {}  # the most recent one is last
        self._largest: tuple[int, Job] | None = None
        self._ruled_out: dict[str, tuple[int, int]] = {}  # strategy -> the largest size that fits a budget, the budget

    def __call__(self, size: int) -> Job:
        job = self._recent.pop(size, None)
        if job is None and self._largest is not None and size == self._largest[0]:
            job = self._largest[1]
        self._recent[size] = job = job or self._new(size)
        for strategy, (largest, budget_bytes) in self._ruled_out.items():
            if size > largest:
                job.arena.rule_out(strategy, budget_bytes)
        if len(self._recent) > JOBS_KEPT:
            del self._recent[next(iter(self._recent))]
        return job

    def _new(self, size: int) -> Job:
        if self._resized is not None:
            try:
                return self._resized.at(size)
            except NoLine:  # a blob exceeds 2^31 - 1 values: building it says which one
                return self._make(size)
        job = self._make(size)
        if self._first is None:
            self._first = size, job
        elif self._device is not None and size != self._first[0]:
            try:
                self._resized = ResizedJob(self._first, (size, job), self._device, self._make)
            except NoLine:
                self._device = None
        return job

    def rule_out(self, strategy: str, size: int, budget_bytes: int) -> None:
        """State that no larger size fits the budget under a strategy, for searches that combine it with others."""
        self._ruled_out[strategy] = size, budget_bytes

    def keep(self, size: int) -> None:
        """Keep the job of this size, unless that of a larger one is kept."""
        if self._largest is None or size > self._largest[0]:
            self._largest = size, self(size)


class ResizedJob:
    """A job at other sizes, from those at two; NoLine where their graphs are not of one kind."""

    def __init__(self, first: tuple[int, Job], second: tuple[int, Job], device: Device, make: Callable[[int], Job]):
        (small, before), (large, self.job) = sorted((first, second), key=lambda each: each[0])
        self._make = make
        is_plain = self.job.ranks == Ranks() and self.job.slices == NO_SLICES and not self.job.costs.measured
        if not is_plain or len(before.graphs) != len(self.job.graphs):
            raise NoLine
        sizes = small, large
        pairs = zip(before.graphs, self.job.graphs)
        self._graphs = [ResizedGraph(*pair, sizes, device) for pair in pairs]
        # Of blobs that are in no graph, since ops are fused, the sizes are limited too.
        lines = Lines(sizes)
        self._blobs = lines.between(_blobs(before), _blobs(self.job))[1]
        # Titles that differ end with the items of the batch.
        (self._name, _, items), (_, _, fewer) = (job.title.rpartition(" x") for job in (self.job, before))
        self._items = lines.between(int(fewer), int(items))[1] if before.title != self.job.title else None

    def at(self, size: int) -> Job:
        """The job of `size`, without its nets; NoLine where a blob would have more elements than there may be."""
        if self._blobs is not None and any(blob.count > MAX_COUNT for blob in self._blobs(size)):
            raise NoLine
        graphs = tuple(graph.at(size) for graph in self._graphs)
        title = f"{self._name} x{self._items(size)}" if self._items is not None else self.job.title
        return replace(self.job, title=title, nets=(), graphs=graphs, slicer=None)


def _blobs(job: Job) -> tuple[Tensor, ...]:
    return tuple(blob for net in job.nets for blob in net.blobs.values())
