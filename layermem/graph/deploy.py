"""The deploy form of a net: the layers of a train_val.prototxt that compute predictions.

    data layers            Input layers, with the shapes of the tops that are still read
    SoftmaxWithLoss, InfogainLoss   Softmax, with top "prob"        SigmoidCrossEntropyLoss   Sigmoid, with top "prob"
    other losses           left out: the blob that they compare with the truth is an output
    Accuracy, DetectionEvaluate, Silence, HDF5Output   left out
    layers that only these read, such as layers on labels    left out

Of several losses with a probability, those with the largest weight are kept, because the others are auxiliary
classifiers.  The last one kept gets the top "prob", the others get `NAME_prob`.  A net without a loss keeps its
outputs.  Rules, loss weights and learning rates are left out; names of shared parameters and fillers stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.layers.base import LAYERS, Layer
from layermem.layers.data import FEEDS
from layermem.proto.schema import LayerParameter, Message, NetParameter, copy_of

PROB = "prob"
OF_TRAINING = ("include", "exclude", "phase", "loss_weight", "propagate_down")


def deploy_net(net: Net) -> Message:
    """The deploy form, a NetParameter, of a net that was read for phase TEST; the shapes of its inputs are those of
    `net`.  InputError for a net of which nothing is left."""
    layers = [layer.message for layer in net.layers]
    weights = {
        layer.name: max((w for node in layer.nodes for w in node.loss_weights), default=0) for layer in net.layers
    }
    kept = [layer for layer in layers if not _is_truth(layer)]
    losses = [layer for layer in layers if _is_truth(layer)]
    scored = [layer for layer in losses if _type(layer).deploys_as]
    top_weight = max((weights[layer.name] for layer in scored), default=0)
    main = [layer for layer in scored if weights[layer.name] == top_weight]
    probabilities = _probabilities(main, [blob for layer in layers for blob in layer.top])
    outputs = [blob for layer in probabilities for blob in layer.top]
    outputs += [
        blob
        for layer in losses
        if not (_type(layer).deploys_as or _type(layer).takes_truth)
        for blob in _compared(layer)
    ]
    read = {blob for layer in layers for blob in layer.bottom}
    outputs += [
        blob for layer in kept if layer.type not in FEEDS for blob in layer.top if blob not in {*read, *layer.bottom}
    ]
    if not outputs:
        outputs = [blob for layer in losses if _type(layer).is_score for blob in _compared(layer)]
    needed = _needed([*kept, *probabilities], outputs)
    shapes = {top: net.blobs[net.blob_version(top)].shape for layer in layers for top in layer.top}
    result = NetParameter(name=net.message.name)
    result.layer.extend(_deployed(layer, needed, shapes) for layer in needed.layers)
    if not any(layer.type == "Input" for layer in result.layer):
        raise InputError(
            "has no layer from which an output can be computed; give a net with data layers and a score",
            path=str(net.path),
        )
    return result


class _Needed:
    """The layers that outputs depend on, in order, and the blobs that these layers read or deliver."""

    def __init__(self, layers: list[Message], blobs: set[str]):
        self.layers, self.blobs = layers, blobs


def _needed(layers: Sequence[Message], outputs: Iterable[str]) -> _Needed:
    blobs = set(outputs)
    needed = []
    for layer in reversed(layers):
        if blobs.intersection(layer.top):
            needed.append(layer)
            blobs.update(layer.bottom)
    return _Needed(needed[::-1], blobs)


def _type(layer: Message) -> type[Layer]:
    """The class of a layer, whose traits determine its deploy form; Layer itself for inputs and composites."""
    return LAYERS.get(layer.type, Layer)


def _is_truth(layer: Message) -> bool:
    return _type(layer).takes_truth or _type(layer).is_loss


def _compared(layer: Message) -> list[str]:
    """The bottoms that a loss or an accuracy compares with the truth."""
    return list(layer.bottom[: _type(layer).compared_bottoms])


def _probabilities(losses: Sequence[Message], blobs: Sequence[str]) -> list[Message]:
    """Layers that compute the probabilities of the losses, one for each loss."""
    made = []
    for index, loss in enumerate(losses):
        wanted = PROB if index == len(losses) - 1 else f"{loss.name}_{PROB}"
        names = (name for name in (wanted, f"{loss.name}_{PROB}", f"{loss.name}_{PROB}_1") if name not in blobs)
        name = next(names, f"{wanted}_{index}")
        layer = LayerParameter(name=name, type=_type(loss).deploys_as, bottom=loss.bottom[:1], top=[name])
        if loss.HasField("softmax_param"):
            layer.softmax_param.CopyFrom(loss.softmax_param)
        made.append(layer)
    return made


def _deployed(layer: Message, needed: _Needed, shapes: dict[str, tuple[int, ...]]) -> Message:
    """A layer without its fields for training; an input layer becomes one of type Input."""
    is_source = not layer.bottom and (layer.type in FEEDS or layer.type == "Python")
    if is_source:
        tops = [top for top in layer.top if top in needed.blobs]
        made = LayerParameter(name=layer.name, type="Input", top=tops)
        for top in tops:
            made.input_param.shape.add().dim.extend(shapes[top])
        return made
    made = copy_of(layer)
    for field in OF_TRAINING:
        made.ClearField(field)
    names = [param.name for param in made.param]
    made.ClearField("param")
    if any(names):
        for name in names:
            made.param.add(**({"name": name} if name else {}))
    return made
