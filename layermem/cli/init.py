"""init: writes a net and a solver for the images of a data set."""

from __future__ import annotations

import argparse
import os
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli.options import add_json, print_json
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import write_together
from layermem.utils.text import count_text, printable, wrap

if TYPE_CHECKING:
    from layermem.nets.classifier import ImageSet

EXAMPLE = """\
  layermem data folder photos data --resize 64x64
  layermem init shapes --data data --net resnet20
"""
NETS = "lenet, squeezenet, or resnet20, resnet32, ... (6n + 2, for small images)"
SMALL = 32  # side in pixels up to which lenet is the default; above, resnet20
DEFAULT_EPOCHS = 30


def add_verbs(verbs: Verbs) -> None:
    description = "write a net and a solver that classify the images of a data set"
    parser = add_verb(verbs, "init", description, EXAMPLE)
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="the folder to write train_val.prototxt, deploy.prototxt, solver.prototxt and labels.txt to",
    )
    parser.add_argument(
        "--data", metavar="DATA", type=Path, required=True, help="the folder that `layermem data folder` wrote"
    )
    parser.add_argument(
        "--net", metavar="NET", type=net_name, help=f"{NETS} (default: lenet up to {SMALL}x{SMALL}, else resnet20)"
    )
    parser.add_argument(
        "--epochs",
        metavar="N",
        type=int,
        default=DEFAULT_EPOCHS,
        help=f"passes over the training images (default: {DEFAULT_EPOCHS})",
    )
    parser.add_argument("--batch", metavar="N", type=int, help="training batch (default: 64, or all images)")
    parser.add_argument("--mirror", action="store_true", help="flip training images at random")
    add_json(parser)
    parser.set_defaults(run=run_init)


def net_name(text: str) -> str:
    """Parse the value of --net."""
    from layermem.nets.classifier import family_of
    from layermem.utils.similar import nearest

    try:
        family_of(text)
    except KeyError:
        near = nearest(text, ("lenet", "squeezenet", "resnet20"))
        hint = f"did you mean {near}? " if near else ""
        raise argparse.ArgumentTypeError(f"unknown net '{text}' ({hint}choose from {NETS})") from None
    return text


def run_init(arguments: argparse.Namespace) -> int:
    from layermem.nets.classifier import classifier_files

    for name in ("epochs", "batch"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise InputError(f"--{name} {value} is too few; give 1 or more")
    folder: Path = arguments.folder
    images, labels = _image_set(arguments.data, folder, arguments.mirror)
    name = arguments.net or ("lenet" if max(images.shape[1:]) <= SMALL else "resnet20")
    for path in (str(folder), images.train):
        if min(path) < " " or path != path.encode(errors="ignore").decode():
            what = "has a control character in its name, or bytes that are not UTF-8: no prototxt holds it; rename it"
            raise InputError(what, path=path)
    texts = classifier_files(name, images, epochs=arguments.epochs, batch=arguments.batch, folder=os.fspath(folder))
    files = {file: text.encode() for file, text in texts.items()} | {"labels.txt": os.fsencode(labels)}
    for file in files:
        if (folder / file).exists():
            raise InputError("exists already; give another folder, or remove it first", path=str(folder / file))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made a folder: {error.strerror}; use another path", path=str(folder)) from None
    write_together([(folder / file, content) for file, content in files.items()])
    if arguments.json:
        print_json({"net": name, "classes": images.classes, "shape": images.shape, "files": [*files]})
        return 0
    if name.startswith("resnet"):
        print(wrap(f"note: {name} is the ResNet of 6n + 2 layers for CIFAR, not one of those for ImageNet (ResNet-50)"))
    shape = "x".join(map(str, images.shape))
    print(wrap(f"{folder}: {name} for {count_text(images.classes, 'class')} of {shape} images: {', '.join(files)}"))
    print(
        printable(f"train with      {shlex.join(['layermem', 'train', '--solver', str(folder / 'solver.prototxt')])}")
    )
    return 0


def _image_set(data: Path, folder: Path, mirror: bool) -> tuple[ImageSet, str]:
    """Return the data set in `data`, with paths relative to `folder`, and the text of its labels."""
    from layermem.data.database import open_database
    from layermem.data.dataset_check import find_sets
    from layermem.data.image_folder import LABELS, MEAN, TEST, TRAIN
    from layermem.data.transform import read_mean
    from layermem.nets.classifier import ImageSet

    if not (data / LABELS).exists():
        raise InputError("is not what `layermem data folder` wrote; give that folder", path=str(data))
    sets, names, _ = find_sets(data)
    if TRAIN not in sets or names is None:
        raise InputError("has no training set; write it again with `layermem data folder`", path=str(data))
    counts = {}
    for name, path in sets.items():
        with closing(open_database(path, labels=True)) as source:
            counts[name], shape = source.length, source.first_shape()
    mean = read_mean(data / MEAN)
    paths = {name: os.path.relpath(path, folder) for name, path in sets.items()}
    channels, height, width = shape
    values = tuple(round(float(value), 2) for value in mean.reshape(channels, -1).mean(axis=1))
    return ImageSet(
        paths[TRAIN],
        paths.get(TEST, ""),
        counts[TRAIN],
        counts.get(TEST, 0),
        (channels, height, width),
        len(names),
        values,
        mirror,
    ), "".join(f"{name}\n" for name in names)
