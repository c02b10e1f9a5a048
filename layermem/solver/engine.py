"""Runs the nets of a solver in one arena: one training iteration, or one test, at a time.  No files and no loop.

All ops read values that change between batches from the context: `step` counts batches (it seeds dropout), `iteration`
counts updates, `rate` is the learning rate of the iteration, `loss_scale` the factor of its gradients.

Ranks share the micro-batches of an iteration and the batches of a test (distributed/ranks.py).  Results are gathered,
so that every rank computes the same sums as a single rank, in the order of the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from layermem.backends.base import Device, NextBatch
from layermem.backends.registry import StepContext
from layermem.distributed.group import Group
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import GRADIENT, Graph
from layermem.graph.train import CLIP, HOLD, OVERFLOW
from layermem.proto.schema import Message
from layermem.report.events import Output
from layermem.runtime.held import Held
from layermem.runtime.runner import Runner
from layermem.schedule.program import Program
from layermem.solver.average_precision import AveragePrecision
from layermem.solver.build import Nets, reported
from layermem.solver.feeds import Feeds
from layermem.solver.loss_scale import LossScale
from layermem.solver.parameters import Parameters
from layermem.solver.recording import Recording
from layermem.solver.rules import learning_rate, rule_of, settings
from layermem.solver.shared_state import SharedState
from layermem.solver.signals import Requests
from layermem.utils.exclusive import Lock

Outputs = tuple[Output, ...]
OnChange = Callable[[int, Mapping[str, tuple[int, ...]]], None]
T = TypeVar("T")


class Engine:
    """Runs `program`: the schedules of the train step, of the updates if gradients are summed over several steps, and
    of the test nets.  All ranks of `group` construct it together."""

    def __init__(
        self,
        nets: Nets,
        param: Message,
        graphs: Sequence[Graph],
        program: Program,
        device: Device,
        *,
        spill: Path | None = None,
        poison: bool = False,
        timed: bool = False,
        noise: int | None = None,
        group: Group | None = None,
        loss_scale: LossScale | None = None,
    ):
        self.lock = Lock()  # shared by the solver and its nets (utils/exclusive.py)
        self.param, self.noise = param, noise
        self.group, self.loss_scale = group or Group(), loss_scale
        self.ranks = Ranks(self.group.rank, self.group.size, param.iter_size)
        self.context: StepContext = {**settings(param), "seed": 0, "step": 0, "iteration": 0, "rate": 0.0}
        if self.group.transport is not None:
            self.context["transport"] = self.group.transport

        def make_runner(program: Program, zeroed: bool) -> Runner:
            for net in nets.all:
                net.check_runnable(device.name, device.implements)
            return Runner(program, device, self.context, spill=spill, poison=poison, timed=timed, zeroed=zeroed)

        self._make_runner = make_runner
        self._recordings = self.group.agree(lambda: [Recording(net) for net in nets.all])
        self._bind(nets, graphs, program)
        self.feeds: Feeds | None = None
        self.on_change: OnChange | None = None  # called for batches of other shapes; None refuses them
        self.on_rebind: list[Callable[[], None]] = []
        self.before_run: list[Callable[[], None]] = []  # called around each run of a schedule
        self.after_run: list[Callable[[], None]] = []
        self.values: list[Mapping[str, np.ndarray]] = [{} for _ in nets.all]  # outputs of the last batch, by blob

    def _bind(self, nets: Nets, graphs: Sequence[Graph], program: Program, zeroed: bool = True) -> None:
        self.nets, self._graphs = nets, graphs
        self.runner = self.group.agree(lambda: self._make_runner(program, zeroed))
        shared = SharedState(self.runner, self.group)
        self.parameters = Parameters(nets.all, self.runner, rule_of(self.param).history_count, shared)
        self._first_test = len(graphs) - len(nets.tests)
        diffs = [name for name, each in self.runner.persistent.items() if each.kind == GRADIENT]
        cleared = {buffer for graph in graphs[1 : self._first_test] for op in graph.ops for buffer in op.writes}
        self._held_gradients = [name for name in diffs if name not in cleared]  # those that no update graph zeroes
        self._reported = [reported(net) for net in nets.all]
        self._last: tuple[int, int] | None = None  # the net that ran last, and its schedule

    def rebind(self, nets: Nets, graphs: Sequence[Graph], program: Program) -> None:
        """Run the same nets by another program, perhaps in other shapes; persistent buffers keep their values.

        They are copied to host memory, and the arena is freed before there is another one.  If that one cannot be had,
        the program from before is bound again, and the error raised."""
        for observer in self.before_run:
            observer()
        before = self.nets, self._graphs, self.runner.program
        failure: BaseException | None = None
        values = self.runner.take()
        try:
            self._bind(nets, graphs, program, zeroed=False)
        except BaseException as error:
            failure = error.with_traceback(None)  # frames of a traceback hold what was allocated in them
            failure.__cause__ = failure.__context__ = None
        if failure is not None:
            self._bind(*before, zeroed=False)
        self.runner.put(values)
        self.open_feeds.nets = self.nets.all
        for observer in (*self.on_rebind, *self.after_run):
            observer()
        if failure is not None:
            raise failure

    def begin(self, seed: int) -> None:
        """Open the feeds, and initialize all parameters and optimizer state from `seed`."""
        if self.feeds is None or self.feeds.seed != seed:
            ranks = [self.ranks, *map(self.ranks_of_test, self.nets.tests)]
            feeds = Feeds(
                self.nets.all, seed, self.noise, ranks, in_bytes=self.runner.device.takes_bytes, fills=True
            )  # before the old ones are closed: an error changes nothing
            self.close()
            self.feeds = feeds
            if self.on_change is not None:
                feeds.on_change, feeds.runs_ahead = self.on_change, True
        self.context["seed"] = seed
        self.parameters.fill(seed)

    @property
    def seed(self) -> int:
        return int(self.context["seed"])

    def close(self) -> None:
        if self.feeds is not None:
            self.feeds.close()

    @property
    def open_feeds(self) -> Feeds:
        assert self.feeds is not None, "call begin() first"
        return self.feeds

    def ranks_of_test(self, net: Net) -> Ranks:
        """The ranks that share the batches of a test; each runs all batches if one depends on those before it."""
        return Ranks() if net.state_bytes or net.python_sources else self.ranks

    def train(
        self, iteration: int, on_gradient: Callable[[], None] = lambda: None, requests: Requests | None = None
    ) -> tuple[float, Outputs]:
        """Run the batches of an iteration and the update; return the mean loss and the outputs of the last batch.

        on_gradient   called when the gradients are final: before the update if they are held over several steps.
                      Otherwise the step itself updates each parameter as soon as its gradient is final, and the call
                      follows the step
        requests      requests to pass on to the other ranks"""
        ranks, size = self.ranks, self.param.iter_size
        self._set_rate(iteration)
        if self.loss_scale is not None:
            self.context["loss_scale"], self.context["skipped"] = self.loss_scale.scale, self.loss_scale.skipped
        self._around(self._zero_gradients)
        objectives = []
        for sub_step in range(ranks.sub_steps):
            self.context["step"] = iteration * size + ranks.micro_batch(sub_step)
            self._take_batch(0)
            values = self._run(0, 0, lambda: self.open_feeds.prefetch(0))
            objectives.append(self._objective(0, values))
            self._recordings[0].add(values)
        on_gradient()
        updated = self._update() if self._first_test > 1 else values
        if self.loss_scale is not None:
            norms = [updated[name] for name in (f"{CLIP}.norm", f"{OVERFLOW}.norm") if name in updated]
            self.loss_scale.count(float(norms[0]) if norms else 0.0)
        self._recordings[0].write()
        self.context["step"] = iteration * size + size - 1
        last = self._outputs(0, values) if ranks.rank == ranks.size - 1 else ()
        requested = frozenset() if requests is None else requests.pending
        gathered = self.group.gather((objectives, last, requested))
        if requests is not None:
            requests.agree(each for _, _, each in gathered)
        loss = 0.0
        for sub_step in range(ranks.sub_steps):
            for of_rank, _, _ in gathered:
                loss += of_rank[sub_step] / size
        return loss, gathered[-1][1]

    def update(self, iteration: int) -> None:
        """Update the parameters from the gradients that are held now, as at the end of this iteration."""
        self._set_rate(iteration)
        self._update()

    def _set_rate(self, iteration: int) -> None:
        self.context["iteration"], self.context["rate"] = iteration, learning_rate(self.param, iteration)

    def _update(self) -> Mapping[str, np.ndarray]:
        """Run the graph of updates.  Blobs that the step holds can be read after it if it overwrites none of them."""
        last = self._last
        updated = self._around(lambda: self.runner.run(1))
        schedule = self.runner.program.schedules[1]
        if all(schedule.graph.buffers[each.buffer].persistent for each in schedule.residencies if each.buffer):
            self._last = last
        return updated

    def _zero_gradients(self) -> None:
        for name in self._held_gradients:
            self.runner.zero(name)

    def forward(self, iteration: int) -> float:
        """Run the next batch forward, without an update, and return its loss.

        The other ranks run the batches after it, because some layers work on all ranks together; their results are
        dropped."""
        feeds, before = self.open_feeds, self.open_feeds.position(0)
        self.context["iteration"], self.context["step"] = iteration, iteration * self.param.iter_size
        self._take_batch(0)
        self.context["averaged"] = 1
        try:
            self.values[0] = self._around(self.runner.run_forward)
        except InputError as error:
            raise self.nets.train.placed(error) from None
        finally:
            del self.context["averaged"]
        if self.ranks.size > 1:
            feeds.seek(0, before)
            feeds.skip(0, 1)
        return self.group.gather(self._objective(0, self.values[0]))[0]

    def inputs_not_finite(self) -> str:
        """Return a clause on the input layers whose last batch has values that are not finite, or ""."""
        names = [
            f"'{name}'"
            for name, arrays in self.context.get("batch", {}).items()
            if any(isinstance(each, np.ndarray) and not np.isfinite(each).all() for each in arrays)
        ]
        return f"the last batch of {', '.join(names)} has NaN or infinite values" if names else ""

    def forward_test(self, index: int) -> Mapping[str, np.ndarray]:
        """Run the next batch of test net `index` and return its outputs, by blob."""
        self._take_batch(1 + index)
        return self._run(self._first_test + index, 1 + index, None)

    def held(self, net: int) -> Held | None:
        """The held blobs of a net, if it ran last; otherwise None."""
        if self._last is None or self._last[0] != net:
            return None
        return Held(self.runner, self._last[1], HOLD)

    def test(
        self, index: int, stopping: Callable[[], bool], requests: Requests | None = None
    ) -> tuple[float, Outputs] | None:
        """Return the mean objective and outputs of test net `index`; None if it stops early, with data and states
        restored.

        The output of a DetectionEvaluate is its mean average precision.
        """
        net, batches = 1 + index, self.nets.test_iterations[index]
        ranks = self.ranks_of_test(self.nets.all[net])
        before, states = self.open_feeds.position(net), self.parameters.states([self.nets.all[net]])
        sums: dict[str, np.ndarray] = {}
        precision = AveragePrecision(self.nets.all[net], self.param.ap_version)
        for first in range(0, batches, ranks.size):
            if stopping():
                self.open_feeds.seek(net, before)
                self.parameters.write(states)
                self._recordings[net].clear()
                return None
            for values in self._test_round(net, ranks, min(ranks.size, batches - first), first, batches, requests):
                self._recordings[net].add(values)
                precision.add(values)
                for each in self._reported[net]:
                    value = values[each.version].astype(np.float64)
                    sums[each.version] = sums.get(each.version, np.float64(0)) + value
        if self.group.is_first:
            self._recordings[net].write()
        self._recordings[net].clear()
        means = {version: np.asarray(total / batches) for version, total in sums.items()}
        means |= {version: np.asarray(precision.mean(version)) for version in precision.tops if version in means}
        return self._objective(net, means), self._outputs(net, means)

    def _test_round(
        self, net: int, ranks: Ranks, count: int, first: int, batches: int, requests: Requests | None
    ) -> list[Mapping[str, np.ndarray]]:
        """Run `count` successive batches of a test, from number `first` on, one on each rank; return the outputs of
        all."""
        feeds, before = self.open_feeds, self.open_feeds.position(net)
        values: dict[str, np.ndarray] = {}
        if ranks.rank < count:
            self._take_batch(net)
            is_last = first + ranks.size + ranks.rank >= batches
            values = self._run(self._first_test + net - 1, net, None if is_last else lambda: feeds.prefetch(net))
        if count < ranks.size:
            feeds.seek(net, before)
            feeds.skip(net, count)
        requested = frozenset() if requests is None else requests.pending
        gathered = self.group.gather((values if ranks.size > 1 else {}, requested))
        if requests is not None:
            requests.agree(each for _, each in gathered)
        return [of_rank for of_rank, _ in gathered[:count]] if ranks.size > 1 else [values]

    def _take_batch(self, net: int) -> None:
        """Make the next batch of `net` the one in use, when the one before is not held any more."""
        self.context["batch"] = {}
        self.context["batch"] = self.open_feeds.next(net)

    def _run(self, schedule: int, net: int, next_batch: NextBatch | None) -> dict[str, np.ndarray]:
        try:
            self.values[net] = values = self._around(lambda: self.runner.run(schedule, next_batch))
        except InputError as error:
            raise self.nets.all[net].placed(error) from None
        self._last = net, schedule
        return values

    def _around(self, run: Callable[[], T]) -> T:
        """Call `run` between the observers that run before and after it."""
        self._last = None
        for observer in self.before_run:
            observer()
        try:
            return run()
        finally:
            for observer in self.after_run:
                observer()

    def _objective(self, net: int, values: Mapping[str, np.ndarray]) -> float:
        with np.errstate(all="ignore"):  # a loss may be infinite
            return float(sum(each.weight * np.sum(values[each.version], dtype=float) for each in self._reported[net]))

    def _outputs(self, net: int, values: Mapping[str, np.ndarray]) -> Outputs:
        """The blobs that no layer reads, under their names in the prototxt."""
        return tuple(Output(r.name, values[r.version], r.weight) for r in self._reported[net] if r.output)
