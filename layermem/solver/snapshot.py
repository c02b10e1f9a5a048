"""Snapshots: what a resumed run needs, in Caffe's files and one of ours.

    PREFIX_iter_N.caffemodel          the weights, for any Caffe program; .h5 behind both names with HDF5
    PREFIX_iter_N.solverstate         iteration, histories, where the weights are: Caffe's SolverState
    PREFIX_iter_N.solverstate.json    what Caffe forgets: seed, data positions, displayed losses; and hashes of the
                                      other two, so that parts of two runs are never taken for one snapshot

They are written together, the solverstate last, so a snapshot is complete or absent (files.py).  A solverstate
without our JSON resumes as it does in Caffe.
source  Caffe solver.cpp, sgd_solver.cpp
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.blobs import MESSAGE_LIMIT
from layermem.proto.weights import read_weights, weights_content
from layermem.solver.rules import rule_of
from layermem.solver.state_file import State, read_state, state_content
from layermem.utils.files import write_together
from layermem.utils.units import format_bytes

VERSION = 1  # of the JSON
CHUNK = 1 << 20  # bytes hashed at once
HDF5 = 0  # SolverParameter.SnapshotFormat

FileLayers = Mapping[str, tuple[str, Sequence[np.ndarray]]]  # name -> (type, blobs)


@dataclass(frozen=True)
class Snapshot:
    """What was read.  `ours` is what the JSON adds, None if another program made the snapshot."""

    path: str
    model: str
    state: State
    weights: dict[str, list[np.ndarray]]
    ours: dict[str, Any] | None


def names(prefix: str, iteration: int, hdf5: bool) -> tuple[str, str]:
    """Paths of the weights and of the solver state."""
    end = ".h5" if hdf5 else ""
    return f"{prefix}_iter_{iteration}.caffemodel{end}", f"{prefix}_iter_{iteration}.solverstate{end}"


def check_place(prefix: str) -> None:
    """InputError unless files could be written there: now, rather than at the first snapshot."""
    folder = Path(prefix).parent
    if Path(prefix).name == "":
        raise InputError(f"names no file to begin with: '{prefix}'; add a name to snapshot_prefix")
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write snapshots to '{prefix}': '{folder}' is no folder that you may write to; change "
            "snapshot_prefix, or set snapshot: 0 and snapshot_after_train: false"
        )


def check_size(net: Net, param: Any) -> None:
    """InputError if a snapshot of `net` would pass what its format holds."""
    largest = max(
        sum(4 * p.tensor.count for node in net.nodes for p in node.layer.params),
        rule_of(param).histories * sum(4 * owned.param.tensor.count for owned in net.params.values()),
    )
    if param.snapshot_format != HDF5 and largest > MESSAGE_LIMIT:
        raise InputError(
            f"cannot be saved: a binary snapshot holds no more than {format_bytes(MESSAGE_LIMIT)}, and this net's "
            f"takes {format_bytes(largest)}; set snapshot_format: HDF5, or snapshot: 0 and snapshot_after_train: false",
            path=str(net.path),
        )


def write_snapshot(model: str, path: str, net: str, layers: FileLayers, state: State, ours: dict[str, Any]) -> None:
    """Write the weights of `net` to `model`, `state` to `path` and `ours` beside it; the folder too, if need be."""
    weights, whole = weights_content(model, net, layers), state_content(path, state)
    digest = ""

    def write_weights(handle: BinaryIO) -> None:
        nonlocal digest
        weights(handle)
        handle.flush()
        digest = _sha256(handle)

    def write_ours(handle: BinaryIO) -> None:
        about = {"layermem": VERSION, "model_sha256": digest, "state_sha256": state.digest()}
        handle.write(json.dumps({**about, **ours}, indent=1).encode())

    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=path) from None
    write_together([(model, write_weights), (f"{path}.json", write_ours), (path, whole)])


def read_snapshot(path: str) -> Snapshot:
    """The snapshot whose solver state is at `path`; InputError unless all of it is there and belongs together."""
    state = read_state(path)
    ours = _read_ours(f"{path}.json", path, state)
    model = _find_model(path, state, None if ours is None else ours["model_sha256"])
    return Snapshot(path, model, state, read_weights(model), ours)


def _read_ours(path: str, state_path: str, state: State) -> dict[str, Any] | None:
    try:
        ours = json.loads(Path(path).read_text())
        version, digest = ours["layermem"], ours["state_sha256"]
        _ = str(ours["model_sha256"]), int(ours["seed"]), list(ours["losses"]), list(ours["feeds"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"is damaged ({error}); remove it to resume without data positions and seed", path=path
        ) from None
    if version != VERSION:
        raise InputError(f"is of version {version}, and this layermem reads {VERSION}; use the other one", path=path)
    if digest != state.digest():
        raise InputError(f"belongs to another snapshot than '{state_path}'; copy both from one run again", path=path)
    return dict(ours)


def _find_model(path: str, state: State, digest: str | None) -> str:
    """The weights that the state names, from the working directory or else beside it, with the right hash."""
    beside = Path(path).parent / Path(state.learned_net).name
    found = [str(p) for p in dict.fromkeys((Path(state.learned_net), beside)) if p.is_file()]
    if not found:
        raise InputError(f"belongs to the weights '{state.learned_net}', which are not there, nor beside it", path=path)
    if digest is None:
        return found[0]
    for model in found:
        with open(model, "rb") as handle:
            if _sha256(handle) == digest:
                return model
    raise InputError("holds other weights than when this snapshot was made; resume from another one", path=found[0])


def _sha256(handle: BinaryIO) -> str:
    found = hashlib.sha256()
    handle.seek(0)
    while chunk := handle.read(CHUNK):
        found.update(chunk)
    return found.hexdigest()
