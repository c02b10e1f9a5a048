"""Images named in a text file, a line each: path, a space, a label.

Each pass over the list has its own order if it is shuffled, drawn from (seed, layer, pass); so the state is a number.
source  Caffe image_data_layer.cpp
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from layermem.data.images import decode, resize
from layermem.errors import InputError
from layermem.utils.seeds import generator


class ImageListSource:
    """Reads the list at `path` as `param` (an ImageDataParameter) says; `key` names the layer, seed first."""

    def __init__(self, path: Path, param: Any, key: tuple[int | str, ...], *, skip: int = 0):
        if (param.new_height > 0) != (param.new_width > 0):
            raise InputError("sets only one of new_height and new_width; set both, or neither")
        self.path, self.param, self.key = path, param, (*key, "shuffle")
        self.entries = read_list(path)
        self.length = len(self.entries)
        self._next = skip  # images read so far, and skipped, over all passes
        self._pass, self._order = -1, np.arange(self.length)

    def first_shape(self) -> tuple[int, ...]:
        return self._image(self._entry(self._next)).shape

    def read(self, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        entries = [self._entry(number) for number in range(self._next, self._next + count)]
        images = [self._image(entry) for entry in entries]
        self._next += count
        return images, np.array([label for _, label, _ in entries], np.float32)

    def state(self) -> dict[str, int | str]:
        return {"image": self._next}

    def restore(self, state: dict[str, Any]) -> None:
        self._next = int(state["image"])

    def close(self) -> None:
        pass

    def _entry(self, number: int) -> tuple[str, int, int]:
        turn, place = divmod(number, self.length)
        if self.param.shuffle and turn != self._pass:
            self._pass, self._order = turn, generator(*self.key, turn).permutation(self.length)
        return self.entries[self._order[place]]

    def _image(self, entry: tuple[str, int, int]) -> np.ndarray:
        name, _, line = entry
        file = Path(self.param.root_folder + name)
        if not file.exists() and (self.path.parent / file).exists():
            file = self.path.parent / file
        try:
            image = decode(file.read_bytes(), color=self.param.is_color)
        except OSError as error:
            what = f"names '{file}', which cannot be read ({error.strerror})"
            raise InputError(what, path=str(self.path), line=line) from None
        except InputError as error:
            raise InputError(error.what, path=str(file)) from None
        if self.param.new_height:
            image = resize(image, self.param.new_height, self.param.new_width)
        return image


def read_list(path: Path) -> list[tuple[str, int, int]]:
    """(image path, label, line number) of each line that is not blank; the path may hold spaces."""
    entries = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a list of images ({error})", path=str(path)) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        try:
            entries.append((name.strip(), int(label), number))
        except ValueError:
            name = ""
        if not name:
            raise InputError("is no image path followed by a whole number, its label", path=str(path), line=number)
    if not entries:
        raise InputError("lists no images", path=str(path))
    return entries
