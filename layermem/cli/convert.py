"""convert: weights and solver states between binary and HDF5; prototxt of old Caffe versions to the current format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli.options import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import write_atomically

if TYPE_CHECKING:
    from layermem.proto.read import NetFile, SolverFile

EXAMPLE = """\
  layermem convert out/digits_iter_700.caffemodel digits.caffemodel.h5
  layermem convert out/digits_iter_700.solverstate digits.solverstate.h5
  layermem convert prototxt/caffenet/train_val.prototxt caffenet.prototxt
"""
TEXT = (".prototxt", ".txt", ".pbtxt")


def add_verbs(verbs: Verbs) -> None:
    description = "convert weights or solver states (binary, or HDF5 if the name ends in .h5), or upgrade prototxt"
    parser = add_verb(verbs, "convert", description, EXAMPLE)
    parser.add_argument("source", metavar="IN", help="the file to read")
    parser.add_argument("target", metavar="OUT", help="the file to write; of the same kind by its name")
    parser.set_defaults(run=run_convert)


def run_convert(arguments: argparse.Namespace) -> int:
    source, target = arguments.source, arguments.target
    kinds = [_kind(path) for path in (source, target)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"is a {kinds[0]} by its name, and '{target}' a {kinds[1]}; give OUT a name like IN", path=source
        )
    for line in {"prototxt": _prototxt, "solver state": _state, "weight file": _weights}[kinds[0]](source, target):
        print(line)
    return 0


def _kind(path: str) -> str:
    """The kind of a file, by its name."""
    name = Path(path).name.removesuffix(".h5")
    return "prototxt" if name.endswith(TEXT) else "solver state" if name.endswith(".solverstate") else "weight file"


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
