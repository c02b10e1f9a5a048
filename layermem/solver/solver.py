"""The solver: Caffe's loop of iterations, tests and snapshots, within a memory budget.

    solver = Solver("solver.prototxt", device="cpu", strategy="liveness", budget="50%", log=Log())
    solver.solve()                         everything: iterations to max_iter, tests, displays, snapshots
    solver.step(10); solver.test(0)        or in parts

An iteration has the order of Caffe: test, forward and backward, display, update, snapshot.  If the iteration after the
last one displays, the run ends with a forward pass of the train net, which advances its data and BatchNorm averages.
source  Caffe solver.cpp
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from layermem.backends.base import Device
from layermem.distributed.group import Group
from layermem.distributed.transport import Transport
from layermem.errors import DivergenceError, InputError
from layermem.graph.net import NetOptions
from layermem.graph.ops import Graph
from layermem.graph.sharing import communication_of
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.job import Budget, PathName, title_of
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.proto.read import SolverFile, read_solver, resolve_path
from layermem.proto.schema import Message
from layermem.proto.weights import open_weights
from layermem.report import events
from layermem.report.events import Event
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver import snapshot as snapshots
from layermem.solver.callbacks import Callbacks
from layermem.solver.checks import LARGEST_RATE, check_rates, check_solver
from layermem.solver.engine import Engine, Outputs
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.loss_scale import GROWTH_INTERVAL, LossScale, loss_scale_of
from layermem.solver.measure import ONCE, measure_once, measure_step
from layermem.solver.noise import nets_of_run, noise_seed
from layermem.solver.rules import defaulted, rate_drops
from layermem.solver.sharing import check_measurable, ranks_of, with_iter_size
from layermem.solver.signals import Requests, Signals
from layermem.solver.snapshot import Snapshot
from layermem.solver.spill_rates import resolve_spill
from layermem.solver.state_file import SolverStateData
from layermem.utils.exclusive import exclusive
from layermem.utils.seeds import key_of
from layermem.utils.units import format_bytes


def copy_of(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


class Solver:
    """Training of a net by a solver prototxt.

    InputError for errors in files, BudgetError if no plan fits, DivergenceError when a loss is not finite.

    device       a name ("reference", "cpu", ..) or a Device object
    strategy     name of a strategy (default: auto under a budget, else liveness), or `plan`: a Plan or a saved one
    hints        segment ends, layers to keep or recompute, the host budget
    budget       bytes of device memory: a number, "512KiB", "50%" of strategy `caffe`, or "free", all free memory of
                 the GPU; None is no limit
    host_budget  the same for offloaded bytes; None is no limit, except for a device that computes in the host's memory,
                 where it is 0 without `spill`
    spill        a folder for offloaded bytes, which are then in a file; plans use the rates of its file system
                 (solver/spill_rates.py), measured at first use
    slices       layers of the training step that run in slices of the batch, and the number of slices:
                 "conv1_1..pool2/4", or "whole/4"; weights in bands of rows: "fc6/rows/8"; both, separated by a comma;
                 "auto": the fastest plan; None is "off"
    costs        measured costs, or their file; None is a model of the device
    measure      run some steps first, within the budget, and plan with the times of their ops; "once": measure only if
                 no times are kept for this GPU (planning/kept_costs.py)
    batch        replaces the batch size of the train net
    data         "noise" or "noise:SEED" trains on noise of the shapes of the net instead of the data that it names
    inputs       with noise, shapes (NCHW) by name of tops of input layers; their data need not exist
    weights      files of initial weights, by layer name, instead of those in the solver
    snapshot     a .solverstate to resume from
    iterations   the last iteration, instead of max_iter (which learning rates still refer to)
    seed         replaces random_seed; the seed of a snapshot overrides both
    level, stages    NetState of the train net, in addition to the solver's
    allow_python   import and run the classes of Python layers
    allow_nan    train on, and save snapshots, when the loss or a parameter is NaN or infinite
    poison       fill freed bytes with NaN (slow; for tests)
    keep         names or globs of blobs whose data and gradient are held to the end of a step, for inspection;
                 "*.diff" holds the gradients of parameters
    log          called with events.*; report.log.Log() prints Caffe's lines
    iter_size    micro-batches of an iteration, instead of the solver's
    loss_scale   for a device that stores fp16 (docs/storage.md): "dynamic", the default, or a power of two
    restart      resume from the newest complete snapshot of the solver's snapshot_prefix, if there is one
    transport    connection to the other ranks that train the net (docs/ranks.md): every rank makes a Solver and calls
                 the same methods; only the first one logs and saves snapshots

    nets, job, report, program, runner    the parts of the solver
    iteration    number of updates so far        outputs    outputs of the last batch, by blob
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
        measure: bool | str = False,
        batch: int | None = None,
        data: str | None = None,
        inputs: Mapping[str, Sequence[int]] | None = None,
        slices: str | None = None,
        spill: PathName | None = None,
        weights: str | Sequence[str] = (),
        snapshot: PathName | None = None,
        iterations: int | None = None,
        seed: int | None = None,
        level: int = 0,
        stages: Sequence[str] = (),
        allow_python: bool = False,
        allow_nan: bool = False,
        poison: bool = False,
        keep: str | Sequence[str] = (),
        log: Callable[[Event], None] | None = None,
        iter_size: int | None = None,
        loss_scale: str | float | None = None,
        restart: bool = False,
        transport: Transport | None = None,
    ):
        options = NetOptions.of(batch, inputs, level, stages, allow_python)
        step = StepOptions(
            device=device,
            budget=budget,
            host_budget=host_budget,
            slices=slices,
            strategy=strategy,
            plan=plan,
            costs=costs,
            hints=hints,
            measure=measure,
            iter_size=iter_size,
            keep=(keep,) if isinstance(keep, str) else tuple(keep),
        )
        self.group = Group(transport)
        self.log = log if log is not None and self.group.is_first else (lambda event: None)
        self.device = self.group.agree(lambda: step.target)
        if transport is not None:
            self.device.connect(transport)
            if self.device.communication_bytes:
                taken = format_bytes(self.device.communication_bytes)
                self._note(f"communication between ranks takes {taken} of the GPU, beside the budget")
        spill_file = self.group.gather_from(  # all ranks plan with the rates of the first
            lambda: resolve_spill(spill, self.device, again=measure is True) if self.group.is_first else None
        )[0]
        step = replace(step, device=self.device, spill=spill_file)
        report = self.group.agree(lambda: self._prepare(file, options, step, data, iterations, loss_scale))
        self.program, job = report.program, report.job  # with the chosen slices
        self.job, self.report = job, replace(report, search=None)  # without the caches of the planners
        self._engine = Engine(
            self.nets,
            self.param,
            job.graphs,
            self.program,
            self.device,
            spill=None if spill is None else Path(spill),
            poison=poison,
            noise=noise_seed(data),
            group=self.group,
            loss_scale=self.loss_scale,
        )
        self.runner, self._lock = self._engine.runner, self._engine.lock
        self.iteration = 0
        self.callbacks = Callbacks()
        self._base_lr: float | None = None  # set at run time
        self.outputs: dict[str, np.ndarray] = {}
        self.interrupted = False
        self.allow_nan = allow_nan
        self.resumed_from: str | None = None  # path of the solver state
        self._requests = Requests(self.group.size)
        self._losses: deque[float] = deque(maxlen=self.param.average_loss)
        self._displayed: tuple[int, float] | None = None  # iteration and time of the last display
        self._saved_at: int | None = None  # iteration of the last snapshot, if nothing changed since
        self._last_snapshot: str | None = None  # path of its solver state
        try:
            files = weights.split(",") if isinstance(weights, str) else list(weights)
            self._begin(seed, snapshot, files, restart=restart)
        except BaseException:
            self.close()
            raise

    def _prepare(
        self,
        file: SolverFile | PathName,
        options: NetOptions,
        step: StepOptions,
        data: str | None,
        iterations: int | None,
        loss_scale: str | float | None,
    ) -> PlanReport:
        """Do all preparations that a rank can make, and check, alone; BudgetError if no plan fits."""
        self.file = with_iter_size(file if isinstance(file, SolverFile) else read_solver(file), step.iter_size)
        self.param = self.file.message
        self.loss_scale = loss_scale_of(self.device.storage, loss_scale)
        check_solver(self.file)
        ranks = ranks_of(self.file, self.group.size, self.group.rank)
        self.max_iter = self._end(iterations)
        check_rates(self.file, self.max_iter)
        self.nets = nets_of_run(self.file, options, data)
        if self.group.is_first and (self.param.snapshot or self.param.snapshot_after_train):
            snapshots.check_prefix(self.param.snapshot_prefix)
            snapshots.check_size(self.nets.train, self.param)
            snapshots.check_states_size(sum(net.state_bytes for net in self.nets.all), self.nets.train)
            snapshots.remove_orphans(self.param.snapshot_prefix)
        job = solver_job(self.file, self.nets, step, ranks)
        while self.device.check_kernels(job.graphs, self._note):
            job = solver_job(self.file, self.nets, step, ranks)
        job = job.with_host_budget(step.host_budget).with_slices(step.slices)
        if step.measure == ONCE:
            job = measure_once(job, self.device, step.strategy, step.budget, step.plan)
        elif step.measure:
            check_measurable(ranks)
            job = measure_step(job, self.device, step.strategy, step.budget, step.plan).job_with_costs()
        report = evaluate(job, step.strategy, step.budget, step.plan)
        report.feasible_program()
        return report

    # -- the loop --------------------------------------------------------------------------------------------------

    @exclusive
    def solve(self, *, sigint: str = "stop", sighup: str = "snapshot") -> None:
        """Iterate to the end with all tests, displays and snapshots; signals.py explains the effects of signals."""
        self.log(events.Solving(self.nets.train.name, self.param.lr_policy))
        self.interrupted = False
        of_ranks = self.group.size > 1
        pending = partial(self._requests.is_pending, "stop")
        with Signals(self.request, pending, sigint=sigint, sighup=sighup, of_ranks=of_ranks):
            self.step(max(0, self.max_iter - self.iteration))
            if self.param.snapshot_after_train and self._saved_at != self.iteration:
                self.snapshot()
            if not self.interrupted:
                self._show_final_loss()
                self._test_if_due()
        if self.loss_scale is not None:
            scale, skipped = self.loss_scale.scale, self.loss_scale.skipped
            self._note(f"loss scale {scale:g}; {skipped} of {self.iteration} updates were skipped by overflow")
        self.log(events.Finished(self.iteration, self.interrupted))

    @exclusive
    def step(self, count: int) -> None:
        """Run `count` iterations, fewer after a request to stop."""
        self.interrupted = False
        for _ in range(count):
            is_due = False
            if not self._stopping() and self._test_before_iteration():
                self._iterate()
                is_due = bool(self.param.snapshot and self.iteration % self.param.snapshot == 0)
            if is_due or "snapshot" in self._requests:
                self._requests.discard("snapshot")
                self.snapshot()
            if self._stopping():
                self._requests.discard("stop")
                self.interrupted = True
                return

    @exclusive
    def test(self, index: int = 0) -> dict[str, np.ndarray] | None:
        """Return the means of the outputs of test net `index`, by name, over test_iter batches; None after a stop
        request.

        The means are float64, though each batch is float32: sums of thousands of batches stay exact.
        """
        if not 0 <= index < len(self.nets.tests):
            what = f"has no test net {index}; use an index below {len(self.nets.tests)}"
            raise InputError(what, path=str(self.file.path))
        self.log(events.Testing(self.iteration, index))
        result = self._engine.test(index, self._stopping, self._requests)
        if result is None:
            return None
        loss, outputs = result
        self.log(events.Tested(self.iteration, index, outputs, loss if self.param.test_compute_loss else None))
        return {output.name: output.values for output in outputs}

    def request(self, what: str) -> None:
        """Request "stop" or "snapshot" after the current iteration; safe in signal handlers and other threads.  All
        ranks obey in the same iteration."""
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

    def set_base_lr(self, base_lr: float) -> None:
        """Replace the solver's base_lr from the next iteration on; the policy applies to it.  Snapshots keep it.

        InputError for a rate that is negative, not finite, or beyond float32 in a later iteration.
        """
        if not 0 <= base_lr <= LARGEST_RATE:
            raise InputError(f"cannot use base_lr {base_lr:g}; give a number from 0 to {LARGEST_RATE:.3g}")
        param = copy_of(self.param)
        param.base_lr = base_lr
        check_rates(replace(self.file, message=param), self.max_iter)
        self.param = self._engine.param = param
        self._base_lr = float(base_lr)

    def _iterate(self) -> None:
        self.callbacks.call("on_start")
        before = None if self.loss_scale is None else replace(self.loss_scale)
        loss, outputs = self._engine.train(self.iteration, lambda: self.callbacks.call("on_gradient"), self._requests)
        self._losses.append(loss)
        self.outputs = {output.name: output.values for output in outputs}
        if self.param.display and self.iteration % self.param.display == 0:
            self._display(outputs)
        self._check_loss(loss)
        if before is not None:
            self._note_scale(before)
        self.iteration += 1
        self.log(events.Stepped(self.iteration, loss, self.loss, self._engine.context["rate"], outputs))
        self.callbacks.call("on_iteration")

    def _note_scale(self, before: LossScale) -> None:
        """Log a note if the update of this iteration was skipped, or the scale has grown."""
        now = self.loss_scale
        assert now is not None
        if now.skipped > before.skipped:
            what = f"gradients overflowed at loss scale {before.scale:g}, and the update is skipped"
            goes_on = "" if now.scale == before.scale else f"; loss scale {now.scale:g}"
            self._note(f"Iteration {self.iteration}: {what}{goes_on}")
        elif now.scale > before.scale:
            self._note(f"Iteration {self.iteration}: loss scale {now.scale:g}, after {GROWTH_INTERVAL} updates")

    def _display(self, outputs: Outputs) -> None:
        now = time.monotonic()
        since, then = self._displayed or (self.iteration, now)
        self._displayed = self.iteration, now
        self.log(
            events.Displayed(
                self.iteration,
                self.loss,
                self._engine.context["rate"],
                outputs,
                interval=self.param.display,
                done=self.iteration - since,
                seconds=now - then,
            )
        )

    def _show_final_loss(self) -> None:
        if self.param.display and self.iteration % self.param.display == 0:
            loss = self._engine.forward(self.iteration)
            self._losses.append(loss)
            self.log(events.FinalLoss(self.iteration, self.loss))
            self._saved_at = None
            self._check_loss(loss)

    def _check_loss(self, loss: float) -> None:
        if not (self.allow_nan or math.isfinite(loss)):
            raise self.group.agreed(self._divergence(f"the loss of iteration {self.iteration} is {loss:g}"))

    def _divergence(self, what: str) -> DivergenceError:
        """The error for diverged training, with a remedy."""
        last = f"the last snapshot is '{self._last_snapshot}'" if self._last_snapshot else "there is no snapshot yet"
        wider = "" if self.loss_scale is None else ", or --storage bf16, as numbers above 65504 are infinite in fp16"
        return DivergenceError(
            f"{what}: training has diverged, and {last}; use a base_lr below {self.param.base_lr:g}, or "
            f"clip_gradients{wider} (--allow-nan continues in spite of it)"
        )

    def _stopping(self) -> bool:
        return "stop" in self._requests

    def _test_before_iteration(self) -> bool:
        """Run the tests that are due; return False if a request to stop interrupted them.

        In that case all their data are rewound, because a run that resumes at this iteration repeats all tests.
        """
        if self.iteration == 0 and not self.param.test_initialization:
            return True
        feeds, nets = self._engine.open_feeds, range(1, len(self.nets.all))
        before = {net: feeds.position(net) for net in nets}
        if self._test_if_due():
            return True
        for net in nets:
            feeds.seek(net, before[net])
        return False

    def _test_if_due(self) -> bool:
        """Run the tests that are due; return whether none was interrupted."""
        interval = self.param.test_interval
        if interval == 0 or self.iteration % interval:
            return True
        return all(self.test(index) is not None for index in range(len(self.nets.tests)))

    # -- parameters and data ---------------------------------------------------------------------------------------

    @exclusive
    def parameters(self) -> dict[str, list[np.ndarray]]:
        """Copies of the train net's parameters in Caffe's shapes, by layer."""
        return self._engine.parameters.layers()

    @exclusive
    def set_parameters(self, layers: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Set parameters by layer name, in Caffe's shapes; other layers keep theirs."""
        values, unknown = self._engine.parameters.match_layers(layers)
        if unknown:
            raise InputError("is not in the net; rename it", path=str(self.nets.train.path), layer=unknown[0])
        self._engine.parameters.write(values)
        self._saved_at = None

    @exclusive
    def load(self, path: PathName) -> None:
        """Set parameters from a weight file, by layer name; layers of the file that are not in the net are ignored."""
        try:
            values, unknown = self._engine.parameters.match_weights(open_weights(path))
        except InputError as error:
            raise error.at(path=str(path)) from None
        self._engine.parameters.write(values)
        self._saved_at = None
        for note in self._engine.parameters.repeated_names():
            self._note(note)
        for name in unknown:
            self._note(f"Ignoring source layer {name}")
        if not values:
            self._note(f"{path} has no layer of this net; all parameters keep their initial values")

    @exclusive
    def give(self, layer: str, *arrays: np.ndarray, test: int | None = None) -> None:
        """Set the arrays of an Input or MemoryData layer of the train net, or of test net `test`: one for each top.

        An array holds whole batches along its first axis, which iterations read in turn, cyclically; a shorter last
        batch is an error.
        """
        self._engine.open_feeds.give(0 if test is None else 1 + test, layer, arrays)

    @exclusive
    def close(self) -> None:
        """Release the files and threads of the feeds."""
        self._engine.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- snapshots -------------------------------------------------------------------------------------------------

    @exclusive
    def snapshot(self) -> str:
        """Save a snapshot and return the path of its solver state.  DivergenceError if a value in it is not finite."""
        p, parameters = self.param, self._engine.parameters
        if not self.allow_nan and (name := parameters.find_not_finite()):
            what = f"'{name}' is not finite at iteration {self.iteration}, so no snapshot is saved"
            raise self.group.agreed(self._divergence(what))
        hdf5 = p.snapshot_format == snapshots.HDF5
        model, path = snapshots.snapshot_paths(p.snapshot_prefix, self.iteration, hdf5)
        self.log(events.Saving(model, path, hdf5))
        parameters.shared.collect(lambda: self._write_snapshot(model, path))
        self._saved_at, self._last_snapshot = self.iteration, path
        self.log(events.Saved(self.iteration, model, path))
        return path

    def _write_snapshot(self, model: str, path: str) -> None:
        parameters = self._engine.parameters
        drops = rate_drops(self.param, max(0, self.iteration - 1))
        state = SolverStateData(self.iteration, model, drops, parameters.history())
        extra = snapshots.Extra(
            seed=self.seed,
            iteration=self.iteration,
            losses=list(self._losses),
            feeds=self._engine.open_feeds.state(),
            device=self.device.arithmetic,
            states=snapshots.saved_states(parameters.states()),
            base_lr=self._base_lr,
            ranks=self.group.size,
            loss_scale=None if self.loss_scale is None else self.loss_scale.saved(),
        )
        snapshots.write_snapshot(model, path, self.nets.train, parameters.file_layers(), state, extra)

    @exclusive
    def restore(self, path: PathName) -> None:
        """Resume from a snapshot, with the bits of an uninterrupted run; nothing changes if it does not fit."""
        self.group.agree(lambda: self._restore(path))
        self._check_same()

    def _restore(self, snapshot: PathName | Snapshot) -> None:
        saved = snapshot if isinstance(snapshot, Snapshot) else snapshots.read_snapshot(str(snapshot))
        parameters = self._engine.parameters
        try:
            values = parameters.match_snapshot(saved.weights)
        except InputError as error:
            raise error.at(path=saved.model) from None
        try:
            history = parameters.match_history(saved.state.history)
        except InputError as error:
            raise error.at(path=saved.path) from None
        states = {} if saved.extra is None else snapshots.states_of(saved.extra)
        try:
            parameters.check_states(states)
        except InputError as error:
            raise error.at(path=f"{saved.path}.json") from None
        if saved.extra is not None:
            self._engine.open_feeds.check(saved.extra["feeds"])
        self._engine.begin(self.seed if saved.extra is None else saved.extra["seed"])
        parameters.write(values)
        parameters.write_history(history)
        parameters.write(states)
        self.iteration = self._saved_at = saved.state.iteration
        self._last_snapshot = self.resumed_from = saved.path
        self._losses.clear()
        self.log(events.Restored(self.iteration, saved.path))
        if left := parameters.left_history(history):
            self._note(
                f"the snapshot has optimizer state of {' '.join(left)}, which lr_mult 0 freezes: it is left out, where "
                "BVLC Caffe moves them on by their momentum"
            )
        if saved.extra is None:
            self._note("the snapshot has no data positions and no seed: data start over with the seed of this run")
            return
        self._losses.extend(saved.extra["losses"])
        if saved.extra["base_lr"] is not None:
            self.set_base_lr(saved.extra["base_lr"])
            self._note(f"the snapshot goes on with base_lr {self.param.base_lr:g}, which was set while it ran")
        self._note_device(saved.extra["device"])
        if self.loss_scale is not None and (note := self.loss_scale.restore(saved.extra["loss_scale"])):
            self._note(note)
        for note in self._engine.open_feeds.restore(saved.extra["feeds"]):
            self._note(note)
        for name in dict.fromkeys(name for net in self.nets.all for name in net.python_sources):
            self._note(f"layer '{name}' is a Python source, whose place a snapshot does not hold: its data start over")

    def _note_device(self, device: str) -> None:
        """Log a note if a snapshot was written by kernels that compute other bits."""
        if device and device != self.device.arithmetic:
            advice = (
                "use that device and storage, and LAYERMEM_ISA for its instruction set, for the bits of an "
                "uninterrupted run"
            )
            self._note(f"the snapshot was written on '{device}' and goes on on '{self.device.arithmetic}': {advice}")

    # -- initialization --------------------------------------------------------------------------------------------

    def _end(self, iterations: int | None) -> int:
        if iterations is not None:
            if iterations < 0:
                raise InputError(f"iterations {iterations} is negative; give 0 or more")
            return iterations
        if not self.param.HasField("max_iter"):
            raise self.file.error("max_iter", "has no max_iter; set it to the number of iterations to train")
        return int(self.param.max_iter)

    def _begin(self, seed: int | None, snapshot: PathName | None, weights: Sequence[str], *, restart: bool) -> None:
        if snapshot is not None and (weights or restart):
            what = "from weights" if weights else "from the newest snapshot"
            raise self.group.agreed(
                InputError(f"a run starts from the snapshot that is given or {what}; give only one of them")
            )
        if seed is None:
            chosen = self.param.random_seed if self.param.random_seed >= 0 else key_of(time.time_ns()) % 2**31
            seed = self.group.gather(chosen)[0]
        if not -(2**63) <= seed < 2**63:
            raise self.group.agreed(InputError(f"the seed {str(seed)[:24]} is beyond 64 bits; give a smaller one"))
        start: PathName | Snapshot | None = snapshot
        if restart:
            newest: list[Snapshot] = []  # on the first rank, which continues with the files that it checked
            path = self.group.gather_from(lambda: self._newest_snapshot(newest))[0]
            start = newest[0] if newest else path
        self.group.agree(lambda: self._start(seed, start, weights))
        self._check_same()

    def _start(self, seed: int, snapshot: PathName | Snapshot | None, weights: Sequence[str]) -> None:
        """Set initial values, or the values of a snapshot or of weight files."""
        for note in (*self.file.notes, *self.nets.train.file.notes, *defaulted(self.param)):
            self._note(note)
        if self.param.test_interval and not self.nets.tests:
            self._note("test_interval has no effect without test_iter, the number of batches of a test")
        for field in ("debug_info", "snapshot_diff"):
            if getattr(self.param, field):
                self._note(f"{field} is ignored")
        self._engine.begin(seed)
        if self._engine.noise is not None:
            self._note(f"the data are noise of seed {self._engine.noise}: losses and weights have no meaning")
        for note in self._engine.open_feeds.notes:
            self._note(note)
        if snapshot is not None:
            self._restore(snapshot)
            return
        for path in weights or self._named_weights():
            self.load(path)

    def _newest_snapshot(self, newest: list[Snapshot]) -> str | None:
        """The path of the newest complete snapshot of the prefix, on the first rank, which appends it to `newest`."""
        if not self.group.is_first:
            return None
        found, notes = snapshots.newest_snapshot(self.param.snapshot_prefix)
        for note in notes:
            self._note(note)
        if found is None:
            self._note(f"there is no snapshot '{self.param.snapshot_prefix}_iter_N' to restart from: training begins")
            return None
        newest.append(found)
        return found.path

    def _check_same(self) -> None:
        """Raise InputError unless all ranks train the same net from the same weights."""
        if self.group.size == 1:
            return
        message = copy_of(self.param)
        message.ClearField("snapshot_prefix")  # only the first rank writes
        values = [
            ("settings of the solver", message.SerializeToString(deterministic=True)),
            ("nets", [title_of(net) for net in self.nets.all]),
            ("last iteration", self.max_iter),
            ("seed", self.seed),
            ("first iteration", self.iteration),
            ("weights", self._engine.parameters.digest()),
            ("loss scale", None if self.loss_scale is None else self.loss_scale.saved()),
        ]
        self.group.check_same(values, "give all ranks the same files and options")
        together = [("row bands", communication_of(self.job.graphs))]
        self.group.check_same(together, "give all ranks the same --slices, where these have rows of weights")
        kernels = self.group.gather(self.device.arithmetic)
        if len(set(kernels)) > 1:
            self._note(f"ranks compute by {', '.join(dict.fromkeys(kernels))}: bits depend on which rank has which")

    def _named_weights(self) -> list[Path]:
        """The weight files that the solver names; one field may list several, separated by commas."""
        paths = []
        for index, names in enumerate(self.param.weights):
            for name in names.split(","):
                try:
                    paths.append(resolve_path(name.strip(), self.file.path))
                except InputError as error:
                    raise self.file.error("weights", f"{error.what}; correct the path", index) from None
        return paths

    def _note(self, text: str) -> None:
        self.log(events.Note(text))
