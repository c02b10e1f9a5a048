"""Snapshots of a run: Caffe's two files, and a JSON file for the rest of the state.

    PREFIX_iter_N.caffemodel          the weights, for any Caffe program; with HDF5 both names end in .h5
    PREFIX_iter_N.solverstate         Caffe's SolverState: iteration, optimizer state, path of the weights
    PREFIX_iter_N.solverstate.json    state that Caffe does not save: seed, data positions, displayed losses, device,
                                      solver type, loss scale, states of recurrent layers, and the hashes of the other
                                      two files, to detect a mixture of two runs

The files are written together, the solverstate last, so a snapshot is complete or absent (utils/files.py).  A
solverstate without the JSON file resumes as in Caffe.
source  Caffe solver.cpp, sgd_solver.cpp
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, cast

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto import weights_hdf5
from layermem.proto.blobs import MESSAGE_LIMIT_BYTES, Blob
from layermem.proto.schema import Message
from layermem.proto.weights import FileLayers, Weights, open_weights, weights_content
from layermem.solver.checks import LARGEST_RATE
from layermem.solver.feeds import Position
from layermem.solver.loss_scale import SavedScale, is_saved_scale
from layermem.solver.rules import rule_of
from layermem.solver.state_file import SolverStateData, read_state, state_content
from layermem.utils import files
from layermem.utils.input_files import TEXT_LIMIT_BYTES, exists, read_bytes
from layermem.utils.locks import locked
from layermem.utils.open_file import OpenFile
from layermem.utils.units import format_bytes

VERSION = 1  # version of the JSON file
CHUNK_BYTES = 1 << 20  # of one hash update
PATH_LIMIT_BYTES = 4095  # of a path
LONGEST_END = "_iter_2147483647.solverstate.h5.json"
HDF5 = 0  # SolverParameter.SnapshotFormat


class SavedState(TypedDict):
    """Numbers as base64 of float32 in little-endian order."""

    shape: list[int]
    values: str


class SavedBest(TypedDict):
    """The best weights of the run so far (best.py).

    value, iteration, model   the output of the best test, its iteration, and the file of its weights
    tested, since             the iteration of the last test that counted, and the number of tests since the best one
    """

    value: float
    iteration: int
    model: str
    tested: int
    since: int


class Extra(TypedDict):
    """The content of the JSON file without its header."""

    seed: int
    iteration: int
    losses: list[float]
    feeds: list[Position]
    device: str  # with the ISA of its kernels (Device.arithmetic); "" in a snapshot of an earlier version
    states: dict[str, SavedState]  # states that layers carry from step to step; absent in earlier versions
    base_lr: float | None  # value set during the run, which replaces the solver's
    ranks: int  # number of ranks that wrote it, for information only
    loss_scale: SavedScale | None  # None without one, and in earlier versions
    type: str  # of the solver; "" in earlier versions
    best: SavedBest | None  # absent without one


# Fields that earlier versions did not write.
EARLIER: dict[str, object] = {
    "device": "",
    "states": {},
    "base_lr": None,
    "ranks": 1,
    "loss_scale": None,
    "type": "",
    "best": None,
}


class SavedExtra(Extra):
    """The whole content of the JSON file."""

    layermem: int
    model_sha256: str
    state_sha256: str


@dataclass(frozen=True)
class Snapshot:
    """The content of a snapshot.  `extra` is the JSON file, None for a snapshot of another program."""

    path: str
    model: str
    state: SolverStateData
    weights: Weights[Blob]
    extra: SavedExtra | None


def snapshot_paths(prefix: str, iteration: int, hdf5: bool) -> tuple[str, str]:
    """Paths of the weights and of the solver state."""
    end = ".h5" if hdf5 else ""
    return f"{prefix}_iter_{iteration}.caffemodel{end}", f"{prefix}_iter_{iteration}.solverstate{end}"


def best_path(prefix: str, param: Message) -> str:
    """Path of the best weights of a run."""
    return f"{prefix}_best.caffemodel{'.h5' if param.snapshot_format == HDF5 else ''}"


def saves(param: Message) -> bool:
    """Whether a run of the solver `param` saves snapshots or weights."""
    return bool(param.snapshot or param.snapshot_after_train or param.keep_best or param.patience)


def is_due(param: Message, iteration: int) -> bool:
    """Whether a run of the solver `param` saves a snapshot when `iteration` is complete."""
    return bool(param.snapshot and iteration % param.snapshot == 0)


def is_due_at_end(param: Message, iteration: int, saved_at: int | None) -> bool:
    """Whether a run saves a last snapshot: as in Caffe, not if one is due after that iteration anyway."""
    return bool(param.snapshot_after_train and saved_at != iteration and not is_due(param, iteration))


def check_prefix(prefix: str) -> None:
    """Raise InputError, before training starts, unless snapshots can be written at `prefix`."""
    folder = Path(prefix).parent
    if Path(prefix).name == "":
        raise InputError(f"has snapshot_prefix '{prefix}', which is a folder; add a file name")
    if "\0" in prefix:
        raise InputError("has a snapshot_prefix with a zero byte; remove it")
    *folders, name = [len(os.fsencode(part)) for part in Path(prefix).parts]
    length = len(os.fsencode(os.path.abspath(prefix))) + len(LONGEST_END) + len(files.AFFIXES)
    if max([*folders, name + len(LONGEST_END)]) > files.NAME_LIMIT_BYTES or length > PATH_LIMIT_BYTES:
        raise InputError(f"has a snapshot_prefix of {len(prefix)} letters, too long for a file name; shorten it")
    if blocked := files.blocked_at(folder):
        raise InputError(
            f"cannot write snapshots to '{prefix}': '{blocked}' is not a writable folder; change "
            "snapshot_prefix, or set snapshot: 0 and snapshot_after_train: false"
        )
    for entry in os.listdir(folder) if folder.is_dir() else ():
        if re.fullmatch(_names(prefix), entry):
            files.check_output(folder / entry)


def _names(prefix: str) -> str:
    """A pattern of the names of all files that a run with this prefix may write."""
    return re.escape(Path(prefix).name) + r"_(?:iter_\d+|best)\.(?:caffemodel|solverstate)(?:\.h5)?(?:\.json)?"


def remove_orphans(prefix: str) -> None:
    """Delete the partial files that a killed run with this prefix left."""
    folder = Path(os.path.realpath(Path(prefix).parent))
    if folder.is_dir():
        start = Path(prefix).name + "_"
        is_cut = files.aside_stem(start + LONGEST_END) != start + LONGEST_END
        files.remove_orphans(folder, f"{re.escape(files.aside_stem(start))}.*" if is_cut else _names(prefix))


@contextmanager
def only_run(prefix: str) -> Iterator[None]:
    """A context of a run with this prefix; InputError if another process or thread is in one, since the snapshots of
    two runs would mix."""
    make_folder(prefix)
    path = Path(os.path.realpath(Path(prefix).parent)) / f".{Path(prefix).name}.lock"
    with locked(path) as is_alone:
        if not is_alone:
            raise InputError(
                "is the snapshot_prefix of a run that goes on, and snapshots of two runs would mix; give this one "
                "another (--set snapshot_prefix=...), or wait for the other",
                path=prefix,
            )
        yield


def check_size(net: Net, param: Message) -> None:
    """Raise InputError if a snapshot of `net` would exceed the limit of its format."""
    largest = max(
        sum(4 * p.tensor.count for layer in net.layers for _, p in layer.params),
        rule_of(param).history_count
        * sum(4 * owned.param.tensor.count for owned in net.params.values() if not owned.param.carried),
    )
    if param.snapshot_format != HDF5 and largest > MESSAGE_LIMIT_BYTES:
        raise InputError(
            f"cannot be saved: its snapshot takes {format_bytes(largest)}, above the limit of the binary format, "
            f"{format_bytes(MESSAGE_LIMIT_BYTES)}; set snapshot_format: HDF5, or snapshot: 0 and "
            "snapshot_after_train: false",
            path=str(net.path),
        )


def check_names(net: Net, param: Message) -> None:
    """Raise InputError if the format of snapshots cannot hold the names of the layers of `net`."""
    if param.snapshot_format != HDF5:
        return
    try:
        weights_hdf5.check_names({layer.name: len(layer.params) for layer in net.layers})
    except InputError as error:
        raise net.placed(error) from None


def check_states_size(nbytes: int, net: Net) -> None:
    """Raise InputError if the states of layers would exceed the limit of the JSON file."""
    if nbytes * 4 / 3 > TEXT_LIMIT_BYTES / 2:
        raise InputError(
            f"cannot be saved: the states of its layers take {format_bytes(nbytes)}, above the limit of a snapshot, "
            f"{format_bytes(TEXT_LIMIT_BYTES * 3 // 8)}; use a smaller batch, or snapshot: 0 and "
            "snapshot_after_train: false",
            path=str(net.path),
        )


def saved_states(states: Mapping[str, np.ndarray]) -> dict[str, SavedState]:
    return {
        name: {"shape": list(value.shape), "values": base64.b64encode(value.astype("<f4").tobytes()).decode()}
        for name, value in states.items()
    }


def states_of(extra: SavedExtra) -> dict[str, np.ndarray]:
    """The states of layers by name."""
    return {
        name: np.frombuffer(base64.b64decode(saved["values"]), "<f4").reshape(saved["shape"])
        for name, saved in extra["states"].items()
    }


def write_snapshot(model: str, path: str, net: Net, layers: FileLayers, state: SolverStateData, extra: Extra) -> None:
    """Write the weights of `net` to `model`, `state` to `path` and `extra` next to it; create the folder."""
    write_model = weights_content(model, net.name, layers, net.names_in_file)
    write_state = state_content(path, state)
    digest = ""

    def write_weights(handle: BinaryIO) -> None:
        nonlocal digest
        write_model(handle)
        handle.flush()
        digest = _sha256(handle)

    def write_extra(handle: BinaryIO) -> None:
        header = {"layermem": VERSION, "model_sha256": digest, "state_sha256": state.digest()}
        known = {name: value for name, value in extra.items() if name != "best" or value is not None}
        handle.write(json.dumps({**header, **known}, indent=1).encode())

    make_folder(path)
    files.write_together([(model, write_weights), (f"{path}.json", write_extra), (path, write_state)])


def make_folder(path: str) -> None:
    """Create the folder of a file of a snapshot."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}; change snapshot_prefix, or free space there", path=path
        ) from None


def read_snapshot(path: str) -> Snapshot:
    """Read the snapshot with the solver state at `path`; InputError unless its files exist and belong together."""
    state = read_state(path)
    extra = _read_extra(f"{path}.json", path, state)
    model = _find_model(path, state, None if extra is None else extra["model_sha256"])
    return Snapshot(path, model.path, state, open_weights(model), extra)


def newest_snapshot(prefix: str) -> tuple[Snapshot | None, list[str]]:
    """Return the newest complete snapshot of a prefix, or None, and a sentence for each newer incomplete one."""
    folder, name = Path(prefix).parent, re.escape(Path(prefix).name)
    states = (
        []
        if not folder.is_dir()
        else [
            (int(match[1]), entry.name)
            for entry in os.scandir(folder)
            if (match := re.fullmatch(rf"{name}_iter_(\d+)\.solverstate(?:\.h5)?", entry.name))
        ]
    )
    notes: list[str] = []
    for left, (_, state) in zip(reversed(range(len(states))), sorted(states, reverse=True)):
        path = str(folder / state)
        try:
            return read_snapshot(path), notes
        except InputError as error:
            then = "so an earlier one is taken" if left else "and there is no earlier one"
            notes.append(f"the snapshot '{path}' is not complete, {then}: {error}")
    return None, notes


def _read_extra(path: str, state_path: str, state: SolverStateData) -> SavedExtra | None:
    if not exists(path):
        return None
    raw = read_bytes(path, what="solver state's JSON file", limit=TEXT_LIMIT_BYTES)
    try:
        extra = json.loads(raw)
        fault = _fault(extra)
    except (ValueError, RecursionError) as error:
        fault = "too deep nesting" if isinstance(error, RecursionError) else str(error)[:80]
    if fault:
        raise InputError(f"is damaged ({fault}); remove it to resume without data positions and seed", path=path)
    if extra["layermem"] != VERSION:
        raise InputError(
            f"has version {str(extra['layermem'])[:20]}, not {VERSION}; resume with the layermem that wrote it",
            path=path,
        )
    if extra["state_sha256"] != state.digest() or extra["iteration"] != state.iteration:
        raise InputError(f"does not belong to '{state_path}'; copy both files from the same run", path=path)
    return cast("SavedExtra", {**EARLIER, **extra, "losses": [*map(float, extra["losses"])]})


def _fault(extra: object) -> str | None:
    """The problem of the content of a JSON file, or None; every field is checked before any of it is used."""
    if not isinstance(extra, dict):
        return "it is no JSON object"
    for name, valid in FIELDS.items():
        if name in EARLIER and name not in extra:
            continue
        if name not in extra:
            return f"it has no {name}"
        if not valid(extra[name]):
            return f"its {name} is not what a snapshot holds"
    return None


def _is_integer(value: object, end: int = 2**63) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -end <= value < end


def _is_number(value: object) -> bool:
    """Whether `value` can be a loss; NaN and infinity can."""
    return isinstance(value, float) or _is_integer(value)


def _is_position(value: object) -> bool:
    """Whether `value` maps layer names to positions of feeds; the feeds check the positions."""
    return isinstance(value, dict) and all(
        isinstance(state, dict) and all(isinstance(each, str | int) for each in state.values())
        for state in value.values()
    )


def _is_best(value: object) -> bool:
    kinds = SavedBest.__annotations__
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        return value is None
    numbers = [value[name] for name in ("iteration", "tested", "since")]
    return isinstance(value["model"], str) and _is_number(value["value"]) and all(map(_is_integer, numbers))


def _is_state(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"shape", "values"} or not isinstance(value["values"], str):
        return False
    shape = value["shape"]
    if not isinstance(shape, list) or not all(_is_integer(size, 2**31) and size >= 0 for size in shape):
        return False
    try:
        return len(base64.b64decode(value["values"], validate=True)) == 4 * math.prod(shape)
    except ValueError:
        return False


FIELDS: dict[str, Callable[[Any], bool]] = {  # checks of the fields of the JSON file
    "layermem": lambda value: True,
    "model_sha256": lambda value: isinstance(value, str),
    "state_sha256": lambda value: isinstance(value, str),
    "device": lambda value: isinstance(value, str),
    "type": lambda value: isinstance(value, str),
    "seed": _is_integer,
    "iteration": _is_integer,
    "losses": lambda value: isinstance(value, list) and all(map(_is_number, value)),
    "feeds": lambda value: isinstance(value, list) and all(map(_is_position, value)),
    "base_lr": lambda value: value is None or (_is_number(value) and 0 <= value <= LARGEST_RATE),
    "loss_scale": is_saved_scale,
    "best": _is_best,
    "states": lambda value: isinstance(value, dict) and all(map(_is_state, value.values())),
}


def _find_model(path: str, state: SolverStateData, digest: str | None) -> OpenFile:
    """Find the weights of the state, relative to the working directory or next to it, with the right hash."""
    beside = Path(path).parent / Path(state.learned_net).name
    candidates = [str(p) for p in dict.fromkeys((Path(state.learned_net), beside)) if os.path.isfile(p)]
    if not candidates:
        raise InputError(f"needs the weights '{state.learned_net}', which do not exist; copy them beside it", path=path)
    for name in candidates:
        model = OpenFile(name, what="snapshot's weights")
        if digest is None or digest == _sha256(model.reader()):
            return model
    raise InputError("has changed since the snapshot; resume from another one", path=candidates[0])


def _sha256(handle: BinaryIO) -> str:
    digest = hashlib.sha256()
    handle.seek(0)
    while chunk := handle.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
