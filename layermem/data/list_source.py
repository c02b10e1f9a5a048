"""Images listed in a text file, one per line: path, blanks or tabs, a label; or the path of an image of labels.

With shuffle, every pass permutes the list, seeded by (seed, layer, pass); so the state is the number of the next image.
source  Caffe image_data_layer.cpp; dense_image_data_layer.cpp of alexgkendall/caffe-segnet
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, overload

import numpy as np

from layermem.data.images import Cut, decode, decoding_bytes, resize, whole
from layermem.data.position import State, number_in
from layermem.data.resampling import resample
from layermem.errors import InputError
from layermem.proto.schema import Message
from layermem.utils.input_files import Read, file_beside, lines_of, read_bytes, with_newlines
from layermem.utils.numbers import parse_float, parse_integer
from layermem.utils.seeds import generator

LIST = "list of images"
LIST_LIMIT_BYTES = 2**30  # of the list
IMAGE_LIMIT_BYTES = 2**29  # of an image file
LABEL_END = 2**31  # labels are int32 in Caffe
EXAMPLES = {int: "3", float: "0.5", str: "path/to/labels.png"}  # of a label, by the type of labels
_NUMBER = re.compile(r"\s*[-+]?[0-9]+")
ROW_BYTES = 28  # of a row beside its text: its start, the number of its line, and its places in two orders


class Row(NamedTuple):
    """A line of a list: the path of an image, its labels as words, and the number of the line."""

    name: str
    labels: list[str]
    line: int


class RowList(Sequence[Row]):
    """The rows of a list, of which only the text is held: as objects, those of a large data set take ten times it."""

    def __init__(
        self,
        path: Path,
        text: bytes,
        labels: int | None,
        *,
        kind: type,
        check: Callable[[Row, Path], object] | None = None,
    ):
        self._path, self._text, self._kind = path, with_newlines(text), kind
        self._starts, self._lines = array("q"), array("i")
        for number, start, line in lines_of(self._text, what=LIST, path=path, names=True):
            if self._is_blank(line, start):
                continue
            if labels is None:
                labels = max(1, _labels_at_end(line.split()))
            self._labels = labels
            self._starts.append(start)
            self._lines.append(number)
            row = self._row(line, number)  # checks it
            if check is not None:
                check(row, path)
        if not self._starts:
            raise InputError(f"lists no images; add lines such as `path/to/image.jpg {EXAMPLES[kind]}`", path=str(path))

    @property
    def nbytes(self) -> int:
        return len(self._text) + ROW_BYTES * len(self)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start = self._starts[index]
        end = self._text.find(b"\n", start)
        return self._row(os.fsdecode(self._text[start : end if end >= 0 else None]), self._lines[index])

    def _is_blank(self, line: str, start: int) -> bool:
        return not line.strip()

    def _row(self, line: str, number: int) -> Row:
        name, *words = line.strip().rsplit(None, self._labels)
        if len(words) < self._labels or not all(_is(word, self._kind) for word in words):
            each = "a label" if self._labels == 1 else f"{self._labels} labels"
            each = "that of its label image" if self._kind is str else each
            example = " ".join(["path/to/image.jpg", *[EXAMPLES[self._kind]] * min(self._labels, 4)])
            what = f"has a line that is not an image path followed by {each}; write it as `{example}`"
            raise InputError(what, path=str(self._path), line=number)
        return Row(name, words, number)


class CaffeRows(RowList):
    """The rows of a list as Caffe's tool reads it: the label is the number at the start of what follows the last blank,
    or else 0; a line without a blank is path and label; and an empty line is a path too."""

    def _is_blank(self, line: str, start: int) -> bool:
        return start == len(self._text)  # behind the last end of a line

    def _row(self, line: str, number: int) -> Row:
        name, blank, text = line.rpartition(" ")
        label = _NUMBER.match(text)
        low = (int(label[0]) + LABEL_END) % (2 * LABEL_END) - LABEL_END if label else 0  # the lower 32 bits
        return Row(name if blank else line, [str(low)], number)


class ImageListSource:
    """Reads the list at `path` as an ImageDataParameter states; `key` is the seed and the layer."""

    kind: ClassVar[type] = int  # of labels

    def __init__(
        self, path: Path, param: Message, key: tuple[int | str, ...], *, skip: int = 0, read: Read = read_bytes
    ):
        if (param.new_height > 0) != (param.new_width > 0):
            raise InputError("has only one of new_height and new_width; set both, or neither")
        self.path, self.param, self.key = path, param, (*key, "shuffle")
        self.rows = read_rows(path, 1, kind=self.kind, read=read, check=label_of if self.kind is int else None)
        self.length = len(self.rows)
        self._next = skip  # images read or skipped so far, over all passes
        self._pass, self._order = -1, np.arange(self.length)

    def first_shape(self) -> tuple[int, ...]:
        return self._image(self._row(self._next)).shape

    def read(self, count: int, cut: Cut = whole) -> tuple[list[np.ndarray], np.ndarray]:
        """Return `cut(i, image)` for each of the next `count` images, decoded one by one, and their labels."""
        rows = self._rows(count)
        images = [cut(index, self._image(row)) for index, row in enumerate(rows)]
        self._next += count
        return images, np.array([label_of(row, self.path) for row in rows], np.float32)

    def skip(self, count: int) -> None:
        self._next += count

    def state(self) -> State:
        return {"image": self._next}

    def restore(self, state: State) -> None:
        self._next = number_in(state, "image")
        self._pass = -1  # a thread of a parent process may have stopped while it set the order

    def check(self, state: State) -> None:
        number_in(state, "image")

    def close(self) -> None:
        pass

    def _rows(self, count: int) -> list[Row]:
        return [self._row(number) for number in range(self._next, self._next + count)]

    def _row(self, number: int) -> Row:
        epoch, index = divmod(number, self.length)
        if self.param.shuffle and epoch != self._pass:
            self._pass, self._order = epoch, generator(*self.key, epoch).permutation(self.length)
        return self.rows[int(self._order[index])]

    def _image(self, row: Row) -> np.ndarray:
        image = self._decoded(row.name, row, color=self.param.is_color)
        return resize(image, *self._size) if self._size else image

    @property
    def _size(self) -> tuple[int, int] | None:
        """The height and width that images are resized to."""
        return (self.param.new_height, self.param.new_width) if self.param.new_height else None

    def _decoded(self, name: str, row: Row, *, color: bool = False, indices: bool = False) -> np.ndarray:
        """The image at `name`, which `row` lists."""
        file = listed_file(self.param.root_folder + name, self.path)
        try:
            raw = read_bytes(file, what="image", limit=IMAGE_LIMIT_BYTES)
        except InputError as error:
            what = f"lists '{file}', which cannot be read: {error.what}"
            raise InputError(what, path=str(self.path), line=row.line) from None
        try:
            return decode(raw, color=color, indices=indices)
        except InputError as error:
            raise InputError(error.what, path=str(file)) from None


class ImagePairSource(ImageListSource):
    """Reads a list of images and of their label images, which hold the index of a class for each pixel, as a
    DenseImageDataParameter states."""

    kind = str

    def first_shape(self) -> tuple[int, ...]:
        image, _ = self._pair(self._row(self._next))
        return image.shape

    def read_pairs(self, count: int, cut: Cut, cut_labels: Cut) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return `cut(i, image)` for each of the next `count` images, decoded one by one, and `cut_labels(i, image)`
        for each of their label images."""
        images, labels = [], []
        for index, row in enumerate(self._rows(count)):
            pair = self._pair(row)
            images.append(cut(index, pair[0]))
            labels.append(cut_labels(index, pair[1]))
            del pair  # not beside the next one
        self._next += count
        return images, labels

    def _pair(self, row: Row) -> tuple[np.ndarray, np.ndarray]:
        image, labels = self._image(row), self._decoded(row.labels[0], row, indices=True)
        if self._size:
            labels = resample(labels, *self._size, "NEAREST")
        if image.shape[1:] != labels.shape[1:]:
            sizes = [f"{each.shape[1]}x{each.shape[2]}" for each in (image, labels)]
            what = (
                f"lists the image '{row.name}' of {sizes[0]} with labels of {sizes[1]}; make them equal, or set "
                "new_height and new_width"
            )
            raise InputError(what, path=str(self.path), line=row.line)
        return image, labels


def list_bytes(path: Path, root: str, read: Read, kind: type = int) -> int:
    """The bytes that a list with labels of type `kind` takes, and its first image, or label image, while that is
    decoded; the others are taken to be no larger."""
    text = with_newlines(read(path, what=LIST, limit=LIST_LIMIT_BYTES))
    first = next((line for _, _, line in lines_of(text, what=LIST, path=path, names=True) if line.strip()), "")
    row = RowList(path, os.fsencode(first), 1, kind=kind)[0]
    files = [listed_file(root + name, path) for name in (row.name, *(row.labels if kind is str else ()))]
    decoding = max(decoding_bytes(read_bytes(file, what="image", limit=IMAGE_LIMIT_BYTES)) for file in files)
    return len(text) + ROW_BYTES * (text.count(b"\n") + (not text.endswith(b"\n"))) + decoding


def listed_file(name: str, listing: Path, root: str | None = None) -> Path:
    """The file that a line names, with `root` before its name; without a root it may also be beside the list."""
    return file_beside(name, listing.parent) if root is None else Path(root + name)


def label_of(row: Row, path: Path) -> int:
    """The first label of a row, of 32 bits."""
    label = int(row.labels[0])
    if not -LABEL_END <= label < LABEL_END:
        what = f"has the label {row.labels[0][:12]}..., beyond 32 bits; number the classes from 0"
        raise InputError(what, path=str(path), line=row.line)
    return label


def read_rows(
    path: Path,
    labels: int | None,
    *,
    kind: type = int,
    read: Read = read_bytes,
    check: Callable[[Row, Path], object] | None = None,
    form: type[RowList] = RowList,
) -> RowList:
    """The rows of a list, all of which are checked.

    labels   number of labels after each path; None: as many as in the first line
    kind     int, float, or str for paths of label images
    read     gets the bytes of the list
    check    a further check of a row
    form     how lines are read
    """
    return form(path, read(path, what=LIST, limit=LIST_LIMIT_BYTES), labels, kind=kind, check=check)


def _labels_at_end(words: list[str]) -> int:
    """The number of words after the last one that is no number; the first word is always part of the path."""
    return next((i for i, word in enumerate(reversed(words)) if not _is(word, float)), len(words) - 1)


def _is(word: str, kind: type) -> bool:
    """Whether a word is a label of a kind; any word is a str."""
    parsers: dict[type, Callable[[str], object]] = {int: parse_integer, float: parse_float}
    try:
        parsers.get(kind, kind)(word)
    except ValueError:
        return False
    return True
