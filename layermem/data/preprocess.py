"""Transforms an image for the input of a net: as its TEST data layer does, or as the user states.

    decode -> resize -> crop the centre -> subtract the mean -> scale        [C,H,W] uint8, blue green red -> float32

Crop, mean and scale are the Transform of data layers in TEST (transform.py), so that predictions are those of
`layermem test`.  `mirror` has no effect.  Images are resized to the first of these sizes that is known:

    the size that the user states
    new_height x new_width of an ImageData or DenseImageData, height x width of a resize_param that warps
    the size of the mean image
    the size of the first image in the data set, if the layer crops
    the size of the input, which leaves nothing to crop
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layermem.data.images import resize
from layermem.data.transform import OF_BOXES, Transform, read_mean
from layermem.errors import InputError
from layermem.layers.data import FEED_LAYERS, FROM_FILES, ImageData
from layermem.proto.schema import TEST, Message, TransformationParameter
from layermem.utils.input_files import Read, read_bytes
from layermem.utils.numbers import parse_float
from layermem.utils.open_file import OpenFile

Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class Stated:
    """The user's settings of the transform; for None the data layer decides.

    mean   a .binaryproto or .npy file, or values such as "104,117,123", one for each channel or one for all
    rgb    whether the channels of the net's input are red, green, blue
    """

    mean: str | None = None
    scale: float | None = None
    size: Size | None = None
    crop: int | None = None
    rgb: bool = False


class Preprocess:
    """The transform of images for an input of `shape` [C,H,W].

    layer     the data layer that the net has in TEST, None for a net without one
    resolve   finds the files that the layer names
    stored    the shape of an image in the layer's data set, if it is known
    read      gets the bytes of the mean image
    """

    def __init__(
        self,
        shape: Sequence[int],
        layer: Message | None,
        stated: Stated = Stated(),
        *,
        folder: Path = Path(),
        stored: Sequence[int] | None = None,
        read: Read = read_bytes,
    ):
        self.channels, *size = shape
        if len(size) != 2 or self.channels not in (1, 3):
            raise InputError(
                f"images have 1 or 3 channels, and the input of the net is {'x'.join(map(str, shape))}; give arrays in "
                ".npy or .npz files"
            )
        param = TransformationParameter()
        if layer is not None and FEED_LAYERS[layer.type].is_transformed:
            param.CopyFrom(layer.transform_param)
        warped = _warped(param)
        for field in ("mirror", *OF_BOXES):
            param.ClearField(field)
        self._apply(stated, param)
        self.rgb = stated.rgb
        self.transform = Transform(param, TEST, (0,), lambda name: _resolve(name, folder), read=read)
        if stated.mean is not None:
            self._set_mean(stated.mean)
        mean = self.transform.mean
        of_layer = None
        if layer is not None and issubclass(FEED_LAYERS[layer.type], ImageData):
            p = getattr(layer, FROM_FILES[layer.type])
            of_layer = (p.new_height, p.new_width) if p.new_height else None
        of_mean = None if mean is None else mean.shape[1:]
        of_data = tuple(stored[1:]) if stored is not None and param.crop_size else None
        height, width = stated.size or of_layer or warped or of_mean or of_data or size
        self.size: Size = int(height), int(width)
        self._check(tuple(shape))

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Return float32 [C,H,W] for an image [C,H,W] in blue, green, red, uint8 or float32."""
        if image.shape[0] != self.channels:
            raise InputError(f"has {image.shape[0]} channels, and the net reads {self.channels}; convert it")
        if image.shape[1:] != self.size:
            if image.dtype != np.uint8:
                raise InputError(
                    f"holds numbers in {image.shape[1]}x{image.shape[2]}, where {self.size[0]}x{self.size[1]} are "
                    "needed; only images of bytes are resized: store it in that size"
                )
            image = resize(image, *self.size)
        if self.rgb:
            image = image[::-1]
        values: np.ndarray = self.transform([image], 0)[0]
        return values

    def _apply(self, stated: Stated, param: Message) -> None:
        if stated.crop is not None:
            param.crop_size = stated.crop
        if stated.scale is not None:
            param.scale = stated.scale
        if stated.mean is not None:
            param.ClearField("mean_file")
            param.ClearField("mean_value")
            if (values := _numbers(stated.mean)) is not None:
                param.mean_value.extend(values)

    def _set_mean(self, mean: str) -> None:
        """Read the mean image of --mean, if it is a file."""
        if _numbers(mean) is not None:
            return
        path = Path(mean)
        if path.suffix != ".npy":
            self.transform.mean = read_mean(path)
            return
        file = OpenFile(path, what="mean image")
        try:
            values = np.load(file.reader(), allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"cannot be read as a mean image ({error}); write it with numpy.save", path=mean) from None
        if values.ndim == 1:
            self.transform.mean_values = values.astype(np.float32)[:, None, None]
        elif values.ndim == 3:
            self.transform.mean = values.astype(np.float32)
        else:
            raise InputError(
                f"is an array of shape {values.shape} and no mean; give channels, or channels x height x width",
                path=mean,
            )

    def _check(self, shape: tuple[int, ...]) -> None:
        """InputError unless images of `size` become arrays of `shape`."""
        out = self.transform.shape((self.channels, *self.size))
        if out != shape:
            is_, wanted, resized = ("x".join(map(str, each)) for each in (out[1:], shape[1:], self.size))
            crop = f" and cropped to {is_}" if out[1:] != self.size else ""
            raise InputError(
                f"images resized to {resized}{crop} do not fit the input of {wanted}; change --resize or --crop"
            )


def _warped(param: Message) -> Size | None:
    """The size of a resize_param of AnnotatedData."""
    if not param.HasField("resize_param"):
        return None
    p = param.resize_param
    return (p.height, p.width) if p.height and p.width else None


def _numbers(text: str) -> list[float] | None:
    """The values in "104,117,123"; None for the name of a file."""
    try:
        return [parse_float(word) for word in text.split(",")]
    except ValueError:
        return None


def _resolve(name: str, folder: Path) -> Path:
    from layermem.proto.read import resolve_path

    try:
        return resolve_path(name, folder)
    except InputError as missing:
        raise InputError(f"cannot read its mean image: {missing.what}; create it, or give --mean") from None
