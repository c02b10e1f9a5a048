"""Images listed in a text file, one per line: path, a space, a label.

With shuffle, every pass permutes the list, seeded by (seed, layer, pass); so the state is the number of the next image.
source  Caffe image_data_layer.cpp
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layermem.data.images import decode, resize
from layermem.data.position import State, number_in
from layermem.errors import InputError
from layermem.proto.schema import Message
from layermem.utils.input_files import Read, file_beside, read_bytes, read_lines
from layermem.utils.seeds import generator

LIST_LIMIT = 2**30  # bytes of the list
IMAGE_LIMIT = 2**29  # bytes of an image file
LABEL_END = 2**31  # labels are int32 in Caffe


class ImageListSource:
    """Reads the list at `path` as an ImageDataParameter states; `key` is the seed and the layer."""

    def __init__(
        self, path: Path, param: Message, key: tuple[int | str, ...], *, skip: int = 0, read: Read = read_bytes
    ):
        if (param.new_height > 0) != (param.new_width > 0):
            raise InputError("has only one of new_height and new_width; set both, or neither")
        self.path, self.param, self.key = path, param, (*key, "shuffle")
        self.entries = read_list(path, read)
        self.length = len(self.entries)
        self._next = skip  # images read or skipped so far, over all passes
        self._pass, self._order = -1, np.arange(self.length)

    def first_shape(self) -> tuple[int, ...]:
        return self._image(self._entry(self._next)).shape

    def read(self, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        entries = [self._entry(number) for number in range(self._next, self._next + count)]
        images = [self._image(entry) for entry in entries]
        self._next += count
        return images, np.array([label for _, label, _ in entries], np.float32)

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

    def _entry(self, number: int) -> tuple[str, int, int]:
        epoch, index = divmod(number, self.length)
        if self.param.shuffle and epoch != self._pass:
            self._pass, self._order = epoch, generator(*self.key, epoch).permutation(self.length)
        entry: tuple[str, int, int] = self.entries[self._order[index]]
        return entry

    def _image(self, entry: tuple[str, int, int]) -> np.ndarray:
        name, _, line = entry
        file = file_beside(self.param.root_folder + name, self.path.parent)
        try:
            raw = read_bytes(file, what="image", limit=IMAGE_LIMIT)
        except InputError as error:
            what = f"lists '{file}', which cannot be read: {error.what}"
            raise InputError(what, path=str(self.path), line=line) from None
        try:
            image = decode(raw, color=self.param.is_color)
        except InputError as error:
            raise InputError(error.what, path=str(file)) from None
        if self.param.new_height:
            image = resize(image, self.param.new_height, self.param.new_width)
        return image


def read_list(path: Path, read: Read = read_bytes) -> list[tuple[str, int, int]]:
    """(image path, label, line number) of each line that is not blank; a path may contain spaces."""
    return [(name, label_of(words[0], path, line), line) for name, words, line in read_rows(path, 1, read=read)]


def listed_file(name: str, listing: Path, root: str | None = None) -> Path:
    """The file that a line names, with `root` before its name; without a root it may also be beside the list."""
    return file_beside(name, listing.parent) if root is None else Path(root + name)


def label_of(word: str, path: Path, line: int) -> int:
    """Parse a 32-bit label in a line of a list."""
    if not -LABEL_END <= int(word) < LABEL_END:
        what = f"has the label {word[:12]}..., beyond 32 bits; number the classes from 0"
        raise InputError(what, path=str(path), line=line)
    return int(word)


def read_rows(
    path: Path, labels: int | None, *, whole: bool = True, read: Read = read_bytes
) -> list[tuple[str, list[str], int]]:
    """(image path, its labels as words, line number) of each line that is not blank; a path may contain spaces.

    labels   number of labels after each path; None: as many as in the first line
    whole    whether labels must be integers
    read     gets the bytes of the list
    """
    rows = []
    for number, line in enumerate(read_lines(path, what="list of images", limit=LIST_LIMIT, read=read), start=1):
        text = line.strip()
        if not text:
            continue
        if labels is None:
            labels = max(1, _labels_at_end(text.split()))
        name, *words = text.rsplit(" " if labels == 1 else None, labels)
        if not name.strip() or len(words) < labels or not all(_is_number(word, whole) for word in words):
            each = "a label" if labels == 1 else f"{labels} labels"
            example = " ".join(["path/to/image.jpg", *["3" if whole else "0.5"] * min(labels, 4)])
            what = f"has a line that is not an image path followed by {each}; write it as `{example}`"
            raise InputError(what, path=str(path), line=number)
        rows.append((name.strip(), words, number))
    if not rows:
        raise InputError("lists no images; add lines such as `path/to/image.jpg 3`", path=str(path))
    return rows


def _labels_at_end(words: list[str]) -> int:
    """The number of words after the last one that is no number; the first word is always part of the path."""
    return next((i for i, word in enumerate(reversed(words)) if not _is_number(word, False)), len(words) - 1)


def _is_number(word: str, whole: bool) -> bool:
    try:
        int(word) if whole else float(word)
    except ValueError:
        return False
    return True
