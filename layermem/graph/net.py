"""A net of one phase: layers wired blob to blob, with every shape known.

Blobs are versioned.  A layer whose top has the name of one of its bottoms writes a new version: `ip1`, then `ip1'`,
then `ip1''`.  A plan decides later whether versions share bytes, so that no layer can overwrite what the backward of an
earlier one reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from layermem.errors import InputError
from layermem.layers import LAYERS, Layer, Param, Tensor, make_layer
from layermem.layers.composite import COMPOSITES
from layermem.layers.data import FEEDS, Probe, as_input, has_shapes, make_feed_layer, shape_options
from layermem.layers.given_arrays import Arrays, shapes_of_arrays
from layermem.layers.known_types import known_types
from layermem.layers.opaque import OpaqueLayer, given_shapes
from layermem.layers.python import Python, make_python_layer
from layermem.layers.recurrent import RECURRENT
from layermem.ops import OpRecord
from layermem.proto.filter import filter_net, stages_for
from layermem.proto.names import number_repeated
from layermem.proto.outline import Unread
from layermem.proto.read import NetFile
from layermem.proto.schema import Message
from layermem.utils.arguments import checked
from layermem.utils.similar import did_you_mean
from layermem.utils.text import shape_text

_NOT_HERE = "has type '{}', which layermem does not have; it is planned with the shapes given, and cannot run"
NAMES_SHOWN = 12  # blobs that a wiring error lists


@dataclass(frozen=True)
class Node:
    """A layer and its wiring: versioned bottoms and tops, names of its parameters, and where gradients may flow."""

    layer: Layer
    line: int | None
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    params: tuple[str, ...]
    propagate: tuple[bool, ...]  # per bottom: may a gradient flow into it?
    loss_weights: tuple[float, ...]  # per top


@dataclass(frozen=True)
class NetLayer:
    """A layer of the prototxt: one node, or the nodes of its parts (layers/composite.py)."""

    message: Message
    nodes: tuple[Node, ...]
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.message.name)

    @property
    def type(self) -> str:
        return str(self.message.type)

    @property
    def line(self) -> int | None:
        return self.nodes[0].line

    @cached_property
    def params(self) -> tuple[tuple[str, Param], ...]:
        """The parameters by name, as in weight files: without states, and once if several parts share them."""
        owned = [(name, p) for node in self.nodes for name, p in zip(node.params, node.layer.params) if not p.carried]
        return tuple(dict(owned).items()) if len(self.nodes) > 1 else tuple(owned)


@dataclass(frozen=True)
class NetParam:
    """A parameter of the net, and the layer and index that own it (a shared parameter has one owner)."""

    param: Param
    layer: str
    index: int


@dataclass(frozen=True)
class NetOptions:
    """The options that determine the layers and shapes of a net, in addition to its file and phase.

    batch        replaces the batch size of every input layer
    inputs       shapes (NCHW) by name of tops of input layers; their data need not exist
    level, stages   the NetState that the NetStateRules of the file are compared with
    allow_python    permission to import and run the classes of its Python layers
    """

    batch: int | None = None
    inputs: Mapping[str, tuple[int, ...]] | None = None  # None if users cannot give any: no error suggests it
    level: int = 0
    stages: tuple[str, ...] = ()
    allow_python: bool = False
    arrays: Arrays | None = None  # arrays of items in place of data (layers/given_arrays.py)
    noise: bool = False  # noise replaces sources of type Python, which are run for their shapes only

    @classmethod
    @checked
    def of(
        cls,
        batch: int | None = None,
        inputs: Mapping[str, Iterable[int]] | None = None,
        level: int = 0,
        stages: Iterable[str] = (),
        allow_python: bool = False,
    ) -> NetOptions:
        """Make the options from values that users give as any sequences."""
        shapes = {name: tuple(shape) for name, shape in (inputs or {}).items()}
        return cls(batch, shapes, level, tuple(stages), allow_python)


class Net:
    """The layers of `file` that take part in `phase` (0 TRAIN, 1 TEST), in order.

    probe   returns the shapes that a data source yields; without it, nets that read files cannot be built
    number  index of a test net among the test nets of its solver, from 1; its layers have separate states
    earlier a net of the same file and phase, whose instances of Python layers this net uses

    names_in_file   original names of the layers that were renamed: layers without a name, and repeated names
    """

    def __init__(
        self,
        file: NetFile,
        phase: int,
        options: NetOptions = NetOptions(),
        *,
        probe: Probe | None = None,
        number: int = 0,
        earlier: Net | None = None,
    ):
        self.file, self.phase, self.options = file, phase, options
        self.path = file.path
        filtered = filter_net(file, phase, level=options.level, stages=options.stages)
        self.message = filtered.message
        self.names_in_file = dict.fromkeys(file.nameless, "") | number_repeated(self.message)
        _name_tops_of_losses(self.message)
        self.name: str = self.message.name or "net"
        self.nodes: list[Node] = []
        self.layers: list[NetLayer] = []
        self._states = f"state.test{number}" if number else "state"  # suffix of the names of states
        self.blobs: dict[str, Tensor] = {}
        self.params: dict[str, NetParam] = {}
        self._makers: dict[str, Layer] = {}  # by blob
        self._current: dict[str, str] = {}  # Caffe's blob name -> its newest version
        given = shapes_of_arrays(self.message.layer, phase, options.arrays, options.batch)
        self._inputs, self._probe, self._number = {**(options.inputs or {}), **given}, probe, number
        layers = earlier.nodes if earlier is not None else ()
        self._codes = {node.layer.name: node.layer.code for node in layers if isinstance(node.layer, Python)}
        for index, message in enumerate(self.message.layer):
            line = filtered.line_of(index)
            try:
                unread = self._unread(message, filtered.unread.get(index, ()))
                self._add(message, line)
                self.nodes[-1].layer.unread = unread
            except InputError as error:
                raise error.at(path=str(self.path), line=line, layer=message.name) from None
        self._check_layers()
        read = {blob for node in self.nodes for blob in node.bottoms}
        self.outputs = tuple(blob for blob in self.blobs if blob not in read)

    def _check_layers(self) -> None:
        """Raise InputError for a phase without layers, and for shapes of blobs that do not exist."""
        for name in self._inputs:
            if name not in self._current:
                known = " ".join(node.layer.param.top[0] for node in self.nodes if node.layer.type in FEEDS)
                what = f"has no blob '{name}' to give a shape to (input blobs: {known or 'none'})"
                raise InputError(what, path=str(self.path))
        if not self.nodes:
            name = "TRAIN" if self.phase == 0 else "TEST"
            what = f"has no layer in phase {name}; use the other phase, or change the include and exclude rules"
            raise InputError(what, path=str(self.path))

    def _unread(self, message: Message, unread: Sequence[Unread]) -> InputError | None:
        """Return the error about fields of `message` that were set aside; raise it if shapes may depend on them."""
        kind = message.type
        is_known = kind in LAYERS or kind in FEEDS or kind in COMPOSITES
        if not unread or not is_known:
            return None  # a layer of an unknown type has only the shapes that are given
        error = unread[0].error
        if kind not in FEEDS or not has_shapes(message, self._inputs, stated=all(each.augments for each in unread)):
            raise error
        return error.at(layer=message.name)

    def _add(self, message: Message, line: int | None) -> None:
        bottoms = tuple(self._version_of(name) for name in message.bottom)
        if message.type in COMPOSITES:
            parts = COMPOSITES[message.type](
                message, [self.blobs[b] for b in bottoms], [self._makers[b] for b in bottoms]
            )
            nodes = tuple(self._add_layer(part, line) for part in parts)
        else:
            nodes = (self._add_layer(message, line, forced=self.message.force_backward),)
        self.layers.append(NetLayer(message, nodes, bottoms, tuple(self._current[name] for name in message.top)))

    def _add_layer(self, message: Message, line: int | None, *, forced: bool = False) -> Node:
        """Add a layer; `forced` overrides its propagate_down, as Caffe's force_backward does."""
        bottoms = tuple(self._version_of(name) for name in message.bottom)
        layer = self._make(message, [self.blobs[b] for b in bottoms])
        if len(layer.tops) != len(message.top):
            raise InputError(f"names {len(message.top)} tops but makes {len(layer.tops)}; change its 'top:' lines")
        if len(message.param) > len(layer.params) and not isinstance(layer, OpaqueLayer):
            raise InputError(f"has {len(message.param)} 'param' blocks for {len(layer.params)} parameters; remove some")
        tops = tuple(
            self._new_version(name, tensor, message) for name, tensor in zip(message.top, layer.tops, strict=True)
        )
        self._makers.update((top, layer) for top in tops)
        params = tuple(self._own(param, layer.name, i) for i, param in enumerate(layer.params))
        for field, values, names in (
            ("propagate_down", message.propagate_down, bottoms),
            ("loss_weight", message.loss_weight, tops),
        ):
            if len(values) not in (0, len(names)):
                raise InputError(
                    f"gives {len(values)} {field} values for {len(names)} blobs; give one for each, or none"
                )
        for weight in message.loss_weight:
            if not math.isfinite(weight):
                raise InputError(f"has loss_weight {weight:g}; use a finite number")
        weights = tuple(message.loss_weight) or tuple(
            1.0 if layer.is_loss and i == 0 else 0.0 for i in range(len(tops))
        )
        propagate = (not forced and tuple(message.propagate_down)) or (True,) * len(bottoms)
        node = Node(layer, line, bottoms, tops, params, propagate, weights)
        self.nodes.append(node)
        return node

    def _make(self, message: Message, bottoms: Sequence[Tensor]) -> Layer:
        if message.type == "Python":
            return make_python_layer(
                message,
                self.phase,
                bottoms,
                self._inputs,
                path=str(self.path),
                allowed=self.options.allow_python,
                batch=self.options.batch,
                sources=not self.options.noise,
                takes_inputs=self.options.inputs is not None,
                forms=self._forms(message),
                code=self._codes.get(message.name),
            )
        if message.type not in FEEDS and (message.type in LAYERS or not as_input(message, self._inputs)):
            return self._make_computed(message, bottoms)
        return make_feed_layer(
            message,
            self.phase,
            path=str(self.path),
            batch=self.options.batch,
            inputs=self._inputs,
            probe=self._probe,
            takes_inputs=self.options.inputs is not None,
            files=self.file.files,
        )

    def _make_computed(self, message: Message, bottoms: Sequence[Tensor]) -> Layer:
        """Make a layer that is no source, or a source of an unknown type whose shapes are not given."""
        if message.type in LAYERS:
            return make_layer(message, self.phase, bottoms)
        if shapes := given_shapes(message, self._inputs):
            return OpaqueLayer(message, self.phase, bottoms, shapes, _NOT_HERE.format(message.type))
        remedy = ""
        if message.top and self.options.inputs is not None:
            what = "to plan it" if message.bottom else "or use Input"
            remedy = f"give {shape_options(message, self._forms(message))}{' ' if message.bottom else ', '}{what}"
        return make_layer(message, self.phase, bottoms, more=known_types(), remedy=remedy)

    def _forms(self, message: Message) -> dict[str, str]:
        """The shapes, as users write them, that readers with a known form need of the tops of `message`."""
        forms: dict[str, str] = {}
        for layer in self.message.layer:
            of_type = LAYERS[layer.type].bottom_forms if layer.type in LAYERS else ()
            for blob, form in zip(layer.bottom, of_type):
                if form and blob in message.top:
                    forms.setdefault(blob, form)
        return forms

    def _version_of(self, name: str) -> str:
        if name in self._current:
            return self._current[name]
        remedy = self._remedy_for(name)
        blobs = list(self._current)
        last = " ".join(blobs[-NAMES_SHOWN:]) or "none"
        more = f"... {len(blobs) - NAMES_SHOWN} before them, " if len(blobs) > NAMES_SHOWN else ""
        raise InputError(f"reads blob '{name}', which no earlier layer writes (so far: {more}{last}); {remedy}")

    def _remedy_for(self, name: str) -> str:
        """The remedy for a bottom that no earlier layer writes."""
        writers = [layer.name for layer in self.message.layer if name in layer.top and name not in layer.bottom]
        if writers:
            return f"layer '{writers[0]}' writes it further down: move that up"
        left_out = [index for index, layer in enumerate(self.file.message.layer) if name in layer.top]
        if left_out:
            writer = f"layer '{self.file.message.layer[left_out[0]].name}' writes it"
            if stages := next((each for i in left_out if (each := stages_for(self.file, i, self.message.state))), ()):
                return f"{writer} only with {' '.join(f'--stage {stage}' for stage in stages)}"
            return f"{writer}, but its include and exclude rules leave it out of this phase"
        if hint := did_you_mean(name, self._current):
            return hint
        return f'add a layer with top: "{name}" above, such as one of type Input'

    def _new_version(self, name: str, tensor: Tensor, message: Message) -> str:
        if name in self._current:
            if name not in message.bottom:
                raise InputError(f"writes blob '{name}', which an earlier layer writes; give the top another name")
            previous = self.blobs[self._current[name]]
            if previous.shape != tensor.shape:
                raise InputError(
                    f"writes '{name}' in place but changes its shape from {previous} to {tensor}; rename the top"
                )
        version = self._current[name] + "'" if name in self._current else name
        if version in self.blobs:
            raise InputError(f"would make a second blob called '{version}'; rename one of them")
        self._current[name] = version
        self.blobs[version] = tensor
        return version

    def _own(self, param: Param, layer: str, index: int) -> str:
        """The parameter's name in the net: the shared name, or one made from the layer's; no blob can have either."""
        shared = param.name
        name = f"{shared}.{self._states if param.carried else 'shared'}" if shared else f"{layer}.w{index}"
        if name not in self.params:
            self.params[name] = NetParam(param, layer, index)
            return name
        owner = self.params[name]
        same = owner.param.tensor.shape == param.tensor.shape
        if not same and not (param.permissive and owner.param.tensor.count == param.tensor.count):
            raise InputError(
                f"shares parameter '{shared}' of shape {param.tensor} with layer '{owner.layer}', where it is "
                f"{owner.param.tensor}; make the shapes equal"
            )
        self.params[name] = replace(owner, param=_with_multipliers(owner, param))
        return name

    def with_items(self, items: int) -> Net:
        """The same net with batches of `items` items; no data set is opened for it."""
        shapes = {
            top: (size // self.items * items, *rest) if size % self.items == 0 else (size, *rest)
            for node in self.nodes
            if not node.bottoms and node.layer.has_items
            for top, (size, *rest) in ((t, b.shape) for t, b in zip(node.tops, node.layer.tops) if b.shape)
        }
        options = replace(self.options, batch=None, inputs={**self._inputs, **shapes})
        return Net(self.file, self.phase, options, probe=self._probe, number=self._number)

    def reshaped(self, shapes: Mapping[str, tuple[int, ...]]) -> Net:
        """The same net, with the same instances of Python layers, and with these shapes of tops of input layers.
        InputError if the shape of a parameter would change."""
        fed = (pair for node in self.nodes if node.layer.type in FEEDS for pair in _tops_of(node))
        options = replace(self.options, batch=None, inputs={top: shapes.get(top, blob.shape) for top, blob in fed})
        new = Net(self.file, self.phase, options, probe=self._probe, number=self._number, earlier=self)
        check_same_parameters(self, new)
        return new

    def shapes_with_streams(self, streams: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the tops of sources for `streams` sequences at a time, if a recurrent layer reads T steps of N
        sequences from a source: T stays.  Empty for other nets, whose items are on axis 0."""
        sources = {
            top: self.blobs[top].shape
            for layer in self.layers
            if not layer.bottoms and layer.nodes[0].layer.has_items
            for top in layer.tops
        }
        marks = (layer.bottoms[1] for layer in self.layers if layer.type in RECURRENT)  # [T,N] continuation marks
        steps_and_items = next((sources[blob] for blob in marks if blob in sources), None)
        if steps_and_items is None:
            return {}
        steps, items = steps_and_items

        def resize(shape: tuple[int, ...]) -> tuple[int, ...]:
            if shape[:2] == (steps, items):
                return steps, streams, *shape[2:]
            return (streams, *shape[1:]) if shape[:1] == (items,) else shape  # axis 0 may also be the sequences

        return {top: resize(shape) for top, shape in sources.items()}

    # -- queries ----------------------------------------------------------------------------------------------

    def blob_version(self, name: str) -> str:
        """The newest version of Caffe's blob `name`; InputError if there is no such blob."""
        if name not in self._current:
            hint = did_you_mean(name, self._current) or "`layermem show` lists the blobs"
            raise InputError(f"has no blob '{name}'; {hint}", path=str(self.path))
        return self._current[name]

    @property
    def items(self) -> int:
        """Items of a batch: axis 0 of the first blob from a source; 1 without one."""
        sources = (node for node in self.nodes if not node.bottoms and node.layer.has_items)
        return next((top.shape[0] for node in sources for top in node.layer.tops if top.shape), 1)

    @cached_property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """The versions of each of Caffe's blobs, oldest first."""
        found: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            for name, version in zip(node.layer.param.top, node.tops):
                found.setdefault(name, {})[version] = None
        return {name: tuple(each) for name, each in found.items()}

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        """The layers without bottoms."""
        return tuple(node for node in self.nodes if not node.bottoms)

    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tops of all layers without bottoms."""
        return {top: blob.shape for node in self.sources for top, blob in _tops_of(node)}

    def placed(self, error: InputError) -> InputError:
        """The error of a layer of this net, with the file and the line of the layer added if they are missing."""
        line = next((node.line for node in self.nodes if node.layer.name == error.layer), None)
        return error.at(path=str(self.path), line=line)

    def check_runnable(self, device: str, implements: Callable[[OpRecord, str], bool]) -> None:
        """Raise InputError for a layer that can be planned, but not run, on this device or on any device."""
        for node in self.nodes:
            step = node.layer.forward()
            record = step.record or node.layer.record
            what = record.refusal
            if not what and not implements(record, step.step):
                what = f"has type '{node.layer.type}', for which device {device} has no kernel; use --device cpu"
            if what:
                raise InputError(what, path=str(self.path), line=node.line, layer=node.layer.name)

    @property
    def python_sources(self) -> tuple[str, ...]:
        """Names of the Python layers that are sources of data."""
        return tuple(node.layer.name for node in self.nodes if node.layer.type == "Python" and not node.bottoms)

    @property
    def recorded(self) -> tuple[str, ...]:
        """Blobs that HDF5Output layers write to files."""
        return tuple(blob for node in self.nodes if node.layer.type == "HDF5Output" for blob in node.bottoms)

    @property
    def parameter_count(self) -> int:
        """Values of learned parameters, shared ones once; BatchNorm's running averages are not among them."""
        return sum(p.param.tensor.count for p in self.params.values() if p.param.learned)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states that layers leave for the next iteration."""
        return sum(owned.param.tensor.nbytes for owned in self.params.values() if owned.param.carried)

    @property
    def activation_bytes(self) -> int:
        """Caffe's "Memory required for data": every top counted once for each reader beyond the first (Split)."""
        readers = Counter(blob for layer in self.layers for blob in layer.bottoms)
        tops = [blob for layer in self.layers for blob in layer.tops]
        return sum(self.blobs[blob].nbytes * (1 + (readers[blob] if readers[blob] > 1 else 0)) for blob in tops)


def _with_multipliers(owner: NetParam, other: Param) -> Param:
    """The owner's parameter with the multipliers that another layer states for it (Caffe net.cpp, AppendParam)."""
    param = owner.param
    for field in sorted(other.stated):
        mine, theirs = getattr(param, field), getattr(other, field)
        if field in param.stated and mine != theirs:
            raise InputError(
                f"gives the shared parameter '{param.name}' {field} {theirs:g}, and an earlier layer gives it "
                f"{mine:g}; make them equal, or state it in one layer only"
            )
        param = replace(param, **{field: theirs})
    return replace(param, stated=param.stated | other.stated)


def _name_tops_of_losses(message: Message) -> None:
    """Give a loss without a top one, as Caffe does (AutoTopBlobs): it is called like the layer, if no blob is."""
    blobs = {blob for layer in message.layer for blob in (*layer.bottom, *layer.top)}
    for layer in message.layer:
        if not layer.top and layer.type in LAYERS and LAYERS[layer.type].is_loss:
            layer.top.append(layer.name if layer.name not in blobs else f"{layer.name}(automatic)")


def _tops_of(node: Node) -> Iterable[tuple[str, Tensor]]:
    return zip(node.layer.param.top, node.layer.tops)


def check_same_parameters(old: Net, new: Net) -> None:
    """Raise InputError unless both nets have parameters of the same shapes."""
    for name, owned in old.params.items():
        there = new.params[name].param
        if not owned.param.carried and there.shape != owned.param.shape:
            raise InputError(
                f"would need a parameter of {shape_text(there.shape)} for these inputs, and has one of "
                f"{shape_text(owned.param.shape)}; change the batch alone, or build another net",
                path=str(old.path),
                layer=owned.layer,
            )
