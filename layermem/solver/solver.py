"""A solver: Caffe's loop of iterations, tests and snapshots, over a program inside a memory budget.

    solver = Solver("solver.prototxt", device="cpu", strategy="liveness", budget="50%", log=Log())
    solver.solve()                         to max_iter, with everything that the file asks for
    solver.step(10); solver.test(0)        or piece by piece

One iteration: iter_size batches forward and backward, then the update.  What changes between iterations is in the
context that all ops read: `step` counts batches (dropout's counter), `iteration` updates, `rate` is the learning rate.
source  Caffe solver.cpp
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from layermem.compile import compile
from layermem.errors import InputError
from layermem.plan.base import Hints, Plan
from layermem.plan.costs import Costs, read_costs
from layermem.proto.read import SolverFile, read_solver
from layermem.proto.weights import read_weights
from layermem.runtime.device import Device, get_device
from layermem.runtime.runner import Runner
from layermem.seeds import key_of
from layermem.solver import events
from layermem.solver import snapshot as snapshots
from layermem.solver.build import budget_bytes, build_nets, caffe_bytes, check_solver, graphs_of, reported
from layermem.solver.events import Event, Output
from layermem.solver.feeds import Feeds
from layermem.solver.parameters import Parameters
from layermem.solver.rules import drops, rate, settings
from layermem.solver.signals import Signals
from layermem.solver.state_file import State

HDF5 = 0  # SolverParameter.SnapshotFormat


class Solver:
    """Built whole or not at all: InputError for what is wrong in files, BudgetError if no plan fits.

    device       a name ("reference", "cpu", ..) or a Device
    strategy     of plan/; `plan` instead runs a plan made before, `hints` are what a user may say beside the budget
    budget       bytes of device memory: a number, "512KiB", or "50%" of what Caffe would take; None is no limit
    host_budget  the same for what is offloaded; `spill` names a folder for it, so that it leaves memory
    batch        replaces the batch size of the train net
    weights      files to start from, by layer name, instead of those that the solver names
    snapshot     a .solverstate to go on from
    iterations   stop there instead of at max_iter (which rates still refer to)
    seed         instead of random_seed; a snapshot's own seed wins over both
    level, stages    of the train net, beside those that the solver gives
    poison       freed bytes become NaN (slow; for tests)
    log          called with events.* ; report.log.Log() prints Caffe's lines

    program, runner, nets   what was made     iteration   updates done     outputs    of the last batch, by blob
    interrupted    whether a signal or request("stop") ended solve()
    """

    def __init__(
        self,
        file: SolverFile | str | PathLike[str],
        *,
        device: str | Device = "cpu",
        strategy: str | Callable[..., Plan] = "liveness",
        budget: int | str | None = None,
        host_budget: int | str | None = None,
        hints: Hints = Hints(),
        costs: Costs | str | PathLike[str] | None = None,
        plan: Plan | None = None,
        batch: int | None = None,
        spill: str | PathLike[str] | None = None,
        weights: str | Sequence[str] = (),
        snapshot: str | PathLike[str] | None = None,
        iterations: int | None = None,
        seed: int | None = None,
        level: int = 0,
        stages: Sequence[str] = (),
        poison: bool = False,
        log: Callable[[Event], None] | None = None,
    ):
        self.file = file if isinstance(file, SolverFile) else read_solver(file)
        self.param = self.file.message
        self.log = log or (lambda event: None)
        check_solver(self.file)
        self.device = get_device(device) if isinstance(device, str) else device
        self.max_iter = self._end(iterations)
        if self._saves:
            snapshots.check_prefix(self.param.snapshot_prefix)
        self.nets = build_nets(self.file, batch=batch, level=level, stages=stages)
        self._reported = [reported(net) for net in self.nets.all]
        self.graphs, rule = graphs_of(self.nets, self.file, self.device)
        self.costs = costs if costs is None or isinstance(costs, Costs) else read_costs(Path(costs), self.device.name)
        self.budget = budget_bytes(budget, lambda: self.caffe_bytes)
        hints = replace(hints, host_budget=budget_bytes(host_budget, lambda: self.caffe_bytes) or hints.host_budget)
        self.program = compile(
            self.graphs, strategy=strategy, budget=self.budget, costs=self.costs, plan=plan, hints=hints
        )
        self.context: dict[str, Any] = {**settings(self.param), "step": 0, "iteration": 0, "rate": 0.0}
        self.runner = Runner(
            self.program, self.device, self.context, spill=None if spill is None else Path(spill), poison=poison
        )
        self._parameters = Parameters(self.nets.all, self.runner, rule.histories)
        self.iteration = 0
        self.outputs: dict[str, np.ndarray] = {}
        self.interrupted = False
        self._requests: set[str] = set()
        self._losses: deque[float] = deque(maxlen=self.param.average_loss)
        self._displayed: tuple[int, float] | None = None  # iteration and time of the last display
        self._saved_at: int | None = None  # iteration of the last snapshot, read or written
        self._begin(seed, snapshot, weights)

    # -- from the outside ------------------------------------------------------------------------------------------

    def solve(self, *, sigint: str = "stop", sighup: str = "snapshot") -> None:
        """Iterate to the end, testing, displaying and saving as the solver says; effects of signals: signals.py."""
        self.log(events.Solving(self.nets.train.name, self.param.lr_policy))
        before, self.interrupted = self.iteration, False
        with Signals(self.request, lambda: "stop" in self._requests, sigint=sigint, sighup=sighup):
            self.step(max(0, self.max_iter - self.iteration))
            if self.param.snapshot_after_train and self._saved_at != self.iteration:
                self.snapshot()
            if not self.interrupted and before < self.iteration:
                self._test_if_due()
        loss = self.loss if before < self.iteration else None
        self.log(events.Finished(self.iteration, loss, self.interrupted))

    def step(self, count: int) -> None:
        """`count` iterations, fewer if somebody asks to stop."""
        self.interrupted = False
        for _ in range(count):
            if self.iteration or self.param.test_initialization:
                self._test_if_due()
            if not self._stopping():
                self._iterate()
                if self.param.snapshot and self.iteration % self.param.snapshot == 0:
                    self._requests.add("snapshot")
            if "snapshot" in self._requests:
                self._requests.discard("snapshot")
                self.snapshot()
            if self._stopping():
                self._requests.discard("stop")
                self.interrupted = True
                return

    def test(self, index: int = 0) -> dict[str, np.ndarray] | None:
        """Means of the outputs of test net `index` over its test_iter batches; None if somebody asks to stop."""
        if not 0 <= index < len(self.nets.tests):
            raise InputError(f"has no test net {index}; it has {len(self.nets.tests)}", path=str(self.file.path))
        self.log(events.Testing(self.iteration, index))
        sums: dict[str, Any] = {}
        iterations = self.nets.test_iterations[index]
        for _ in range(iterations):
            if self._stopping():
                return None
            self.context["batch"] = self.feeds.next(1 + index)
            found = self.runner.run(len(self.graphs) - len(self.nets.tests) + index)
            for version, values in found.items():
                sums[version] = sums.get(version, 0.0) + values.astype(np.float64)
        means = {version: np.asarray(total / iterations) for version, total in sums.items()}
        outputs = self._named(1 + index, means)
        loss = self._loss_of(1 + index, means) if self.param.test_compute_loss else None
        self.log(events.Tested(self.iteration, index, outputs, loss))
        return {output.name: output.values for output in outputs}

    def request(self, what: str) -> None:
        """Ask for "stop" or "snapshot" after the current iteration; safe from signals and other threads."""
        self._requests.add(what)

    def snapshot(self) -> str:
        """Save a snapshot now; the path of its solver state."""
        p = self.param
        hdf5 = p.snapshot_format == HDF5
        model, path = snapshots.names(p.snapshot_prefix, self.iteration, hdf5)
        self.log(events.Saving(model, path, hdf5))
        ours = {
            "seed": self.seed,
            "iteration": self.iteration,
            "losses": list(self._losses),
            "feeds": self.feeds.state(),
        }
        state = State(self.iteration, model, drops(p, max(0, self.iteration - 1)), self._parameters.history())
        layers = self._parameters.for_file()
        snapshots.write_snapshot(p.snapshot_prefix, hdf5, self.nets.train.name, layers, state, ours)
        self._saved_at = self.iteration
        return path

    def restore(self, path: str | PathLike[str]) -> None:
        """Go on from a snapshot, as if it had never stopped; nothing changes if it does not fit."""
        saved = snapshots.read_snapshot(str(path))
        try:
            found = self._fitting(saved.weights, saved.model)
            history = self._parameters.fitting_history(saved.state.history)
        except InputError as error:
            raise error.at(path=saved.path) from None
        if saved.ours is not None:
            self._seed(int(saved.ours["seed"]))
        self._parameters.fill(self.seed)  # what only test nets have is in no snapshot
        self._parameters.write(found)
        self._parameters.write_history(history)
        self.iteration = self._saved_at = saved.state.iteration
        self._losses.clear()
        self.log(events.Restored(self.iteration, saved.path))
        if saved.ours is None:
            self._note("the snapshot is another program's: data start over, and the seed is this run's")
            return
        self._losses.extend(map(float, saved.ours["losses"]))
        for note in self.feeds.restore(saved.ours["feeds"]):
            self._note(note)

    def parameters(self) -> dict[str, list[np.ndarray]]:
        """Copies of the train net's parameters in Caffe's shapes, by layer."""
        return self._parameters.layers()

    def set_parameters(self, layers: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Set parameters by layer name, in Caffe's shapes; others stay."""
        found, unknown = self._parameters.matched(layers)
        if unknown:
            raise InputError("is no layer of the net", path=str(self.nets.train.path), layer=unknown[0])
        self._parameters.write(found)
        self._saved_at = None

    def load(self, path: str) -> None:
        """Take parameters from a weight file, by layer name."""
        try:
            found, unknown = self._parameters.matched(read_weights(path))
        except InputError as error:
            raise error.at(path=path) from None
        self._parameters.write(found)
        self._saved_at = None
        for name in unknown:
            self._note(f"Ignoring source layer {name}")
        if not found:
            self._note(f"{path} has no layer of this net: every parameter starts from its filler")

    def give(self, layer: str, *arrays: np.ndarray, test: int | None = None) -> None:
        """Arrays for an Input or MemoryData layer of the train net, or of a test net: an array for each top."""
        self.feeds.give(0 if test is None else 1 + test, layer, arrays)

    @property
    def loss(self) -> float:
        """Mean loss of the last average_loss iterations; NaN before the first."""
        return float(np.mean(self._losses)) if self._losses else float("nan")

    @cached_property
    def caffe_bytes(self) -> int:
        """Bytes of arena under strategy `caffe`."""
        return caffe_bytes(self.graphs, self.costs)

    def close(self) -> None:
        """Give back files and threads of the feeds."""
        self.feeds.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- beginning -------------------------------------------------------------------------------------------------

    def _end(self, iterations: int | None) -> int:
        if iterations is not None:
            if iterations < 0:
                raise InputError(f"{iterations} iterations cannot be run; give 0 or more")
            return iterations
        if not self.param.HasField("max_iter"):
            raise self.file.error("max_iter", "has no max_iter; say how many iterations to train")
        return int(self.param.max_iter)

    @property
    def _saves(self) -> bool:
        return bool(self.param.snapshot or self.param.snapshot_after_train)

    def _begin(self, seed: int | None, snapshot: str | PathLike[str] | None, weights: str | Sequence[str]) -> None:
        given = weights.split(",") if isinstance(weights, str) else list(weights)
        if snapshot is not None and given:
            raise InputError("a run goes on from a snapshot or starts from weights, not both; give one of them")
        if seed is None:
            seed = self.param.random_seed if self.param.random_seed >= 0 else key_of(time.time_ns()) % 2**31
        for note in (*self.file.notes, *self.nets.train.file.notes):
            self._note(note)
        for field in ("debug_info", "snapshot_diff"):
            if getattr(self.param, field):
                self._note(f"{field} is ignored")
        self.feeds = Feeds(self.nets.all, seed)
        try:
            self._seed(seed)
            self._parameters.fill(seed)
            files = given or [name for each in self.param.weights for name in each.split(",")]
            for path in files if snapshot is None else ():
                self.load(path)
            if snapshot is not None:
                self.restore(snapshot)
        except BaseException:
            self.close()
            raise

    def _seed(self, seed: int) -> None:
        if self.feeds.seed != seed:
            self.feeds.close()
            self.feeds = Feeds(self.nets.all, seed)
        self.seed = self.context["seed"] = seed

    def _fitting(self, weights: Mapping[str, Sequence[np.ndarray]], model: str) -> dict[str, np.ndarray]:
        """A snapshot's weights by parameter: all of them."""
        try:
            found, _ = self._parameters.matched(weights)
            if lacking := self._parameters.lacking(found):
                wrong = "has no blobs in the snapshot; resume with the net that it was saved with, or use --weights"
                raise InputError(wrong, layer=lacking[0])
            return found
        except InputError as error:
            raise error.at(path=model) from None

    def _note(self, text: str) -> None:
        self.log(events.Note(text))

    # -- one iteration ---------------------------------------------------------------------------------------------

    def _iterate(self) -> None:
        size = self.param.iter_size
        display = self.param.display and self.iteration % self.param.display == 0
        self.context["iteration"], self.context["rate"] = self.iteration, rate(self.param, self.iteration)
        loss = 0.0
        for part in range(size):
            self.context["step"] = self.iteration * size + part
            self.context["batch"] = self.feeds.next(0)
            found = self.runner.run(0)
            loss += self._loss_of(0, found) / size
        if size > 1:
            self.runner.run(1)
        self._losses.append(loss)
        outputs = self._named(0, found)
        self.outputs = {output.name: output.values for output in outputs}
        if display:
            self._display(outputs)
        self.iteration += 1
        self.log(events.Stepped(self.iteration, loss))

    def _loss_of(self, index: int, found: Mapping[str, np.ndarray]) -> float:
        """The objective of net `index`."""
        return float(sum(each.weight * np.sum(found[each.version], dtype=np.float64) for each in self._reported[index]))

    def _named(self, index: int, found: Mapping[str, np.ndarray]) -> tuple[Output, ...]:
        """The outputs of net `index` under Caffe's names."""
        return tuple(Output(r.name, found[r.version], r.weight) for r in self._reported[index] if r.output)

    def _display(self, outputs: tuple[Output, ...]) -> None:
        now = time.monotonic()
        since, then = self._displayed or (self.iteration, now)
        self._displayed = self.iteration, now
        self.log(
            events.Displayed(
                self.iteration, self.loss, self.context["rate"], outputs,
                interval=self.param.display, done=self.iteration - since, seconds=now - then,
            )
        )  # fmt: skip

    def _stopping(self) -> bool:
        return "stop" in self._requests

    def _test_if_due(self) -> None:
        interval = self.param.test_interval
        if interval and self.iteration % interval == 0:
            for index in range(len(self.nets.tests)):
                self.test(index)
