"""The files of HDF5Output layers: the rows of some batches, in a file that is complete or absent.

    recording.add(values)   adds a batch: arrays by blob
    recording.write()       writes the rows so far; the next batch starts a new file

Rows wait in RAM until then.  As in Caffe, a blob of fewer than four axes is written with four: N x C x 1 x 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import BinaryIO

import numpy as np

from layermem.graph.net import Net
from layermem.layers.output import HDF5Output
from layermem.utils.files import check_output, write_atomically

DATASETS = ("data", "label")


class Recording:
    """The files of one net; InputError at once if the folder of a file does not exist."""

    def __init__(self, net: Net):
        self.files: dict[str, tuple[str, ...]] = {}  # by file: the blobs of the datasets
        for node in net.nodes:
            if isinstance(node.layer, HDF5Output):
                self.files[node.layer.file_name] = node.bottoms
        for path in self.files:
            check_output(path)
        self.rows: dict[str, list[np.ndarray]] = {}

    def add(self, values: Mapping[str, np.ndarray]) -> None:
        for blob in {blob for blobs in self.files.values() for blob in blobs}:
            self.rows.setdefault(blob, []).append(values[blob])

    def write_batch(self, values: Mapping[str, np.ndarray]) -> None:
        """Write files of one batch, if it has all blobs."""
        if all(blob in values for blobs in self.files.values() for blob in blobs):
            self.add(values)
            self.write()

    def clear(self) -> None:
        """Drop the rows since the last file."""
        self.rows = {}

    def write(self) -> None:
        for path, blobs in self.files.items():
            arrays = [np.concatenate(self.rows[blob]) for blob in blobs]
            write_atomically(path, partial(_write, arrays=arrays))
        self.clear()


def _write(handle: BinaryIO, arrays: list[np.ndarray]) -> None:
    import h5py

    with h5py.File(handle, "w") as file:
        for name, array in zip(DATASETS, arrays, strict=True):
            ones = (1,) * (4 - array.ndim)
            file.create_dataset(name, data=np.asarray(array, np.float32).reshape(array.shape + ones))
