"""The nets of a solver in one arena: batches in, outputs out, parameters between.  It knows no files and no loop.

What changes between batches is in the context that all ops read: `step` counts batches (dropout draws by it),
`iteration` counts updates, `rate` is the learning rate of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layermem.backends.base import Device, NextBatch
from layermem.backends.registry import StepContext
from layermem.compiler import Program
from layermem.errors import InputError
from layermem.graph.ops import Graph
from layermem.runtime.runner import Runner
from layermem.solver.build import Nets, reported
from layermem.solver.events import Output
from layermem.solver.feeds import Feeds
from layermem.solver.parameters import Parameters
from layermem.solver.rules import rate, rule_of, settings

Outputs = tuple[Output, ...]


class Engine:
    """`program` holds schedules for the train step, the updates if iter_size > 1, and the test nets."""

    def __init__(
        self, nets: Nets, param: Any, graphs: Sequence[Graph], program: Program, device: Device, *,
        spill: Path | None = None, poison: bool = False,
    ):  # fmt: skip
        self.nets, self.param = nets, param
        self.context: StepContext = {**settings(param), "seed": 0, "step": 0, "iteration": 0, "rate": 0.0}
        self.runner = Runner(program, device, self.context, spill=spill, poison=poison)
        self.parameters = Parameters(nets.all, self.runner, rule_of(param).histories)
        self.feeds: Feeds | None = None
        self._first_test = len(graphs) - len(nets.tests)
        self._reported = [reported(net) for net in nets.all]

    def begin(self, seed: int) -> None:
        """Open the feeds and start all parameters and histories from `seed`."""
        if self.feeds is None or self.feeds.seed != seed:
            self.close()
            self.feeds = Feeds(self.nets.all, seed)
        self.context["seed"] = seed
        self.parameters.fill(seed)

    def close(self) -> None:
        if self.feeds is not None:
            self.feeds.close()

    @property
    def open_feeds(self) -> Feeds:
        assert self.feeds is not None, "begin() comes first"
        return self.feeds

    def train(self, iteration: int) -> tuple[float, Outputs]:
        """iter_size batches forward and backward, and the update: mean loss, and the last batch's outputs."""
        size = self.param.iter_size
        self.context["iteration"], self.context["rate"] = iteration, rate(self.param, iteration)
        loss = 0.0
        for part in range(size):
            self.context["step"] = iteration * size + part
            self.context["batch"] = self.open_feeds.next(0)
            found = self._run(0, 0, lambda: self.open_feeds.ahead(0))
            loss += self._objective(0, found) / size
        if size > 1:
            self.runner.run(1)
        return loss, self._outputs(0, found)

    def test(self, index: int, stopping: Callable[[], bool]) -> tuple[float, Outputs] | None:
        """Mean objective and outputs of test net `index` over its batches; None, and data back, if told to stop."""
        net, batches = 1 + index, self.nets.test_iterations[index]
        before = self.open_feeds.position(net)
        sums: dict[str, Any] = {}
        for batch in range(batches):
            if stopping():
                self.open_feeds.go_to(net, before)
                return None
            self.context["batch"] = self.open_feeds.next(net)
            coming = (lambda: self.open_feeds.ahead(net)) if batch + 1 < batches else None
            for version, values in self._run(self._first_test + index, net, coming).items():
                sums[version] = sums.get(version, 0.0) + values.astype(np.float64)
        means = {version: np.asarray(total / batches) for version, total in sums.items()}
        return self._objective(net, means), self._outputs(net, means)

    def _run(self, schedule: int, net: int, next_batch: NextBatch | None) -> dict[str, np.ndarray]:
        try:
            return self.runner.run(schedule, next_batch)
        except InputError as error:
            raise self.nets.all[net].placed(error) from None

    def _objective(self, net: int, found: Mapping[str, np.ndarray]) -> float:
        terms = (each.weight * np.sum(found[each.version], dtype=np.float64) for each in self._reported[net])
        return float(sum(terms))

    def _outputs(self, net: int, found: Mapping[str, np.ndarray]) -> Outputs:
        """What no layer reads, under Caffe's names."""
        return tuple(Output(r.name, found[r.version], r.weight) for r in self._reported[net] if r.output)
