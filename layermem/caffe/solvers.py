"""Solvers by pycaffe's names: layermem's, on the device and with the options of modes.py.

solver = caffe.get_solver("solver.prototxt")      the type that the file names
solver = caffe.SGDSolver("solver.prototxt")       this type, whatever the file names
"""

from __future__ import annotations

import sys
from os import PathLike
from typing import Any, ClassVar

from layermem.caffe import modes
from layermem.proto.read import SolverFile, read_solver
from layermem.report.log import Log
from layermem.solver import solver

PathName = str | PathLike[str]


class Solver(solver.Solver):
    """layermem.Solver with the device and the options of caffe.set_mode_gpu, caffe.configure, ...

    It writes Caffe's log lines to standard error.
    """

    kind: ClassVar[str | None] = None  # the type of solver; None: that of the file

    def __init__(self, param_file: PathName | SolverFile, **options: Any):
        file = param_file if isinstance(param_file, SolverFile) else read_solver(param_file)
        if self.kind is not None:
            file.message.type = self.kind
        seed = modes.seed()
        given = {} if seed is None or file.message.random_seed >= 0 else {"seed": seed}
        super().__init__(file, **{**modes.options(), **given, "log": Log(sys.stderr), **options})


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
