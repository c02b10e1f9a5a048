"""Finds problems in the images of a folder, a list or a database before a training meets them.

    items = read_items(Path("photos"))                   each image with its label, shape and a hash of its pixels
    result = check_sets({"train": items, "test": other}, class_count=10, one_size=False)
    result.problems, result.remarks

Problems stop a training or make its result wrong: images that cannot be read, labels beyond the classes, classes
without an image, one image under two labels, test images that are training images.  Remarks are
worth knowing, but harmless.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from layermem.data.database import is_database, open_database
from layermem.data.image_folder import LABELS, TEST, TRAIN, class_images, set_classes, set_folders
from layermem.data.images import datum_image, decode
from layermem.data.list_source import IMAGE_LIMIT_BYTES, label_of, listed_file, read_rows
from layermem.errors import InputError
from layermem.utils.input_files import exists, read_bytes, read_lines

UNBALANCED = 10  # largest ratio of class sizes without a remark
SHOWN = 5  # names of images in a problem

Track = Callable[[list[int]], Iterable[int]]


@dataclass(frozen=True)
class CheckedItem:
    """One image: its shape [C,H,W] and a hash of its pixels, or the problem that prevents reading it."""

    name: str
    label: int | None
    shape: tuple[int, ...] = ()
    digest: bytes = b""
    problem: str = ""


@dataclass
class SetSummary:
    """Numbers of images in a set; `shapes` and `labels` count the readable images."""

    images: int
    shapes: Counter[tuple[int, ...]]
    labels: Counter[int]


@dataclass
class CheckResult:
    sets: dict[str, SetSummary] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


# -- sources -----------------------------------------------------------------------------------------------------------


def find_sets(path: Path) -> tuple[dict[str, Path], list[str] | None, bool]:
    """The sets at `path`, the names of the classes if they are known, and whether images must all have one size.

    A folder that `layermem data folder` wrote has two sets, and so has one with train/ and val/; a list, a database and
    a folder of class folders are one.
    """
    if path.is_dir() and is_database(path):
        return {path.name: path}, None, True
    if path.is_dir() and exists(path / LABELS):
        found = {name: each for name in (TRAIN, TEST) for each in sorted(path.glob(f"{name}_*")) if is_database(each)}
        if not found:
            raise InputError(
                f"has {LABELS}, but no databases; write them again with `layermem data folder`", path=str(path)
            )
        return found, read_class_names(path / LABELS), True
    if sets := set_folders(path):
        return sets, [*set_classes(sets)[TRAIN]], False
    if path.is_dir():
        return {path.name: path}, [*class_images(path)], False
    return {path.name: path}, None, False


def read_class_names(path: Path) -> list[str]:
    """The names in a file with one class in each line."""
    names = [line.strip() for line in read_lines(path, what="list of class names", names=True)]
    while names and not names[-1]:
        names.pop()
    if not names or not all(names):
        raise InputError("has an empty line, or no class; write one class in each line", path=str(path))
    return names


def read_items(path: Path, root: str | None = None, track: Track = list) -> list[CheckedItem]:
    """Read every image of a folder of class folders, of a list with `root` before its paths, or of a database."""
    if path.is_dir() and is_database(path):
        return _database_items(path, track)
    if path.is_dir():
        files = [
            (image, str(image.relative_to(path)), label)
            for label, images in enumerate(class_images(path).values())
            for image in images
        ]
    else:
        files = [(listed_file(row.name, path, root), row.name, label_of(row, path)) for row in read_rows(path, 1)]
    return [_file_item(*files[number]) for number in track([*range(len(files))])]


def _file_item(path: Path, name: str, label: int) -> CheckedItem:
    try:
        image = decode(read_bytes(path, what="image", limit=IMAGE_LIMIT_BYTES))
    except InputError as error:
        return CheckedItem(name, label, problem=error.what)
    return CheckedItem(name, label, image.shape, _digest(image.shape, image.tobytes()))


def _database_items(path: Path, track: Track) -> list[CheckedItem]:
    items = []
    with closing(open_database(path, labels=False)) as source:
        for number, datum in zip(track([*range(source.length)]), source.datums()):
            name = f"record {number}"
            if datum is None:
                items.append(CheckedItem(name, None, problem="is not a Datum; write the database again"))
                continue
            label = int(datum.label) if datum.HasField("label") else None
            try:
                image = datum_image(datum)
            except InputError as error:
                items.append(CheckedItem(name, label, problem=error.what))
                continue
            items.append(CheckedItem(name, label, image.shape, _digest(image.shape, image.tobytes())))
    return items


def _digest(shape: tuple[int, ...], pixels: bytes) -> bytes:
    return hashlib.blake2b(pixels + str(shape).encode(), digest_size=16).digest()


# -- checks ------------------------------------------------------------------------------------------------------------


def check_sets(sets: Mapping[str, Sequence[CheckedItem]], class_count: int | None, *, one_size: bool) -> CheckResult:
    """Check the sets, of which the first is the training set; `one_size`: images of several sizes are a problem.

    class_count   number of classes of the net; None: the largest label of the training set decides
    """
    result = CheckResult()
    first = next(iter(sets.values()))
    count = class_count or max((item.label for item in first if item.label is not None), default=0) + 1
    for name, items in sets.items():
        readable = [item for item in items if not item.problem]
        labels = Counter(item.label for item in items if item.label is not None)
        summary = SetSummary(len(items), Counter(item.shape for item in readable), labels)
        result.sets[name] = summary
        result.problems += _readings(name, items)
        result.problems += _labels(name, items, labels, count)
        shapes = _shapes(name, summary.shapes)
        (result.problems if one_size else result.remarks).extend(shapes)
        result.problems += _two_labels(name, readable)
        result.remarks += [*_balance(name, labels), *_copies(name, readable)]
    result.problems += _shared(sets)
    return result


def _readings(name: str, items: Sequence[CheckedItem]) -> Iterator[str]:
    yield from (f"{name}: '{item.name}' {item.problem}" for item in items if item.problem)


def _labels(name: str, items: Sequence[CheckedItem], labels: Counter[int], count: int) -> Iterator[str]:
    if unlabelled := [item for item in items if item.label is None]:
        yield f"{name}: no label: {_names(unlabelled)}"
    if wrong := [item for item in items if item.label is not None and not 0 <= item.label < count]:
        found = sorted({item.label for item in wrong if item.label is not None})
        yield f"{name}: labels {_some(found)}, but labels go from 0 to {count - 1}: {_names(wrong)}"
    if empty := [label for label in range(count) if not labels[label]]:
        yield f"{name}: no image has {'label' if len(empty) == 1 else 'labels'} {_some(empty)} of 0 to {count - 1}"


def _shapes(name: str, shapes: Counter[tuple[int, ...]]) -> Iterator[str]:
    if len({shape[1:] for shape in shapes}) > 1:
        sizes = sorted({(shape[1], shape[2]) for shape in shapes})
        least, largest = ("x".join(map(str, size)) for size in (sizes[0], sizes[-1]))
        yield f"{name}: {len(sizes)} sizes (height x width), from {least} to {largest}; --resize makes them one"
    if len({shape[0] for shape in shapes}) > 1:
        channels = Counter[int]()
        for shape, images in shapes.items():
            channels[shape[0]] += images
        counts = ", ".join(f"{images:,} of {each}" for each, images in sorted(channels.items()))
        yield f"{name}: images of several numbers of channels: {counts}"


def _balance(name: str, labels: Counter[int]) -> Iterator[str]:
    if labels:
        (most, largest), (least, smallest) = labels.most_common()[0], labels.most_common()[-1]
        if largest > UNBALANCED * smallest:
            yield f"{name}: label {most} has {largest:,} images, and label {least} has {smallest:,}"


def _two_labels(name: str, items: Sequence[CheckedItem]) -> Iterator[str]:
    first: dict[bytes, CheckedItem] = {}
    for item in items:
        other = first.setdefault(item.digest, item)
        if other.label != item.label:
            yield f"{name}: one image has labels {other.label} and {item.label}: '{other.name}' and '{item.name}'"


def _copies(name: str, items: Sequence[CheckedItem]) -> Iterator[str]:
    if copies := len(items) - len({item.digest for item in items}):
        yield f"{name}: {copies:,} {'image is a copy of another' if copies == 1 else 'images are copies of others'}"


def _shared(sets: Mapping[str, Sequence[CheckedItem]]) -> Iterator[str]:
    (first, train), *others = sets.items()
    known = {item.digest: item for item in train if not item.problem}
    for name, items in others:
        if shared := [item for item in items if item.digest in known]:
            yield f"{name}: {len(shared):,} of its images are in {first} too: {_names(shared)}"


def _names(items: Sequence[CheckedItem]) -> str:
    names = ", ".join(f"'{item.name}'" for item in items[:SHOWN])
    return f"{names} and {len(items) - SHOWN:,} more" if len(items) > SHOWN else names


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (" ..." if len(numbers) > SHOWN else "")
