"""Device-side error flags: kernels report invalid labels through pinned memory, checked after each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.launch import NO_ERROR
from layermem.errors import InputError

CHUNK = 1024  # flags pinned at once


class DeviceErrorFlags:
    """One pinned int per op that reads labels: NO_ERROR, or the largest invalid label that its kernels met."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self.chunks: list[np.ndarray] = []
        self.layers: list[Any] = []  # by flag

    def address_for(self, layer: Any) -> int:
        """Address of a new flag for an op of `layer`."""
        slot = len(self.layers) % CHUNK
        if slot == 0:
            self.chunks.append(self.driver.pinned(4 * CHUNK).view(np.int32))
            self.chunks[-1][:] = NO_ERROR
        self.layers.append(layer)
        return int(self.chunks[-1].ctypes.data) + 4 * slot

    def check(self) -> None:
        """InputError for the first layer whose flag is raised; its flags are reset."""
        for number, chunk in enumerate(self.chunks):
            (raised,) = np.nonzero(chunk != NO_ERROR)
            if not raised.size:
                continue
            layer, label = self.layers[number * CHUNK + raised[0]], chunk[raised[0]]
            chunk[:] = NO_ERROR
            raise InputError(
                f"reads label {label}, but has scores for {layer.classes} classes: 0 to {layer.classes - 1}; "
                "mend the data, or set ignore_label",
                layer=layer.name,
            )
