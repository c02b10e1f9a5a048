"""Predicts with a trained net on images or arrays, in batches; `layermem predict` uses it.

    with Predictor("train_val.prototxt", ["m.caffemodel"]) as predictor:
        for each in predictor.images(read_items(["photos/"], color=predictor.color)):
            print(each.name, each.rows["prob"])

A net with data layers or losses runs in its deploy form (graph/deploy.py), and its TEST data layer determines the
transform of images; other nets run unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from google.protobuf import text_format

from layermem.backends.base import Device
from layermem.data import probe
from layermem.data.array_items import Arrays
from layermem.data.items import Item, Unreadable
from layermem.data.preprocess import Preprocess, Stated
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.graph.deploy import deploy_net
from layermem.graph.net import NetOptions
from layermem.interactive.building import Source, built_net, read_source
from layermem.interactive.net import Net
from layermem.layers import LAYERS
from layermem.layers.data import FEEDS
from layermem.planning.job import Budget
from layermem.proto.read import NetFile, read_net_text
from layermem.proto.schema import PHASES, Message, copy_of
from layermem.proto.weights import WHAT, open_weights
from layermem.utils.open_file import Files, OpenFile
from layermem.utils.similar import did_you_mean


@dataclass(frozen=True)
class Prediction:
    """A prediction for one item; `rows` are its values by blob."""

    name: str
    rows: Mapping[str, np.ndarray]
    label: int | None = None


class Predictor:
    """A net with weights, ready to predict.

    source    as for layermem.Net; a train_val.prototxt is read for phase TEST
    blobs     blobs to deliver; by default the output of the net, or among several the one with probabilities
    stated    the user's settings for the transform of images (data/preprocess.py)
    at_most   the number of items if known: without a batch in `options`, a larger batch of the net is reduced to it
    Other arguments are those of layermem.Net.  `missing` lists the layers that are in no weight file.
    """

    def __init__(
        self,
        source: Source,
        weights: Sequence[str],
        options: NetOptions = NetOptions(inputs={}),
        *,
        blobs: Sequence[str] = (),
        stated: Stated | None = None,
        budget: Budget = None,
        device: str | Device = "cpu",
        at_most: int | None = None,
    ):
        file = read_source(source)
        options, written = _built_for(file, options, at_most)
        self.source = next((layer.message for layer in written.layers if layer.type in FEEDS), None)
        self._stated, self._path, self._files = stated or Stated(), file.path, file.files
        if needs_deploy(written):
            file, options = _as_file(deploy_net(written), file), replace(options, inputs={})
        check_blobs(file, blobs)
        files = [OpenFile(path, what=WHAT) for path in weights]
        self.net = Net(
            file,
            "TEST",
            weights=files,
            budget=budget,
            device=device,
            keep=blobs or None,
            batch=options.batch,
            inputs=options.inputs,
            level=options.level,
            stages=options.stages,
            allow_python=options.allow_python,
        )
        if not self.net.inputs:
            raise InputError("has no input to predict on; give a net with an Input or data layer", path=self._path)
        known = {layer for file in files for layer in open_weights(file)}
        self.missing = [layer.name for layer in self.net.definition.layers if layer.params and layer.name not in known]
        self.blobs = [*blobs] or [self._output()]
        self.batch = min(self.net.blobs[name].shape[0] for name in self.net.inputs)
        self._preprocess: Preprocess | None = None

    def __enter__(self) -> Predictor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.net.close()

    @property
    def item_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of one item of each input."""
        return {name: self.net.blobs[name].shape[1:] for name in self.net.inputs}

    @property
    def preprocess(self) -> Preprocess:
        """The transform of images; InputError for a net that reads none."""
        if self._preprocess is None:
            if len(self.net.inputs) != 1:
                names = ", ".join(f"'{name}'" for name in self.net.inputs)
                raise InputError(f"has the inputs {names}; give .npz files with an array for each", path=self._path)
            try:
                self._preprocess = Preprocess(
                    self.item_shapes[self.net.inputs[0]],
                    self.source,
                    self._stated,
                    folder=Path(self._path).parent,
                    stored=self._stored(),
                    read=self._files.read_bytes,
                )
            except InputError as error:
                raise error.at(path=self._path) from None
        return self._preprocess

    @property
    def color(self) -> bool:
        return self.preprocess.channels == 3

    def images(self, items: Iterable[Item | Unreadable]) -> Iterator[Prediction | Unreadable]:
        """Yield predictions in the order of the items; an item that cannot be used is passed on as Unreadable."""
        (name,) = self.net.inputs if len(self.net.inputs) == 1 else ("",)

        def prepared() -> Iterator[tuple[str, Arrays, int | None] | Unreadable]:
            for item in items:
                if isinstance(item, Unreadable):
                    yield item
                    continue
                try:
                    yield item.name, {name: self.preprocess(item.image)}, item.label
                except InputError as error:
                    yield Unreadable(item.name, error.at(path=item.name))

        return self._run(prepared())

    def arrays(self, items: Iterable[tuple[str, Arrays]]) -> Iterator[Prediction | Unreadable]:
        """Yield predictions for arrays, which the inputs of the net take unchanged."""
        return self._run((name, arrays, None) for name, arrays in items)

    def _run(self, items: Iterator[tuple[str, Arrays, int | None] | Unreadable]) -> Iterator[Prediction | Unreadable]:
        while chunk := [*islice(items, self.batch)]:
            good = [each for each in chunk if not isinstance(each, Unreadable)]
            rows: dict[str, np.ndarray] = {}
            if good:
                arrays: dict[str, Any] = {
                    name: np.stack([inputs[name] for _, inputs, _ in good]) for name in self.net.inputs
                }
                rows = self.net.forward_all(self.blobs, **arrays)
            index = 0
            for each in chunk:
                if isinstance(each, Unreadable):
                    yield each
                    continue
                yield Prediction(each[0], {name: rows[name][index] for name in self.blobs}, each[2])
                index += 1

    def _output(self) -> str:
        outputs: list[str] = self.net.outputs
        if len(outputs) == 1:
            return outputs[0]
        likely: list[str] = [
            top
            for node in self.net.definition.nodes
            if node.layer.gives_probabilities
            for top in node.layer.param.top
            if top in outputs
        ]
        if len(likely) == 1:
            return likely[0]
        raise InputError(f"has the outputs {', '.join(outputs)}; choose one with --blob", path=self._path)

    def _stored(self) -> tuple[int, ...] | None:
        """The shape of the first image in the data set of the TEST data layer, if the data set exists."""
        if self.source is None or self.source.type != "Data":
            return None
        return stored_shape(self.source, self._path, self._files)


def check_blobs(file: NetFile, blobs: Sequence[str]) -> None:
    """InputError for a blob that no layer of the file gives."""
    tops = [top for layer in file.message.layer for top in layer.top]
    for name in blobs:
        if name not in tops:
            hint = did_you_mean(name, tops) or "`layermem show` lists the blobs"
            raise InputError(f"has no blob '{name}'; {hint}", path=file.path)


def _built_for(file: NetFile, options: NetOptions, items: int | None) -> tuple[NetOptions, graph_net.Net]:
    """Build the net as written, with a batch of at most `items` where the user states none."""
    net = built_net(file, "TEST", options)
    if options.batch is not None or not items or _batch_of(net) <= items:
        return options, net
    options = replace(options, batch=items)
    return options, built_net(file, "TEST", options)


def _batch_of(net: graph_net.Net) -> int:
    """The batch size of the only input layer of a net; 0 if there are several."""
    sources = [layer for layer in net.layers if layer.type in FEEDS]
    shapes = [net.blobs[top].shape for layer in sources for top in layer.tops]
    return shapes[0][0] if len(sources) == 1 and shapes[0] else 0


def _as_file(message: Message, source: NetFile) -> NetFile:
    """A net derived from `source`, in which its layers have no lines."""
    file = read_net_text(text_format.MessageToString(message), source.path)
    return replace(file, lines=(None,) * len(file.lines), files=source.files)


def needs_deploy(net: graph_net.Net) -> bool:
    """Whether a net has data layers or losses, which its deploy form lacks."""
    return any(
        (layer.type in FEEDS and layer.type != "Input")
        or layer.type == "Accuracy"
        or (layer.type in LAYERS and LAYERS[layer.type].is_loss)
        or (layer.type == "Python" and not layer.bottoms)
        for layer in net.layers
    )


def stored_shape(layer: Message, path: str, files: Files) -> tuple[int, ...] | None:
    """[C,H,W] of the images that a Data layer of the net at `path` reads, before its transform; None without them."""
    whole = copy_of(layer)
    whole.ClearField("transform_param")
    whole.data_param.batch_size = 1
    color = layer.transform_param
    whole.transform_param.force_color, whole.transform_param.force_gray = color.force_color, color.force_gray
    try:
        return tuple(probe(whole, PHASES["TEST"], path, files)[0][1:])
    except InputError:
        return None
