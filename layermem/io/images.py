"""Images in the form of pycaffe: [H,W,K], float32 in [0, 1], colours in the order red, green, blue.

Resizing uses the same arithmetic as the libraries that pycaffe calls, without smoothing:

    1 or 3 channels   skimage.transform.resize of 2014 to 2018, mode "constant": pixel centres at halves, and beyond
                      the border the smallest value of the image
    others            scipy.ndimage.zoom: the first and last pixels of both sizes meet

source  Caffe python/caffe/io.py; scikit-image transform/_warps.py and _warps_cy.pyx (order 0 and 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from layermem.data.images import decode
from layermem.errors import ArgumentError, InputError
from layermem.utils.input_files import read_bytes

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Dims = Sequence[int] | npt.NDArray[np.int64]  # height, width
GRAY_OF_RGB = (0.2125, 0.7154, 0.0721)  # skimage.color.rgb2gray
BY_SKIMAGE = (1, 3)  # channels
CROPS = 10  # four corners and the centre, each also mirrored
IMAGE_LIMIT_BYTES = 2**30  # of a file


def load_image(filename: str | PathLike[str], color: bool = True) -> Floats:
    """The image in a file, as float32 in [0, 1]: [H,W,3] red, green, blue; with color=False [H,W,1], its intensity.

    A gray image is repeated in three channels.  Transparency is dropped.  InputError for a file that is no image.
    """
    raw = read_bytes(filename, what="image", limit=IMAGE_LIMIT_BYTES)
    try:
        pixels = decode(raw)
    except InputError as error:
        raise error.at(path=str(filename)) from None
    image = pixels[:3][::-1].transpose(1, 2, 0).astype(np.float64) / 255
    if color:
        image = np.tile(image, (1, 1, 3)) if image.shape[2] == 1 else image
    elif image.shape[2] == 3:
        image = (image @ np.array(GRAY_OF_RGB))[:, :, None]
    return image.astype(np.float32)


def resize_image(im: Array, new_dims: Dims, interp_order: int = 1) -> Floats:
    """Resize an image [H,W,K] to [new_dims[0],new_dims[1],K]: bilinear, or with interp_order=0 to the nearest pixel."""
    if interp_order not in (0, 1):
        raise ArgumentError(f"interp_order {interp_order} is not supported; use 1 (bilinear) or 0 (nearest)")
    height, width = (int(size) for size in new_dims)
    if im.ndim != 3 or im.size == 0 or min(height, width) < 1:
        sizes = "x".join(map(str, im.shape))
        raise ArgumentError(
            f"an array of shape {sizes} has no size {height}x{width}; give an image [H,W,K] and its new size"
        )
    if im.shape[2] not in BY_SKIMAGE:
        rows, columns = _corners(im.shape[0], height, interp_order), _corners(im.shape[1], width, interp_order)
        return _interpolate(im.astype(np.float64), rows, columns).astype(np.float32)
    low, high = im.min(), im.max()
    if high <= low:
        return np.full((height, width, im.shape[2]), low, np.float32)
    unit = np.asarray((im - low) / (high - low), np.float64)
    rows, columns = _centres(im.shape[0], height, interp_order), _centres(im.shape[1], width, interp_order)
    resized: Floats = (_interpolate(unit, rows, columns) * (high - low) + low).astype(np.float32)
    return resized


class _Axis(NamedTuple):
    """For each new pixel of an axis: two old pixels and their weights."""

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    at_first: Array
    at_second: Array


def _centres(old: int, new: int, order: int) -> _Axis:
    at = (np.arange(new) + 0.5) * (old / new) - 0.5
    return _axis(np.floor(at + 0.5) if order == 0 else at, old)


def _corners(old: int, new: int, order: int) -> _Axis:
    step = (old - 1) / (new - 1) if new > 1 else 1.0
    at = np.arange(new, dtype=np.float64) * step
    return _axis(np.floor(at + 0.5) if order == 0 else at.clip(0, old - 1), old)


def _axis(at: Array, old: int) -> _Axis:
    first, second = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    share = at - first
    inside = [(each >= 0) & (each < old) for each in (first, second)]  # beyond the border there are zeros
    last = old - 1
    return _Axis(first.clip(0, last), second.clip(0, last), (1 - share) * inside[0], share * inside[1])


def _interpolate(image: npt.NDArray[np.float64], rows: _Axis, columns: _Axis) -> npt.NDArray[np.float64]:
    left, right = columns.at_first[:, None], columns.at_second[:, None]
    wide = left * image[:, columns.first] + right * image[:, columns.second]
    top, bottom = rows.at_first[:, None, None], rows.at_second[:, None, None]
    result: npt.NDArray[np.float64] = top * wide[rows.first] + bottom * wide[rows.second]
    return result


def oversample(images: Sequence[Array], crop_dims: Dims) -> Floats:
    """Ten crops [crop_dims[0],crop_dims[1],K] of each image [H,W,K], all of one size: [10*N,...].

    The crops of an image are the corners (top left, top right, bottom left, bottom right), the centre, and the same
    five mirrored.
    """
    if not len(images):
        raise ArgumentError("there is no image to take crops of; give one or more")
    (height, width, channels), (rows, columns) = np.asarray(images[0]).shape, (int(size) for size in crop_dims)
    if rows > height or columns > width:
        raise ArgumentError(
            f"a crop of {rows}x{columns} does not fit an image of {height}x{width}; make the crop smaller"
        )
    places = [(y, x) for y in (0, height - rows) for x in (0, width - columns)]
    places.append((int((height - rows) / 2), int((width - columns) / 2)))
    crops = np.empty((len(images), 2, len(places), rows, columns, channels), np.float32)
    for number, image in enumerate(images):
        for place, (y, x) in enumerate(places):
            crops[number, 0, place] = image[y : y + rows, x : x + columns]
    crops[:, 1] = crops[:, 0, :, :, ::-1]
    return crops.reshape(CROPS * len(images), rows, columns, channels)
