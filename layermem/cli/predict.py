"""predict: runs a trained net on images or arrays, and prints the most likely classes or writes values of any blob."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from layermem.cli.data import image_size
from layermem.cli.options import (
    Options,
    add_allow_python,
    add_device,
    add_input,
    add_json,
    add_net_state,
    add_threads,
    add_weights,
    device_of,
    net_options,
    print_json,
    print_warnings,
    weight_files,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import check_output, write_atomically
from layermem.utils.input_files import Read
from layermem.utils.text import abbreviated, printable, shape_text, wrap

if TYPE_CHECKING:
    from layermem.data.items import Unreadable
    from layermem.interactive.predictor import Prediction, Predictor

EXAMPLE = """\
  layermem examples digits
  # with the weights that `layermem train --solver digits/solver.prototxt` saves:
  layermem predict --net digits/train_val.prototxt --weights out/digits_iter_700.caffemodel \\
                   --top 2 digits/digits_test_lmdb
  layermem predict --net digits/train_val.prototxt --weights out/digits_iter_700.caffemodel \\
                   --blob ip1 -o features.npz digits/digits_test_lmdb
"""
OF_IMAGES = {"mean": "--mean", "scale": "--scale", "resize": "--resize", "crop": "--crop", "rgb": "--channel-order rgb"}
OF_CLASSES = {"labels": "--labels", "top": "--top"}
OWN_KEYS = ("names", "labels")  # keys of the features file besides blobs
BAD_ITEMS = InputError.exit_code
TOP = 5
NO_TRANSFORM = (
    "a net with an Input layer states no transform of images, so their pixels are 0 to 255; give --mean and --scale as "
    "in its training, or its train_val.prototxt"
)


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "predict",
        "predict with a trained net: the most likely classes of images or arrays, or features",
        EXAMPLE,
    )
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="images, folders of images, lists of images (.txt), databases (LMDB, LevelDB), or arrays (.npy, .npz)",
    )
    parser.add_argument("--net", metavar="F", required=True, help="the net: a deploy.prototxt or a train_val.prototxt")
    add_weights(parser, "weights, by layer name", required=True)
    parser.add_argument("--batch", metavar="N", type=int, help="items in a batch, instead of the net's own number")
    add_device(parser)
    add_threads(parser)
    parser.add_argument("-b", "--budget", metavar="B", help="device memory: 2GiB, 512KiB or 50%%")
    _add_output(parser.add_argument_group("output"))
    _add_transform(parser.add_argument_group("transform of images (default: that of the net's TEST data layer)"))
    shapes = parser.add_argument_group("net")
    add_input(shapes)
    add_net_state(shapes)
    add_allow_python(shapes)
    parser.set_defaults(run=run_predict)


def _add_output(out: Options) -> None:
    out.add_argument("--labels", metavar="F", help="names of the classes, one in a line (`n01440764 tench` too)")
    out.add_argument("--top", metavar="K", type=int, help=f"classes of each item (default: {TOP})")
    out.add_argument(
        "--blob",
        metavar="B",
        action="append",
        default=[],
        help="blob to read, instead of the output (with -o: several)",
    )
    out.add_argument("-o", "--output", metavar="F.npz", help="write the values of the blob for all items to a file")
    add_json(out)


def _add_transform(images: Options) -> None:
    images.add_argument("--mean", metavar="M", help="mean image (.binaryproto, .npy), or values such as 104,117,123")
    images.add_argument("--scale", metavar="X", type=float, help="factor of the pixels, after the mean")
    images.add_argument("--resize", metavar="HxW", type=image_size, help="size of an image, before the crop")
    images.add_argument("--crop", metavar="N", type=int, help="crop the N x N pixels in the centre")
    images.add_argument(
        "--channel-order",
        choices=("bgr", "rgb"),
        type=str.lower,
        default="bgr",
        help="channels that the net reads: bgr, as in Caffe, or rgb (default: bgr)",
    )


def run_predict(arguments: argparse.Namespace) -> int:
    from layermem import _native
    from layermem.data.items import count_items
    from layermem.data.preprocess import Stated
    from layermem.interactive.predictor import Predictor
    from layermem.utils.open_file import Files

    arguments.rgb = arguments.channel_order == "rgb"
    arrays = _are_arrays(arguments.inputs)
    _check_options(arguments, arrays)
    _native.exit_on_bus_error()
    read = Files().read_bytes  # lists are read twice: to count images, and to read them
    stated = Stated(arguments.mean, arguments.scale, arguments.resize, arguments.crop, arguments.rgb)
    with Predictor(
        arguments.net,
        weight_files(arguments),
        net_options(arguments),
        blobs=arguments.blob,
        stated=stated,
        budget=arguments.budget,
        device=device_of(arguments),
        at_most=None if arrays else count_items(arguments.inputs, read),
    ) as predictor:
        print_warnings(
            f"layer '{name}' is not in the weight files and has its initial values" for name in predictor.missing
        )
        if not arrays and predictor.source is not None and predictor.source.type == "Input" and stated == Stated():
            print_warnings([NO_TRANSFORM])
        results = _results(predictor, arguments.inputs, arrays, read)
        if arguments.output:
            return _write_features(predictor, results, arguments.output)
        return _print_classes(predictor, results, arguments)


def _are_arrays(inputs: list[str]) -> bool:
    from layermem.data.array_items import is_array_file

    arrays = [is_array_file(path) for path in inputs]
    if any(arrays) and not all(arrays):
        path = inputs[arrays.index(False)]
        raise InputError(
            f"'{path}' is no array file and others are; predict on arrays and on images one after the other"
        )
    return all(arrays)


def _check_options(arguments: argparse.Namespace, arrays: bool) -> None:
    """Raise InputError for an option without effect, or with an impossible value."""
    for name, option in OF_IMAGES.items():
        if arrays and getattr(arguments, name) not in (None, False):
            raise InputError(
                f"{option} is of images, and the inputs are arrays, which the net reads as they are; leave it out"
            )
    if arguments.output:
        for name, option in {**OF_CLASSES, "json": "--json"}.items():
            if getattr(arguments, name):
                raise InputError(f"{option} is of printed classes, and -o writes values to a file; leave out one")
        if not arguments.output.endswith(".npz"):
            raise InputError("is no name of an .npz file; use a name that ends in .npz", path=arguments.output)
        check_output(arguments.output)
        for name in arguments.blob:
            if name in OWN_KEYS:
                raise InputError(f"blob '{name}' cannot be written, since '{name}' is a key of the file; rename it")
    elif len(arguments.blob) > 1:
        raise InputError("several --blob need -o F.npz, which writes all of them; give one, or add -o")
    if arguments.top is not None and arguments.top < 1:
        raise InputError(f"--top {arguments.top} is too few; give 1 or more")
    if arguments.crop is not None and arguments.crop < 1:
        raise InputError(f"--crop {arguments.crop} is too small; give 1 or more")


def _results(predictor: Predictor, inputs: list[str], arrays: bool, read: Read) -> Iterator[Prediction | Unreadable]:
    """Yield the predictions of all inputs, in order."""
    from layermem.data.array_items import read_array_items
    from layermem.data.items import read_items

    if arrays:
        shapes = predictor.item_shapes
        return predictor.arrays(item for path in inputs for item in read_array_items(path, shapes))
    return predictor.images(read_items(inputs, color=predictor.color, read=read))


def _report(unreadable: Unreadable) -> None:
    print(wrap(abbreviated(f"layermem: {unreadable.error}")), file=sys.stderr)


def _class_count(predictor: Predictor) -> int:
    """The number of scores of each item; InputError for a blob that is no row of scores."""
    (blob,) = predictor.blobs
    shape = predictor.net.blobs[blob].shape
    if len(shape) < 2 or any(size != 1 for size in shape[2:]):
        raise InputError(
            f"blob '{blob}' is {shape_text(shape)}, and no row of scores for each item; give another --blob, or "
            "-o F.npz for its values"
        )
    return shape[1]


def _print_classes(
    predictor: Predictor, results: Iterator[Prediction | Unreadable], arguments: argparse.Namespace
) -> int:
    """Print the classes with the highest scores of each item."""
    from layermem.data.items import Unreadable
    from layermem.report.predictions import AccuracyCount, read_labels, score_lines, score_values, top_scores

    (blob,) = predictor.blobs
    count = _class_count(predictor)
    labels = read_labels(arguments.labels, count) if arguments.labels else None
    shown = min(arguments.top or TOP, count)
    accuracy, failed = AccuracyCount(shown), 0
    items: list[dict[str, object]] = []
    for each in results:
        try:
            if isinstance(each, Unreadable):
                raise each.error
            scores = top_scores(each.rows[blob], shown, labels)
        except InputError as error:
            failed += 1
            bad = each if isinstance(each, Unreadable) else Unreadable(each.name, error.at(path=each.name))
            _report(bad)
            items.append({"name": each.name, "error": str(bad.error)})
            continue
        accuracy.add(each.label, each.rows[blob])
        if arguments.json:
            label = {} if each.label is None else {"label": each.label}
            items.append({"name": each.name, **label, "top": score_values(scores)})
            continue
        print(printable("\n".join([each.name, *score_lines(scores)])))
    if arguments.json:
        more = {"accuracy": accuracy.values} if accuracy.items else {}
        print_json({"net": predictor.net.name, "blob": blob, "items": items, **more})
    elif accuracy.items:
        print(accuracy)
    return BAD_ITEMS if failed else 0


def _write_features(predictor: Predictor, results: Iterator[Prediction | Unreadable], path: str) -> int:
    """Write the rows of all items, and their names, to an .npz file."""
    import numpy as np

    from layermem.data.items import Unreadable

    good: list[Prediction] = []
    failed = 0
    for each in results:
        if isinstance(each, Unreadable):
            failed += 1
            _report(each)
        else:
            good.append(each)
    if not good:
        raise InputError("no input could be read, so there is nothing to write; give other files")
    arrays = {name: np.stack([each.rows[name] for each in good]) for name in predictor.blobs}
    arrays["names"] = np.array([each.name for each in good])
    if any(each.label is not None for each in good):
        arrays["labels"] = np.array([-1 if each.label is None else each.label for each in good])

    def write(handle: BinaryIO) -> None:
        np.savez(handle, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)
    shapes = ", ".join(f"{name} {'x'.join(map(str, arrays[name].shape))}" for name in predictor.blobs)
    print(printable(f"{path}: {len(good):,} items, {shapes}"))
    return BAD_ITEMS if failed else 0
