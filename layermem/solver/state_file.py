"""Reads and writes Caffe's solver state: a binary SolverState message, or its HDF5 form.

    /iter [1] int   /current_step [1] int   /learned_net string   /history/0, /history/1, ... float32

source  Caffe sgd_solver.cpp, SnapshotSolverState and RestoreSolverState
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.proto.blobs import (
    MESSAGE_LIMIT_BYTES,
    Blob,
    NotPacked,
    array_from_fast,
    array_from_plain,
    find_blob,
    write_blob,
)
from layermem.proto.schema import FastNetParameter, FastSolverState, SolverState
from layermem.proto.weights_hdf5 import dataset_fault, is_hdf5, lazy_blob, reading
from layermem.proto.wire import LENGTH, fields, read_span
from layermem.utils.open_file import OpenFile
from layermem.utils.units import format_bytes

if TYPE_CHECKING:
    import h5py

_HISTORY = SolverState.DESCRIPTOR.fields_by_name["history"].number
WHAT = "solver state (.solverstate or .solverstate.h5)"


@dataclass(frozen=True)
class SolverStateData:
    """`learned_net` is the path of the weights in the file; `current_step` counts drops of the learning rate."""

    iteration: int
    learned_net: str
    current_step: int
    history: Sequence[Blob] = field(repr=False)

    def digest(self) -> str:
        """SHA-256 of the values, independent of the format and the path of the file."""
        digest = hashlib.sha256(f"{self.iteration} {self.current_step} {len(self.history)}".encode())
        for blob in self.history:
            digest.update(np.ascontiguousarray(blob, dtype="<f4").reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def state_content(path: str | PathLike[str], state: SolverStateData) -> Callable[[BinaryIO], None]:
    """Return a function that writes `state` to an open file, as HDF5 if the path ends in .h5; InputError above 2
    GiB."""
    if fspath(path).endswith(".h5"):
        return lambda handle: _write_hdf5(handle, state)
    size = sum(4 * blob.size for blob in state.history)
    if size > MESSAGE_LIMIT_BYTES:
        raise InputError(
            f"cannot be written: the optimizer state takes {format_bytes(size)}, above the limit of a binary "
            f".solverstate, {format_bytes(MESSAGE_LIMIT_BYTES)}; set snapshot_format: HDF5",
            path=fspath(path),
        )
    return lambda handle: _write_binary(handle, state)


def read_state(path: str | PathLike[str]) -> SolverStateData:
    """Read the state in a file of either format; InputError for another kind of file.

    Optimizer state that is packed, as usual, is read from the file only when it is needed.
    """
    file = OpenFile(path, what=WHAT)
    try:
        if is_hdf5(file):
            return _check(_read_hdf5(file))
        return _check(_find_binary(file) or _read_binary(file.content(MESSAGE_LIMIT_BYTES)))
    except InputError as error:
        raise error.at(path=file.path) from None


def _check(state: SolverStateData) -> SolverStateData:
    if state.iteration < 0:
        raise InputError(f"is at iteration {state.iteration}, so it is damaged; resume from another snapshot")
    if not state.learned_net or not isinstance(
        state.learned_net, str
    ):  # protobuf returns text that is not UTF-8 as bytes
        raise InputError("has no path of the weights, so it is damaged; resume from another snapshot")
    return state


# -- binary ----------------------------------------------------------------------------------------------------


def _write_binary(handle: BinaryIO, state: SolverStateData) -> None:
    """Write a SolverState blob by blob: concatenated messages merge."""
    head = SolverState(iter=state.iteration, learned_net=state.learned_net, current_step=state.current_step)
    handle.write(head.SerializeToString())
    for blob in state.history:
        write_blob(handle, _HISTORY, blob)


def _find_binary(file: OpenFile) -> SolverStateData | None:
    """Return the state of a binary file with the offsets of its blobs; None for a file that must be parsed, or
    refused."""
    head, history = b"", []
    reader = file.reader()
    try:
        for each in fields(reader, 0, file.size if file.size <= MESSAGE_LIMIT_BYTES else 0):
            if each.number == _HISTORY and each.kind == LENGTH:
                history.append(find_blob(file, reader, each.start, each.stop))
            else:
                head += read_span(reader, each.begin, each.stop)
        message = SolverState.FromString(head)
    except (ValueError, DecodeError, InputError):
        return None
    if not message.HasField("iter"):
        return None
    return SolverStateData(message.iter, message.learned_net, message.current_step, history)


def _read_binary(raw: bytes) -> SolverStateData:
    try:
        try:
            message = FastSolverState.FromString(raw)
            history = [array_from_fast(blob) for blob in message.history]
        except NotPacked:
            message = SolverState.FromString(raw)
            history = [array_from_plain(blob) for blob in message.history]
    except (DecodeError, UnicodeDecodeError):
        raise _other_file(raw) or InputError(f"is truncated, or is not a {WHAT}; copy it again") from None
    if not message.HasField("iter"):
        raise _other_file(raw) or InputError(f"is truncated, or is not a {WHAT}; copy it again")
    return SolverStateData(message.iter, message.learned_net, message.current_step, history)


def _other_file(raw: bytes) -> InputError | None:
    """Return the error for a weight file, a common mistake; None for other files."""
    try:
        net = FastNetParameter.FromString(raw)
    except (DecodeError, UnicodeDecodeError):
        return None
    if len(net.layer) or len(net.layers):
        return InputError("is a weight file, for --weights; for --snapshot give a .solverstate")
    return None


# -- HDF5 ------------------------------------------------------------------------------------------------------


def _write_hdf5(handle: BinaryIO, state: SolverStateData) -> None:
    import h5py

    with h5py.File(handle, "w") as file:
        file.create_dataset("iter", data=np.array([state.iteration], np.int32))
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        _write_text(file, "learned_net", state.learned_net)
        history = file.create_group("history")
        for index, blob in enumerate(state.history):
            history.create_dataset(str(index), data=np.asarray(blob, np.float32))


def _write_text(file: h5py.File, name: str, text: str) -> None:
    """Write a zero-terminated string, as Caffe's reader requires; h5py writes strings without a terminator."""
    import h5py

    raw = text.encode() + b"\0"
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(raw))
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    timeless = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    timeless.set_obj_track_times(False)  # the same state gives the same bytes
    dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR), timeless)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(raw, dtype=f"S{len(raw)}"), kind)


def _read_hdf5(file: OpenFile) -> SolverStateData:
    with reading(file, WHAT) as h5:
        if "data" in h5 and "iter" not in h5:
            raise InputError("is a weight file, for --weights; for --snapshot give a .solverstate.h5")
        net = h5["learned_net"][()]
        history = h5["history"]
        blobs = [lazy_blob(file, h5, history[str(index)]) for index in range(len(history))]
        text = net.decode() if isinstance(net, bytes) else str(net)
        step = _integer(h5, h5["current_step"]) if "current_step" in h5 else 0
        return SolverStateData(_integer(h5, h5["iter"]), text, step, blobs)


def _integer(h5: h5py.File, dataset: h5py.Dataset) -> int:
    """Return the number in a dataset of one element."""
    if fault := dataset_fault(h5, dataset):
        raise InputError(f"has a dataset '{dataset.name}' {fault}")
    if dataset.size != 1:
        raise InputError(f"has {dataset.size} numbers in '{dataset.name}', not one; resume from another snapshot")
    return int(np.ravel(dataset[()])[0])
