"""Device-side error flags: kernels report invalid labels through pinned memory, checked after each run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layermem.backends.cuda.base import NO_ERROR
from layermem.backends.cuda.driver.context import Driver
from layermem.errors import InputError
from layermem.ops import ReadsLabels

CHUNK = 1024  # flags that are pinned together
NO_NUMBER = np.iinfo(np.int32).max  # value of cuda/labels.cuh for labels that do not fit an int
BEYOND_INT = "that is not finite, or beyond 32 bits,"


class DeviceErrorFlags:
    """One pinned int per op that reads labels: NO_ERROR, or the largest invalid label that its kernels met."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self.chunks: list[npt.NDArray[np.int32]] = []
        self.owners: list[tuple[str, ReadsLabels]] = []  # by flag: name of the layer, its record

    def address_for(self, layer: str, record: ReadsLabels) -> int:
        """Address of a new flag for the op `record` of `layer`."""
        slot = len(self.owners) % CHUNK
        if slot == 0:
            self.chunks.append(self.driver.pinned(4 * CHUNK).view(np.int32))
            self.chunks[-1][:] = NO_ERROR
        self.owners.append((layer, record))
        return int(self.chunks[-1].ctypes.data) + 4 * slot

    def check(self) -> None:
        """Raise InputError for the first layer with a raised flag, and reset the flags."""
        for number, chunk in enumerate(self.chunks):
            (raised,) = np.nonzero(chunk != NO_ERROR)
            if not raised.size:
                continue
            (layer, record), label = self.owners[number * CHUNK + raised[0]], chunk[raised[0]]
            chunk[:] = NO_ERROR
            raise InputError(record.bad_label(str(label) if label < NO_NUMBER else BEYOND_INT), layer=layer)
