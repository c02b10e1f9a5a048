"""The mappings of a net for users: from names to blobs, parameters and layers, in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from layermem.graph import net as graph_net
from layermem.interactive.blob import Blob, Named
from layermem.layers.python import Python
from layermem.proto.schema import PHASES
from layermem.python_layers import PythonLayer
from layermem.solver.build import reported


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
        self.inputs = [name for layer in net.layers if layer.type == "Input" for name in layer.message.top]
        self.outputs = [each.name for each in reported(net) if each.output]
        self._makers = {
            name: layer for layer in reversed(net.layers) for name in layer.message.top
        }  # the first writers
        names = dict.fromkeys(name for layer in net.layers for name in layer.message.top)
        self.blobs: Mapping[str, Blob] = Named(
            "blob", {name: self._blob(name) for name in names}, "`layermem show` lists the blobs"
        )
        params: dict[str, list[Blob]] = {}
        for layer in net.layers:
            if layer.params:
                params[layer.name] = [
                    self._parameter(layer.name, index, name, param.shape)
                    for index, (name, param) in enumerate(layer.params)
                ]
        self._params: Mapping[str, list[Blob]] = Named(
            "layer with parameters", params, f"those are: {' '.join(params) or 'none'}"
        )
        self.params = self._params
        self.layers = [_layer_view(layer, params.get(layer.name, [])) for layer in net.layers]
        self.layer_dict = OrderedDict((layer.name, view) for layer, view in zip(net.layers, self.layers))
        self.top_names = OrderedDict((layer.name, list(layer.message.top)) for layer in net.layers)
        self.bottom_names = OrderedDict((layer.name, list(layer.message.bottom)) for layer in net.layers)
        weights = {each.name: each.weight for each in reported(net)}
        self.blob_loss_weights = OrderedDict((name, weights.get(name, 0.0)) for name in names)

    def _version(self, name: str) -> str:
        return self._definition.blob_version(name)

    def _index(self, layer: str) -> int:
        """The number of a layer."""
        return self._layer_index[layer]

    @property
    def _layer_index(self) -> Named[int]:
        names = {layer.name: index for index, layer in enumerate(self._definition.layers)}
        return Named("layer", names, "`layermem show` lists the layers")

    def _blob(self, name: str) -> Blob:
        raise NotImplementedError

    def _parameter(self, layer: str, index: int, name: str, shape: tuple[int, ...]) -> Blob:
        raise NotImplementedError
