"""data: converts images to databases, means and labels; checks a data set before training."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli.options import Options, add_json, print_json
from layermem.cli.parser import VerbParser, Verbs, add_verb
from layermem.data.database import DEFAULT, database_names
from layermem.errors import InputError
from layermem.utils.files import check_ending, check_name, check_output, write_atomically
from layermem.utils.numbers import is_count, parse_float
from layermem.utils.progress import track_progress
from layermem.utils.text import count_text, printable, wrap

if TYPE_CHECKING:
    from layermem.data.databases import ImageOptions
    from layermem.data.dataset_check import CheckResult

EXAMPLE = """\
  layermem examples digits
  layermem data mean digits/digits_train_lmdb mean.binaryproto
  layermem data check digits/digits_train_lmdb digits/digits_test_lmdb
"""
PARTS = {
    "folder": ("make a data set of a folder of images with one subfolder for each class", """\
  layermem data folder photos data --resize 64x64 --test 20%
"""),
    "images": ("write the images of a list to a database, as convert_imageset does", """\
  layermem data images train.txt train_lmdb --resize 256x256 --shuffle 1
"""),
    "labels": ("write the labels of images that have several to a database", """\
  layermem data labels train.txt labels_lmdb --shuffle 1
"""),
    "mean": ("compute the mean image of a database, as compute_image_mean does", """\
  layermem data mean train_lmdb mean.binaryproto
"""),
    "check": ("check the images and labels of a folder, a list or a database", """\
  layermem data check photos
  layermem data check train.txt test.txt --labels labels.txt
"""),
}  # fmt: skip
MAX_LABELS = 65535  # labels of an image
MAX_SIDE = 65535  # pixels of a side
CLASSES_SHOWN = 20


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "data", "make databases of images and labels, and check them before training", EXAMPLE, has_parts=True
    )
    parts = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=VerbParser)
    made = {name: add_verb(parts, name, *texts) for name, texts in PARTS.items()}
    _add_folder(made["folder"])
    _add_images(made["images"])
    _add_labels(made["labels"])
    _add_mean(made["mean"])
    _add_check(made["check"])


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="the folder, with one subfolder for each class, or with train/ and val/ of such folders",
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        type=Path,
        help="the folder to write: labels.txt, train.txt, test.txt, their databases and mean.binaryproto",
    )
    parser.add_argument(
        "--test",
        metavar="SHARE",
        type=parse_share,
        help="share of each class for the test set, as 20%% or 0.2 (default: 20%%)",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of split and order (default: 0)")
    _add_pixels(parser)
    _add_backend(parser)
    add_json(parser)
    parser.set_defaults(run=run_folder)


def _add_images(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("listing", metavar="LIST", type=Path, help="the list, with lines `path label`")
    parser.add_argument("out", metavar="DB", type=Path, help="the database to write")
    parser.add_argument(
        "--root", metavar="FOLDER", type=Path, help="folder of the paths in LIST (default: here, or beside LIST)"
    )
    _add_pixels(parser)
    parser.add_argument("--check-size", action="store_true", help="refuse images of different sizes")
    _add_order(parser, "labels behind each path (default: 1)")
    _add_backend(parser)
    add_json(parser)
    parser.set_defaults(run=run_images)


def _add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("listing", metavar="LIST", type=Path, help="the list, with lines `path label label ...`")
    parser.add_argument("out", metavar="DB", type=Path, help="the database to write; an HDF5 file if it ends in .h5")
    _add_order(parser, "labels behind each path (default: as many as the first line has)")
    _add_backend(parser)
    add_json(parser)
    parser.set_defaults(run=run_labels)


def _add_mean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", type=Path, help="the database")
    parser.add_argument("out", metavar="OUT", nargs="?", help="the file of the mean image, OUT.binaryproto")
    add_json(parser)
    parser.set_defaults(run=run_mean)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "train",
        metavar="TRAIN",
        type=Path,
        help="a folder of class folders, a list or a database; or what `layermem data folder` wrote, with both sets",
    )
    parser.add_argument("test", metavar="TEST", type=Path, nargs="?", help="the test set, in one of the same forms")
    parser.add_argument("--root", metavar="FOLDER", type=Path, help="folder of the paths in lists")
    count = parser.add_mutually_exclusive_group()
    count.add_argument("--classes", metavar="N", type=int, help="number of classes (default: the largest label + 1)")
    count.add_argument("--labels", metavar="F", type=Path, help="the names of the classes, one in each line")
    add_json(parser)
    parser.set_defaults(run=run_check)


def _add_pixels(parser: Options) -> None:
    parser.add_argument("--resize", metavar="HxW", type=image_size, help="height and width of all images")
    parser.add_argument("--gray", action="store_true", help="one channel instead of three")
    parser.add_argument("--encoded", action="store_true", help="store image files, to be decoded in training")
    parser.add_argument(
        "--encode-type", metavar="TYPE", help="their format: png, jpg or bmp (default: that of each file)"
    )


def _add_order(parser: Options, labels: str) -> None:
    parser.add_argument("--shuffle", metavar="SEED", type=int, help="a random order (default: that of LIST)")
    parser.add_argument("--labels", metavar="N", type=label_count, help=labels)


def _add_backend(parser: Options) -> None:
    parser.add_argument("--backend", choices=database_names(), help=f"the kind of database (default: {DEFAULT})")


# -- values of options -------------------------------------------------------------------------------------------------


def image_size(text: str) -> tuple[int, int]:
    """Parse the value of --resize."""
    sides = text.split("x")
    if len(sides) != 2 or not all(is_count(side) and 0 < int(side) <= MAX_SIDE for side in sides):
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write height x width, such as 256x256")
    return int(sides[0]), int(sides[1])


def label_count(text: str) -> int:
    """Parse the value of --labels."""
    if not (is_count(text) and 1 <= int(text) <= MAX_LABELS):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of labels; write 1 to {MAX_LABELS}")
    return int(text)


def parse_share(text: str) -> float:
    """Parse the value of --test: 20% or 0.2."""
    try:
        value = parse_float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no share of the images; write it as 20% or 0.2, below 1")
    return value


# -- verbs -------------------------------------------------------------------------------------------------------------


def run_folder(arguments: argparse.Namespace) -> int:
    from layermem.data.image_folder import write_dataset

    check_name(arguments.out, (), "a folder")
    made = write_dataset(
        arguments.folder,
        arguments.out,
        _image_options(arguments),
        share=arguments.test,
        seed=arguments.seed,
        backend=arguments.backend or DEFAULT,
        track=lambda items: track_progress(items, "storing"),
    )
    if arguments.json:
        print_json(vars(made))
        return 0
    counts = f"{sum(made.train):,} images to train, {sum(made.test):,} to test"
    classes = count_text(len(made.classes), "class")
    print(wrap(f"{arguments.out}: {counts}, {classes}, {'x'.join(map(str, made.shape))}"))
    _print_classes(made.classes, {"train": made.train, "test": made.test})
    if len(made.classes) == 1:
        remark = "there is one class, and a net that names it always is right; put each class into a folder of its own"
        print(wrap(f"{'remark':<9}{remark}"))
    return 0


def run_images(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import image_records, write_database

    check_name(arguments.out, (), "a database")
    records = image_records(
        arguments.listing, _image_options(arguments), lambda items: track_progress(items, "storing")
    )
    count = write_database(arguments.out, records, backend=arguments.backend or DEFAULT)
    return _print_count(arguments, f"{count:,} images", count)


def run_labels(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import label_records, write_database, write_label_rows

    check_name(arguments.out, (".h5",), "a database or an HDF5 file")
    records = label_records(
        arguments.listing, arguments.labels, arguments.shuffle, lambda items: track_progress(items, "storing")
    )
    if arguments.out.suffix == ".h5":
        if arguments.backend:
            raise InputError(
                "--backend is of a database, and the name ends in .h5; leave out one", path=str(arguments.out)
            )
        count = write_label_rows(arguments.out, records)
    else:
        count = write_database(arguments.out, records, backend=arguments.backend or DEFAULT)
    return _print_count(arguments, f"labels of {count:,} images", count)


def run_mean(arguments: argparse.Namespace) -> int:
    from layermem.data.databases import mean_content, mean_image

    check_ending(arguments.out, (".binaryproto",), "a mean image")
    check_output(arguments.out)
    mean = mean_image(arguments.database, lambda items: track_progress(items, "adding"))
    values = [float(f"{value:.6g}") for value in mean.mean(axis=(1, 2), dtype=float)]
    if arguments.out is not None:
        write_atomically(arguments.out, mean_content(mean))
    if arguments.json:
        print_json({"mean_values": values, "shape": mean.shape, "file": arguments.out})
        return 0
    for value in values:
        print(f"mean_value: {value:.6g}")
    if arguments.out is not None:
        print(printable(f"{arguments.out}: {'x'.join(map(str, mean.shape))}"))
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    from layermem.data.dataset_check import check_sets, find_sets, read_class_names, read_items

    if arguments.classes is not None and arguments.classes < 1:
        raise InputError(f"--classes {arguments.classes} is too few; give 1 or more")
    sources = [path for path in (arguments.train, arguments.test) if path is not None]
    if arguments.root is not None and all(path.is_dir() for path in sources):
        raise InputError("--root has no effect without a list; leave it out")
    sets, names, one_size = find_sets(arguments.train)
    if arguments.test is not None:
        if len(sets) > 1:
            raise InputError("has a training and a test set; leave out TEST", path=str(arguments.train))
        others, other_names, other_size = find_sets(arguments.test)
        if len(others) > 1:
            raise InputError("has a training and a test set; give it as TRAIN", path=str(arguments.test))
        if names is not None and other_names is not None and names != other_names:
            raise InputError("has other class folders than the training set; rename them", path=str(arguments.test))
        sets = {"train": next(iter(sets.values())), "test": next(iter(others.values()))}
        one_size = one_size and other_size
    if arguments.labels is not None:
        names = read_class_names(arguments.labels)
    count = arguments.classes or (None if names is None else len(names))
    items = {
        name: read_items(path, _root(arguments), lambda items: track_progress(items, "reading"))
        for name, path in sets.items()
    }
    result = check_sets(items, count, one_size=one_size)
    if arguments.json:
        print_json(_check_values(result, names))
    else:
        _print_check(result, names)
    return InputError.exit_code if result.problems else 0


# -- output ------------------------------------------------------------------------------------------------------------


def _root(arguments: argparse.Namespace) -> str | None:
    """The text before each path in a list: the folder --root, below which a path with a leading slash is too."""
    root = vars(arguments).get("root")
    return None if root is None else f"{root}/"


def _image_options(arguments: argparse.Namespace) -> ImageOptions:
    from layermem.data.databases import ImageOptions

    given = vars(arguments)
    return ImageOptions(
        root=_root(arguments),
        size=arguments.resize,
        gray=arguments.gray,
        encoded=arguments.encoded,
        encode=arguments.encode_type,
        shuffle=given.get("shuffle"),
        check_size=given.get("check_size", False),
        labels=given.get("labels") or 1,
    )


def _print_count(arguments: argparse.Namespace, text: str, count: int) -> int:
    if arguments.json:
        print_json({"path": str(arguments.out), "images": count})
    else:
        print(printable(f"{arguments.out}: {text}"))
    return 0


def _print_classes(classes: tuple[str, ...] | list[str], sets: dict[str, tuple[int, ...]]) -> None:
    from layermem.report.tables import print_table

    rows = [
        [str(label), name, *(f"{counts[label]:,}" for counts in sets.values())] for label, name in enumerate(classes)
    ]
    if len(rows) > CLASSES_SHOWN:
        rows = [*rows[: CLASSES_SHOWN - 1], ["...", f"{len(rows) - CLASSES_SHOWN + 1:,} more", *[""] * len(sets)]]
    print_table([">label", "class", *(f">{name}" for name in sets)], rows)


def _print_check(result: CheckResult, names: list[str] | None) -> None:
    from layermem.report.tables import print_table

    rows = []
    for name, found in result.sets.items():
        sizes = sorted({shape[1:] for shape in found.shapes})
        size = "x".join(map(str, sizes[0])) if len(sizes) == 1 else f"{len(sizes):,} sizes"
        channels = ", ".join(map(str, sorted({shape[0] for shape in found.shapes})))
        rows.append([name, f"{found.images:,}", f"{len(found.labels):,}", size, channels])
    print_table(["set", ">images", ">classes", "size", ">channels"], rows)
    count = max((label for found in result.sets.values() for label in found.labels), default=-1) + 1
    if 0 < count <= CLASSES_SHOWN or names is not None:
        classes = names or [str(label) for label in range(count)]
        counted = {
            name: tuple(found.labels[label] for label in range(len(classes))) for name, found in result.sets.items()
        }
        _print_classes(classes, counted)
    for remark in result.remarks:
        print(wrap(f"{'remark':<9}{remark}"))
    for problem in result.problems:
        print(wrap(f"{'problem':<9}{problem}"))
    if not result.problems:
        print("no problems")


def _check_values(result: CheckResult, names: list[str] | None) -> dict[str, object]:
    return {
        "classes": names,
        "sets": {
            name: {
                "images": found.images,
                "labels": {str(label): count for label, count in sorted(found.labels.items())},
                "shapes": [{"shape": shape, "images": count} for shape, count in sorted(found.shapes.items())],
            }
            for name, found in result.sets.items()
        },
        "problems": result.problems,
        "remarks": result.remarks,
    }
