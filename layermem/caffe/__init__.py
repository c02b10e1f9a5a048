"""The API of pycaffe on top of layermem: scripts written for pycaffe run unchanged (docs/pycaffe.md).

    import layermem.caffe as caffe                 replaces `import caffe`
    python -m layermem.caffe script.py ...         runs a script that contains `import caffe`
    layermem.caffe.install()                       makes `import caffe` import this module from then on

    net = caffe.Net("deploy.prototxt", "weights.caffemodel", caffe.TEST)
    solver = caffe.get_solver("solver.prototxt")

Names are imported on first use: this module also answers `import caffe` in Python layers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layermem.python_layers import PythonLayer as Layer
from layermem.python_layers.answering import install
from layermem.utils.similar import did_you_mean

if TYPE_CHECKING:
    from layermem.caffe import io as io
    from layermem.caffe import proto as proto
    from layermem.caffe.modes import configure as configure
    from layermem.caffe.modes import set_device as set_device
    from layermem.caffe.modes import set_mode_cpu as set_mode_cpu
    from layermem.caffe.modes import set_mode_gpu as set_mode_gpu
    from layermem.caffe.modes import set_random_seed as set_random_seed
    from layermem.caffe.nets import Classifier as Classifier
    from layermem.caffe.nets import Detector as Detector
    from layermem.caffe.nets import Net as Net
    from layermem.caffe.nets import layer_type_list as layer_type_list
    from layermem.caffe.process import has_nccl as has_nccl
    from layermem.caffe.process import init_log as init_log
    from layermem.caffe.process import log as log
    from layermem.caffe.process import set_multiprocess as set_multiprocess
    from layermem.caffe.process import set_solver_count as set_solver_count
    from layermem.caffe.process import set_solver_rank as set_solver_rank
    from layermem.caffe.process import solver_count as solver_count
    from layermem.caffe.process import solver_rank as solver_rank
    from layermem.caffe.solvers import AdaDeltaSolver as AdaDeltaSolver
    from layermem.caffe.solvers import AdaGradSolver as AdaGradSolver
    from layermem.caffe.solvers import AdamSolver as AdamSolver
    from layermem.caffe.solvers import NesterovSolver as NesterovSolver
    from layermem.caffe.solvers import RMSPropSolver as RMSPropSolver
    from layermem.caffe.solvers import SGDSolver as SGDSolver
    from layermem.caffe.solvers import get_solver as get_solver
    from layermem.spec import L, P
    from layermem.spec import NetSpec as NetSpec
    from layermem.spec import to_proto as to_proto

    layers, params = L, P

TRAIN, TEST = 0, 1
__version__ = "1.0.0"  # the version of pycaffe with this API

_MODES = ("configure", "set_device", "set_mode_cpu", "set_mode_gpu", "set_random_seed")
_NETS = ("Classifier", "Detector", "Net", "layer_type_list")
_PROCESS = (
    "has_nccl",
    "init_log",
    "log",
    "set_multiprocess",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
)
_SOLVERS = (
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "NesterovSolver",
    "RMSPropSolver",
    "SGDSolver",
    "get_solver",
)
_SPEC = {"NetSpec": "NetSpec", "layers": "L", "params": "P", "to_proto": "to_proto"}
_MODULES = ("io", "proto")
# Names of pycaffe and its forks that are missing here, with the reasons.
ABSENT = {
    "NCCL": "a net runs in one process; several GPUs are not used",
    "Timer": "`layermem time` measures every layer",
    "draw": "`layermem show` lists the layers of a net, and `layermem plan --plot` draws its memory",
}

__all__ = ["TEST", "TRAIN", "Layer", "install", *_MODES, *_NETS, *_PROCESS, *_SOLVERS, *_SPEC, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _SPEC:
        from layermem import spec

        return getattr(spec, _SPEC[name])
    if name in _MODES:
        from layermem.caffe import modes

        return getattr(modes, name)
    if name in _NETS:
        from layermem.caffe import nets

        return getattr(nets, name)
    if name in _SOLVERS:
        from layermem.caffe import solvers

        return getattr(solvers, name)
    if name in _PROCESS:
        from layermem.caffe import process

        return getattr(process, name)
    if name == "io":
        return import_module("layermem.caffe.io")
    if name == "proto":
        return import_module("layermem.caffe.proto")
    if name.startswith("__"):
        raise AttributeError(f"module 'caffe' has no attribute '{name}'")
    reason = f": {ABSENT[name]}; " if name in ABSENT else ", which layermem answers; "
    hint = did_you_mean(name, __all__) if name not in ABSENT else ""
    raise AttributeError(f"no '{name}' in module 'caffe'{reason}{hint or f'it has {chr(32).join(sorted(__all__))}'}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
