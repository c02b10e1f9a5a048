"""Nets with pycaffe's arguments: nets of layermem on the device and with the options of modes.py."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

import numpy as np

import layermem.interactive.classifier as classifier
import layermem.interactive.detector as detector
import layermem.interactive.net as net
from layermem.caffe import modes
from layermem.caffe.process import NCCL
from layermem.errors import InputError, input_error_of
from layermem.interactive.blob import Array, Blob, Named
from layermem.interactive.passes import Passes
from layermem.interactive.views import SHOW_LAYERS, named_params
from layermem.layers.data import FEEDS
from layermem.layers.known_types import known_types
from layermem.proto.schema import PHASES
from layermem.proto.weights import is_named
from layermem.utils.arguments import checked
from layermem.utils.exclusive import exclusive
from layermem.utils.files import PathName

PHASE_NAMES = {number: name for name, number in PHASES.items()}


class Pycaffe(net.Net):
    """The attributes of pycaffe's nets that layermem's nets lack, or compute in another way."""

    @exclusive
    @checked
    def save(self, path: PathName) -> None:
        """Write the parameters to a binary .caffemodel, whatever its name; .safetensors and .npz have their formats."""
        self._write_weights(path, path if is_named(path) else "weights.caffemodel")

    @exclusive
    @checked
    def save_hdf5(self, path: PathName) -> None:
        """Write the parameters to an HDF5 file."""
        self._write_weights(path, "weights.h5")

    @exclusive
    @checked
    def load_hdf5(self, path: PathName) -> None:
        """Set parameters from an HDF5 file, by layer name."""
        self.load(path)

    def _make_views(self) -> None:
        """Make the mappings; of several layers of one name, `params` and `layer_dict` have the last, as pycaffe's."""
        super()._make_views()
        names = dict(zip(self._layer_names, self.layers))
        if len(names) < len(self.layers):
            self.layer_dict = Named("layer", names, SHOW_LAYERS, "layer_dict")
            unique = (layer.name for layer in self._definition.layers)
            params = {name: self._params[own] for name, own in zip(self._layer_names, unique) if own in self._params}
            self.params = named_params(params)

    def _run_before_forward(self, passes: Passes) -> None:
        """Go through zeros, as Caffe does before the first pass: those of a forward pass over zeros."""
        batch = {
            node.layer.name: [np.zeros(top.shape, np.float32) for top in node.layer.tops]
            for node in self._definition.nodes
            if node.layer.type in FEEDS
        }
        passes.forward_on_zeros(batch, self._write_parameters)

    # -- names of pycaffe's C++ class --------------------------------------------------------------------------------

    @property
    def _layer_names(self) -> list[str]:
        in_file = self._definition.names_in_file
        return [in_file.get(layer.name, layer.name) for layer in self._definition.layers]

    @property
    def _blob_names(self) -> list[str]:
        return list(self.blobs)

    @property
    def _blobs(self) -> list[Blob]:
        return list(self.blobs.values())

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    @property
    def _inputs(self) -> list[int]:
        return self._ids(self.inputs)

    @property
    def _outputs(self) -> list[int]:
        return self._ids(self.outputs)

    def _top_ids(self, layer: int) -> list[int]:
        return self._ids(self._definition.layers[layer].message.top)

    def _bottom_ids(self, layer: int) -> list[int]:
        return self._ids(self._definition.layers[layer].message.bottom)

    def _forward(self, start: int, end: int) -> float:
        """Run layers `start` to `end`, by number, and return the objective of their losses."""
        self.forward(start=self._unique(start), end=self._unique(end))
        layers = self._definition.layers[start : end + 1]
        losses = {name: self.blob_loss_weights[name] for layer in layers for name in layer.message.top}
        return float(sum(weight * np.sum(self.blobs[name].data) for name, weight in losses.items() if weight))

    def _backward(self, start: int, end: int) -> None:
        """Run layers `start` down to `end`, by number, backward."""
        self.backward(start=self._unique(start), end=self._unique(end))

    def _unique(self, layer: int) -> str:
        return self._definition.layers[layer].name

    def _set_input_arrays(self, data: Array, labels: Array) -> None:
        self.set_input_arrays(data, labels)

    def _ids(self, names: Iterable[str]) -> list[int]:
        numbers = {name: number for number, name in enumerate(self.blobs)}
        return [numbers[name] for name in names]

    def before_forward(self, run: object) -> None:
        """Accept caffe.NCCL, which does nothing; InputError for a function, since a pass is one program."""
        if not isinstance(run, NCCL):
            raise InputError(
                "a pass runs as one program, which calls no function between layers; run them one by one with "
                "net.forward(start=.., end=..), or measure them with `layermem time`"
            )

    after_forward = before_backward = after_backward = before_forward


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
            raise input_error_of(TypeError)(
                f"caffe.Net takes a net, {', '.join(names)}; {len(arguments)} arguments follow the net"
            )
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
