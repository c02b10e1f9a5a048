"""The solver: Caffe's loop of iterations, tests and snapshots, within a memory budget.

    solver = Solver("solver.prototxt", device="cpu", strategy="liveness", budget="50%", log=Log())
    solver.solve()                         all of it: iterations to max_iter, tests, displays, snapshots
    solver.step(10); solver.test(0)        or in parts

An iteration has the order of Caffe: test, forward and backward, display, update, snapshot.
source  Caffe solver.cpp, without its last forward pass, which only displays a loss: it would change the averages of
BatchNorm and the position of the data.  The loss of the last iterations is displayed instead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from layermem.backends.base import Device, get_device
from layermem.errors import InputError
from layermem.graph.ops import Graph
from layermem.job import Budget, PathName
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.proto.read import SolverFile, read_solver, resolve_path
from layermem.proto.weights import read_weights
from layermem.report import events
from layermem.report.events import Event
from layermem.report.plan_report import evaluate
from layermem.solver import snapshot as snapshots
from layermem.solver.build import build_nets, check_solver, job_of
from layermem.solver.engine import Engine, Outputs
from layermem.solver.rules import rate_drops
from layermem.solver.signals import Signals
from layermem.solver.state_file import State
from layermem.utils.seeds import key_of


class Solver:
    """Training of a net by a solver prototxt.  InputError for errors in files, BudgetError if no plan fits.

    device       a name ("reference", "cpu", ..) or a Device
    strategy     name of a strategy (default: auto under a budget, else liveness), or `plan`: a Plan or a saved one
    hints        segment ends, layers to keep or recompute, the host budget
    budget       bytes of device memory: a number, "512KiB", "50%" of strategy `caffe`, or "free", all free memory of
                 the GPU; None is no limit
    host_budget  the same for offloaded bytes; with `spill`, a folder, they are kept in a file instead of memory
    costs        measured costs, or their file; None is a model of the device
    batch        replaces the batch size of the train net
    weights      files of initial weights, by layer name, instead of those in the solver
    snapshot     a .solverstate to resume from
    iterations   the last iteration, instead of max_iter (which learning rates still refer to)
    seed         instead of random_seed; the seed of a snapshot overrides both
    level, stages    of the train net, in addition to those of the solver
    poison       freed bytes become NaN (slow; for tests)
    log          called with events.*; report.log.Log() prints Caffe's lines

    nets, job, report, program, runner    the parts of the solver
    iteration    number of updates so far        outputs    of the last batch, by blob
    interrupted  whether a signal or request("stop") ended solve()
    """

    def __init__(
        self,
        file: SolverFile | PathName,
        *,
        device: str | Device = "cpu",
        strategy: Choice | None = None,
        plan: Plan | PathName | None = None,
        budget: Budget = None,
        host_budget: Budget = None,
        hints: Hints = Hints(),
        costs: Costs | PathName | None = None,
        batch: int | None = None,
        spill: PathName | None = None,
        weights: str | Sequence[str] = (),
        snapshot: PathName | None = None,
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
        self.nets = build_nets(self.file, batch=batch, level=level, stages=stages)
        if self.param.snapshot or self.param.snapshot_after_train:
            snapshots.check_prefix(self.param.snapshot_prefix)
            snapshots.check_size(self.nets.train, self.param)
        job = job_of(self.nets, self.file, self.device, costs=costs, hints=hints).with_host_budget(host_budget)
        report = evaluate(job, strategy, budget, plan)
        self.program = report.feasible_program()
        self.job, self.report = job, replace(report, search=None)  # without the caches of the planners
        self._engine = Engine(
            self.nets, self.param, job.graphs, self.program, self.device,
            spill=None if spill is None else Path(spill), poison=poison,
        )  # fmt: skip
        self.runner = self._engine.runner
        self.iteration = 0
        self.outputs: dict[str, np.ndarray] = {}
        self.interrupted = False
        self._requests: set[str] = set()
        self._losses: deque[float] = deque(maxlen=self.param.average_loss)
        self._displayed: tuple[int, float] | None = None  # iteration and time of the last display
        self._saved_at: int | None = None  # iteration of the last snapshot, if nothing changed since
        try:
            self._begin(seed, snapshot, weights.split(",") if isinstance(weights, str) else list(weights))
        except BaseException:
            self.close()
            raise

    # -- the loop --------------------------------------------------------------------------------------------------

    def solve(self, *, sigint: str = "stop", sighup: str = "snapshot") -> None:
        """Iterate to the end with all tests, displays and snapshots; for the effects of signals see signals.py."""
        self.log(events.Solving(self.nets.train.name, self.param.lr_policy))
        before, self.interrupted = self.iteration, False
        with Signals(self.request, self._stopping, sigint=sigint, sighup=sighup):
            self.step(max(0, self.max_iter - self.iteration))
            if self.param.snapshot_after_train and self._saved_at != self.iteration:
                self.snapshot()
            if not self.interrupted and before < self.iteration:
                self._test_if_due()
        self.log(events.Finished(self.iteration, self.loss if before < self.iteration else None, self.interrupted))

    def step(self, count: int) -> None:
        """Run `count` iterations, fewer after a request to stop."""
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
        """Means of the outputs of test net `index` over its test_iter batches; None after a request to stop."""
        if not 0 <= index < len(self.nets.tests):
            what = f"has no test net {index}; use an index below {len(self.nets.tests)}"
            raise InputError(what, path=str(self.file.path))
        self.log(events.Testing(self.iteration, index))
        result = self._engine.test(index, self._stopping)
        if result is None:
            return None
        loss, outputs = result
        self.log(events.Tested(self.iteration, index, outputs, loss if self.param.test_compute_loss else None))
        return {output.name: output.values for output in outputs}

    def request(self, what: str) -> None:
        """Request "stop" or "snapshot" after the current iteration; safe in signal handlers and other threads."""
        self._requests.add(what)

    @property
    def loss(self) -> float:
        """Mean loss of the last average_loss iterations; NaN before the first."""
        return float(np.mean(self._losses)) if self._losses else float("nan")

    @property
    def seed(self) -> int:
        return int(self._engine.context["seed"])

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.job.graphs

    def _iterate(self) -> None:
        loss, outputs = self._engine.train(self.iteration)
        self._losses.append(loss)
        self.outputs = {output.name: output.values for output in outputs}
        if self.param.display and self.iteration % self.param.display == 0:
            self._display(outputs)
        self.iteration += 1
        self.log(events.Stepped(self.iteration, loss))

    def _display(self, outputs: Outputs) -> None:
        now = time.monotonic()
        since, then = self._displayed or (self.iteration, now)
        self._displayed = self.iteration, now
        self.log(
            events.Displayed(
                self.iteration, self.loss, self._engine.context["rate"], outputs,
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

    # -- parameters and data ---------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, list[np.ndarray]]:
        """Copies of the train net's parameters in Caffe's shapes, by layer."""
        return self._engine.parameters.layers()

    def set_parameters(self, layers: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Set parameters by layer name, in Caffe's shapes; other layers keep theirs."""
        values, unknown = self._engine.parameters.match_layers(layers)
        if unknown:
            raise InputError("is not in the net; rename it", path=str(self.nets.train.path), layer=unknown[0])
        self._engine.parameters.write(values)
        self._saved_at = None

    def load(self, path: PathName) -> None:
        """Set parameters from a weight file, by layer name; layers of the file that are not in the net are ignored."""
        try:
            values, unknown = self._engine.parameters.match_layers(read_weights(path))
        except InputError as error:
            raise error.at(path=str(path)) from None
        self._engine.parameters.write(values)
        self._saved_at = None
        for name in unknown:
            self._note(f"Ignoring source layer {name}")
        if not values:
            self._note(f"{path} has no layer of this net; all parameters keep their initial values")

    def give(self, layer: str, *arrays: np.ndarray, test: int | None = None) -> None:
        """Set the arrays of an Input or MemoryData layer of the train net, or of a test net: one for each top."""
        self._engine.open_feeds.give(0 if test is None else 1 + test, layer, arrays)

    def close(self) -> None:
        """Release the files and threads of the feeds."""
        self._engine.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- snapshots -------------------------------------------------------------------------------------------------

    def snapshot(self) -> str:
        """Save a snapshot; returns the path of its solver state."""
        p, parameters = self.param, self._engine.parameters
        hdf5 = p.snapshot_format == snapshots.HDF5
        model, path = snapshots.snapshot_paths(p.snapshot_prefix, self.iteration, hdf5)
        self.log(events.Saving(model, path, hdf5))
        state = State(self.iteration, model, rate_drops(p, max(0, self.iteration - 1)), parameters.history())
        feeds = self._engine.open_feeds.state()
        extra = snapshots.Extra(seed=self.seed, iteration=self.iteration, losses=list(self._losses), feeds=feeds)
        snapshots.write_snapshot(model, path, self.nets.train.name, parameters.file_layers(), state, extra)
        self._saved_at = self.iteration
        return path

    def restore(self, path: PathName) -> None:
        """Resume from a snapshot, with the bits of an uninterrupted run; nothing changes if it does not fit."""
        saved, parameters = snapshots.read_snapshot(str(path)), self._engine.parameters
        try:
            values = parameters.match_snapshot(saved.weights)
        except InputError as error:
            raise error.at(path=saved.model) from None
        try:
            history = parameters.match_history(saved.state.history)
        except InputError as error:
            raise error.at(path=saved.path) from None
        self._engine.begin(self.seed if saved.extra is None else int(saved.extra["seed"]))
        parameters.write(values)
        parameters.write_history(history)
        self.iteration = self._saved_at = saved.state.iteration
        self._losses.clear()
        self.log(events.Restored(self.iteration, saved.path))
        if saved.extra is None:
            self._note("the snapshot has no data positions and no seed: data start over with the seed of this run")
            return
        self._losses.extend(map(float, saved.extra["losses"]))
        for note in self._engine.open_feeds.restore(saved.extra["feeds"]):
            self._note(note)

    # -- initialization --------------------------------------------------------------------------------------------

    def _end(self, iterations: int | None) -> int:
        if iterations is not None:
            if iterations < 0:
                raise InputError(f"iterations {iterations} is negative; give 0 or more")
            return iterations
        if not self.param.HasField("max_iter"):
            raise self.file.error("max_iter", "has no max_iter; set it to the number of iterations to train")
        return int(self.param.max_iter)

    def _begin(self, seed: int | None, snapshot: PathName | None, weights: Sequence[str]) -> None:
        if snapshot is not None and weights:
            raise InputError("a run starts from a snapshot or from weights; give only one of them")
        if seed is None:
            seed = self.param.random_seed if self.param.random_seed >= 0 else key_of(time.time_ns()) % 2**31
        for note in (*self.file.notes, *self.nets.train.file.notes):
            self._note(note)
        for field in ("debug_info", "snapshot_diff"):
            if getattr(self.param, field):
                self._note(f"{field} is ignored")
        self._engine.begin(seed)
        if snapshot is not None:
            self.restore(snapshot)
            return
        for path in weights or self._named_weights():
            self.load(path)

    def _named_weights(self) -> list[Path]:
        """The weight files in the solver; one field may list several, separated by commas."""
        paths = []
        for index, names in enumerate(self.param.weights):
            for name in names.split(","):
                try:
                    paths.append(resolve_path(name, self.file.path))
                except InputError as error:
                    raise self.file.error("weights", error.what, index) from None
        return paths

    def _note(self, text: str) -> None:
        self.log(events.Note(text))
