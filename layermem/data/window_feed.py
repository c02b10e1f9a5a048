"""Windows of images for R-CNN training: listed in a text file, cut out, warped to one size and sampled at random.

    # 0                             the number of the image, from 0
    images/000001.jpg               its path
    3                               channels, height and width
    375
    500
    2                               the number of its windows, one per line
    12 0.81 48 239 195 370          label, overlap with an object, x1, y1, x2, y2: the corners belong to the window
    0 0.10 8 11 352 497

A window with an overlap of at least fg_threshold is foreground; one below bg_threshold is background, with label 0.  A
batch has batch_size (1 - fg_fraction) background windows, then foreground windows.

With crop_mode "square" the region is first expanded to a square; then it is expanded so that, warped to crop_size, it
has context_pad pixels of context on each side.  Pixels outside of the image are 0 after the mean is subtracted.

source  Caffe window_data_layer.cpp, with the same arithmetic.  Windows are chosen differently: here by the seed and the
        number of the sample (seeds.py), in Caffe by the state of a generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from layermem.data.feed import Feed, Opening, feed_of
from layermem.data.images import decode, decoding_bytes, resize
from layermem.data.layer_files import ResolvePath
from layermem.data.list_source import IMAGE_LIMIT_BYTES, LABEL_END, LIST_LIMIT_BYTES, listed_file
from layermem.data.transform import read_mean
from layermem.errors import InputError
from layermem.layers.data import WINDOW_CHANNELS as CHANNELS
from layermem.layers.data import check_batch
from layermem.proto.schema import Message
from layermem.utils.input_files import Read, check_regular, lines_of, read_bytes
from layermem.utils.open_file import Files
from layermem.utils.seeds import below, words

CROP_MODES = ("warp", "square")
HEADER = ("the path", "the channels", "the height", "the width", "the number of windows")
COLUMNS = 6  # numbers of a window
FORM = "write it as `label overlap x1 y1 x2 y2`"
SMALL = 2**24  # limit of corners: float32 is exact up to here


class ListedImage(NamedTuple):
    path: str
    line: int


class Windows(NamedTuple):
    """The images of a window file; foreground and background as rows of image, label, x1, y1, x2, y2."""

    images: list[ListedImage]
    foreground: np.ndarray
    background: np.ndarray


class Region(NamedTuple):
    """The position of a window in the image, [y1, y2] x [x1, x2], and in the crop."""

    x1: int
    y1: int
    x2: int
    y2: int
    top: int
    left: int
    height: int
    width: int


@feed_of("WindowData")
class WindowFeed(Feed):
    """WindowData: batches of windows and their labels; `key` is the seed and the layer."""

    counts = "sample"

    def __init__(
        self,
        path: Path,
        layer: Message,
        key: tuple[int | str, ...],
        resolve: Callable[[str], Path],
        read: Read = read_bytes,
    ):
        self.param, self.transform = layer.window_data_param, layer.transform_param
        self._check(layer)
        self.file, self.key = path, (*key, "windows")
        crop, batch = int(self.transform.crop_size), int(self.param.batch_size)
        self.shapes = ((batch, CHANNELS, crop, crop), (batch,))
        self.foreground_count = int(np.float32(batch) * np.float32(self.param.fg_fraction))
        self.mean = self._mean(resolve, read)
        self.scale = np.float32(self.param.scale if self.param.HasField("scale") else self.transform.scale)
        self.windows = read_windows(path, self.param.fg_threshold, self.param.bg_threshold, read)
        for name, count, there in (
            ("foreground", self.foreground_count, self.windows.foreground),
            ("background", batch - self.foreground_count, self.windows.background),
        ):
            if count and not len(there):
                raise InputError(
                    f"has no {name} window, and a batch takes {count}; change fg_fraction or the thresholds",
                    path=str(path),
                )
        self._cached = [self._read(image) for image in self.windows.images] if self.param.cache_images else None

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        check_batch(opening.param)  # checks it
        path = opening.resolve(opening.param.window_data_param.source)
        return cls(path, opening.param, opening.key, opening.resolve, opening.files.read_bytes)

    @classmethod
    def cached_bytes(cls, param: Message, resolve: ResolvePath, files: Files) -> int:
        """Bytes of the files that the layer keeps in memory, and of its first image while it is decoded."""
        p, read = param.window_data_param, files.read_bytes
        path = resolve(p.source)
        listed = read_windows(path, p.fg_threshold, p.bg_threshold, read).images if p.cache_images else []
        cached = sum(check_regular(listed_file(p.root_folder + each.path, path), what="image") for each in listed)
        first = listed_file(p.root_folder + first_image(path, read).path, path)
        return cached + decoding_bytes(read_bytes(first, what="image", limit=IMAGE_LIMIT_BYTES))

    def _check(self, layer: Message) -> None:
        if len(layer.top) != 2:
            raise InputError(f"has {len(layer.top)} tops; give it two, one for the windows and one for their labels")
        if self.transform.crop_size < 1:
            raise InputError("has no crop_size; set it in transform_param to the size that windows are warped to")
        if self.param.crop_mode not in CROP_MODES:
            raise InputError(f"has crop_mode '{self.param.crop_mode}'; use one of {', '.join(CROP_MODES)}")
        if 2 * self.param.context_pad >= self.transform.crop_size:
            pad, crop = self.param.context_pad, self.transform.crop_size
            raise InputError(f"has context_pad {pad} on each side of crop_size {crop}; use less than half of it")
        if not 0 <= self.param.fg_fraction <= 1:
            raise InputError(f"has fg_fraction {self.param.fg_fraction:g}; use a number from 0 to 1")
        if self.param.HasField("scale") and self.transform.HasField("scale"):
            raise InputError("has a scale in window_data_param and in transform_param; keep one")
        if self.transform.HasField("augment_param"):
            raise InputError("has an augment_param, which is for Data and ImageData; remove it")
        if self.transform.mean_file and self.transform.mean_value:
            raise InputError("has both mean_file and mean_value; keep one")

    def _mean(self, resolve: Callable[[str], Path], read: Read) -> np.ndarray:
        """The mean of every pixel of the crop; [3,1,1] if all pixels have the same."""
        crop = int(self.transform.crop_size)
        if not self.transform.mean_file:
            values = np.array(self.transform.mean_value or [0], np.float32)
            if len(values) not in (1, CHANNELS):
                raise InputError(f"has {len(values)} mean_value for {CHANNELS} channels; give one, or one for each")
            return np.broadcast_to(values[:, None, None], (CHANNELS, 1, 1))
        mean = read_mean(resolve(self.transform.mean_file), read)
        first = (mean.shape[2] - crop) // 2  # Caffe uses this offset for rows, too
        if mean.shape[0] != CHANNELS or first < 0 or first + crop > mean.shape[1]:
            size = "x".join(map(str, mean.shape))
            raise InputError(f"has a mean_file of {size} for windows of {CHANNELS}x{crop}x{crop}; make it as large")
        return mean[:, first : first + crop, first : first + crop]

    # -- batches ---------------------------------------------------------------------------------------------------

    def _next(self) -> list[np.ndarray]:
        data = np.zeros(self.shapes[0], np.float32)
        labels = np.empty(self.shapes[1], np.float32)
        bits = words(self.position, len(data), *self.key)
        background_count = len(data) - self.foreground_count
        for index in range(len(data)):
            rows = self.windows.background if index < background_count else self.windows.foreground
            image, label, *corners = map(int, rows[int(below(bits[index, 0], len(rows)))])
            mirror = bool(self.transform.mirror and bits[index, 1] & np.uint64(1))
            self._cut(self.windows.images[image], image, corners, mirror, data[index])
            labels[index] = label
        self.position += len(data)
        return [data, labels]

    def _cut(self, listed: ListedImage, number: int, corners: Sequence[int], mirror: bool, out: np.ndarray) -> None:
        """Write a warped window to `out`, which holds zeros."""
        raw = self._cached[number] if self._cached else self._read(listed)
        try:
            image = decode(raw, color=True)
        except InputError as error:
            raise InputError(f"image '{listed.path}' {error.what}", path=str(self.file), line=listed.line) from None
        crop, square = int(self.transform.crop_size), self.param.crop_mode == "square"
        at = region(corners, image.shape[1:], crop, int(self.param.context_pad), square=square, mirror=mirror)
        if at is None:
            x1, y1, x2, y2 = corners
            size = "x".join(map(str, image.shape[1:]))
            raise InputError(
                f"has a window of corners ({x1}, {y1}) and ({x2}, {y2}) in image '{listed.path}' of {size} (height x "
                "width); correct the window",
                path=str(self.file),
                line=listed.line,
            )
        if not (at.height > 0 and at.width > 0):
            return  # the window rounds to no pixel
        window = resize(np.ascontiguousarray(image[:, at.y1 : at.y2 + 1, at.x1 : at.x2 + 1]), at.height, at.width)
        place = (slice(None), slice(at.top, at.top + at.height), slice(at.left, at.left + at.width))
        mean = self.mean if self.mean.shape[1] == 1 != crop else self.mean[place]
        np.subtract(window[:, :, ::-1] if mirror else window, mean, out=out[place])
        if self.scale != 1:
            out[place] *= self.scale

    def _read(self, image: ListedImage) -> bytes:
        path = listed_file(self.param.root_folder + image.path, self.file)
        try:
            return read_bytes(path, what="image", limit=IMAGE_LIMIT_BYTES)
        except InputError as error:
            what = f"lists '{path}', which cannot be read: {error.what}"
            raise InputError(what, path=str(self.file), line=image.line) from None


def region(
    corners: Sequence[int], size: tuple[int, ...], crop: int, pad: int, *, square: bool, mirror: bool
) -> Region | None:
    """The region of an image of `size` from which a window is cut, and its place in the crop; None if outside the
    image.

    Numbers are float32 and rounded half away from zero, as in Caffe.
    """
    (x1, y1, x2, y2), (rows, columns) = corners, size
    if not pad and not square:
        return Region(x1, y1, x2, y2, 0, 0, crop, crop) if 0 <= x1 <= x2 < columns and 0 <= y1 <= y2 < rows else None
    f = np.float32
    factor = f(crop) / f(crop - 2 * pad)
    half_height, half_width = f(y2 - y1 + 1) / f(2), f(x2 - x1 + 1) / f(2)
    center_x, center_y = f(x1) + half_width, f(y1) + half_height
    if square:
        half_height = half_width = max(half_height, half_width)
    x1, x2 = round_half_away(center_x - half_width * factor), round_half_away(center_x + half_width * factor)
    y1, y2 = round_half_away(center_y - half_height * factor), round_half_away(center_y + half_height * factor)
    scale_x, scale_y = f(crop) / f(x2 - x1 + 1), f(crop) / f(y2 - y1 + 1)
    left, top, right, bottom = max(0, -x1), max(0, -y1), max(0, x2 - columns + 1), max(0, y2 - rows + 1)
    x1, y1, x2, y2 = x1 + left, y1 + top, x2 - right, y2 - bottom
    if not (0 <= x1 <= x2 < columns and 0 <= y1 <= y2 < rows):
        return None
    width, height = round_half_away(f(x2 - x1 + 1) * scale_x), round_half_away(f(y2 - y1 + 1) * scale_y)
    first_row = round_half_away(f(top) * scale_y)
    first_column = round_half_away(f(right if mirror else left) * scale_x)
    return Region(
        x1, y1, x2, y2, first_row, first_column, min(height, crop - first_row), min(width, crop - first_column)
    )


def round_half_away(value: np.floating) -> int:
    """C's round(): halves go away from zero."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))


# -- the file ------------------------------------------------------------------------------------------------------


def read_windows(path: Path, fg_threshold: float, bg_threshold: float, read: Read = read_bytes) -> Windows:
    """The images and windows of a window file."""
    lines = [*_lines(path, read)]
    images: list[ListedImage] = []
    foreground, background = [np.zeros((0, COLUMNS), np.int64)], [np.zeros((0, COLUMNS), np.int64)]
    at = 0
    while at < len(lines) or not images:
        image, count = _image(path, lines[at : at + 1 + len(HEADER)], len(images))
        at += 1 + len(HEADER)
        listed = lines[at : at + count]
        if len(listed) < count:
            what = f"ends after {len(listed)} of the {count} windows of image {len(images)}; add the others"
            raise InputError(what, path=str(path), line=lines[-1][0])
        table = _table(path, listed)
        overlap = table[:, 1].astype(np.float32)
        rows = np.column_stack((np.full(count, len(images)), table[:, 0], table[:, 2:])).astype(np.int64)
        is_object = overlap >= np.float32(fg_threshold)
        is_background = ~is_object & (overlap < np.float32(bg_threshold))
        rows[is_background, 1] = 0
        _check(path, listed, rows, is_object, is_background)
        foreground.append(rows[is_object])
        background.append(rows[is_background])
        images.append(image)
        at += count
    return Windows(images, np.concatenate(foreground), np.concatenate(background))


def first_image(path: Path, read: Read = read_bytes) -> ListedImage:
    """The first image of a window file, of which nothing else is read."""
    return _image(path, [*islice(_lines(path, read), 1 + len(HEADER))], 0)[0]


Line = tuple[int, str]


def _lines(path: Path, read: Read) -> Iterator[Line]:
    """The lines of a window file that are not empty, with their numbers."""
    raw = read(path, what="window file", limit=LIST_LIMIT_BYTES)
    lines = lines_of(raw, what="window file", path=path, names=True)
    return ((number, line.strip()) for number, _, line in lines if line.strip())


def _image(path: Path, lines: Sequence[Line], number: int) -> tuple[ListedImage, int]:
    """The image number `number`, whose header is `lines`, and the number of its windows."""
    if not lines:
        raise InputError("lists no images; begin it with `# 0`", path=str(path))
    if lines[0][1].split() != ["#", str(number)]:
        what = f"has '{lines[0][1][:40]}' where image {number} begins; write it as `# {number}`"
        raise InputError(what, path=str(path), line=lines[0][0])
    if len(lines) <= len(HEADER):
        what = f"ends before {HEADER[len(lines) - 1]} of image {number}; write each on a line of its own"
        raise InputError(what, path=str(path), line=lines[-1][0])
    name, *sizes = lines[1:]
    channels, _, _, count = (_count(path, line, what) for line, what in zip(sizes, HEADER[1:], strict=True))
    if channels != CHANNELS:
        what = f"has an image of {channels} channels; windows are cut from colour images: write {CHANNELS}"
        raise InputError(what, path=str(path), line=sizes[0][0])
    return ListedImage(name[1], name[0]), count


def _count(path: Path, line: Line, what: str) -> int:
    number, text = line
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"has '{text[:40]}' as {what}; write a number from 0", path=str(path), line=number)
    return int(text)


def _table(path: Path, lines: Sequence[Line]) -> np.ndarray:
    """The numbers of windows, one row for each."""
    words_of = [text.split() for _, text in lines]
    for (number, text), row in zip(lines, words_of):
        if len(row) != COLUMNS:
            raise InputError(f"has the window '{text[:40]}'; {FORM}", path=str(path), line=number)
    try:
        table = np.array(words_of, np.float64).reshape(-1, COLUMNS)
    except ValueError:
        number, text = next(line for line in lines if not _are_numbers(line[1]))
        raise InputError(f"has the window '{text[:40]}'; {FORM}", path=str(path), line=number) from None
    whole = table[:, [0, 2, 3, 4, 5]]
    good = np.isfinite(table).all(1) & (np.abs(table[:, 0]) < LABEL_END) & (np.abs(table[:, 2:]) < SMALL).all(1)
    with np.errstate(invalid="ignore"):
        good &= (whole == np.trunc(whole)).all(1)
    if not good.all():
        number, text = lines[int(np.argmin(good))]
        what = f"has the window '{text[:40]}'; label and corners are whole numbers: {FORM}"
        raise InputError(what, path=str(path), line=number)
    return table


def _are_numbers(text: str) -> bool:
    try:
        return bool([float(word) for word in text.split()])
    except ValueError:
        return False


def _check(
    path: Path, lines: Sequence[Line], rows: np.ndarray, is_object: np.ndarray, is_background: np.ndarray
) -> None:
    """InputError for an object without a label, and for a window without a pixel."""
    unlabelled = np.flatnonzero(is_object & (rows[:, 1] <= 0))
    if len(unlabelled):
        what = f"has a foreground window of label {rows[unlabelled[0], 1]}; objects are labelled from 1 on"
        raise InputError(what, path=str(path), line=lines[int(unlabelled[0])][0])
    used = is_object | is_background
    empty = np.flatnonzero(used & ((rows[:, 2] > rows[:, 4]) | (rows[:, 3] > rows[:, 5])))
    if len(empty):
        number, text = lines[int(empty[0])]
        what = f"has the window '{text[:40]}' whose second corner is before its first; write x1 <= x2 and y1 <= y2"
        raise InputError(what, path=str(path), line=number)
