"""convert: weights and solver states between binary and HDF5; prototxt of old Caffe versions to the current format;
images to an LMDB, and an LMDB to its mean image."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli.options import Verbs, add_verb
from layermem.cli.watch import track_progress
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
  layermem convert mean prototxt/digits/digits_train_lmdb mean.binaryproto
"""
IMAGE_OPTIONS = ("root", "resize", "gray", "encoded", "shuffle")
USAGE = """\
layermem convert [-h] IN OUT
       layermem convert images [--root FOLDER] [--resize HxW] [--gray] [--encoded] [--shuffle SEED]
                               LIST DB
       layermem convert mean DB [OUT]"""
ENDINGS = {  # of the names of files that convert writes; a source of another name is read as a weight file
    "prototxt": (".prototxt", ".txt", ".pbtxt"),
    "solver state": (".solverstate", ".solverstate.h5"),
    "weight file": (".caffemodel", ".h5"),
}


def add_verbs(verbs: Verbs) -> None:
    description = (
        "convert weights or solver states (binary, or HDF5 if the name ends in .h5), upgrade prototxt, or make an LMDB "
        "of images or its mean"
    )
    parser = add_verb(verbs, "convert", description, EXAMPLE)
    parser.usage = USAGE
    parser.add_argument("source", metavar="IN", help="the file to read; or `images` or `mean`, for what follows")
    parser.add_argument(
        "target", metavar="OUT",
        help="the file to write, of the same kind by its name; or the LIST of images (lines `path label`), or the DB",
    )  # fmt: skip
    parser.add_argument("result", metavar="DB or OUT", nargs="?", help="the LMDB, or the file of its mean, to write")
    images = parser.add_argument_group("options of `convert images`")
    images.add_argument(
        "--root", metavar="FOLDER", type=Path, help="folder of the paths in LIST (default: here, or beside LIST)"
    )
    images.add_argument("--resize", metavar="HxW", type=image_size, help="height and width of all images")
    images.add_argument("--gray", action="store_true", help="one channel instead of three")
    images.add_argument("--encoded", action="store_true", help="store the files' bytes, to be decoded in training")
    images.add_argument("--shuffle", metavar="SEED", type=int, help="a random order (default: that of LIST)")
    parser.set_defaults(run=run_convert)


def image_size(text: str) -> tuple[int, int]:
    """The value of --resize."""
    height, cross, width = text.partition("x")
    if not (
        cross and height.isdecimal() and width.isdecimal() and 0 < int(height) <= 65535 and 0 < int(width) <= 65535
    ):
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write height x width, such as 256x256")
    return int(height), int(width)


def run_convert(arguments: argparse.Namespace) -> int:
    if arguments.source == "images":
        return _run_images(arguments)
    options = vars(arguments)
    given = [f"--{name}" for name in IMAGE_OPTIONS if options[name] is not None and options[name] is not False]
    if given:
        raise InputError(f"{given[0]} is an option of `layermem convert images` only; leave it out")
    if arguments.source == "mean":
        return _run_mean(arguments)
    if arguments.result is not None:
        raise InputError(f"unknown conversion '{arguments.source}'; use `images` or `mean`, or give IN and OUT alone")
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


def _run_images(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import ImageOptions, image_records, write_lmdb

    if arguments.result is None:
        raise InputError("`convert images` needs LIST and DB; give both")
    options = ImageOptions(
        arguments.root, arguments.resize, arguments.gray, arguments.encoded, arguments.shuffle
    )  # fmt: skip
    records = image_records(Path(arguments.target), options, lambda items: track_progress(items, "storing"))
    count = write_lmdb(Path(arguments.result), records)
    print(printable(f"{arguments.result}: {count:,} images"))
    return 0


def _run_mean(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import mean_content, mean_image

    mean = mean_image(Path(arguments.target), lambda items: track_progress(items, "adding"))
    for value in mean.mean(axis=(1, 2), dtype=float):
        print(f"mean_value: {value:.6g}")
    if arguments.result is not None:
        write_atomically(arguments.result, mean_content(mean))
        print(printable(f"{arguments.result}: {'x'.join(map(str, mean.shape))}"))
    return 0


def _kind(path: str) -> str | None:
    """The kind of a file, by the ending of its name; None for any other."""
    return next((kind for kind, endings in ENDINGS.items() if Path(path).name.endswith(endings)), None)


def _weights(source: str, target: str) -> list[str]:
    from layermem.proto.weights import read_weights, write_weights

    layers = read_weights(source)
    untyped = {name: ("", blobs) for name, blobs in layers.items()}
    write_weights(target, Path(source).name.split(".")[0], untyped, layers.names_in_file)
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
