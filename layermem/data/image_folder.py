"""Makes lists and databases, split into train and test, from a folder of images with one subfolder per class.

    photos/cat/1.jpg photos/dog/7.png ...   ->   OUT/labels.txt             the classes, one in each line, from label 0
                                                 OUT/train.txt test.txt     lines `path label`, in a random order
                                                 OUT/train_lmdb test_lmdb
                                                 OUT/mean.binaryproto       of the training images

A folder with the subfolders train/ and val/ (or test/), each with the same class folders, has its two sets already.

Any other folder is split, each class separately, so that train and test have the same balance; the split depends only
on the seed and the names.  Identical files of a class stay together, so that no test image copies a training image.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path

from layermem.data.database import DEFAULT
from layermem.data.databases import ImageOptions, image_records, mean_content, mean_image, write_database
from layermem.data.list_source import IMAGE_LIMIT_BYTES
from layermem.errors import InputError
from layermem.utils.folder_aside import folder_aside
from layermem.utils.input_files import files_below, read_bytes
from layermem.utils.seeds import generator

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
TEST_SHARE = 0.2
LABELS, TRAIN, TEST, MEAN = "labels.txt", "train", "test", "mean.binaryproto"

TEST_FOLDERS = ("val", "valid", "validation", "test")  # of a folder with sets of its own; the first one there is taken

Entry = tuple[Path, int]  # an image and its label
Track = Callable[[list[int]], Iterable[int]]


@dataclass(frozen=True)
class Dataset:
    """Summary of a written data set: counts by class and set, the shape of an image, and the mean by channel."""

    classes: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    shape: tuple[int, ...]
    mean_values: tuple[float, ...]


def class_images(folder: Path) -> dict[str, list[Path]]:
    """The images of each subfolder, by its name, in the order of names; hidden files are left out."""
    if not folder.is_dir():
        raise InputError("is no folder; give a folder with one subfolder for each class", path=str(folder))
    classes = {
        each.name: [path for path in files_below(each) if _is_image(path.relative_to(folder))]
        for each in sorted(folder.iterdir())
        if each.is_dir() and not each.name.startswith(".")
    }
    if not classes:
        raise InputError("has no subfolders; put the images of each class into one of its name", path=str(folder))
    for name, images in classes.items():
        if not images:
            known = ", ".join(IMAGE_ENDINGS)
            raise InputError(f"has no images ({known}); add some, or remove the folder", path=str(folder / name))
    return classes


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS and not any(part.startswith(".") for part in path.parts)


def set_folders(folder: Path) -> dict[str, Path]:
    """The folders of class folders of the training and the test set, if `folder` has them instead of classes."""
    if not folder.is_dir():
        return {}
    there = {each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")}
    tests = [name for name in TEST_FOLDERS if name in there]
    nested = all(any(each.is_dir() for each in (folder / name).iterdir()) for name in there)
    if TRAIN not in there or not tests or there - {TRAIN, *TEST_FOLDERS} or not nested:
        return {}
    return {TRAIN: folder / TRAIN, TEST: folder / tests[0]}


def set_classes(sets: dict[str, Path]) -> dict[str, dict[str, list[Path]]]:
    """The images of each class of each set; InputError if their classes differ, since a label is a class of both."""
    found = {name: class_images(path) for name, path in sets.items()}
    for name in sorted({name for classes in found.values() for name in classes}):
        for each, classes in found.items():
            if name not in classes:
                what = f"has no class folder '{name}', and the other set has one; give both sets the same classes"
                raise InputError(what, path=str(sets[each]))
    return found


def _labelled(classes: dict[str, list[Path]]) -> list[Entry]:
    return [(path, label) for label, images in enumerate(classes.values()) for path in images]


def _sets(folder: Path, share: float | None, seed: int) -> tuple[list[str], list[Entry], list[Entry]]:
    """The classes of `folder` and the entries of its two sets; `share` as in write_dataset()."""
    sets = set_folders(folder)
    if sets and share is not None:
        raise InputError(f"has the test set {sets[TEST].name}/; leave out --test", path=str(folder))
    return _given_sets(sets, seed) if sets else _split_sets(folder, TEST_SHARE if share is None else share, seed)


def _given_sets(sets: dict[str, Path], seed: int) -> tuple[list[str], list[Entry], list[Entry]]:
    classes = set_classes(sets)
    train, test = (_shuffled(_labelled(classes[name]), seed) for name in (TRAIN, TEST))
    return [*classes[TRAIN]], train, test


def _split_sets(folder: Path, share: float, seed: int) -> tuple[list[str], list[Entry], list[Entry]]:
    classes = class_images(folder)
    return [*classes], *split_images(classes, folder, share, seed)


def split_images(
    classes: dict[str, list[Path]], folder: Path, share: float, seed: int
) -> tuple[list[Entry], list[Entry]]:
    """Training and test images, each in a random order; `share` of each class, and at least one image, goes to test."""
    train: list[Entry] = []
    test: list[Entry] = []
    for label, (name, images) in enumerate(classes.items()):
        groups: dict[bytes, list[Path]] = {}  # equal files
        for path in images:
            raw = read_bytes(path, what="image", limit=IMAGE_LIMIT_BYTES)
            groups.setdefault(hashlib.blake2b(raw).digest(), []).append(path)
        order = generator(seed, "split", name).permutation(len(groups))
        wanted = max(1, round(share * len(images))) if share else 0
        if len(groups) < 2 and wanted:
            what = "has one image only, and a split needs two; add images, or make no test set with --test 0"
            raise InputError(what, path=str(folder / name))
        every = [*groups.values()]
        for position, index in enumerate(order):
            chosen = train if wanted <= 0 or position + 1 == len(order) else test
            chosen.extend((path, label) for path in every[int(index)])
            wanted -= len(every[int(index)]) if chosen is test else 0
    return _shuffled(train, seed), _shuffled(test, seed)


def _shuffled(entries: Sequence[Entry], seed: int) -> list[Entry]:
    return [entries[int(i)] for i in generator(seed, "order", len(entries)).permutation(len(entries))]


def write_dataset(
    folder: Path,
    out: Path,
    options: ImageOptions,
    *,
    share: float | None,
    seed: int,
    backend: str = DEFAULT,
    track: Track = list,
) -> Dataset:
    """Write lists, databases and the mean of the images below `folder` to `out`, which appears when it is complete.

    share    of each class for the test set, by default TEST_SHARE; a folder with sets of its own takes none
    """
    classes, train, test = _sets(folder, share, seed)
    with folder_aside(out) as aside:
        try:
            (aside / LABELS).write_bytes(os.fsencode("".join(f"{_in_line(name, folder)}\n" for name in classes)))
            for name, entries in ((TRAIN, train), (TEST, test)):
                if entries:
                    _write_set(aside, name, entries, replace(options, check_size=True), backend, track)
            mean = mean_image(aside / f"{TRAIN}_{backend}", track)
            (aside / MEAN).write_bytes(mean_content(mean))
        except InputError as error:
            raise _renamed(error, aside, out) from None
    values = tuple(float(value) for value in mean.mean(axis=(1, 2), dtype=float))
    return Dataset(tuple(classes), _counts(train, classes), _counts(test, classes), mean.shape, values)


def _counts(entries: Sequence[Entry], classes: Sized) -> tuple[int, ...]:
    """The number of images of each class."""
    labels = Counter(label for _, label in entries)
    return tuple(labels[label] for label in range(len(classes)))


def _write_set(
    aside: Path, name: str, entries: Sequence[Entry], options: ImageOptions, backend: str, track: Track
) -> None:
    listing = aside / f"{name}.txt"
    lines = (f"{_in_line(os.path.relpath(path, aside), path)} {label}\n" for path, label in entries)
    listing.write_bytes(os.fsencode("".join(lines)))
    options = replace(options, root=f"{aside}/")
    write_database(aside / f"{name}_{backend}", image_records(listing, options, track), backend=backend)


def _in_line(name: str, path: Path) -> str:
    if "\n" in name or name != name.strip():
        what = "has a name that a list cannot hold; rename it without line ends, and without blanks at its ends"
        raise InputError(what, path=str(path))
    return name


def _renamed(error: InputError, aside: Path, out: Path) -> InputError:
    """The error with the final name of the folder instead of the temporary one."""
    path = None if error.path is None else error.path.replace(str(aside), str(out))
    return InputError(error.what.replace(str(aside), str(out)), path=path, line=error.line)
