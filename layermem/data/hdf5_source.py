"""Rows of HDF5 files: each top is the dataset of its name, sliced along the first axis.

The source is a text file that lists HDF5 files, which are read whole, one at a time.  With shuffle, every pass permutes
the files, and the rows within each file, seeded by (seed, layer, pass); so the state is the number of the next row.
source  Caffe hdf5_data_layer.cpp
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from layermem.data.position import State, number_in
from layermem.errors import InputError
from layermem.proto.read import resolve_path
from layermem.proto.weights_hdf5 import dataset_fault, reading
from layermem.utils.input_files import Read, read_bytes, read_lines
from layermem.utils.open_file import Files, OpenFile
from layermem.utils.seeds import generator

WHAT = "HDF5 file with data"


class Hdf5Source:
    """Reads the datasets `tops` of the files listed in `path`; `key` is the seed and the layer, `named` holds the files
    of the net."""

    def __init__(
        self, path: Path, tops: Sequence[str], key: tuple[int | str, ...], *, shuffle: bool, named: Files | None = None
    ):
        self._named = named or Files()
        self.path, self.tops, self.key, self.shuffle = path, tuple(tops), (*key, "shuffle"), shuffle
        self.files = read_file_list(path, self._named.read_bytes)
        heads = []
        for name in self.files:
            heads.append(row_shapes(self._open(name), self.tops))
        self.row_shapes: tuple[tuple[int, ...], ...] = heads[0][1]
        for file, (_, shapes) in zip(self.files, heads):
            if shapes != self.row_shapes:
                raise InputError(
                    f"has rows of {shapes}, the first file of {self.row_shapes}; make them equal", path=str(file)
                )
        self.rows = [count for count, _ in heads]
        self.length = sum(self.rows)
        self._next = 0  # rows read so far, over all passes
        self._pass = -1
        self._loaded: int | None = None  # index of the file in memory
        self._data: list[np.ndarray] = []  # the datasets of that file
        self._begin_pass(0)

    def read(self, count: int) -> list[np.ndarray]:
        """The next `count` rows of each top, float32."""
        out = [np.empty((count, *shape), np.float32) for shape in self.row_shapes]
        done = 0
        while done < count:
            index, row = self._locate(self._next)
            file = int(self._order[index])
            rows = min(count - done, self.rows[file] - row)
            data = self._load(file)
            selection = self._row_order(file)[row : row + rows]
            for target, values in zip(out, data):
                target[done : done + rows] = values[selection]
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
        self._loaded, self._data = None, []

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

    def _row_order(self, file: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.rows[file])
        return generator(*self.key, self._pass, file).permutation(self.rows[file])

    def _load(self, file: int) -> list[np.ndarray]:
        if self._loaded != file:
            self._loaded = None
            with reading(self._open(self.files[file]), WHAT) as h5:
                self._data = [np.asarray(h5[top], np.float32) for top in self.tops]
            self._loaded = file
        return self._data


def read_file_list(path: Path, read: Read = read_bytes) -> list[Path]:
    names = [line.strip() for line in read_lines(path, what="list of HDF5 files, a path on each line", read=read)]
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


def row_shapes(file: OpenFile, tops: Sequence[str]) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """The number of rows of the datasets `tops` in a file, and the shape of a row of each."""
    import h5py  # takes 12 MiB, which other sources save

    with reading(file, WHAT) as h5:
        shapes = []
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
            if not dataset.shape or dataset.shape[0] == 0:
                raise InputError(f"has an empty dataset '{top}'; store at least one row", path=file.path)
            if fault := dataset_fault(h5, dataset):
                raise InputError(f"has a dataset '{top}' {fault}", path=file.path)
            shapes.append(dataset.shape)
    counts = {shape[0] for shape in shapes}
    if len(counts) > 1:
        rows = ", ".join(f"{shape[0]} of '{top}'" for shape, top in zip(shapes, tops))
        raise InputError(f"has datasets of different lengths ({rows}); make them equal", path=file.path)
    return counts.pop(), tuple(shape[1:] for shape in shapes)
