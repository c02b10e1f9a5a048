"""`caffe.pycaffe`: the names of pycaffe's module of this name."""

from layermem.caffe.nets import Net
from layermem.caffe.process import NCCL, Timer
from layermem.caffe.solvers import AdaDeltaSolver, AdaGradSolver, AdamSolver, NesterovSolver, RMSPropSolver, SGDSolver

__all__ = [
    "NCCL",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "NesterovSolver",
    "Net",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
]
