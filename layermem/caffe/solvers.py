"""Solvers with pycaffe's names: solvers of layermem on the device and with the options of modes.py.

solver = caffe.get_solver("solver.prototxt")      the type that the file names
solver = caffe.SGDSolver("solver.prototxt")       this type, whatever the file names
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from layermem.caffe import modes
from layermem.caffe.nets import Pycaffe
from layermem.interactive import solver
from layermem.interactive.blob import Array, Blob, NetBlob
from layermem.interactive.solver_net import SolverNet
from layermem.proto.read import SolverFile, read_solver
from layermem.report.log import Log
from layermem.utils.exclusive import exclusive, made_once

PathName = str | PathLike[str]


class TrainNet(SolverNet):
    """The train net of a solver: the blobs of its last step, or of a later forward or backward call by the user.

    Such calls run on the net `separate`, which shares the parameters and reads its own data, so that they do not affect
    the training.
    """

    def __init__(self, of: Solver):
        super().__init__(of._engine, 0, of.report)
        self._solver, self._by_hand = of, False
        of._engine.before_run.append(self._step_begins)

    @made_once
    def separate(self) -> Pycaffe:
        return self._solver._separate_net(0)

    @exclusive
    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Array]:
        """Run layermem.Net.forward."""
        made = self.separate.forward(blobs, start, end, **inputs)
        self._by_hand = True
        return made

    @exclusive
    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **top_diffs: Any
    ) -> dict[str, Array]:
        """Run layermem.Net.backward, after forward; no parameter is updated."""
        return self.separate.backward(diffs, start, end, **top_diffs)

    def _step_begins(self) -> None:
        self._by_hand = False

    def _blob(self, name: str) -> Blob:
        shape = self._definition.blobs[self._version(name)].shape

        def zeros() -> Array:
            return np.zeros(shape, np.float32)

        def data() -> Array:
            with self._lock:
                if self._by_hand:
                    return self.separate.blobs[name].data
                return self._data(name) if self._engine.values[0] else zeros()

        def diff() -> Array:
            with self._lock:
                if self._by_hand:
                    return self.separate.blobs[name].diff
                return self._diff(name) if self._engine.values[0] else zeros()

        return NetBlob(name, lambda: shape, data, diff)

    def _parameter(self, layer: str, index: int, name: str, shape: tuple[int, ...]) -> Blob:
        blob = super()._parameter(layer, index, name, shape)

        def diff() -> Array:
            with self._lock:
                if self._by_hand:
                    return self.separate.params[layer][index].diff
                return blob.diff if self._engine.values[0] else np.zeros(shape, np.float32)

        return NetBlob(blob.name, lambda: shape, lambda: blob.data, diff)


class Solver(solver.Solver):
    """layermem.Solver with the device and the options of caffe.set_mode_gpu, caffe.configure, ...

    It writes Caffe's log lines to standard error.  Without a budget, its nets support everything that pycaffe's do:
    blobs and gradients are held to the end of a step, and forward and backward calls use a separate arena.  With a
    budget, its nets are those of layermem.Solver, in the single arena that the budget bounds.
    """

    kind: ClassVar[str | None] = None  # the type of solver; None: the type in the file

    def __init__(self, param_file: PathName | SolverFile, **options: Any):
        file = param_file if isinstance(param_file, SolverFile) else read_solver(param_file)
        if self.kind is not None:
            file.message.type = self.kind
        seed = modes.seed()
        given = {} if seed is None or file.message.random_seed >= 0 else {"seed": seed}
        chosen = {**modes.options(), **given, "log": Log(sys.stderr), **options}
        self._bounded = chosen.get("budget") is not None
        if not self._bounded:
            chosen.setdefault("keep", ("*", "*.diff"))
        super().__init__(file, **chosen)

    @made_once
    def net(self) -> SolverNet:
        """The train net."""
        return super().net if self._bounded else TrainNet(self)

    @made_once
    def test_nets(self) -> list[Any]:
        """The test nets, which share the parameters of the train net and read their own data."""
        if self._bounded:
            return super().test_nets
        return [self._separate_net(1 + index) for index in range(len(self.nets.tests))]

    def _separate_net(self, number: int) -> Pycaffe:
        """Net `number` in a separate arena, with the parameters of the solver."""
        definition = self.nets.all[number]
        net = Pycaffe(
            definition.file,
            "TEST" if number else "TRAIN",
            level=definition.options.level,
            stages=definition.options.stages,
            device=self.device,
            seed=self.seed,
            allow_python=definition.options.allow_python,
        )
        net._lock = self._lock  # it reads the parameters of the solver, so they share a lock
        net.share_with(self.net)
        return net


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum."""

    kind = "SGD"


class NesterovSolver(Solver):
    """Nesterov's accelerated gradient."""

    kind = "Nesterov"


class AdaGradSolver(Solver):
    """AdaGrad."""

    kind = "AdaGrad"


class RMSPropSolver(Solver):
    """RMSProp."""

    kind = "RMSProp"


class AdaDeltaSolver(Solver):
    """AdaDelta."""

    kind = "AdaDelta"


class AdamSolver(Solver):
    """Adam."""

    kind = "Adam"


_KINDS = {
    each.kind: each for each in (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver)
}


def get_solver(param_file: PathName) -> Solver:
    """The solver in a prototxt, of the type that it names."""
    file = read_solver(param_file)
    return _KINDS.get(file.message.type, Solver)(file)
