"""layermem trains Caffe networks inside a memory budget that the user names.

    Net, Solver        a net of one phase; a solver with its nets, ready to train
    NetSpec, L, P      nets written in Python; to_proto(...)
    Classifier         classes of images, as pycaffe's; Detector: of windows in images
    io                 images and messages: load_image, Transformer, ...
    plan(...)          the memory and time of a training step, before it runs
    compare(...)       the same under several strategies
    fit(...)           the largest batch that fits a budget
    compile(...)       the checked schedules themselves
    caffe              pycaffe's names, so that scripts written for it run as they are
    deploy(...)        a train_val.prototxt as a net that predicts
    PythonLayer        base of layers written in Python
    LayermemError      base of every error that a user can cause: InputError, BudgetError, DeviceError

Public names are imported on first use: `import layermem` needs no compiler, no PyCUDA and no GPU.
"""

import os
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from layermem.errors import BudgetError, DeviceError, InputError, LayermemError

if TYPE_CHECKING:
    from layermem import caffe as caffe
    from layermem import io as io
    from layermem.api import Net as Net
    from layermem.api import Solver as Solver
    from layermem.api import compare as compare
    from layermem.api import compile as compile
    from layermem.api import deploy as deploy
    from layermem.api import fit as fit
    from layermem.api import plan as plan
    from layermem.interactive.classifier import Classifier as Classifier
    from layermem.interactive.detector import Detector as Detector
    from layermem.python_layers import PythonLayer as PythonLayer
    from layermem.spec import L as L
    from layermem.spec import NetSpec as NetSpec
    from layermem.spec import P as P
    from layermem.spec import to_proto as to_proto

__version__ = "0.1.0"

__all__ = [
    "BudgetError", "Classifier", "Detector", "DeviceError", "InputError", "L", "LayermemError", "Net", "NetSpec", "P",
    "PythonLayer", "Solver", "caffe", "compare", "compile", "deploy", "fit", "io", "plan", "to_proto",
]  # fmt: skip
_SPEC = ("L", "NetSpec", "P", "to_proto")


_PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
if (_chosen := os.environ.get(_PROTOBUF, "upb")) not in ("upb", "python"):  # as for pycaffe; protobuf would not import
    del os.environ[_PROTOBUF]
    _what = f"{_PROTOBUF}={_chosen} is not there in today's protobuf, and is ignored; unset it, or set it to upb"
    warnings.warn_explicit(_what, UserWarning, "layermem", 0)


def __getattr__(name: str) -> Any:
    if name == "onnx":
        return import_module("layermem.onnx")
    if name not in __all__:
        raise AttributeError(f"module 'layermem' has no attribute '{name}'")
    if name == "PythonLayer":
        from layermem.python_layers import PythonLayer

        return PythonLayer
    if name == "io":
        return import_module("layermem.io")
    if name == "caffe":
        return import_module("layermem.caffe")
    if name == "Classifier":
        from layermem.interactive.classifier import Classifier

        return Classifier
    if name == "Detector":
        from layermem.interactive.detector import Detector

        return Detector
    if name in _SPEC:
        from layermem import spec

        return getattr(spec, name)
    from layermem import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
