"""The input layers of a solver's nets, each a stream of batches with a position that snapshots keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from layermem.data import ArrayFeed, Feed, open_feed
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.layers.data import FEEDS

Batch = dict[str, list[np.ndarray]]  # layer name -> an array for each top


class Feeds:
    """Opened from `seed`; the nets come in the order of the program's schedules: train net, test nets."""

    def __init__(self, nets: Sequence[Net], seed: int):
        self.nets = tuple(nets)
        self.seed = seed
        self.feeds: list[dict[str, Feed]] = []
        self._waiting: dict[tuple[int, str], dict[str, Any]] = {}  # positions of feeds whose arrays are yet to come
        self._ahead: dict[
            int, tuple[dict[str, Any], Batch]
        ] = {}  # batches not yet taken, and the positions before them
        try:
            for net in self.nets:
                self.feeds.append({})
                for node in net.nodes:
                    if node.layer.type in FEEDS:
                        self.feeds[-1][node.layer.name] = _opened(net, node.layer.param, seed)
        except BaseException:
            self.close()
            raise

    def next(self, index: int) -> Batch:
        """The next batch of net `index`."""
        if index in self._ahead:
            return self._ahead.pop(index)[1]
        try:
            return {name: feed.next() for name, feed in self.feeds[index].items()}
        except InputError as error:
            raise self.nets[index].placed(error) from None

    def ahead(self, index: int) -> Batch | None:
        """What `next` will give, fetched now; until it is taken, positions are those before it.

        None where there is nothing to fetch: arrays that a caller may change until the net runs, and a feed that
        fails, whose error is for `next` to tell.
        """
        if index not in self._ahead:
            if any(isinstance(feed, ArrayFeed) for feed in self.feeds[index].values()):
                return None
            before = self.position(index)
            try:
                self._ahead[index] = before, self.next(index)
            except BaseException as error:
                self.go_to(index, before)
                if isinstance(error, Exception):
                    return None
                raise
        return self._ahead[index][1]

    def give(self, index: int, layer: str, arrays: Sequence[np.ndarray]) -> None:
        """Arrays for an Input or MemoryData layer of net `index`; after a restore they go on where they were."""
        feed = self.feeds[index].get(layer)
        if not isinstance(feed, ArrayFeed):
            takes = [name for name, each in self.feeds[index].items() if isinstance(each, ArrayFeed)]
            known = f"; those that do: {' '.join(takes)}" if takes else ""
            raise InputError(f"does not take arrays in net '{self.nets[index].name}'{known}", layer=layer)
        feed.give(*arrays)
        position = self._waiting.pop((index, layer), None)
        if position is not None:
            feed.restore(position)

    def position(self, index: int) -> dict[str, Any]:
        """Where the next batch of net `index` begins, by layer, in values that JSON can hold."""
        if index in self._ahead:
            return self._ahead[index][0]
        return {name: feed.state() for name, feed in self.feeds[index].items()}

    def go_to(self, index: int, position: dict[str, Any]) -> None:
        self._ahead.pop(index, None)
        for name, feed in self.feeds[index].items():
            feed.restore(position[name])

    def state(self) -> list[dict[str, Any]]:
        """The positions of all nets."""
        return [self.position(index) for index in range(len(self.feeds))]

    def restore(self, positions: Sequence[dict[str, Any]]) -> list[str]:
        """Go to saved positions; a sentence for each feed that has none."""
        notes = []
        for index, (before, _) in list(self._ahead.items()):
            self.go_to(index, before)
        for index, (net, feeds) in enumerate(zip(self.nets, self.feeds)):
            saved = positions[index] if index < len(positions) else {}
            for name, feed in feeds.items():
                if name not in saved:
                    notes.append(f"the snapshot has no position for layer '{name}' of '{net.name}': it starts over")
                    continue
                try:
                    feed.restore(saved[name])
                except (KeyError, TypeError, ValueError) as error:
                    raise InputError(
                        f"cannot go back to where the snapshot stopped reading ({error!r}); is it another net's?",
                        path=str(net.path), layer=name,
                    ) from None  # fmt: skip
                if isinstance(feed, ArrayFeed):
                    self._waiting[index, name] = saved[name]
        return notes

    def close(self) -> None:
        for feeds in self.feeds:
            for feed in feeds.values():
                feed.close()


def _opened(net: Net, param: Any, seed: int) -> Feed:
    try:
        return open_feed(param, net.phase, seed, path=str(net.path))
    except InputError as error:
        raise net.placed(error) from None
