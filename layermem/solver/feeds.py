"""The feeds of all input layers of a solver's nets; snapshots save their positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from layermem.data import ArrayFeed, Feed, open_feed
from layermem.data.given import GivenFeed
from layermem.data.position import State
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.net import Net, Node
from layermem.layers.data import FEEDS
from layermem.layers.given_arrays import given_arrays
from layermem.layers.python import Python
from layermem.ops import ByteImages
from layermem.proto.schema import TRAIN
from layermem.solver.noise import noise_feed
from layermem.utils.text import shape_text

Batch = dict[str, Sequence[np.ndarray | ByteImages]]  # layer name -> an array for each top
Position = dict[str, State]  # layer name -> the position of its feed
Shapes = Mapping[str, tuple[int, ...]]  # by top


def refuse_change(index: int, shapes: Shapes) -> None:
    """Raise InputError for a batch of other shapes than the plan has."""
    top, shape = next(iter(shapes.items()))
    what = f"batches of another shape than planned ({shape_text(shape)} for '{top}') need a plan of their own"
    raise InputError(f"{what}; resize the images, or set crop_size")


class Feeds:
    """The feeds of the train net and the test nets, in this order, opened with `seed`.

    in_bytes   whether images that are stored in bytes are delivered as ByteImages
    noise      seed of noise that replaces all data except DummyData; None for the data that the nets name
    ranks      the ranks that share the batches of each net
    fills      whether the first batch waits until as many batches are read ahead as ever will be
    """

    def __init__(
        self,
        nets: Sequence[Net],
        seed: int,
        noise: int | None = None,
        ranks: Sequence[Ranks] = (),
        *,
        in_bytes: bool = False,
        fills: bool = False,
    ):
        self.nets = tuple(nets)
        self.seed = seed
        self.feeds: list[dict[str, Feed]] = []
        self._restored: dict[tuple[int, str], State] = {}  # positions of array feeds that have no arrays yet
        # Positions before batches of `prefetch`, and these batches.
        self._prefetched: dict[int, tuple[Position, Batch]] = {}
        self.on_change: Callable[[int, Shapes], None] = (
            refuse_change  # called with a net and its new shapes, before a batch of them is returned
        )
        self.runs_ahead = False  # whether Python sources run before the step, so that they may change their shapes
        self._written: set[int] = set()  # nets with constants to which a caller may write
        try:
            for net in self.nets:
                self.feeds.append({})
                shared = ranks[len(self.feeds) - 1] if ranks else Ranks()
                for node in net.nodes:
                    if node.layer.type in FEEDS:
                        self.feeds[-1][node.layer.name] = _open(net, node, seed, noise, shared, in_bytes, fills)
        except BaseException:
            self.close()
            raise

    def batches_of_a_pass(self, index: int) -> int | None:
        """The batches of a net that read each item of its data once; None if no data set of it has a known size."""
        known = [-(-feed.items // feed.shapes[0][0]) for feed in self.feeds[index].values() if feed.items is not None]
        return max(known, default=None)

    @property
    def notes(self) -> list[str]:
        """Notes for the user, without repetitions."""
        notes = (
            f"layer '{name}': {note}" for feeds in self.feeds for name, feed in feeds.items() for note in feed.notes
        )
        return [*dict.fromkeys(notes)]

    def next(self, index: int) -> Batch:
        """The next batch of net `index` for this rank; the position then is after the batches of all ranks."""
        if index in self._prefetched:
            return self._prefetched.pop(index)[1]
        net = self.nets[index]
        try:
            batch = {name: feed.next() for name, feed in self.feeds[index].items()}
        except InputError as error:
            raise net.placed(error) from None
        shapes = self._shapes_now(index, batch)
        before = net.input_shapes() if shapes else {}
        changed = {top: shape for top, shape in shapes.items() if shape != before[top]}
        if changed:
            self.on_change(index, changed)
        return batch

    def _shapes_now(self, index: int, batch: Batch) -> dict[str, tuple[int, ...]]:
        """Shapes of the tops of input layers whose batches may differ in shape, and of Python sources, which run
        ahead."""
        shapes: dict[str, tuple[int, ...]] = {}
        for node in self.nets[index].sources:
            layer, tops = node.layer, node.layer.param.top
            if layer.name in batch and self.feeds[index][layer.name].varies:
                shapes |= {top: tuple(array.shape) for top, array in zip(tops, batch[layer.name])}
            elif self.runs_ahead and isinstance(layer, Python) and not layer.params:
                shapes |= dict(zip(tops, layer.code.run_ahead()))
        return shapes

    def skip(self, index: int, batches: int) -> None:
        """Skip `batches` batches of net `index`, counted over all ranks."""
        if index in self._prefetched:
            self.seek(index, self._prefetched[index][0])
        try:
            for feed in self.feeds[index].values():
                feed.skip(batches)
        except InputError as error:
            raise self.nets[index].placed(error) from None

    def prefetch(self, index: int) -> Batch | None:
        """Read the batch that `next` will return; until `next`, positions are still those before it.

        None for nets with arrays that the caller may change until the net runs, and for a feed that fails, whose error
        `next` raises.
        """
        if index not in self._prefetched:
            feeds = self.feeds[index].values()
            if index in self._written or any(isinstance(feed, ArrayFeed) or feed.varies for feed in feeds):
                return None
            before = self.position(index)
            try:
                self._prefetched[index] = before, self.next(index)
            except BaseException as error:
                self.seek(index, before)
                if isinstance(error, Exception):
                    return None
                raise
        return self._prefetched[index][1]

    def give(self, index: int, layer: str, arrays: Sequence[np.ndarray]) -> None:
        """Set the arrays of an Input or MemoryData layer of net `index`; after a restore, reading continues there."""
        feed = self.feeds[index].get(layer)
        if not isinstance(feed, ArrayFeed):
            names = " ".join(name for name, each in self.feeds[index].items() if isinstance(each, ArrayFeed))
            what = f"takes no arrays in net '{self.nets[index].name}' (layers that do: {names or 'none'})"
            raise InputError(what, layer=layer)
        feed.give(*arrays)
        position = self._restored.pop((index, layer), None)
        if position is not None:
            feed.restore(position)

    def by_layer(
        self, index: int, layer: str | None, arrays: Sequence[np.ndarray], tops: Mapping[str, np.ndarray]
    ) -> dict[str, Sequence[np.ndarray]]:
        """Return the arrays of each Input or MemoryData layer of net `index`: `arrays` of `layer`, or those of the
        layers that have `tops`, which are all tops of each of them."""
        if layer is not None:
            if tops:
                raise InputError("give() takes a layer and its arrays, or arrays by the names of tops; leave out one")
            return {layer: arrays}
        layers = {name: feed for name, feed in self.feeds[index].items() if isinstance(feed, ArrayFeed)}
        layers = {name: feed for name, feed in layers.items() if tops.keys() & set(feed.tops)}
        wanted = {top for feed in layers.values() for top in feed.tops}
        if not tops or wanted != tops.keys():
            missing = " ".join(sorted(wanted - tops.keys())) or "none"
            unknown = " ".join(sorted(tops.keys() - wanted)) or "none"
            what = f"give() by tops of net '{self.nets[index].name}': missing {missing}, not of such layers {unknown}"
            raise InputError(f"{what}; name all tops of Input and MemoryData layers that you give")
        return {name: [tops[top] for top in feed.tops] for name, feed in layers.items()}

    def read_arrays_of(self, index: int, other: Feeds, theirs: int) -> None:
        """Let net `index` read the arrays that callers give to net `theirs` of `other`, which is the same net."""
        for name, feed in self.feeds[index].items():
            feed.read_arrays_of(other.feeds[theirs][name])

    def constant(self, index: int, layer: str, top: int) -> np.ndarray | None:
        """The array of an Input or DummyData layer of net `index` that is in every batch, to which a caller may write;
        None for other tops."""
        array = self.feeds[index][layer].constant(top)
        if array is not None and index not in self._written:
            self._written.add(index)
            if index in self._prefetched:
                self.seek(index, self._prefetched[index][0])
        return array

    def position(self, index: int) -> Position:
        """The position of the next batch of net `index`, by layer, as values that JSON can hold."""
        if index in self._prefetched:
            return self._prefetched[index][0]
        return {name: feed.state() for name, feed in self.feeds[index].items()}

    def seek(self, index: int, position: Position) -> None:
        """Move the feeds of net `index` to a position."""
        self._prefetched.pop(index, None)
        for name, feed in self.feeds[index].items():
            feed.restore(position[name])

    def state(self) -> list[Position]:
        """The positions of all nets."""
        return [self.position(index) for index in range(len(self.feeds))]

    def check(self, positions: Sequence[Position]) -> None:
        """Raise InputError for a saved position that `restore` cannot take; change nothing."""
        for net, feeds, saved in zip(self.nets, self.feeds, positions):
            for name in feeds.keys() & saved.keys():
                try:
                    feeds[name].check(saved[name])
                except InputError as error:
                    what = f"cannot resume from the snapshot: {error}"
                    raise net.placed(InputError(what, path=str(net.path), layer=name)) from None

    def restore(self, positions: Sequence[Position]) -> list[str]:
        """Continue at saved positions, which `check` accepts; return a note for each feed without one."""
        notes = []
        for index, (before, _) in list(self._prefetched.items()):
            self.seek(index, before)
        for index, (net, feeds) in enumerate(zip(self.nets, self.feeds)):
            saved = positions[index] if index < len(positions) else {}
            for name, feed in feeds.items():
                if name not in saved:
                    notes.append(
                        f"the snapshot has no position for layer '{name}' of '{net.name}'; its data start over"
                    )
                    continue
                feed.restore(saved[name])
                if isinstance(feed, ArrayFeed):
                    self._restored[index, name] = saved[name]
        return notes

    def close(self) -> None:
        for feeds in self.feeds:
            for feed in feeds.values():
                feed.close()


def _open(net: Net, node: Node, seed: int, noise: int | None, ranks: Ranks, in_bytes: bool, fills: bool) -> Feed:
    if noise is not None and node.layer.type != "DummyData":
        feed = noise_feed(net, node, noise)
        feed.ranks = ranks
        return feed
    if arrays := given_arrays(net.options.arrays, node.layer.param, net.phase):
        return _given(net, node, arrays, seed, ranks)
    if node.layer.unread:
        raise net.placed(node.layer.unread)
    try:
        return open_feed(
            node.layer.param,
            net.phase,
            seed,
            path=str(net.path),
            ranks=ranks,
            in_bytes=in_bytes,
            fills=fills,
            files=net.file.files,
        )
    except InputError as error:
        raise net.placed(error) from None


def _given(net: Net, node: Node, arrays: dict[str, np.ndarray], seed: int, ranks: Ranks) -> Feed:
    key = (seed, "arrays") if net.phase == TRAIN else None  # of all layers: an item has one place in their orders
    try:
        feed = GivenFeed(tuple(top.shape for top in node.layer.tops), arrays, key)
    except InputError as error:
        raise net.placed(error.at(path=str(net.path), layer=node.layer.name)) from None
    feed.path, feed.layer, feed.ranks = str(net.path), node.layer.name, ranks
    if node.layer.param.HasField("transform_param"):
        feed.notes = ("transform_param has no effect on arrays that are given",)
    return feed
