"""Solvers with pycaffe's names: solvers of layermem on the device and with the options of modes.py.

solver = caffe.get_solver("solver.prototxt")      the type that the file names
solver = caffe.SGDSolver("solver.prototxt")       this type, whatever the file names
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from layermem.caffe import modes
from layermem.caffe.nets import Pycaffe
from layermem.caffe.process import NCCL
from layermem.errors import InputError
from layermem.interactive import solver
from layermem.interactive.blob import Array, Blob, NetBlob
from layermem.interactive.net import Net
from layermem.interactive.solver_net import INSTEAD, SolverNet
from layermem.proto.read import SolverFile, read_solver
from layermem.report.log import Log
from layermem.utils.arguments import checked
from layermem.utils.exclusive import exclusive, made_once
from layermem.utils.files import PathName
from layermem.utils.fixed import Fixed


class SolverPycaffe(Pycaffe, SolverNet):
    """A net of a solver within a budget: it runs whole passes, in the arena of the solver."""


class HandNet(Pycaffe):
    """Net `number` of a solver, run by hand in an arena of its own, with the parameters of the solver.

    Arrays that the user gives to the net of the solver, or writes to its blobs, are those of this net, and its Python
    layers are the same objects.  Other data layers have a position of their own.
    """

    def __init__(self, of: Solver, number: int):
        self._of = SolverNet(of, number)
        self._earlier = definition = self._of.definition
        super().__init__(
            definition.file,
            "TEST" if number else "TRAIN",
            level=definition.options.level,
            stages=definition.options.stages,
            device=of.device,
            seed=of.seed,
            allow_python=definition.options.allow_python,
        )
        self._lock = of._lock  # it reads the parameters of the solver, so they share a lock
        self.share_with(of.net)

    def _given(self, name: str) -> Array | None:
        return self._of._given(name)

    def _input(self, name: str) -> Array:
        given = self._given(name)
        if given is None:
            raise InputError(f"blob '{name}' was given several batches, which no array can show; give one batch")
        return given

    def _give_inputs(self) -> None:
        self._open_feeds.read_arrays_of(0, self._of._open_feeds, self._of._number)

    def set_input_arrays(self, data: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Set the arrays of the MemoryData layer, for the solver too."""
        self._of.set_input_arrays(data, labels)

    @exclusive
    def reshape(self, **shapes: Sequence[int]) -> None:
        """Raise InputError for other shapes: the plan of a solver holds for its shapes."""
        if shapes or self._shapes:
            self._shapes.clear()
            raise InputError(f"net '{self.name}' of a solver is planned for its shapes; {INSTEAD}")


class TrainNet(SolverPycaffe):
    """The train net of a solver: the blobs of its last step, or of a later forward or backward call by the user.

    Such calls run on the net `separate`, with data of its own.  Gradients of parameters are those of the
    solver: backward adds to them, solver.apply_update() updates by them, and a step begins with zeros.
    """

    def __init__(self, of: Solver):
        super().__init__(of, 0)
        self._solver, self._by_hand = of, False
        of._engine.before_run.append(self._step_begins)

    @made_once
    def separate(self) -> HandNet:
        return HandNet(self._solver, 0)

    @exclusive
    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Array]:
        """Run layermem.Net.forward.  The averages of BatchNorm move, those of the solver too."""
        made = self.separate.forward(blobs, start, end, **inputs)
        self._by_hand = True
        for layer in self._definition.layers:
            for (name, param), blob in zip(layer.params, self._params.get(layer.name, ())):
                if not param.learned:
                    blob.data[...] = self.separate._runner().read(name).reshape(blob.shape)
        return made

    @exclusive
    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **top_diffs: Any
    ) -> dict[str, Array]:
        """Run layermem.Net.backward; no parameter is updated."""
        others = self.separate._params
        pairs = [pair for layer, blobs in self._params.items() for pair in zip(blobs, others[layer])]
        for mine, theirs in pairs:
            theirs.diff[...] = mine.diff
        made = self.separate.backward(diffs, start, end, **top_diffs)
        for mine, theirs in pairs:
            mine.diff[...] = theirs.diff
        self._by_hand = True
        return made

    def _step_begins(self) -> None:
        self._by_hand = False

    def _blob(self, name: str) -> Blob:
        def value(kind: str, of_step: Callable[[str], Array]) -> Array:
            with self._lock.mutex:
                if self._by_hand or not self._engine.values[0]:
                    array: Array = getattr(self.separate.blobs[name], kind)
                    return array
                return of_step(name)

        data, diff = (lambda: value("data", self._data)), (lambda: value("diff", self._diff))
        return NetBlob(name, lambda: self._shape(name), data, diff)


class Solver(solver.Solver):
    """layermem.Solver with the device and the options of caffe.set_mode_gpu, caffe.configure, ...

    It writes Caffe's log lines to standard error, and goes on when a loss is not finite.  Without a budget, its nets
    support everything that pycaffe's do: blobs and gradients are held to the end of a step, and forward and backward
    calls use a separate arena.  With a budget, its nets are those of layermem.Solver, in the single arena that the
    budget bounds.
    """

    kind: ClassVar[str | None] = None  # the type of solver; None: the type in the file

    def __init__(self, param_file: PathName | SolverFile, **options: Any):
        file = param_file if isinstance(param_file, SolverFile) else read_solver(param_file)
        if self.kind is not None:
            file.message.type = self.kind
        seed = modes.seed()
        given = {} if seed is None or file.message.random_seed >= 0 else {"seed": seed}
        chosen = {**modes.options(), **given, "log": Log(sys.stderr), "allow_nan": True, **options}
        if not file.message.HasField("max_iter"):
            chosen.setdefault("iterations", 0)  # Caffe's default, for a script that only steps
        self._bounded = chosen.get("budget") is not None
        self._holds_gradients = not self._bounded
        if not self._bounded:
            chosen.setdefault("keep", ("*",))
        super().__init__(file, **chosen)

    @exclusive
    @checked
    def solve(self, resume_file: PathName | None = None, **effects: Any) -> None:
        """Run layermem.Solver.solve, from the snapshot of a .solverstate if it is given."""
        if resume_file is not None:
            self.restore(resume_file)
        super().solve(**effects)

    @made_once
    def net(self) -> SolverNet:
        """The train net."""
        return SolverPycaffe(self, 0) if self._bounded else TrainNet(self)

    @made_once
    def test_nets(self) -> list[Any]:
        """The test nets, which share the parameters of the train net and read their own data."""
        numbers = range(1, len(self.nets.all))
        return Fixed("test_nets", ((SolverPycaffe if self._bounded else HandNet)(self, number) for number in numbers))

    @property
    def lr(self) -> float:
        """The learning rate of the next iteration."""
        return self.rate

    @exclusive
    def apply_update(self) -> None:
        """Update the parameters by net.params[layer][i].diff, and count an iteration, as a step does at its end."""
        if self._bounded:
            raise InputError(
                "within a budget a step updates each parameter as soon as its gradient is final, and holds none for "
                "apply_update; use solver.step(1), or no budget"
            )
        self._engine.update(self.iteration)
        self.progress.iteration += 1

    @checked
    def share_weights(self, net: Net) -> None:
        """Let `net` use the parameters of the solver in layers of the same names."""
        net.share_with(self.net)

    @checked
    def add_callback(
        self,
        on_start: Callable[[], object] | NCCL | None = None,
        on_gradient: Callable[[], object] | None = None,
        *,
        on_iteration: Callable[[], object] | None = None,
    ) -> None:
        """Call functions in each iteration: on_start before its first forward pass, on_gradient before the update."""
        if isinstance(on_start, NCCL):
            return
        if on_gradient is not None and self._bounded and self.param.iter_size == 1:
            warnings.warn(
                "within a budget, and with iter_size 1, each parameter is updated as soon as its gradient is final: "
                "on_gradient is called after the update, and what it writes to a diff has no effect",
                stacklevel=3,  # through `checked`
            )
        super().add_callback(on_start, on_gradient, on_iteration=on_iteration)


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
