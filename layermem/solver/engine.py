"""Runs the nets of a solver in one arena: one training iteration, or one test, at a time.  No files and no loop.

All ops read the context for values that change between batches: `step` counts batches (it seeds dropout), `iteration`
counts updates, `rate` is the learning rate of the iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from layermem.backends.base import Device, NextBatch
from layermem.backends.registry import StepContext
from layermem.errors import InputError
from layermem.graph.ops import Graph
from layermem.graph.train import HOLD
from layermem.proto.schema import Message
from layermem.report.events import Output
from layermem.runtime.held import Held
from layermem.runtime.runner import Runner
from layermem.schedule.program import Program
from layermem.solver.average_precision import AveragePrecision
from layermem.solver.build import Nets, reported
from layermem.solver.feeds import Feeds
from layermem.solver.parameters import Parameters
from layermem.solver.recording import Recording
from layermem.solver.rules import learning_rate, rule_of, settings

Outputs = tuple[Output, ...]
T = TypeVar("T")


class Engine:
    """`program` has the schedules of the train step, of the updates if iter_size > 1, and of the test nets."""

    def __init__(
        self, nets: Nets, param: Message, graphs: Sequence[Graph], program: Program, device: Device, *,
        spill: Path | None = None, poison: bool = False, noise: int | None = None,
    ):  # fmt: skip
        self.nets, self.param, self.noise = nets, param, noise
        for net in nets.all:
            net.check_runnable(device.name, device.implements)
        self.context: StepContext = {**settings(param), "seed": 0, "step": 0, "iteration": 0, "rate": 0.0}
        self.runner = Runner(program, device, self.context, spill=spill, poison=poison)
        self.parameters = Parameters(nets.all, self.runner, rule_of(param).history_count)
        self.feeds: Feeds | None = None
        self._first_test = len(graphs) - len(nets.tests)
        self._reported = [reported(net) for net in nets.all]
        self.before_run: list[Callable[[], None]] = []  # called around each run of a schedule
        self.after_run: list[Callable[[], None]] = []
        self.values: list[Mapping[str, np.ndarray]] = [{} for _ in nets.all]  # outputs of the last batch, by blob
        self._last: tuple[int, int] | None = None  # the net that ran last, and its schedule
        self._recordings = [Recording(net) for net in nets.all]

    def begin(self, seed: int) -> None:
        """Open the feeds, and initialize all parameters and optimizer state from `seed`."""
        if self.feeds is None or self.feeds.seed != seed:
            feeds = Feeds(self.nets.all, seed, self.noise)  # before others are closed: an error changes nothing
            self.close()
            self.feeds = feeds
        self.context["seed"] = seed
        self.parameters.fill(seed)

    def close(self) -> None:
        if self.feeds is not None:
            self.feeds.close()

    @property
    def open_feeds(self) -> Feeds:
        assert self.feeds is not None, "call begin() first"
        return self.feeds

    def train(self, iteration: int, on_gradient: Callable[[], None] = lambda: None) -> tuple[float, Outputs]:
        """Run iter_size batches and the update: the mean loss, and the outputs of the last batch.

        on_gradient   called when the gradients are final: before the update with iter_size > 1; else the step itself
                      updates, each parameter as soon as its gradient is final, and it is called after it"""
        size = self.param.iter_size
        self.context["iteration"], self.context["rate"] = iteration, learning_rate(self.param, iteration)
        loss = 0.0
        for part in range(size):
            self.context["step"] = iteration * size + part
            self.context["batch"] = self.open_feeds.next(0)
            values = self._run(0, 0, lambda: self.open_feeds.prefetch(0))
            loss += self._objective(0, values) / size
            self._recordings[0].add(values)
        on_gradient()
        if size > 1:
            self._around(lambda: self.runner.run(1))
        self._recordings[0].write()
        return loss, self._outputs(0, values)

    def forward(self, iteration: int) -> float:
        """Run the next batch forward, without an update: its loss."""
        self.context["iteration"], self.context["step"] = iteration, iteration * self.param.iter_size
        self.context["batch"] = self.open_feeds.next(0)
        try:
            self.values[0] = self._around(self.runner.run_forward)
        except InputError as error:
            raise self.nets.train.placed(error) from None
        return self._objective(0, self.values[0])

    def forward_test(self, index: int) -> Mapping[str, np.ndarray]:
        """Run the next batch of test net `index`: its outputs, by blob."""
        self.context["batch"] = self.open_feeds.next(1 + index)
        return self._run(self._first_test + index, 1 + index, None)

    def held(self, net: int) -> Held | None:
        """What is kept of the blobs of a net, if it ran last."""
        if self._last is None or self._last[0] != net:
            return None
        return Held(self.runner, self._last[1], HOLD)

    def test(self, index: int, stopping: Callable[[], bool]) -> tuple[float, Outputs] | None:
        """Mean objective and outputs of test net `index`; None if it stops early: data and states are as before.

        The output of a DetectionEvaluate is its mean average precision.
        """
        net, batches = 1 + index, self.nets.test_iterations[index]
        before, states = self.open_feeds.position(net), self.parameters.states([self.nets.all[net]])
        sums: dict[str, np.ndarray] = {}
        precision = AveragePrecision(self.nets.all[net], self.param.ap_version)
        for batch in range(batches):
            if stopping():
                self.open_feeds.seek(net, before)
                self.parameters.write(states)
                self._recordings[net].clear()
                return None
            self.context["batch"] = self.open_feeds.next(net)
            next_batch = (lambda: self.open_feeds.prefetch(net)) if batch + 1 < batches else None
            values = self._run(self._first_test + index, net, next_batch)
            self._recordings[net].add(values)
            precision.add(values)
            for each in self._reported[net]:
                value = values[each.version].astype(np.float64)
                sums[each.version] = sums.get(each.version, np.float64(0)) + value
        self._recordings[net].write()
        means = {version: np.asarray(total / batches) for version, total in sums.items()}
        means |= {version: np.asarray(precision.mean(version)) for version in precision.tops if version in means}
        return self._objective(net, means), self._outputs(net, means)

    def _run(self, schedule: int, net: int, next_batch: NextBatch | None) -> dict[str, np.ndarray]:
        try:
            self.values[net] = values = self._around(lambda: self.runner.run(schedule, next_batch))
        except InputError as error:
            raise self.nets.all[net].placed(error) from None
        self._last = net, schedule
        return values

    def _around(self, run: Callable[[], T]) -> T:
        """`run`, between what observers do before and after it."""
        self._last = None
        for observer in self.before_run:
            observer()
        try:
            return run()
        finally:
            for observer in self.after_run:
                observer()

    def _objective(self, net: int, values: Mapping[str, np.ndarray]) -> float:
        terms = (each.weight * np.sum(values[each.version], dtype=np.float64) for each in self._reported[net])
        return float(sum(terms))

    def _outputs(self, net: int, values: Mapping[str, np.ndarray]) -> Outputs:
        """The blobs that no layer reads, under their names in the prototxt."""
        return tuple(Output(r.name, values[r.version], r.weight) for r in self._reported[net] if r.output)
