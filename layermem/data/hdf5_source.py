"""Rows of HDF5 files: each top is the dataset of its name, sliced along the first axis.

The source is a text file that lists HDF5 files.  Of one file at a time some rows are held, in the type that they are
stored in, as its Head says; others are read when they are needed.  With shuffle, every pass permutes the files, and the
rows within each file, seeded by (seed, layer, pass); so the state is the number of the next row.
source  Caffe hdf5_data_layer.cpp
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from layermem.data.position import State, number_in
from layermem.errors import InputError
from layermem.proto.read import resolve_path
from layermem.proto.weights_hdf5 import CHUNK_CACHE_BYTES, dataset_fault, reading
from layermem.utils.input_files import Read, read_bytes, read_lines
from layermem.utils.open_file import Files, OpenFile
from layermem.utils.seeds import generator

if TYPE_CHECKING:
    import h5py

WHAT = "HDF5 file with data"
HELD_BYTES = 2**25  # of the datasets of a file: up to these it is held whole, and a chunk of rows


@dataclass(frozen=True)
class Head:
    """What is known of a file before its rows are read.

    count, shapes   number of rows, and the shape of a row of each dataset
    block           rows that are held at a time: all of a small file; of a large one those of a chunk, which HDF5 can
                    only read whole; none where rows are stored one after the other
    held_bytes      of these rows, and of the largest chunk while it is unpacked
    """

    count: int
    shapes: tuple[tuple[int, ...], ...]
    block: int
    held_bytes: int


class Hdf5Source:
    """Reads the datasets `tops` of the files listed in `path`; `key` is the seed and the layer, `named` holds the files
    of the net."""

    def __init__(
        self, path: Path, tops: Sequence[str], key: tuple[int | str, ...], *, shuffle: bool, named: Files | None = None
    ):
        self._named = named or Files()
        self.path, self.tops, self.key, self.shuffle = path, tuple(tops), (*key, "shuffle"), shuffle
        self.files = read_file_list(path, self._named.read_bytes)
        self.heads = [read_head(self._open(name), self.tops, shuffle=shuffle) for name in self.files]
        self.row_shapes = self.heads[0].shapes
        for file, head in zip(self.files, self.heads):
            if head.shapes != self.row_shapes:
                raise InputError(
                    f"has rows of {head.shapes}, the first file of {self.row_shapes}; make them equal", path=str(file)
                )
        self.rows = [head.count for head in self.heads]
        self.length = sum(self.rows)
        self.held_bytes = max(head.held_bytes for head in self.heads)
        self._next = 0  # rows read so far, over all passes
        self._pass = -1
        self._held: tuple[int, int] | None = None  # index of the file in memory, and the first row of its block
        self._data: list[np.ndarray] = []  # that block of each dataset
        self._begin_pass(0)

    def read(self, count: int) -> list[np.ndarray]:
        """The next `count` rows of each top, float32."""
        out = [np.empty((count, *shape), np.float32) for shape in self.row_shapes]
        done = 0
        while done < count:
            index, row = self._locate(self._next)
            file = int(self._order[index])
            block = self.heads[file].block
            rows = min(count - done, self.rows[file] - row, block - row % block if block else count)
            self._copy(file, row, [target[done : done + rows] for target in out])
            done += rows
            self._next += rows
        return out

    def skip(self, count: int) -> None:
        self._next += count

    def state(self) -> State:
        return {"row": self._next}

    def restore(self, state: State) -> None:
        self._next = number_in(state, "row")
        self._pass = -1  # a thread of a parent process may have stopped while it set the order

    def check(self, state: State) -> None:
        number_in(state, "row")

    def close(self) -> None:
        self._held, self._data = None, []

    def _open(self, path: Path) -> OpenFile:
        """A file of the list, with the content that it had when the net was made."""
        file = OpenFile(path, what=WHAT)
        self._named.check_same(path, file.identity)
        return file

    def _begin_pass(self, epoch: int) -> None:
        """Set the order of the files in pass `epoch`, and the row at which each of them ends."""
        self._pass = epoch
        self._order = np.arange(len(self.files))
        if self.shuffle:
            self._order = generator(*self.key, epoch).permutation(len(self.files))
        self._ends = np.array(list(accumulate(self.rows[file] for file in self._order)))

    def _locate(self, number: int) -> tuple[int, int]:
        """(index in the order of files, row within that file) of row `number` of all passes."""
        epoch, within = divmod(number, self.length)
        if epoch != self._pass:
            self._begin_pass(epoch)
        index = int(np.searchsorted(self._ends, within, side="right"))
        return index, within - (int(self._ends[index - 1]) if index else 0)

    def _copy(self, file: int, row: int, targets: Sequence[np.ndarray]) -> None:
        """Copy rows, from `row` on in the order of this pass, of each dataset to its target; they are in one block."""
        block, rows = self.heads[file].block, slice(row, row + len(targets[0]))
        order = generator(*self.key, self._pass, file).permutation(self.rows[file])[rows] if self.shuffle else None
        if block:
            first = row // block * block
            self._hold(file, first)
            for target, values in zip(targets, self._data):
                with np.errstate(over="ignore"):
                    target[...] = values[rows.start - first : rows.stop - first] if order is None else values[order]
            return
        with reading(self._open(self.files[file]), WHAT) as h5:
            for target, top in zip(targets, self.tops):
                if order is None:
                    h5[top].read_direct(target, rows)
                    continue
                for place, number in enumerate(order):
                    h5[top].read_direct(target, int(number), place)

    def _hold(self, file: int, first: int) -> None:
        if self._held != (file, first):
            self.close()
            with reading(self._open(self.files[file]), WHAT) as h5:
                self._data = [h5[top][first : first + self.heads[file].block] for top in self.tops]
            self._held = file, first


def read_file_list(path: Path, read: Read = read_bytes) -> list[Path]:
    lines = read_lines(path, what="list of HDF5 files, a path on each line", read=read, names=True)
    names = [line.strip() for line in lines]
    files = []
    for number, name in enumerate(names, start=1):
        if name:
            try:
                files.append(resolve_path(name, path))
            except InputError as error:
                raise InputError(f"{error.what}; correct the path", path=str(path), line=number) from None
    if not files:
        raise InputError("lists no HDF5 files; add their paths, one on each line", path=str(path))
    return files


def read_head(file: OpenFile, tops: Sequence[str], *, shuffle: bool) -> Head:
    """Read shapes and layout of the datasets `tops` in a file, and check them; InputError names what is wrong."""
    import h5py  # takes 12 MiB, which other sources save

    with reading(file, WHAT) as h5:
        datasets: list[h5py.Dataset] = []
        for top in tops:
            if isinstance(h5.get(top, getlink=True), h5py.ExternalLink):
                what = f"has a dataset '{top}' whose numbers are in another file; store them in this one"
                raise InputError(what, path=file.path)
            dataset = h5.get(top)
            if not isinstance(dataset, h5py.Dataset):
                names = ", ".join(name for name in h5) or "none"
                what = f"has no dataset '{top}' for the top of that name (datasets: {names}); rename one of them"
                raise InputError(what, path=file.path)
            if dataset.dtype.kind not in "fiu":
                raise InputError(f"has a dataset '{top}' of {dataset.dtype}; store numbers", path=file.path)
            if dataset.shape == ():
                raise InputError(f"has one number as '{top}', and no rows; store an array", path=file.path)
            if not dataset.shape or dataset.shape[0] == 0:
                raise InputError(f"has an empty dataset '{top}'; store at least one row", path=file.path)
            if fault := dataset_fault(h5, dataset):
                raise InputError(f"has a dataset '{top}' {fault}", path=file.path)
            datasets.append(dataset)
        if len({len(dataset) for dataset in datasets}) > 1:
            rows = ", ".join(f"{len(dataset)} of '{top}'" for dataset, top in zip(datasets, tops))
            raise InputError(f"has datasets of different lengths ({rows}); make them equal", path=file.path)
        return _head_of(datasets, shuffle=shuffle)


def _head_of(datasets: Sequence[h5py.Dataset], *, shuffle: bool) -> Head:
    count, row_bytes = len(datasets[0]), sum(dataset.nbytes // len(dataset) for dataset in datasets)
    chunks = [(dataset.chunks, dataset.dtype.itemsize) for dataset in datasets if dataset.chunks]
    chunk_bytes = max((prod(shape) * itemsize for shape, itemsize in chunks), default=0)
    block = max((min(shape[0], count) for shape, _ in chunks), default=0)
    if count * row_bytes <= HELD_BYTES or (shuffle and chunk_bytes > HELD_BYTES):  # else it unpacks one for each row
        block = count
    elif shuffle or block * row_bytes > max(HELD_BYTES, chunk_bytes):
        block = 0
    held_bytes = block * row_bytes
    if chunk_bytes > CHUNK_CACHE_BYTES:  # else it is small, and to add up what is stored reads the index of all chunks
        held_bytes += chunk_bytes + min(chunk_bytes, max(dataset.id.get_storage_size() for dataset in datasets))
    return Head(count, tuple(dataset.shape[1:] for dataset in datasets), block, held_bytes)
