"""Makes a training step in the slices that a user names: slices of the batch (slices.py), bands of the weights of its
largest layers (bands.py), or both.  Users give them in two options; plans and logs have them in one text.

    slices              split weights       text
    conv1_1..pool2/4                        conv1_1..pool2/4               layers conv1_1 to pool2 in 4 slices
                        fc6/8               fc6/rows/8                     the weights of fc6 in 8 bands of rows
    conv1_1..pool2/4    fc6/8,fc7/4         conv1_1..pool2/4,fc6/rows/8,fc7/rows/4
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Protocol

from layermem.errors import InputError
from layermem.graph.bands import ROWS, BandedWeights, Bands
from layermem.graph.device import Device
from layermem.graph.net import Net
from layermem.graph.ops import Graph
from layermem.graph.partition import Choices
from layermem.graph.rewrite import rewrite
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.storage import Storage
from layermem.graph.validate import validated


@dataclass(frozen=True)
class Slices:
    """A cut of the batch or none, and the layers whose weights are in bands of rows."""

    cut: Cut | None
    bands: tuple[Bands, ...] = ()

    @classmethod
    def of(cls, slices: str, split_weights: str) -> Slices:
        """The slices and the split weights that a user names, "" for none; InputError for an unknown form."""
        if ROWS in slices:
            written = [Bands.parse(part).option for part in slices.split(",") if ROWS in part]
            raise InputError(f"slices '{slices}' split weights; give these as --split-weights {','.join(written)}")
        bands = [str(Bands.parse(part, "/")) for part in split_weights.split(",")] if split_weights else []
        return cls.parse(",".join(filter(None, (slices, *bands))))

    @classmethod
    def parse(cls, text: str) -> Slices:
        """Parse the text of slices, in any order, "" for none; InputError for an unknown form."""
        if not text:
            return cls(None)
        parts = [part.strip() for part in text.split(",")]
        rows = [Bands.parse(part) for part in parts if ROWS in part]
        cuts = [Cut.parse(part) for part in parts if ROWS not in part]
        if len(cuts) > 1:
            raise InputError(f"slices '{text}' cut the batch twice; give one range of layers, such as {cuts[0]}")
        for layer in (each.layer for each in rows):
            if sum(each.layer == layer for each in rows) > 1:
                raise InputError(f"split weights '{_options(rows)}' name '{layer}' twice; give it once")
        return cls(cuts[0] if cuts else None, tuple(rows))

    def __str__(self) -> str:
        return ",".join(map(str, (*(() if self.cut is None else (self.cut,)), *self.bands)))

    @property
    def slices(self) -> str:
        """The slices of the batch as users write them; "" without."""
        return "" if self.cut is None else str(self.cut)

    @property
    def split_weights(self) -> str:
        """The bands as users write them: "fc6/8,fc7/4"; "" without."""
        return _options(self.bands)

    @property
    def batch_slices(self) -> int:
        """The number of slices of the batch; 1 without slices."""
        return 1 if self.cut is None else self.cut.count


class MakeStep(Protocol):
    """Makes the step of a net without fusing the layers of some names."""

    def __call__(self, net: Net, unfused: Collection[str] = ()) -> Graph: ...


@dataclass(frozen=True)
class GraphMakers:
    """The functions that make the graphs of a training step.

    step      makes the step of `net`, or of the same net with fewer items
    choices   chooses among partitions by their bytes
    update    makes the graph of updates, if gradients are held over several steps
    test      makes the forward pass of one of `tests`
    for_rank  turns all graphs into the graphs of one rank (sharing.py)
    """

    net: Net
    device: Device
    step: MakeStep
    choices: Choices
    update: Callable[[], Graph] | None = None
    tests: Sequence[Net] = ()
    test: MakeStep | None = None
    for_rank: Callable[[Sequence[Graph]], Sequence[Graph]] = tuple

    def beside(self, unfused: Collection[str] = ()) -> list[Graph]:
        """The other graphs of the arena, without fusions of the layers of some names."""
        updates = [self.update()] if self.update is not None else []
        return [*updates, *(self.forward(net, unfused) for net in self.tests)]

    def forward(self, net: Net, unfused: Collection[str] = ()) -> Graph:
        """The forward pass of a test net."""
        return (self.test or self.step)(net, unfused)


class StepSlicer:
    """The training step of a net in any slices, each made once; its test nets run in the same slices."""

    def __init__(self, makers: GraphMakers):
        self._makers, self.net, self._device, self._choices = makers, makers.net, makers.device, makers.choices
        self._of_one_machine = (makers.step(makers.net), *makers.beside())
        self._storages = [Storage(each, makers.forward, makers.device, makers.choices) for each in makers.tests]
        self._storage = Storage(makers.net, self._shared_step, makers.device, makers.choices)
        self.whole, *others = self._stored(makers.for_rank(self._of_one_machine))
        self.beside = tuple(others)
        self._with_items = cache(makers.net.with_items)
        self._made: dict[tuple[int, tuple[Bands, ...]], Graph] = {}  # by the number of slices
        self._banded: dict[tuple[Bands, ...], list[BandedWeights]] = {}
        self._sliced: dict[Slices, tuple[Graph, ...]] = {}

    def __getstate__(self) -> dict[str, object]:
        """The pickled state: the steps without slices.  Another process cannot make the steps with slices."""
        made = {name: getattr(self, name) for name in ("net", "whole", "beside", "of_one_machine")}
        return {**made, "_makers": None, "_sliced": {}}

    @cached_property
    def of_one_machine(self) -> Graph:
        """The step without slices, before ranks share it: costs are measured with it."""
        alone = self._of_one_machine[0]
        if self._storage.has(alone):
            return self.whole
        storage = Storage(self.net, self._makers.step, self._device, self._choices)
        return finished(alone, storage, self._device)

    @property
    def items(self) -> int:
        """Items of the batch."""
        return self.net.items

    @property
    def ops_made(self) -> int:
        """The number of ops of all cached steps in slices."""
        return sum(len(step.ops) for step, *_ in self._sliced.values())

    def graphs(self, slices: Slices) -> tuple[Graph, ...]:
        """All graphs, with the step in `slices`; InputError, with the layer and its line, if that is not possible."""
        if slices not in self._sliced:
            if self._makers is None:
                raise InputError("a plan of another process has no steps in other slices; plan the net here")
            try:
                self._sliced[slices] = self._stored(self._makers.for_rank(self._graphs(slices)))
            except InputError as error:
                raise self.net.placed(error) from None
        return self._sliced[slices]

    def keep(self, graphs: tuple[Graph, ...]) -> None:
        """Keep the result of graphs() that another process has made."""
        self._sliced.setdefault(Slices.parse(graphs[0].slices), graphs)

    def _shared_step(self, net: Net) -> Graph:
        """The step of a net, shared by ranks."""
        return self._makers.for_rank([self._makers.step(net), *self._of_one_machine[1:]])[0]

    def _stored(self, graphs: Sequence[Graph]) -> tuple[Graph, ...]:
        """The step, the other graphs of its arena, and the test nets, rewritten and with the device's storage."""
        step, *beside = graphs
        first_test = len(beside) - len(self._makers.tests)
        passes = zip(self._storages, beside[first_test:])
        tests = (finished(graph, storage, self._device) for storage, graph in passes)
        return finished(step, self._storage, self._device), *beside[:first_test], *tests

    def _graphs(self, slices: Slices) -> tuple[Graph, ...]:
        def make(net: Net) -> Graph:
            return self._in_bands(net, slices.bands)

        cut = slices.cut
        how = self._device, self._choices
        step = make(self.net) if cut is None else sliced_graph(self.net, make, cut, *how, self._with_items)
        beside = self._of_one_machine[1:]
        if slices.bands:
            beside = tuple(self._divide(graph, slices.bands) for graph in self._makers.beside(_layers(slices.bands)))
        first_test = len(beside) - len(self._makers.tests)
        tests = (self._in_slices(net, whole, slices) for net, whole in zip(self._makers.tests, beside[first_test:]))
        return replace(step, slices=str(slices)), *beside[:first_test], *tests

    def _in_slices(self, net: Net, whole: Graph, slices: Slices) -> Graph:
        """The forward pass of a test net, whose batch may differ: it gets as many slices, or the next larger number
        that divides its batch; none if it cannot be cut."""
        cut, bands = slices.cut, slices.bands
        count = next((k for k in range(cut.count, net.items + 1) if net.items % k == 0), None) if cut else None
        if cut is None or count is None:
            return whole

        def make(each: Net) -> Graph:
            return whole if each is net else self._divide(self._makers.forward(each, _layers(bands)), bands)

        try:
            return sliced_graph(net, make, replace(cut, count=count), self._device, self._choices)
        except InputError:
            return whole

    def _in_bands(self, net: Net, bands: tuple[Bands, ...]) -> Graph:
        """The step of a net, with weights in bands."""
        # `net` is self.net, or the net of one slice of its batch: the quotient is the number of slices.
        key = self.net.items // net.items, bands
        if key not in self._made:
            of_net = net is self.net and not bands
            whole = self._of_one_machine[0] if of_net else self._makers.step(net, _layers(bands))
            if bands and bands not in self._banded:
                whole_batch = whole if net is self.net else self._makers.step(self.net, _layers(bands))
                self._banded[bands] = [BandedWeights.of(whole_batch, each, self._device) for each in bands]
            self._made[key] = self._divide(whole, bands)
        return self._made[key]

    def _divide(self, graph: Graph, bands: tuple[Bands, ...]) -> Graph:
        for each in self._banded[bands] if bands else ():
            graph = each.in_bands(graph, self._device)
        return graph


def title_of_slices(text: str) -> str:
    """The text of slices as in a sentence: "with slices whole/4 and split weights fc6/8", or "without slices"."""
    try:
        slices = Slices.parse(text)
    except InputError:  # of a plan that was edited
        return f"with slices {text}"
    options = ("slices", slices.slices), ("split weights", slices.split_weights)
    named = " and ".join(f"{name} {value}" for name, value in options if value)
    return f"with {named}" if named else "without slices"


def _options(bands: Sequence[Bands]) -> str:
    return ",".join(each.option for each in bands)


def _layers(bands: Sequence[Bands]) -> list[str]:
    return [each.layer for each in bands]


def finished(graph: Graph, storage: Storage, device: Device) -> Graph:
    """`graph` with the device's storage and fusions."""
    return validated(rewrite(validated(storage.of(validated(graph))), device))
