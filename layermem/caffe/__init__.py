"""The API of pycaffe on top of layermem: scripts written for pycaffe run unchanged (`layermem docs pycaffe`).

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
    from layermem.caffe import _caffe as _caffe
    from layermem.caffe import classifier as classifier
    from layermem.caffe import coord_map as coord_map
    from layermem.caffe import detector as detector
    from layermem.caffe import draw as draw
    from layermem.caffe import io as io
    from layermem.caffe import net_spec as net_spec
    from layermem.caffe import proto as proto
    from layermem.caffe import pycaffe as pycaffe
    from layermem.caffe.modes import configure as configure
    from layermem.caffe.modes import set_device as set_device
    from layermem.caffe.modes import set_mode_cpu as set_mode_cpu
    from layermem.caffe.modes import set_mode_gpu as set_mode_gpu
    from layermem.caffe.modes import set_random_seed as set_random_seed
    from layermem.caffe.net_spec import NetSpec as NetSpec
    from layermem.caffe.net_spec import layers as layers
    from layermem.caffe.net_spec import params as params
    from layermem.caffe.net_spec import to_proto as to_proto
    from layermem.caffe.nets import Classifier as Classifier
    from layermem.caffe.nets import Detector as Detector
    from layermem.caffe.nets import Net as Net
    from layermem.caffe.nets import layer_type_list as layer_type_list
    from layermem.caffe.process import NCCL as NCCL
    from layermem.caffe.process import Timer as Timer
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

TRAIN, TEST = 0, 1
__version__ = "1.0.0"  # the version of pycaffe with this API

MODULES = ("_caffe", "classifier", "coord_map", "detector", "draw", "io", "net_spec", "proto", "pycaffe")
NAMES = {  # by the module of this package that has them
    "modes": ("configure", "set_device", "set_mode_cpu", "set_mode_gpu", "set_random_seed"),
    "net_spec": ("NetSpec", "layers", "params", "to_proto"),
    "nets": ("Classifier", "Detector", "Net", "layer_type_list"),
    "process": (
        "NCCL",
        "Timer",
        "has_nccl",
        "init_log",
        "log",
        "set_multiprocess",
        "set_solver_count",
        "set_solver_rank",
        "solver_count",
        "solver_rank",
    ),
    "solvers": (
        "AdaDeltaSolver",
        "AdaGradSolver",
        "AdamSolver",
        "NesterovSolver",
        "RMSPropSolver",
        "SGDSolver",
        "get_solver",
    ),
}
_MODULE_OF = {name: module for module, names in NAMES.items() for name in names}

__all__ = ["TEST", "TRAIN", "Layer", "install", *_MODULE_OF, *MODULES]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    if name.startswith("__"):
        raise AttributeError(f"module 'caffe' has no attribute '{name}'")
    hint = did_you_mean(name, __all__) or f"it has {' '.join(sorted(__all__))}"
    raise AttributeError(f"no '{name}' in module 'caffe', which layermem answers; {hint}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
