"""Transfers parameters and optimizer state of a solver between the arena and files.

All values have the shapes and the order of Caffe:

    layers     {"conv1": [weight (K,C/g,kh,kw), bias (K)], ...} for the layers with parameters
    history    the first blob of every parameter in the order of the net, then the second blobs (AdaDelta, Adam);
               zeros for parameters that are not updated: statistics, and those with lr_mult 0.  A shared parameter
               counts once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net, NetLayer, NetParam
from layermem.layers.fillers import PART, fill_parts
from layermem.proto.blobs import Blob, LazyBlob, reshaped
from layermem.proto.schema import Message, copy_of
from layermem.proto.weights import Weights
from layermem.runtime.runner import Runner
from layermem.solver.shared_state import SharedState

Layers = Mapping[str, Sequence[np.ndarray]] | Mapping[str, Sequence[Blob]]


def check_shared(train: Net, test: Net) -> None:
    """Raise InputError unless layers of the same name in both nets have the same parameters, which they share."""
    known = {layer.name: layer for layer in train.layers}
    for layer in test.layers:
        other = known.get(layer.name)
        if other is None or not layer.params:
            continue
        mine, theirs = ([p.tensor for _, p in each.params] for each in (layer, other))
        if mine != theirs:
            raise InputError(
                f"has parameters of shapes {_shapes(layer)} in this test net and {_shapes(other)} in the train net; "
                "make them equal, or rename one of the layers",
                path=test.path,
                line=layer.line,
                layer=layer.name,
            )
        names, others = ([name for name, _ in each.params] for each in (layer, other))
        if names != others:
            raise InputError(
                f"has the parameters {', '.join(names)} in this test net and {', '.join(others)} in the "
                "train net; give them the same 'param { name }' in both",
                path=test.path,
                line=layer.line,
                layer=layer.name,
            )


def match_weights(nets: Sequence[Net], weights: Weights[Any]) -> tuple[dict[str, Blob], list[str]]:
    """Return the values of a weight file for the parameters of `nets`, by parameter, and the layers that no net has.

    Several layers of one name follow Caffe's rule: each one in a binary file goes into the first one of the net, so
    that the last one in the file counts; the one in an HDF5 file goes into the last one.  InputError for blobs that do
    not fit.
    """
    values: dict[str, Blob] = {}
    known = {layer.name for net in nets for layer in net.layers}
    for net in nets:
        for name, layer in _targets(weights, net):
            known.add(name)
            values.update(_match_blobs(layer, weights[name]))
    return values, [name for name in weights if name not in known]


def _shapes(layer: NetLayer) -> str:
    return ", ".join("x".join(map(str, p.shape)) for _, p in layer.params) or "none"


class Parameters:
    """The parameters and optimizer state in the arena of `runner`; `nets` are the train net and the test nets.

    shared   the optimizer state of all ranks
    """

    def __init__(self, nets: Sequence[Net], runner: Runner, history_count: int, shared: SharedState | None = None):
        self.train, self.nets, self.runner, self.history_count = nets[0], tuple(nets), runner, history_count
        self.shared = shared or SharedState(runner)

    def fill(self, seed: int) -> None:
        """Initialize every parameter with its filler, seeded by (seed, layer, index), and optimizer state with
        zeros."""
        done: set[str] = set()
        for net in self.nets:
            for name, owned in net.params.items():
                if name not in done:
                    done.add(name)
                    self._fill(net, name, owned, seed)
        for state in self._history_names():
            if state is not None and self.shared.is_here(state):
                self.runner.zero(state)

    def _fill(self, net: Net, name: str, owned: NetParam, seed: int) -> None:
        """Fill one parameter in parts, so that its values are not in memory twice."""
        key = (seed, owned.layer, owned.index)
        if owned.param.initial is not None:
            self.runner.write(name, owned.param.initial)
            return
        try:
            parts = fill_parts(owned.param.filler, owned.param.shape, *key, unit=self.runner.unit(name))
            self.runner.write_parts(name, parts)
        except InputError as error:
            line = next((node.line for node in net.nodes if node.layer.name == owned.layer), None)
            raise error.at(path=net.path, line=line, layer=owned.layer) from None

    # -- layers ------------------------------------------------------------------------------------------------

    def layers(self) -> dict[str, list[np.ndarray]]:
        """The parameters of the train net by layer; a shared one is listed under each layer that uses it."""
        return {layer.name: [*self._blobs(layer)] for layer in self.train.layers if layer.params}

    def file_layers(self) -> dict[str, tuple[Message, list[Blob]]]:
        """All layers of the train net in the form of weight files: name -> (layer, blobs).  Parts are left out.

        As in Caffe, a layer states the phase.

        Blobs are read from the arena when they are needed, so that there is only one copy at a time.
        """
        return {
            layer.name: (self._stated(layer), [self._lazy(name, param.shape) for name, param in layer.params])
            for layer in self.train.layers
        }

    def _stated(self, layer: NetLayer) -> Message:
        stated = copy_of(layer.message)
        stated.phase = self.train.phase
        return stated

    def _lazy(self, name: str, shape: tuple[int, ...]) -> LazyBlob:
        return LazyBlob(shape, lambda: self.shared.read(name))

    def _blobs(self, layer: NetLayer) -> Iterator[np.ndarray]:
        for name, param in layer.params:
            yield self.runner.read(name).reshape(param.shape)

    def match_layers(self, layers: Layers) -> tuple[dict[str, Blob], list[str]]:
        """The values in `layers` for the parameters of all nets, by parameter, and the layers that no net has.

        InputError for a layer whose blobs do not fit.
        """
        values: dict[str, Blob] = {}
        known = set()
        for net in self.nets:
            for layer in net.layers:
                known.add(layer.name)
                if layer.params and layer.name in layers:
                    values.update(_match_blobs(layer, layers[layer.name]))
        return values, [name for name in layers if name not in known]

    def match_weights(self, weights: Weights[Any]) -> tuple[dict[str, Blob], list[str]]:
        """Return the values of a weight file for the nets of this solver; see the function match_weights."""
        return match_weights(self.nets, weights)

    def repeated_names(self) -> list[str]:
        """A sentence for each name that several layers with parameters share."""
        return [
            f"{len(layers)} layers " + (f"are named '{name}'" if name else "have no name") + ": as in Caffe, a weight "
            "file sets one of them; give each a name of its own to set all"
            for name, layers in _layers_by_name(self.train).items()
            if len(layers) > 1
        ]

    def match_snapshot(self, weights: Weights[Any]) -> dict[str, Blob]:
        """Return the values of a snapshot, which must have every parameter of the train net; layers of one name are
        matched in turn."""
        values, _ = self.match_layers(_in_turn(weights, self.train))
        for name, owned in self.train.params.items():
            if name not in values and not owned.param.carried:
                what = "has no blobs in the snapshot; resume with the net of the snapshot, or use --weights"
                raise InputError(what, layer=owned.layer)
        return values

    def write(self, values: Mapping[str, Blob]) -> None:
        for name, value in values.items():
            self.runner.write(name, np.asarray(value))

    def find_not_finite(self) -> str | None:
        """The first parameter or optimizer state of the train net that holds a NaN or an infinity, on any rank."""
        names = (*self.train.params, *(name for name in self._history_names() if name is not None))
        here = (name for name in names if self.shared.is_here(name) and not self._is_finite(name))
        found = [name for name in self.shared.group.gather(next(here, None)) if name is not None]
        return min(found, key=names.index, default=None)

    def digest(self) -> str:
        """A hash of all parameters, which every rank has in full."""
        digest = hashlib.blake2b(digest_size=16)
        for name in dict.fromkeys(name for net in self.nets for name in net.params):
            for part in self.runner.read_parts(name, PART):
                digest.update(part.tobytes())
        return digest.hexdigest()

    def _is_finite(self, name: str) -> bool:
        return all(np.isfinite(part).all() for part in self.runner.read_parts(name, PART))

    # -- states of layers ------------------------------------------------------------------------------------------

    def states(self, nets: Sequence[Net] | None = None) -> dict[str, np.ndarray]:
        """The state that layers of `nets` (by default all) leave for their next step, by name."""
        return {name: self.runner.read(name) for name in self._state_shapes(nets)}

    def check_states(self, states: Mapping[str, np.ndarray]) -> None:
        """Raise InputError for values of other nets; a state without a value starts at zero."""
        shapes = self._state_shapes()
        for name, value in states.items():
            if shapes.get(name) != value.shape:
                here = f"it has {'x'.join(map(str, shapes[name]))}" if name in shapes else "no net has it"
                raise InputError(
                    f"has the state '{name}' of {'x'.join(map(str, value.shape))} numbers, and here {here}; resume "
                    "with the nets and the batch of the snapshot"
                )

    def _state_shapes(self, nets: Sequence[Net] | None = None) -> dict[str, tuple[int, ...]]:
        params = (net.params.items() for net in (self.nets if nets is None else nets))
        return {name: owned.param.shape for each in params for name, owned in each if owned.param.carried}

    # -- optimizer state ---------------------------------------------------------------------------------------

    def _history_names(self) -> list[str | None]:
        names = [f"{name}.h{i}" for i in range(self.history_count) for name, _ in self._stepped()]
        return [name if name in self.shared else None for name in names]

    def _history_shapes(self) -> list[tuple[int, ...]]:
        return [owned.param.shape for _, owned in self._stepped()] * self.history_count

    def _stepped(self) -> list[tuple[str, NetParam]]:
        """The parameters of the train net that have optimizer state in Caffe: all but states of layers."""
        return [(name, owned) for name, owned in self.train.params.items() if not owned.param.carried]

    def history(self) -> list[LazyBlob]:
        return [
            _zeros(shape) if name is None else self._lazy(name, shape)
            for name, shape in zip(self._history_names(), self._history_shapes())
        ]

    def match_history(self, blobs: Sequence[Blob]) -> list[Blob]:
        """Return `blobs` in the shapes of this solver's optimizer state; InputError if they do not fit."""
        shapes = self._history_shapes()
        if len(blobs) != len(shapes):
            raise InputError(
                f"has {len(blobs)} history blobs, and this solver {len(shapes)}; resume with the net and the "
                "solver type of the snapshot"
            )
        try:
            return [reshaped(blob, shape) for blob, shape in zip(blobs, shapes)]
        except InputError as error:
            raise InputError(f"{error.what}, for a history; resume with the net of the snapshot") from None

    def left_history(self, blobs: Sequence[Blob]) -> list[str]:
        """Parameters that no update changes here, although their history in `blobs` is not zero."""
        stepped = [name for _ in range(self.history_count) for name, _ in self._stepped()]
        known = zip(stepped, self._history_names(), blobs)
        return [*dict.fromkeys(name for name, state, blob in known if state is None and np.any(np.asarray(blob)))]

    def write_history(self, blobs: Sequence[Blob]) -> None:
        for name, blob in zip(self._history_names(), blobs):
            if name is not None and self.shared.is_here(name):
                self.runner.write(name, np.asarray(blob))


def _zeros(shape: tuple[int, ...]) -> LazyBlob:
    return LazyBlob(shape, lambda: np.zeros(shape, np.float32))


def _layers_by_name(net: Net) -> dict[str, list[NetLayer]]:
    """The layers with parameters, by their name in the prototxt."""
    layers: dict[str, list[NetLayer]] = {}
    for layer in net.layers:
        if layer.params:
            layers.setdefault(net.names_in_file.get(layer.name, layer.name), []).append(layer)
    return layers


def _targets(weights: Weights[Any], net: Net) -> Iterator[tuple[str, NetLayer]]:
    """Yield the layers of a weight file that set a layer of the net, with that layer, in the order of the file."""
    by_name, unique = _layers_by_name(net), {layer.name: layer for layer in net.layers if layer.params}
    for name in weights:
        layers = by_name.get(weights.names_in_file.get(name, name), ())
        numbered = any(layer.name in weights for layer in layers[1:])  # HDF5 written by layermem: one group per layer
        index = -1 if weights.hdf5 and not numbered else 0
        if layers or name in unique:
            yield name, layers[index] if layers else unique[name]


def _in_turn(weights: Weights[Any], net: Net) -> dict[str, Sequence[Blob]]:
    """The layers of a snapshot by the unique names of the net; several layers of one name are taken in turn."""
    by_name = {name: iter(same) for name, same in _layers_by_name(net).items()}
    layers: dict[str, Sequence[Blob]] = {}
    for name, blobs in weights.items():
        layer = next(by_name.get(weights.names_in_file.get(name, name), iter(())), None)
        layers[name if layer is None else layer.name] = blobs
    return layers


def _match_blobs(layer: NetLayer, blobs: Sequence[Blob]) -> dict[str, Blob]:
    """`blobs` by parameter of the layer, reshaped to the layer's shapes."""
    params = layer.params
    rename = "rename the layer to initialize it anew, or change the net"
    if len(blobs) != len(params):
        raise InputError(
            f"has {len(blobs)} blobs in the file, and {len(params)} in the net; {rename}", layer=layer.name
        )
    try:
        return {name: reshaped(blob, p.shape) for (name, p), blob in zip(params, blobs)}
    except InputError as error:
        raise InputError(f"{error.what}; {rename}", layer=layer.name) from None
