"""The door: batches in, outputs out.  Outside, blobs are Caffe's NCHW; inside, channels-last.

Both pass through pinned memory.  Where the order changes, the kernel that transposes a blob reads or writes the pinned
side itself, so that it is the copy across the link as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from layermem.backends.base import Bound, in_turn
from layermem.backends.cuda.driver import Driver
from layermem.backends.cuda.kernels.shape import mixed, renamed
from layermem.backends.cuda.launch import Launch
from layermem.backends.cuda.memory import Place
from layermem.layers import Tensor
from layermem.schedule.ir import COMPUTE

BindLaunches = Callable[[Iterable[Launch], Mapping[str, Any]], Bound]


class Door:
    """`bind_launches` turns launches into a call, on the compute stream like all that happens here."""

    def __init__(self, driver: Driver, bind_launches: BindLaunches):
        self.driver, self.bind_launches = driver, bind_launches
        self.turn = 0  # which of two sets of pinned buffers the batch of the step comes through
        self._leaving: list[tuple[dict[str, np.ndarray], str, np.ndarray]] = []
        self._new_feeds: list[FeedDoor] = []

    def feed(self, layer: str, places: Sequence[Place], context: Mapping[str, Any]) -> Bound:
        """Copy this step's batch of an input layer to its tops."""
        feed = FeedDoor(self, layer, places, context)
        self._new_feeds.append(feed)
        return feed.run

    def new_feeds(self) -> list[FeedDoor]:
        """Those made since this was last asked."""
        found, self._new_feeds = self._new_feeds, []
        return found

    def output(self, blob: str, place: Place, context: Mapping[str, Any]) -> Bound:
        """Bring a blob to the host; `deliver` puts it into the context's results."""
        stage = self.pinned(place)
        move = self.move(place, stage, context, inwards=False)

        def leave() -> None:
            self._leaving.append((context["results"], blob, stage))

        def run() -> None:
            move()
            self.driver.on_host(leave)

        return run

    def deliver(self) -> None:
        """What left in this run, now that the run is complete."""
        for results, blob, stage in self._leaving:
            results[blob] = stage.copy()
        self._leaving.clear()

    def pinned(self, place: Place) -> np.ndarray:
        """Pinned memory for a blob, with Caffe's axes."""
        assert place.tensor is not None
        return self.driver.pinned(place.nbytes).view(np.float32).reshape(place.tensor.shape)

    def move(self, place: Place, stage: np.ndarray, context: Mapping[str, Any], *, inwards: bool) -> Bound:
        tensor = place.tensor
        assert tensor is not None
        if mixed(tensor) is None:  # memory is in Caffe's order already
            source, target = (stage, place.address) if inwards else (place.address, stage)
            return self.driver.copier(source, target, COMPUTE)
        outside, plain = int(stage.ctypes.data), Tensor((tensor.count,))
        if inwards:
            return self.bind_launches(renamed(place.address, tensor, outside, plain), context)
        return self.bind_launches(renamed(outside, plain, place.address, tensor), context)


class FeedDoor:
    """The way of an input layer's batches: two sets of pinned buffers, and the moves from each to the tops."""

    def __init__(self, door: Door, layer: str, places: Sequence[Place], context: Mapping[str, Any]):
        self.door, self.layer, self.context = door, layer, context
        self.stages = [[door.pinned(place) for place in places] for _ in range(2)]
        self.moves = [
            in_turn([door.move(place, stage, context, inwards=True) for place, stage in zip(places, stages)])
            for stages in self.stages
        ]
        self._staged: tuple[int, Sequence[np.ndarray]] | None = None  # turn and arrays of a batch that is there already

    def run(self) -> None:
        self.door.driver.on_host(self._fill)
        self.moves[self.door.turn]()

    def stage(self, arrays: Sequence[np.ndarray], turn: int) -> None:
        """Copy a batch to the buffers of `turn`, which no copy reads now."""
        for stage, array in zip(self.stages[turn], arrays, strict=True):
            stage[...] = array
        self._staged = turn, arrays

    def _fill(self) -> None:
        """The batch of the context into this turn's buffers, unless it was staged."""
        given, turn = self.context["batch"][self.layer], self.door.turn
        staged, self._staged = self._staged, None
        if staged is None or staged[0] != turn or any(a is not b for a, b in zip(staged[1], given, strict=True)):
            self.stage(given, turn)
            self._staged = None
