"""Nets with pycaffe's arguments: nets of layermem on the device and with the options of modes.py."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from typing import Any

import layermem.interactive.classifier as classifier
import layermem.interactive.detector as detector
import layermem.interactive.net as net
from layermem.caffe import modes
from layermem.errors import InputError
from layermem.layers.known_types import known_types
from layermem.proto.schema import PHASES
from layermem.utils.exclusive import exclusive

PathName = str | PathLike[str]
PHASE_NAMES = {number: name for name, number in PHASES.items()}


class Pycaffe(net.Net):
    """Methods of pycaffe's nets that layermem's lack."""

    @exclusive
    def save_hdf5(self, path: PathName) -> None:
        """Write the parameters to an HDF5 file, whose name ends in .h5 or .hdf5."""
        if os.path.splitext(path)[1] not in (".h5", ".hdf5"):
            raise InputError(f"'{os.fspath(path)}' does not end in .h5; rename it")
        self.save(path)

    @exclusive
    def load_hdf5(self, path: PathName) -> None:
        """Set parameters from an HDF5 file, by layer name."""
        self.load(path)


class Net(Pycaffe):
    """A net with pycaffe's arguments: caffe.Net(path, caffe.TEST), caffe.Net(path, weights, caffe.TEST), or by name.

    network_file   a path, a NetParameter message or a NetSpec
    phase          caffe.TRAIN or caffe.TEST
    weights        a weight file
    level, stages  the state for NetStateRules of the file
    options        options of layermem.Net (budget, device, keep, ...), which override caffe.configure, set_mode_gpu,
                   ...

    Everything else is as in layermem.Net.
    """

    def __init__(
        self,
        network_file: Any,
        *arguments: Any,
        phase: int | None = None,
        level: int = 0,
        stages: Iterable[str] | None = None,
        weights: PathName | None = None,
        **options: Any,
    ):
        names = (
            ("weights", "phase") if arguments and _is_path(arguments[0]) else ("phase", "level", "stages", "weights")
        )
        if len(arguments) > len(names):
            raise InputError(f"caffe.Net takes a net, {', '.join(names)}; {len(arguments)} arguments follow the net")
        given = {"phase": phase, "level": level, "stages": stages, "weights": weights, **dict(zip(names, arguments))}
        if given["phase"] not in (None, *PHASE_NAMES):
            raise InputError(f"no phase {given['phase']!r}; use caffe.TRAIN or caffe.TEST")
        name = PHASE_NAMES[1 if given["phase"] is None else given["phase"]]
        super().__init__(
            network_file,
            name,
            weights=given["weights"],
            level=given["level"] or 0,
            stages=given["stages"] or (),
            **_defaults(options),
        )


class Classifier(Pycaffe, classifier.Classifier):
    """layermem.Classifier with the device and the options of caffe.set_mode_gpu, caffe.configure, ..."""

    def __init__(self, model_file: PathName, pretrained_file: PathName | None, *arguments: Any, **options: Any):
        super().__init__(model_file, pretrained_file, *arguments, **_defaults(options))


class Detector(Pycaffe, detector.Detector):
    """layermem.Detector with the device and the options of caffe.set_mode_gpu, caffe.configure, ..."""

    def __init__(self, model_file: PathName, pretrained_file: PathName | None, *arguments: Any, **options: Any):
        super().__init__(model_file, pretrained_file, *arguments, **_defaults(options))


def layer_type_list() -> list[str]:
    """The layer types that a net may have."""
    return known_types()


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    seed = modes.seed()
    return {**modes.options(), **({} if seed is None else {"seed": seed}), **options}


def _is_path(value: object) -> bool:
    return isinstance(value, str | PathLike)
