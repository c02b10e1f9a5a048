"""What only a kernel sees: a label that names no class.  It raises an int in pinned memory, read after each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.cuda.driver import Driver
from layermem.backends.cuda.launch import NO_TROUBLE
from layermem.errors import InputError

CHUNK = 1024  # ints pinned at once


class Troubles:
    def __init__(self, driver: Driver):
        self.driver = driver
        self.chunks: list[np.ndarray] = []
        self.layers: list[Any] = []

    def place_for(self, layer: Any) -> int:
        """Address of an int for an op of `layer`."""
        slot = len(self.layers) % CHUNK
        if slot == 0:
            self.chunks.append(self.driver.pinned(4 * CHUNK).view(np.int32))
            self.chunks[-1][:] = NO_TROUBLE
        self.layers.append(layer)
        return int(self.chunks[-1].ctypes.data) + 4 * slot

    def check(self) -> None:
        """InputError for the first layer that met such a label."""
        for number, chunk in enumerate(self.chunks):
            (found,) = np.nonzero(chunk != NO_TROUBLE)
            if not found.size:
                continue
            layer, label = self.layers[number * CHUNK + found[0]], chunk[found[0]]
            chunk[:] = NO_TROUBLE
            raise InputError(
                f"reads label {label}, but has scores for {layer.classes} classes: 0 to {layer.classes - 1}; "
                "mend the data, or set ignore_label",
                layer=layer.name,
            )
