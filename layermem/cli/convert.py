"""convert: weights and solver states between binary and HDF5; prototxt of old Caffe versions to the current format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli.options import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import write_atomically
from layermem.utils.text import printable

if TYPE_CHECKING:
    from layermem.proto.read import NetFile, SolverFile

EXAMPLE = """\
  # the first two after `layermem train --solver prototxt/digits/solver.prototxt`:
  layermem convert out/digits_iter_700.caffemodel digits.caffemodel.h5
  layermem convert out/digits_iter_700.solverstate digits.solverstate.h5
  layermem convert prototxt/caffenet/train_val.prototxt caffenet.prototxt
"""
ENDINGS = {  # of the names of files that convert writes; a source of another name is read as a weight file
    "prototxt": (".prototxt", ".txt", ".pbtxt"),
    "solver state": (".solverstate", ".solverstate.h5"),
    "weight file": (".caffemodel", ".h5"),
}


def add_verbs(verbs: Verbs) -> None:
    description = "convert weights or solver states (binary, or HDF5 if the name ends in .h5), or upgrade prototxt"
    parser = add_verb(verbs, "convert", description, EXAMPLE)
    parser.add_argument("source", metavar="IN", help="the file to read")
    parser.add_argument("target", metavar="OUT", help="the file to write; of the same kind by its name")
    parser.set_defaults(run=run_convert)


def run_convert(arguments: argparse.Namespace) -> int:
    source, target = arguments.source, arguments.target
    kind, target_kind = _kind(source) or "weight file", _kind(target)
    if target_kind is None:
        known = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        raise InputError(f"is of no kind that convert writes; use a name that ends in one of {known}", path=target)
    if kind != target_kind:
        raise InputError(
            f"is a {kind} by its name, and '{target}' a {target_kind}; give OUT a name like IN", path=source
        )
    for line in {"prototxt": _prototxt, "solver state": _state, "weight file": _weights}[kind](source, target):
        print(printable(line))
    return 0


def _kind(path: str) -> str | None:
    """The kind of a file, by the ending of its name; None for any other."""
    return next((kind for kind, endings in ENDINGS.items() if Path(path).name.endswith(endings)), None)


def _weights(source: str, target: str) -> list[str]:
    from layermem.proto.weights import read_weights, write_weights

    layers = read_weights(source)
    write_weights(target, Path(source).name.split(".")[0], {name: ("", blobs) for name, blobs in layers.items()})
    values = sum(blob.size for blobs in layers.values() for blob in blobs)
    return [f"{target}: {len(layers)} layers, {values:,} values"]


def _state(source: str, target: str) -> list[str]:
    from layermem.solver.state_file import read_state, state_content

    state = read_state(source)
    write_atomically(target, state_content(target, state))
    return [
        f"{target}: iteration {state.iteration}, {len(state.history)} history blobs, weights in {state.learned_net}"
    ]


def _prototxt(source: str, target: str) -> list[str]:
    from google.protobuf import text_format

    file = _read(source)
    text = text_format.MessageToString(file.message, as_utf8=True)
    write_atomically(target, text.encode())
    layers = len(getattr(file.message, "layer", ()))
    what = f"a net of {layers} layers" if layers else "a solver"
    return [*(f"{source}: {note}" for note in file.notes), f"{target}: {what}; comments are not kept"]


def _read(source: str) -> NetFile | SolverFile:
    """The net or the solver in a file."""
    from layermem.proto.read import read_net, read_solver

    try:
        return read_net(source)
    except InputError as as_net:
        try:
            return read_solver(source)
        except InputError as as_solver:
            # The error further down the file is of the reader that parsed more of it.
            raise max(as_net, as_solver, key=lambda error: error.line or 0) from None
