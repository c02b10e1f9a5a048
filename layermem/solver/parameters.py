"""Transfers parameters and optimizer state of a solver between the arena and files.

All values have the shapes and the order of Caffe:

    layers     {"conv1": [weight (K,C/g,kh,kw), bias (K)], ...} for the layers with parameters
    history    the first blob of every parameter in the order of the net, then the second blobs (AdaDelta, Adam);
               zeros for parameters that are not learned.  A shared parameter counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net, NetParam, Node
from layermem.layers.base import PARTS
from layermem.layers.fillers import PART, fill_parts
from layermem.proto.blobs import Blob, LazyBlob, reshaped
from layermem.proto.weights import Weights
from layermem.runtime.runner import Runner

Layers = Mapping[str, Sequence[np.ndarray]] | Mapping[str, Sequence[Blob]]


def check_shared(train: Net, test: Net) -> None:
    """InputError unless layers with the same name in both nets have the same parameters, which they share."""
    known = {node.layer.name: node for node in train.nodes}
    for node in test.nodes:
        other = known.get(node.layer.name)
        if other is None or not node.params:
            continue
        mine, theirs = ([p.tensor for p in n.layer.params] for n in (node, other))
        if mine != theirs:
            raise InputError(
                f"has parameters of shapes {_shapes(node)} in this test net and {_shapes(other)} in the train net; "
                "make them equal, or rename one of the layers",
                path=test.path, line=node.line, layer=node.layer.name,
            )  # fmt: skip
        if node.params != other.params:
            raise InputError(
                f"has the parameters {', '.join(node.params)} in this test net and {', '.join(other.params)} in the "
                "train net; give them the same 'param { name }' in both",
                path=test.path, line=node.line, layer=node.layer.name,
            )  # fmt: skip


def _shapes(node: Node) -> str:
    return ", ".join("x".join(map(str, p.shape)) for p in node.layer.params) or "none"


class Parameters:
    """The parameters and optimizer state in the arena of `runner`; `nets` are the train net and the test nets."""

    def __init__(self, nets: Sequence[Net], runner: Runner, history_count: int):
        self.train, self.nets, self.runner, self.history_count = nets[0], tuple(nets), runner, history_count

    def fill(self, seed: int) -> None:
        """Initialize every parameter with its filler, seeded by (seed, layer, index), and every history with zeros."""
        done: set[str] = set()
        for net in self.nets:
            for name, owned in net.params.items():
                if name not in done:
                    done.add(name)
                    self._fill(net, name, owned, seed)
        for state in self._history_names():
            if state is not None:
                self.runner.zero(state)

    def _fill(self, net: Net, name: str, owned: NetParam, seed: int) -> None:
        """Fill one parameter part by part, so that its values are not in memory a second time."""
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
        return {node.layer.name: [*self._blobs(node)] for node in self.train.nodes if node.params}

    def file_layers(self) -> dict[str, tuple[str, list[Blob]]]:
        """All layers of the train net in the form of weight files: name -> (type, blobs).  Parts are left out.

        Blobs of a file are read from the arena when they are needed, so that one is in memory beside it at a time.
        """
        return {
            node.layer.name: (
                node.layer.type,
                [self._lazy(name, param.shape) for name, param in zip(node.params, node.layer.params)],
            )
            for node in self.train.nodes
            if node.layer.type not in PARTS
        }

    def _lazy(self, name: str, shape: tuple[int, ...]) -> LazyBlob:
        return LazyBlob(shape, lambda: self.runner.read(name))

    def _blobs(self, node: Node) -> Iterator[np.ndarray]:
        for name, param in zip(node.params, node.layer.params):
            yield self.runner.read(name).reshape(param.shape)

    def match_layers(self, layers: Layers) -> tuple[dict[str, Blob], list[str]]:
        """The values in `layers` for the parameters of all nets, by parameter, and the layers that no net has.

        InputError for a layer whose blobs do not fit.
        """
        values: dict[str, Blob] = {}
        known = set()
        for net in self.nets:
            for node in net.nodes:
                known.add(node.layer.name)
                if node.params and node.layer.name in layers:
                    values.update(_match_blobs(node, layers[node.layer.name]))
        return values, [name for name in layers if name not in known]

    def match_weights(self, weights: Weights[Any]) -> tuple[dict[str, Blob], list[str]]:
        """The same for a weight file, by the names in it.

        Of several layers of one name Caffe's rule holds: each in a binary file goes into the first one of the net, so
        that the last of them remains; that of an HDF5 file goes into the last one.
        """
        values: dict[str, Blob] = {}
        known = {node.layer.name for net in self.nets for node in net.nodes}
        for net in self.nets:
            for name, node in _targets(weights, net):
                known.add(name)
                values.update(_match_blobs(node, weights[name]))
        return values, [name for name in weights if name not in known]

    def repeated_names(self) -> list[str]:
        """A sentence for each name that several layers with parameters have."""
        return [
            f"{len(nodes)} layers " + (f"are named '{name}'" if name else "have no name") + ": as in Caffe, a weight "
            "file sets one of them; give each a name of its own to set all"
            for name, nodes in _nodes_by_name(self.train).items()
            if len(nodes) > 1
        ]

    def match_snapshot(self, weights: Weights[Any]) -> dict[str, Blob]:
        """The same for a snapshot, which must have every parameter of the train net; of several layers of one name,
        each has its own."""
        values, _ = self.match_layers(_in_turn(weights, self.train))
        for name, owned in self.train.params.items():
            if name not in values:
                what = "has no blobs in the snapshot; resume with the net of the snapshot, or use --weights"
                raise InputError(what, layer=owned.layer)
        return values

    def write(self, values: Mapping[str, Blob]) -> None:
        for name, value in values.items():
            self.runner.write(name, np.asarray(value))

    def find_not_finite(self) -> str | None:
        """The first parameter or optimizer state of the train net that holds a NaN or an infinity."""
        names = (*self.train.params, *(name for name in self._history_names() if name is not None))
        return next((name for name in names if not self._is_finite(name)), None)

    def _is_finite(self, name: str) -> bool:
        return all(np.isfinite(part).all() for part in self.runner.read_parts(name, PART))

    # -- optimizer state ---------------------------------------------------------------------------------------

    def _history_names(self) -> list[str | None]:
        names = [f"{name}.h{i}" for i in range(self.history_count) for name in self.train.params]
        return [name if name in self.runner.persistent else None for name in names]

    def _history_shapes(self) -> list[tuple[int, ...]]:
        return [p.param.shape for p in self.train.params.values()] * self.history_count

    def history(self) -> list[LazyBlob]:
        return [
            _zeros(shape) if name is None else self._lazy(name, shape)
            for name, shape in zip(self._history_names(), self._history_shapes())
        ]

    def match_history(self, blobs: Sequence[Blob]) -> list[Blob]:
        """`blobs` in the shapes of this solver's history blobs; InputError if they do not fit."""
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

    def write_history(self, blobs: Sequence[Blob]) -> None:
        for name, blob in zip(self._history_names(), blobs):
            if name is not None:
                self.runner.write(name, np.asarray(blob))


def _zeros(shape: tuple[int, ...]) -> LazyBlob:
    return LazyBlob(shape, lambda: np.zeros(shape, np.float32))


def _nodes_by_name(net: Net) -> dict[str, list[Node]]:
    """The nodes with parameters by the name of their layer in the prototxt."""
    nodes: dict[str, list[Node]] = {}
    for node in net.nodes:
        if node.params:
            nodes.setdefault(net.names_in_file.get(node.layer.name, node.layer.name), []).append(node)
    return nodes


def _targets(weights: Weights[Any], net: Net) -> Iterator[tuple[str, Node]]:
    """The layers of a weight file that set a node of the net, with the node, in the order of the file."""
    by_name, unique = _nodes_by_name(net), {node.layer.name: node for node in net.nodes if node.params}
    for name in weights:
        nodes = by_name.get(weights.names_in_file.get(name, name), ())
        numbered = any(node.layer.name in weights for node in nodes[1:])  # HDF5 of layermem: a group for each
        index = -1 if weights.hdf5 and not numbered else 0
        if nodes or name in unique:
            yield name, nodes[index] if nodes else unique[name]


def _in_turn(weights: Weights[Any], net: Net) -> dict[str, Sequence[Blob]]:
    """The layers of a snapshot by the unique names of the net: of several layers of one name, one after the other."""
    by_name = {name: iter(nodes) for name, nodes in _nodes_by_name(net).items()}
    layers: dict[str, Sequence[Blob]] = {}
    for name, blobs in weights.items():
        node = next(by_name.get(weights.names_in_file.get(name, name), iter(())), None)
        layers[name if node is None else node.layer.name] = blobs
    return layers


def _match_blobs(node: Node, blobs: Sequence[Blob]) -> dict[str, Blob]:
    """`blobs` by parameter of the node, reshaped to its shapes."""
    params = node.layer.params
    rename = "rename the layer to initialize it anew, or change the net"
    if len(blobs) != len(params):
        raise InputError(
            f"has {len(blobs)} blobs in the file, and {len(params)} in the net; {rename}", layer=node.layer.name
        )
    try:
        return {name: reshaped(blob, p.shape) for name, p, blob in zip(node.params, params, blobs)}
    except InputError as error:
        raise InputError(f"{error.what}; {rename}", layer=node.layer.name) from None
