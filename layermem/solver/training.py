"""Caffe's loop of iterations, tests and snapshots, within a memory budget.

An iteration has the order of Caffe: test, forward and backward, display, update, snapshot.  If the iteration after the
last one displays, the run ends with a forward pass of the train net, which advances its data and BatchNorm averages.
source  Caffe solver.cpp
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from layermem.distributed.group import Group
from layermem.distributed.transport import Transport
from layermem.errors import DivergenceError, InputError
from layermem.graph.net import NetOptions
from layermem.graph.ops import Graph
from layermem.graph.sharing import communication_of
from layermem.planning.job import items_of, title_of
from layermem.proto.read import SolverFile
from layermem.proto.schema import copy_of
from layermem.proto.weights import open_weights
from layermem.report import events
from layermem.runtime.runner import Runner
from layermem.solver import snapshot as snapshots
from layermem.solver.callbacks import Callbacks
from layermem.solver.checks import LARGEST_RATE, check_rates, ignored, named_weights
from layermem.solver.engine import Outputs
from layermem.solver.jobs import StepOptions
from layermem.solver.planned import Planned
from layermem.solver.progress import Progress, restore_snapshot, write_snapshot
from layermem.solver.rules import defaulted, rate_drop
from layermem.solver.run_options import RunOptions
from layermem.solver.signals import Requests, Signals
from layermem.solver.snapshot import Snapshot, is_due, is_due_at_end
from layermem.solver.spill_rates import resolve_spill
from layermem.utils.arguments import checked
from layermem.utils.exclusive import exclusive
from layermem.utils.files import PathName
from layermem.utils.seeds import key_of
from layermem.utils.units import format_bytes

T = TypeVar("T", bound="Training")


class Training(Planned):
    """Training of a net by a solver prototxt.  layermem.Solver is its public form, with its options as keywords.

    InputError for errors in files, BudgetError if no plan fits, DivergenceError when a loss is not finite.

    nets, job, report, program, runner    the parts of the solver
    progress     the progress of the loop, which snapshots save
    iteration    number of updates so far        outputs    outputs of the last batch, by blob
    interrupted  whether a signal or request("stop") ended solve(); stopped_by: the number of the signal
    """

    def __init__(
        self,
        file: SolverFile | PathName,
        options: NetOptions = NetOptions(),
        step: StepOptions = StepOptions(),
        run: RunOptions = RunOptions(),
    ):
        self.group = Group(run.transport)
        self.log = run.log if run.log is not None and self.group.is_first else (lambda event: None)
        self.device = self.group.agree(lambda: step.target)
        if run.transport is not None:
            self._connect(run.transport)
        folder = step.spill_folder
        rates = partial(resolve_spill, folder, self.device, again=step.measure is True)
        spill = self.group.gather_from(lambda: rates() if self.group.is_first else None)[0]  # the same on all ranks
        planned = replace(step, device=self.device, spill=spill)
        self._take(self.group.agree(lambda: self._prepare(file, options, planned, run)))
        self._engine = self._engine_of(run, folder)
        self._lock = self._engine.lock
        self.log = self._lock.opened(self.log)
        self.progress = Progress(losses=deque(maxlen=self.param.average_loss))
        self.callbacks = Callbacks()
        self._call = self._lock.opened(self.callbacks.call)
        self.outputs: dict[str, np.ndarray] = {}
        self.interrupted = False
        self.stopped_by: int | None = None
        self.allow_nan = run.allow_nan
        self._requests = Requests(self.group.size)
        self._displayed: tuple[int, float] | None = None  # iteration and time of the last display
        try:
            self._begin(run)
        except BaseException:
            self.close()
            raise

    def _connect(self, transport: Transport) -> None:
        self.device.connect(transport)
        if self.device.communication_bytes:
            taken = format_bytes(self.device.communication_bytes)
            self._note(f"communication between ranks takes {taken} of the GPU, beside the budget")

    @property
    def runner(self) -> Runner:
        """The runner of the current plan."""
        return self._engine.runner

    # -- the loop --------------------------------------------------------------------------------------------------

    @exclusive
    def solve(
        self, *, sigint: str = "stop", sighup: str = "snapshot", sigterm: str | None = None, sigusr1: str | None = None
    ) -> None:
        """Iterate to the end with all tests, displays and snapshots; signals.py explains the effects of signals."""
        self.interrupted = False
        pending = partial(self._requests.is_pending, "stop")
        effects = sigint, sighup, sigterm, sigusr1
        with self._alone(), Signals(self.request, pending, *effects, of_ranks=self.group.size > 1) as signals:
            self.log(events.Solving(self.nets.train.name, self.param.lr_policy))
            self.step(max(0, self.max_iter - self.iteration))
            if is_due_at_end(self.param, self.iteration, self.progress.saved_at):
                self.snapshot()
            if not self.interrupted and not self.best.is_over(self.progress):
                self._show_final_loss()
                self._test_if_due()
        if self.loss_scale is not None:
            scale, skipped = self.loss_scale.scale, self.loss_scale.skipped
            self._note(f"loss scale {scale:g}; {skipped} of {self.iteration} updates were skipped by overflow")
        self.stopped_by = signals.received
        self.log(events.Finished(self.iteration, self.interrupted))

    @exclusive
    @checked
    def step(self, count: int) -> None:
        """Run `count` iterations, fewer after a request to stop or at the end of the solver's patience."""
        if count < 0:
            raise InputError(f"{count} is no number of iterations; give one from 0")
        self.interrupted = False
        self._is_stepping = True
        try:
            self._iterate_until(count)
        finally:
            self._is_stepping = False

    def _iterate_until(self, count: int) -> None:
        for _ in range(count):
            is_now = False
            self._follow_budget()
            if not self._stopping() and self._test_before_iteration():
                if self.best.is_over(self.progress):
                    return
                self._iterate()
                is_now = is_due(self.param, self.iteration)
            if is_now or "snapshot" in self._requests:
                self._requests.discard("snapshot")
                self.snapshot()
            if self._stopping():
                self._requests.discard("stop")
                self.interrupted = True
                return

    @exclusive
    @checked
    def test(self, index: int = 0) -> dict[str, np.ndarray] | None:
        """Return the means of the outputs of test net `index`, by name, over test_iter batches; None after a stop
        request.

        The means are float64, though each batch is float32: sums of thousands of batches stay exact.
        """
        self._number_of(index)
        self.log(events.Testing(self.iteration, index))
        result = self._engine.test(index, self._stopping, self._requests)
        if result is None:
            return None
        loss, outputs = result
        self.log(events.Tested(self.iteration, index, outputs, loss if self.param.test_compute_loss else None))
        return {output.name: output.values for output in outputs}

    def _number_of(self, index: int) -> int:
        """The number of test net `index` among all nets; InputError if there is none."""
        if not 0 <= index < len(self.nets.tests):
            what = f"has no test net {index}; use an index below {len(self.nets.tests)}"
            raise InputError(what, path=str(self.file.path))
        return 1 + index

    @checked
    def request(self, what: str) -> None:
        """Request "stop" or "snapshot" of all ranks after this iteration, or another look at the "budget" before the
        next; safe in signal handlers and threads."""
        self._requests.add(what)

    @property
    def iteration(self) -> int:
        return self.progress.iteration

    @property
    def resumed_from(self) -> str | None:
        """The solver state that the run continues."""
        return self.progress.resumed_from

    @property
    def loss(self) -> float:
        """Mean loss of the last average_loss iterations; NaN before the first."""
        losses = self.progress.losses
        return float(np.mean(losses)) if losses else float("nan")

    @property
    def seed(self) -> int:
        return self._engine.seed

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.job.graphs

    @checked
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
        self.progress.base_lr = float(base_lr)

    def _iterate(self) -> None:
        self._call("on_start")
        scale = self.loss_scale
        before = None if scale is None else replace(scale)
        loss, outputs = self._engine.train(self.iteration, lambda: self._call("on_gradient"), self._requests)
        self.progress.losses.append(loss)
        self.outputs = {output.name: output.values for output in outputs}
        if drop := rate_drop(self.param, self.iteration):
            self.log(events.RateDropped(self.iteration, drop))
        if self.param.display and self.iteration % self.param.display == 0:
            self._display(outputs)
        self._check_loss(loss)
        if scale is not None and before is not None and (change := scale.change_since(before)):
            self._note(f"Iteration {self.iteration}: {change}")
        self.progress.iteration += 1
        self.log(events.Stepped(self.iteration, loss, self.loss, self._engine.context["rate"], outputs))
        self._call("on_iteration")

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
                items=(self.iteration - since) * self.param.iter_size * items_of(self.nets.train),
            )
        )

    def _show_final_loss(self) -> None:
        if self.param.display and self.iteration % self.param.display == 0:
            loss = self._engine.forward(self.iteration)
            self.progress.losses.append(loss)
            self.log(events.FinalLoss(self.iteration, self.loss))
            self.progress.saved_at = None
            self._check_loss(loss)

    def _check_loss(self, loss: float) -> None:
        if not (self.allow_nan or math.isfinite(loss)):
            raise self.group.agreed(self._divergence(f"the loss of iteration {self.iteration} is {loss:g}"))

    def _divergence(self, what: str) -> DivergenceError:
        """The error for diverged training, with a remedy."""
        if bad := self._engine.inputs_not_finite():
            return DivergenceError(f"{what}, and {bad}; correct the data (--allow-nan continues in spite of it)")
        saved = self.progress.last_snapshot
        last = f"the last snapshot is '{saved}'" if saved else "there is no snapshot yet"
        wider = "" if self.loss_scale is None else ", or --storage bf16, as numbers above 65504 are infinite in fp16"
        if self.iteration == 0:
            ways = self._without_update() + wider
            return DivergenceError(f"{what} before any update, and no base_lr changes that; {ways}")
        return DivergenceError(
            f"{what}: training has diverged, and {last}; use a base_lr below {self.param.base_lr:g}, or "
            f"clip_gradients{wider} (--allow-nan continues in spite of it)"
        )

    def _without_update(self) -> str:
        """The changes that may make the loss of initial weights finite."""
        ways = "give trained weights, --weights, or change the fillers or the scale of the data (--allow-nan continues)"
        nodes = self._engine.nets.train.nodes
        unset = next((node.layer.name for node in nodes if getattr(node.layer.record, "global_stats", False)), "")
        if not unset:
            return ways
        return f"layer '{unset}' uses statistics that no training sets, 0 without weights: {ways}"

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
        for index in range(len(self.nets.tests)):
            means = self.test(index)
            if means is None:
                return False
            if index == 0:
                self.best.take(means, self._engine, self.progress, self.log)
        return True

    # -- parameters and data ---------------------------------------------------------------------------------------

    @exclusive
    def parameters(self) -> dict[str, list[np.ndarray]]:
        """Copies of the train net's parameters in Caffe's shapes, by layer."""
        return self._engine.parameters.layers()

    @exclusive
    @checked
    def set_parameters(self, layers: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Set parameters by layer name, in Caffe's shapes; other layers keep theirs."""
        values, unknown = self._engine.parameters.match_layers(layers)
        if unknown:
            raise InputError("is not in the net; rename it", path=str(self.nets.train.path), layer=unknown[0])
        self._engine.parameters.write(values)
        self.progress.saved_at = None

    @exclusive
    @checked
    def load(self, path: PathName) -> None:
        """Set parameters from a weight file, by layer name; layers of the file that are not in the net are ignored."""
        try:
            values, unknown = self._engine.parameters.match_weights(open_weights(path))
        except InputError as error:
            raise error.at(path=str(path)) from None
        self._engine.parameters.write(values)
        self.progress.saved_at = None
        for note in self._engine.parameters.repeated_names():
            self._note(note)
        for name in unknown:
            self._note(f"Ignoring source layer {name}")
        if not values:
            self._note(f"{path} has no layer of this net; all parameters keep their initial values")

    @exclusive
    @checked
    def give(self, layer: str | None = None, *arrays: Any, test: int | None = None, **tops: Any) -> None:
        """Set the arrays of an Input or MemoryData layer of the train net, or of test net `test`: one for each top.
        Without a layer, those of several by the names of their tops: give(data=x, label=y).

        An array holds whole batches along its first axis, no shorter last one; iterations read them cyclically.
        """
        index, feeds = 0 if test is None else self._number_of(test), self._engine.open_feeds
        for name, of_layer in feeds.by_layer(index, layer, arrays, tops).items():
            feeds.give(index, name, of_layer)

    @exclusive
    def close(self) -> None:
        """Release the files and threads of the feeds."""
        self._engine.close()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- snapshots -------------------------------------------------------------------------------------------------

    @exclusive
    def snapshot(self) -> str:
        """Save a snapshot and return the path of its solver state.  DivergenceError if a value in it is not finite."""
        if not self.allow_nan and (name := self._engine.parameters.find_not_finite()):
            what = f"'{name}' is not finite at iteration {self.iteration}, so no snapshot is saved"
            raise self.group.agreed(self._divergence(what))
        hdf5 = self.param.snapshot_format == snapshots.HDF5
        model, path = snapshots.snapshot_paths(self.param.snapshot_prefix, self.iteration, hdf5)
        self.log(events.Saving(model, path, hdf5))
        write = partial(write_snapshot, model, path, self._engine, self.progress)
        self._engine.parameters.shared.collect(write)
        self.progress.saved_at, self.progress.last_snapshot = self.iteration, path
        self.log(events.Saved(self.iteration, model, path))
        return path

    @exclusive
    @checked
    def restore(self, path: PathName) -> None:
        """Resume from a snapshot, with the bits of an uninterrupted run; nothing changes if it does not fit."""
        self.group.agree(lambda: self._restore(path))
        self._check_same()

    def _restore(self, snapshot: PathName | Snapshot) -> None:
        saved = snapshot if isinstance(snapshot, Snapshot) else snapshots.read_snapshot(str(snapshot))
        notes = restore_snapshot(saved, self._engine, self.progress)
        self.log(events.Restored(self.iteration, saved.path))
        if saved.extra is not None and saved.extra["base_lr"] is not None:
            self.set_base_lr(saved.extra["base_lr"])
            self._note(f"the snapshot goes on with base_lr {self.param.base_lr:g}, which was set while it ran")
        for note in notes:
            self._note(note)

    # -- initialization --------------------------------------------------------------------------------------------

    def _begin(self, run: RunOptions) -> None:
        """Initial values, or those of a snapshot or of weight files; every rank has the same."""
        if run.snapshot is not None and (run.weights or run.restart):
            what = "from weights" if run.weights else "from the newest snapshot"
            raise self.group.agreed(
                InputError(f"a run starts from the snapshot that is given or {what}; give only one of them")
            )
        seed = run.seed
        if seed is None:
            chosen = self.param.random_seed if self.param.random_seed >= 0 else key_of(time.time_ns()) % 2**31
            seed = self.group.gather(chosen)[0]
        if not -(2**63) <= seed < 2**63:
            raise self.group.agreed(InputError(f"the seed {str(seed)[:24]} is beyond 64 bits; give a smaller one"))
        start: PathName | Snapshot | None = run.snapshot
        if run.restart:
            newest: list[Snapshot] = []  # on the first rank, which continues with the files that it checked
            path = self.group.gather_from(lambda: self._newest_snapshot(newest))[0]
            start = newest[0] if newest else path
        self.group.agree(lambda: self._start(seed, start, run.weights))
        self._check_same()

    def _start(self, seed: int, snapshot: PathName | Snapshot | None, weights: Sequence[str]) -> None:
        notes = (*defaulted(self.param), *ignored(self.param, self.nets.tests))
        for note in (*self.file.notes, *self.nets.train.file.notes, *notes):
            self._note(note)
        self._engine.begin(seed)
        if self._engine.noise is not None:
            self._note(f"the data are noise of seed {self._engine.noise}: losses and weights have no meaning")
        for note in self._engine.open_feeds.notes:
            self._note(note)
        if snapshot is not None:
            self._restore(snapshot)
            return
        for path in weights or named_weights(self.file):
            self.load(path)

    def _newest_snapshot(self, newest: list[Snapshot]) -> str | None:
        """The path of the newest complete snapshot of the prefix, on the first rank, which appends it to `newest`."""
        if not self.group.is_first:
            return None
        found, notes = snapshots.newest_snapshot(self.param.snapshot_prefix)
        for note in notes:
            self._note(note, is_warning=True)
        if found is None:
            name = f"{'complete ' if notes else ''}snapshot '{self.param.snapshot_prefix}_iter_N'"
            self._note(f"there is no {name} to restart from: training begins", is_warning=bool(notes))
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
        self.group.check_same(together, "give all ranks the same --split-weights")
        kernels = self.group.gather(self.device.arithmetic)
        if len(set(kernels)) > 1:
            self._note(f"ranks compute by {', '.join(dict.fromkeys(kernels))}: bits depend on which rank has which")

    def _note(self, text: str, *, is_warning: bool = False) -> None:
        self.log(events.Note(text, is_warning))
