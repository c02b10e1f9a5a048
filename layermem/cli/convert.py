"""convert: weights and solver states between binary and HDF5; prototxt of old Caffe versions to the current format;
nets with weights to ONNX models; a train_val.prototxt to its deploy form."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli import convert_deploy, convert_onnx
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import WEIGHT_ENDINGS, write_atomically
from layermem.utils.text import printable

if TYPE_CHECKING:
    from layermem.proto.read import NetFile, SolverFile

EXAMPLE = """\
  layermem examples digits caffenet
  # the next four after `layermem train --solver digits/solver.prototxt`:
  layermem convert out/digits_iter_700.caffemodel digits.caffemodel.h5
  layermem convert out/digits_iter_700.solverstate digits.solverstate.h5
  layermem convert onnx --weights out/digits_iter_700.caffemodel \\
      digits/train_val.prototxt digits.onnx
  layermem convert from-onnx digits.onnx imported.prototxt  # and imported.caffemodel
  layermem convert caffenet/train_val.prototxt caffenet.prototxt
  layermem convert deploy --batch 1 digits/train_val.prototxt deploy.prototxt
"""
OPTIONS_OF = {
    "onnx": convert_onnx.OPTIONS,
    "deploy": convert_deploy.OPTIONS,
    "from-onnx": convert_onnx.IMPORT_OPTIONS,
    "IN OUT": ("names",),
}  # of each conversion
USAGE = "layermem convert [-h] [-q | -v] [--names MAP] IN OUT" + convert_onnx.USAGE + convert_deploy.USAGE
ENDINGS = {  # of names of files that convert writes; a source with another name is read as a weight file
    "prototxt": (".prototxt", ".txt", ".pbtxt"),
    "solver state": (".solverstate", ".solverstate.h5"),
    "weight file": WEIGHT_ENDINGS,
}


def add_verbs(verbs: Verbs) -> None:
    description = (
        "convert weights or solver states (binary, or HDF5 if the name ends in .h5; weights also .safetensors and "
        ".npz), upgrade prototxt, write a net with its weights as an ONNX model or read one, or derive a deploy net"
    )
    parser = add_verb(verbs, "convert", description, EXAMPLE)
    parser.usage = USAGE
    parser.add_argument(
        "source", metavar="IN", help="the file to read; or `onnx`, `from-onnx` or `deploy`, for what follows"
    )
    parser.add_argument(
        "target", metavar="OUT", help="the file to write, of the same kind by its name; or the NET or the MODEL"
    )
    parser.add_argument("result", metavar="OUT or NET", nargs="?", help="the model or the deploy net to write")
    parser.add_argument(
        "--names", metavar="MAP", help="names in a .safetensors or .npz file, in lines `conv1/0 conv1.weight`"
    )
    convert_onnx.add_onnx_options(
        parser.add_argument_group("options of `convert onnx`; --batch and --input also of `from-onnx` and `deploy`")
    )
    convert_deploy.add_deploy_options(parser.add_argument_group("option of `convert deploy`"))
    parser.set_defaults(run=run_convert, level=None)


def run_convert(arguments: argparse.Namespace) -> int:
    _check_options(arguments)
    conversions = {"onnx": _run_onnx, "from-onnx": _run_from_onnx, "deploy": _run_deploy}
    if arguments.source in conversions:
        return conversions[arguments.source](arguments)
    if arguments.result is not None:
        raise InputError(
            f"unknown conversion '{arguments.source}'; use `onnx`, `from-onnx` or `deploy`, or give IN and OUT alone"
        )
    source, target = arguments.source, arguments.target
    kind, target_kind = _kind(source) or "weight file", _kind(target)
    if target_kind is None:
        known = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        hint = "; for a model give `layermem convert onnx NET OUT`" if target.endswith(".onnx") else ""
        raise InputError(
            f"is of no kind that convert writes; use a name that ends in one of {known}{hint}", path=target
        )
    if source.endswith(".onnx") and target_kind == "prototxt":
        raise InputError("is an ONNX model; use `layermem convert from-onnx MODEL NET OUT`", path=source)
    if kind != target_kind:
        raise InputError(
            f"is a {kind} by its name, and '{target}' a {target_kind}; give OUT a name like IN", path=source
        )
    if arguments.names and kind != "weight file":
        raise InputError(f"--names is of weights, and IN is a {kind}; leave it out", path=source)
    weights = partial(_weights, names=arguments.names)
    convert = _prototxt if kind == "prototxt" else _state if kind == "solver state" else weights
    for line in convert(source, target):
        print(printable(line))
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise InputError for an option that the conversion does not have."""
    allowed = OPTIONS_OF[arguments.source if arguments.source in OPTIONS_OF else "IN OUT"]
    for name, value in vars(arguments).items():
        verbs = [f"`layermem convert {verb}`" for verb, names in OPTIONS_OF.items() if name in names]
        if verbs and name not in allowed and value is not None and value is not False and value != []:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} is an option of {' and '.join(verbs)} only; leave it out")


def _run_onnx(arguments: argparse.Namespace) -> int:
    if arguments.result is None:
        raise InputError("`convert onnx` needs NET and OUT; give both")
    return convert_onnx.run_export(arguments.target, arguments.result, arguments)


def _run_deploy(arguments: argparse.Namespace) -> int:
    if arguments.result is None:
        raise InputError("`convert deploy` needs NET and OUT; give both")
    return convert_deploy.run_deploy(arguments.target, arguments.result, arguments)


def _run_from_onnx(arguments: argparse.Namespace) -> int:
    if arguments.result is None:
        raise InputError("`convert from-onnx` needs MODEL and NET; give both")
    return convert_onnx.run_import(arguments.target, arguments.result, arguments)


def _kind(path: str) -> str | None:
    """Return the kind of a file by the ending of its name; None if it has none of these."""
    return next((kind for kind, endings in ENDINGS.items() if Path(path).name.endswith(endings)), None)


def _weights(source: str, target: str, names: str | None) -> list[str]:
    """Convert a weight file.  The name map applies to the file that is not Caffe's; if neither is, to `source`."""
    from layermem.proto.weight_names import left_out, read_names
    from layermem.proto.weights import is_named, open_weights, read_weights, write_weights

    if names and not is_named(source) and not is_named(target):
        raise InputError("--names is of .safetensors and .npz files, which neither IN nor OUT is; leave it out")
    of_source, of_target = (read_names(names) if names and is_named(each) else None for each in (source, target))
    if of_source:
        of_target = None
    layers = open_weights(source, of_source) if is_named(source) else read_weights(source)
    untyped = {name: ("", blobs) for name, blobs in layers.items()}
    write_weights(target, Path(source).name.split(".")[0], untyped, layers.names_in_file, of_target)
    values = sum(blob.size for blobs in layers.values() for blob in blobs)
    lines = [f"{target}: {len(layers)} layers, {values:,} values"]
    if missing := left_out(layers, of_target):
        lines.append(f"{target}: without {len(missing)} blobs that the map does not name: {' '.join(missing[:8])}")
    return lines


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
        net = read_net(source)
        net.check_read()
        return net
    except InputError as as_net:
        try:
            return read_solver(source)
        except InputError as as_solver:
            # Report the error of the reader that parsed more of the file.
            raise max(as_net, as_solver, key=lambda error: error.line or 0) from None
