"""`caffe._caffe`: the names of pycaffe's C++ module that scripts use."""

from layermem.caffe.modes import set_device, set_mode_cpu, set_mode_gpu, set_random_seed
from layermem.caffe.nets import Net, layer_type_list
from layermem.caffe.process import (
    NCCL,
    Timer,
    has_nccl,
    init_log,
    log,
    set_multiprocess,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from layermem.caffe.solvers import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    Solver,
    get_solver,
)
from layermem.interactive.blob import Blob
from layermem.proto.schema import LayerParameter, SolverParameter
from layermem.python_layers import PythonLayer as Layer
from layermem.utils.fixed import Fixed as BlobVec

__all__ = [
    "NCCL",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "BlobVec",
    "Layer",
    "LayerParameter",
    "NesterovSolver",
    "Net",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "SolverParameter",
    "Timer",
    "get_solver",
    "has_nccl",
    "init_log",
    "layer_type_list",
    "log",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
]
