"""The mappings of a net for users: from names to blobs, parameters and layers, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layermem.graph import net as graph_net
from layermem.interactive.blob import Blob, Named
from layermem.layers.python import Python
from layermem.proto.schema import PHASES
from layermem.python_layers import PythonLayer
from layermem.solver.build import reported
from layermem.utils.fixed import Fixed

SHOW_BLOBS, SHOW_LAYERS = "`layermem show` lists the blobs", "`layermem show` lists the layers"


class NetLayer:
    """A layer of a net: its name, type and parameters."""

    def __init__(self, name: str, kind: str, blobs: list[Blob]):
        self.name, self.type, self.blobs = name, kind, blobs

    def __repr__(self) -> str:
        return f"<{self.type} layer '{self.name}': {len(self.blobs)} parameters>"


def _layer_view(layer: graph_net.NetLayer, blobs: list[Blob]) -> NetLayer | PythonLayer:
    """A view of a layer; of a Python layer that runs, the user's object, whose blobs are its parameters."""
    made = layer.nodes[0].layer
    if not isinstance(made, Python):
        return NetLayer(layer.name, layer.type, blobs)
    for mine, blob in zip(made.code.instance.blobs, blobs):
        mine.show(blob)
    return made.code.instance


def named_params(params: Mapping[str, Fixed[Blob]]) -> Named[Fixed[Blob]]:
    """The parameters of layers by name."""
    known = f"those are: {' '.join(params) or 'none'}"
    return Named("layer with parameters", params, known, "params", "[0].data[...]")


def _names(name: str, blobs: Mapping[str, Sequence[str]]) -> Named[Fixed[str]]:
    """The names of the tops or bottoms of layers, by layer."""
    fixed = {layer: Fixed(f"{name}[{layer!r}]", each) for layer, each in blobs.items()}
    return Named("layer", fixed, SHOW_LAYERS, name)


class NetViews:
    """The mappings of a net.  _blob and _parameter of a subclass give access to the values."""

    _definition: graph_net.Net

    @property
    def definition(self) -> graph_net.Net:
        """The layers with every shape, in the form for plan and compile."""
        return self._definition

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def phase(self) -> str:
        return next(name for name, number in PHASES.items() if number == self._definition.phase)

    def _make_views(self) -> None:
        """Make the mappings."""
        net = self._definition
        self.inputs = Fixed("inputs", (top for each in net.layers if each.type == "Input" for top in each.message.top))
        self.outputs = Fixed("outputs", (each.name for each in reported(net) if each.output))
        self._makers = {
            name: layer for layer in reversed(net.layers) for name in layer.message.top
        }  # the first writers
        names = dict.fromkeys(name for layer in net.layers for name in layer.message.top)
        self.blobs = Named("blob", {name: self._blob(name) for name in names}, SHOW_BLOBS, "blobs", ".data[...]")
        params = {layer.name: self._parameters(layer) for layer in net.layers}
        self._params = self.params = named_params({layer: blobs for layer, blobs in params.items() if blobs})
        self.layers = Fixed("layers", (_layer_view(layer, params[layer.name]) for layer in net.layers))
        self.layer_dict = Named("layer", dict(zip(params, self.layers)), SHOW_LAYERS, "layer_dict")
        self.top_names = _names("top_names", {layer.name: layer.message.top for layer in net.layers})
        self.bottom_names = _names("bottom_names", {layer.name: layer.message.bottom for layer in net.layers})
        weights = {each.name: each.weight for each in reported(net)}
        weights = {name: weights.get(name, 0.0) for name in names}
        self.blob_loss_weights = Named("blob", weights, SHOW_BLOBS, "blob_loss_weights")

    def _parameters(self, layer: graph_net.NetLayer) -> Fixed[Blob]:
        blobs = (self._parameter(layer.name, i, name, param.shape) for i, (name, param) in enumerate(layer.params))
        return Fixed(f"params[{layer.name!r}]", blobs, ".data[...]")

    def _version(self, name: str) -> str:
        return self._definition.blob_version(name)

    def _index(self, layer: str) -> int:
        """The number of a layer."""
        return self._layer_index[layer]

    @property
    def _layer_index(self) -> Named[int]:
        names = {layer.name: index for index, layer in enumerate(self._definition.layers)}
        return Named("layer", names, SHOW_LAYERS, "layers")

    def _blob(self, name: str) -> Blob:
        raise NotImplementedError

    def _parameter(self, layer: str, index: int, name: str, shape: tuple[int, ...]) -> Blob:
        raise NotImplementedError
