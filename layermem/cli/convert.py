"""convert: weights and solver states between binary and HDF5; prototxt of old Caffe versions to the current format;
images and their labels to a database, and a database to its mean image; nets with weights to ONNX models and back."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli import convert_onnx
from layermem.cli.options import Verbs, add_verb
from layermem.cli.watch import track_progress
from layermem.errors import InputError
from layermem.utils.files import write_atomically
from layermem.utils.text import printable

if TYPE_CHECKING:
    from layermem.proto.read import NetFile, SolverFile

EXAMPLE = """\
  layermem examples digits caffenet
  # the next three after `layermem train --solver digits/solver.prototxt`:
  layermem convert out/digits_iter_700.caffemodel digits.caffemodel.h5
  layermem convert out/digits_iter_700.solverstate digits.solverstate.h5
  layermem convert onnx --weights out/digits_iter_700.caffemodel digits/train_val.prototxt digits.onnx
  layermem convert caffenet/train_val.prototxt caffenet.prototxt
  layermem convert mean digits/digits_train_lmdb mean.binaryproto
"""
OPTIONS_OF = {  # of each conversion; those of `labels` are options of `images` too
    "images": ("root", "resize", "gray", "encoded", "encode_type", "check_size", "shuffle", "labels", "backend"),
    "labels": ("shuffle", "labels", "backend"),
    "mean": (),
    "onnx": convert_onnx.OPTIONS,
    "IN OUT": ("names",),
}
MAX_LABELS = 65535  # of an image
BACKENDS = ("lmdb", "leveldb")
USAGE = (
    """\
layermem convert [-h] [--names MAP] IN OUT
       layermem convert images [--root FOLDER] [--resize HxW] [--gray] [--encoded]
                               [--encode-type TYPE] [--check-size] [--shuffle SEED] [--labels N]
                               [--backend lmdb|leveldb] LIST DB
       layermem convert labels [--shuffle SEED] [--labels N] [--backend lmdb|leveldb] LIST DB
       layermem convert mean DB [OUT]"""
    + convert_onnx.USAGE
)
ENDINGS = {  # of the names of files that convert writes; a source of another name is read as a weight file
    "prototxt": (".prototxt", ".txt", ".pbtxt"),
    "solver state": (".solverstate", ".solverstate.h5"),
    "weight file": (".caffemodel", ".h5", ".safetensors", ".npz"),
}


def add_verbs(verbs: Verbs) -> None:
    description = (
        "convert weights or solver states (binary, or HDF5 if the name ends in .h5; weights also .safetensors and "
        ".npz), upgrade prototxt, make a database of images or of their labels, or its mean image, or write a net "
        "with its weights as an ONNX model"
    )
    parser = add_verb(verbs, "convert", description, EXAMPLE)
    parser.usage = USAGE
    parser.add_argument(
        "source", metavar="IN", help="the file to read; or `images`, `labels`, `mean` or `onnx`, for what follows"
    )
    parser.add_argument(
        "target", metavar="OUT",
        help="the file to write, of the same kind by its name; or the LIST of images (lines `path label`), the DB, or "
        "the NET",
    )  # fmt: skip
    parser.add_argument(
        "result", metavar="DB or OUT", nargs="?",
        help="the database, the file of its mean, or the ONNX model to write; labels are HDF5 if the name ends in .h5",
    )  # fmt: skip
    parser.add_argument(
        "--names", metavar="MAP", help="names in a .safetensors or .npz file, in lines `conv1/0 conv1.weight`"
    )
    images = parser.add_argument_group("options of `convert images`")
    images.add_argument(
        "--root", metavar="FOLDER", type=Path, help="folder of the paths in LIST (default: here, or beside LIST)"
    )
    images.add_argument("--resize", metavar="HxW", type=image_size, help="height and width of all images")
    images.add_argument("--gray", action="store_true", help="one channel instead of three")
    images.add_argument("--encoded", action="store_true", help="store image files, to be decoded in training")
    images.add_argument(
        "--encode-type", metavar="TYPE", help="their format: png, jpg or bmp (default: that of each file)"
    )
    images.add_argument("--check-size", action="store_true", help="refuse images of different sizes")
    both = parser.add_argument_group("options of `convert images` and `convert labels`")
    both.add_argument("--shuffle", metavar="SEED", type=int, help="a random order (default: that of LIST)")
    both.add_argument(
        "--labels", metavar="N", type=label_count,
        help="labels behind each path (default: one for images, and for labels as many as the first line has)",
    )  # fmt: skip
    both.add_argument("--backend", choices=BACKENDS, help="the kind of database (default: lmdb)")
    convert_onnx.add_onnx_options(parser.add_argument_group("options of `convert onnx`"))
    parser.set_defaults(run=run_convert, level=None)


def image_size(text: str) -> tuple[int, int]:
    """The value of --resize."""
    height, cross, width = text.partition("x")
    if not (
        cross and height.isdecimal() and width.isdecimal() and 0 < int(height) <= 65535 and 0 < int(width) <= 65535
    ):
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write height x width, such as 256x256")
    return int(height), int(width)


def label_count(text: str) -> int:
    """The value of --labels."""
    if not (text.isdecimal() and 1 <= int(text) <= MAX_LABELS):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of labels; write 1 to {MAX_LABELS}")
    return int(text)


def run_convert(arguments: argparse.Namespace) -> int:
    _check_options(arguments)
    conversions = {"images": _run_images, "labels": _run_labels, "mean": _run_mean, "onnx": _run_onnx}
    if arguments.source in conversions:
        return conversions[arguments.source](arguments)
    if arguments.result is not None:
        what = f"unknown conversion '{arguments.source}'; use {_listed(conversions)}, or give IN and OUT alone"
        raise InputError(what)
    source, target = arguments.source, arguments.target
    kind, target_kind = _kind(source) or "weight file", _kind(target)
    if target_kind is None:
        known = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        hint = "; for a model give `layermem convert onnx NET OUT`" if target.endswith(".onnx") else ""
        raise InputError(
            f"is of no kind that convert writes; use a name that ends in one of {known}{hint}", path=target
        )
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
    """InputError for an option that the conversion does not have."""
    allowed = OPTIONS_OF[arguments.source if arguments.source in OPTIONS_OF else "IN OUT"]
    for name, value in vars(arguments).items():
        verbs = [f"`layermem convert {verb}`" for verb, names in OPTIONS_OF.items() if name in names]
        if verbs and name not in allowed and value is not None and value is not False and value != []:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} is an option of {' and '.join(verbs)} only; leave it out")


def _run_images(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import ImageOptions, image_records, write_database

    if arguments.result is None:
        raise InputError("`convert images` needs LIST and DB; give both")
    options = ImageOptions(
        root=arguments.root, size=arguments.resize, gray=arguments.gray, encoded=arguments.encoded,
        encode=arguments.encode_type, shuffle=arguments.shuffle, check_size=arguments.check_size,
        labels=arguments.labels or 1,
    )  # fmt: skip
    records = image_records(Path(arguments.target), options, lambda items: track_progress(items, "storing"))
    count = write_database(Path(arguments.result), records, backend=arguments.backend or "lmdb")
    print(printable(f"{arguments.result}: {count:,} images"))
    return 0


def _run_labels(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import label_records, write_database, write_label_rows

    if arguments.result is None:
        raise InputError("`convert labels` needs LIST and DB; give both")
    target = Path(arguments.result)
    records = label_records(
        Path(arguments.target), arguments.labels, arguments.shuffle, lambda items: track_progress(items, "storing")
    )
    if target.suffix == ".h5":
        if arguments.backend:
            raise InputError("--backend is of a database, and the name ends in .h5; leave out one", path=str(target))
        count = write_label_rows(target, records)
    else:
        count = write_database(target, records, backend=arguments.backend or "lmdb")
    print(printable(f"{arguments.result}: labels of {count:,} images"))
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


def _run_onnx(arguments: argparse.Namespace) -> int:
    if arguments.result is None:
        raise InputError("`convert onnx` needs NET and OUT; give both")
    return convert_onnx.run_export(arguments.target, arguments.result, arguments)


def _listed(names: Iterable[str]) -> str:
    """ "`a`, `b` or `c`" """
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} or {last}"


def _kind(path: str) -> str | None:
    """The kind of a file, by the ending of its name; None for any other."""
    return next((kind for kind, endings in ENDINGS.items() if Path(path).name.endswith(endings)), None)


def _weights(source: str, target: str, names: str | None) -> list[str]:
    """The map, if there is one, is of the file that is not Caffe's; of two such files, of `source`."""
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
        return read_net(source)
    except InputError as as_net:
        try:
            return read_solver(source)
        except InputError as as_solver:
            # The error further down the file is of the reader that parsed more of it.
            raise max(as_net, as_solver, key=lambda error: error.line or 0) from None
