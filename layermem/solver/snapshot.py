"""Snapshots of a run: Caffe's two files, and a JSON file for the rest of the state.

    PREFIX_iter_N.caffemodel          the weights, for any Caffe program; with HDF5 both names end in .h5
    PREFIX_iter_N.solverstate         Caffe's SolverState: iteration, histories, path of the weights
    PREFIX_iter_N.solverstate.json    state that Caffe does not save: seed, data positions, displayed losses; and the
                                      hashes of the other two files, to detect a mixture of two runs

The files are written together, the solverstate last, so a snapshot is complete or absent (utils/files.py).  A
solverstate without the JSON file resumes as in Caffe.
source  Caffe solver.cpp, sgd_solver.cpp
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypedDict, cast

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.blobs import MESSAGE_LIMIT
from layermem.proto.schema import Message
from layermem.proto.weights import read_weights, weights_content
from layermem.solver.feeds import Position
from layermem.solver.rules import rule_of
from layermem.solver.state_file import State, read_state, state_content
from layermem.utils.files import write_together
from layermem.utils.units import format_bytes

VERSION = 1  # of the JSON
CHUNK = 1 << 20  # bytes of one hash update
HDF5 = 0  # SolverParameter.SnapshotFormat

FileLayers = Mapping[str, tuple[str, Sequence[np.ndarray]]]  # name -> (type, blobs)


class Extra(TypedDict):
    """The content of the JSON file, beside its header."""

    seed: int
    iteration: int
    losses: list[float]
    feeds: list[Position]


class SavedExtra(Extra):
    """The whole content of the JSON file."""

    layermem: int
    model_sha256: str
    state_sha256: str


@dataclass(frozen=True)
class Snapshot:
    """The content of a snapshot.  `extra` is that of the JSON file, None for a snapshot of another program."""

    path: str
    model: str
    state: State
    weights: dict[str, list[np.ndarray]]
    extra: SavedExtra | None


def snapshot_paths(prefix: str, iteration: int, hdf5: bool) -> tuple[str, str]:
    """Paths of the weights and of the solver state."""
    end = ".h5" if hdf5 else ""
    return f"{prefix}_iter_{iteration}.caffemodel{end}", f"{prefix}_iter_{iteration}.solverstate{end}"


def check_prefix(prefix: str) -> None:
    """InputError unless snapshots can be written there, before training starts."""
    folder = Path(prefix).parent
    if Path(prefix).name == "":
        raise InputError(f"has snapshot_prefix '{prefix}', which is a folder; add a file name")
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write snapshots to '{prefix}': '{folder}' is not a writable folder; change "
            "snapshot_prefix, or set snapshot: 0 and snapshot_after_train: false"
        )


def check_size(net: Net, param: Message) -> None:
    """InputError if a snapshot of `net` would exceed the limit of its format."""
    largest = max(
        sum(4 * p.tensor.count for node in net.nodes for p in node.layer.params),
        rule_of(param).histories * sum(4 * owned.param.tensor.count for owned in net.params.values()),
    )
    if param.snapshot_format != HDF5 and largest > MESSAGE_LIMIT:
        raise InputError(
            f"cannot be saved: its snapshot takes {format_bytes(largest)}, above the limit of the binary format, "
            f"{format_bytes(MESSAGE_LIMIT)}; set snapshot_format: HDF5, or snapshot: 0 and snapshot_after_train: false",
            path=str(net.path),
        )


def write_snapshot(model: str, path: str, net: str, layers: FileLayers, state: State, extra: Extra) -> None:
    """Write the weights of `net` to `model`, `state` to `path` and `extra` beside it; creates the folder."""
    write_model, write_state = weights_content(model, net, layers), state_content(path, state)
    digest = ""

    def write_weights(handle: BinaryIO) -> None:
        nonlocal digest
        write_model(handle)
        handle.flush()
        digest = _sha256(handle)

    def write_extra(handle: BinaryIO) -> None:
        header = {"layermem": VERSION, "model_sha256": digest, "state_sha256": state.digest()}
        handle.write(json.dumps({**header, **extra}, indent=1).encode())

    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=path) from None
    write_together([(model, write_weights), (f"{path}.json", write_extra), (path, write_state)])


def read_snapshot(path: str) -> Snapshot:
    """The snapshot with the solver state at `path`; InputError unless its files exist and belong together."""
    state = read_state(path)
    extra = _read_extra(f"{path}.json", path, state)
    model = _find_model(path, state, None if extra is None else extra["model_sha256"])
    return Snapshot(path, model, state, read_weights(model), extra)


def _read_extra(path: str, state_path: str, state: State) -> SavedExtra | None:
    try:
        extra = json.loads(Path(path).read_text())
        version, digest = extra["layermem"], extra["state_sha256"]
        _ = str(extra["model_sha256"]), int(extra["seed"]), list(extra["losses"]), list(extra["feeds"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"is damaged ({error}); remove it to resume without data positions and seed", path=path
        ) from None
    if version != VERSION:
        raise InputError(
            f"has version {version}, not {VERSION}; resume with the layermem that wrote it",
            path=path,
        )
    if digest != state.digest():
        raise InputError(f"does not belong to '{state_path}'; copy both files from the same run", path=path)
    return cast("SavedExtra", extra)


def _find_model(path: str, state: State, digest: str | None) -> str:
    """The path of the weights of the state, relative to the working directory or beside it, with the right hash."""
    beside = Path(path).parent / Path(state.learned_net).name
    candidates = [str(p) for p in dict.fromkeys((Path(state.learned_net), beside)) if p.is_file()]
    if not candidates:
        raise InputError(f"needs the weights '{state.learned_net}', which do not exist; copy them beside it", path=path)
    if digest is None:
        return candidates[0]
    for model in candidates:
        with open(model, "rb") as handle:
            if _sha256(handle) == digest:
                return model
    raise InputError("has changed since the snapshot; resume from another one", path=candidates[0])


def _sha256(handle: BinaryIO) -> str:
    digest = hashlib.sha256()
    handle.seek(0)
    while chunk := handle.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
