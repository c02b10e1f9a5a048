"""The door: batches in, outputs out.  Outside, blobs are Caffe's NCHW; inside, channels-last.

Both pass through pinned memory.  Where the order changes, the kernel that transposes a blob reads or writes the pinned
side itself, so that it is the copy across the link as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from layermem.layers import Tensor
from layermem.runtime.cuda.driver import Driver
from layermem.runtime.cuda.kernels.shape import mixed, renamed
from layermem.runtime.cuda.launch import Launch
from layermem.runtime.cuda.memory import Place
from layermem.runtime.device import Bound, in_turn
from layermem.schedule.ir import COMPUTE

BindLaunches = Callable[[Iterable[Launch], Mapping[str, Any]], Bound]


class Door:
    """`bind_launches` turns launches into a call, on the compute stream like all that happens here."""

    def __init__(self, driver: Driver, bind_launches: BindLaunches):
        self.driver, self.bind_launches = driver, bind_launches
        self._leaving: list[tuple[dict[str, np.ndarray], str, np.ndarray]] = []

    def feed(self, layer: str, places: Sequence[Place], context: Mapping[str, Any]) -> Bound:
        """Copy this step's batch of an input layer to its tops."""
        stages = [self._stage(place) for place in places]
        moves = in_turn([self._move(place, stage, context, inwards=True) for place, stage in zip(places, stages)])

        def run() -> None:
            for stage, given in zip(stages, context["batch"][layer], strict=True):
                stage[...] = given
            moves()

        return run

    def output(self, blob: str, place: Place, context: Mapping[str, Any]) -> Bound:
        """Bring a blob to the host; `deliver` puts it into the context's results."""
        stage = self._stage(place)
        move = self._move(place, stage, context, inwards=False)

        def run() -> None:
            move()
            self._leaving.append((context["results"], blob, stage))

        return run

    def deliver(self) -> None:
        """What left in this run, now that the run is complete."""
        for results, blob, stage in self._leaving:
            results[blob] = stage.copy()
        self._leaving.clear()

    def _stage(self, place: Place) -> np.ndarray:
        """Pinned memory for a blob, with Caffe's axes."""
        assert place.tensor is not None
        return self.driver.pinned(place.nbytes).view(np.float32).reshape(place.tensor.shape)

    def _move(self, place: Place, stage: np.ndarray, context: Mapping[str, Any], *, inwards: bool) -> Bound:
        tensor = place.tensor
        assert tensor is not None
        if mixed(tensor) is None:  # memory is in Caffe's order already
            source, target = (stage, place.address) if inwards else (place.address, stage)
            return self.driver.copier(source, target, COMPUTE)
        outside, plain = int(stage.ctypes.data), Tensor((tensor.count,))
        if inwards:
            return self.bind_launches(renamed(place.address, tensor, outside, plain), context)
        return self.bind_launches(renamed(outside, plain, place.address, tensor), context)
