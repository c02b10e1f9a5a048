"""The transform of input images: crop, subtract the mean, scale, mirror.

    y = (crop(x) - mean) * scale, possibly mirrored        x [C,H,W] uint8 or float32 -> y [C,h,w] float32

    crop_size    a random window in TRAIN, the centre in TEST
    mean_file    an image to subtract, cropped like x; or mean_value, one for all channels or one for each
    mirror       mirrors half of the images left to right, in both phases
    augment_param   changes images in TRAIN before all else (augment_images.py)

Random decisions are seeded by the number of the sample (seeds.py), so that they depend neither on the batch of the
sample nor on a resume before it.
source  Caffe data_transformer.cpp
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from layermem.data.augment_images import Augmentation
from layermem.errors import InputError
from layermem.ops import ByteImages, transformed
from layermem.proto.blobs import MESSAGE_LIMIT_BYTES
from layermem.proto.checks import shape_fault
from layermem.proto.schema import TRAIN, BlobProto, Message
from layermem.utils.input_files import Read, read_bytes
from layermem.utils.seeds import below, words

OF_BOXES = ("resize_param", "distort_param", "expand_param")


class Transform:
    """The transform of a TransformationParameter in a phase.  `key` is the seed and the layer; `resolve` finds
    mean_file.

    read    gets the bytes of mean_file
    boxes   whether images have boxes (AnnotatedData), for which annotated.py applies further steps first
    """

    def __init__(
        self,
        param: Message,
        phase: int,
        key: tuple[int | str, ...],
        resolve: Callable[[str], Path],
        *,
        boxes: bool = False,
        read: Read = read_bytes,
    ):
        self.param, self.train, self.key = param, phase == TRAIN, (*key, "transform")
        if param.force_color and param.force_gray:
            raise InputError("has both force_color and force_gray; keep one")
        for field in () if boxes else OF_BOXES:
            if param.HasField(field):
                raise InputError(
                    f"has a {field}, from the SSD fork of Caffe, which is obeyed in AnnotatedData only; change the "
                    "images before they are stored, and remove it"
                )
        self.color = True if param.force_color else False if param.force_gray else None
        self.forced = "force_color" if param.force_color else "force_gray"  # where color is not None
        if param.mean_file and param.mean_value:
            raise InputError("has both mean_file and mean_value; keep one")
        self.mean = read_mean(resolve(param.mean_file), read) if param.mean_file else None
        self.mean_values = np.array(param.mean_value or [0], np.float32)[:, None, None]
        self.augment: Augmentation | None = None
        if param.HasField("augment_param"):
            if boxes:
                raise InputError("has an augment_param, which is for images without boxes; remove it")
            fill = self.mean_values if self.mean is None else self.mean.mean(axis=(1, 2))
            augmentation = Augmentation(param.augment_param, self.key, fill)  # checks it in both phases
            self.augment = augmentation if self.train else None

    @property
    def any_size(self) -> bool:
        """Whether the images of a batch may differ in size: a crop makes them equal."""
        return bool(self.param.crop_size > 0)

    def shape(self, image: tuple[int, ...]) -> tuple[int, int, int]:
        """The output shape [C,h,w] for an image of shape [C,H,W]; InputError if the parameters do not fit it."""
        channels, height, width = image
        crop = self.param.crop_size
        if crop > min(height, width):
            raise InputError(f"has crop_size {crop} and an image of {height}x{width}; reduce crop_size")
        if self.mean is not None and self.mean.shape != image:
            mean, size = ("x".join(map(str, s)) for s in (self.mean.shape, image))
            raise InputError(f"has a mean_file of {mean} and an image of {size}; make them equal")
        if len(self.mean_values) not in (1, channels):
            raise InputError(
                f"has {len(self.mean_values)} mean_value for {channels} channels; give one, or one for each"
            )
        return (channels, crop, crop) if crop else (channels, height, width)

    def __call__(self, images: Sequence[np.ndarray], first: int) -> np.ndarray:
        """Transform the images of samples first, first + 1, ... to float32 [N,C,h,w]."""
        windows = self.windows(first, len(images))
        return windows.numbers([*map(windows.cut, range(len(images)), images)])

    def windows(self, first: int, count: int) -> CroppedWindows:
        """Return the windows of a batch of `count` images, which are samples first, first + 1, ..."""
        return CroppedWindows(self, first, count)

    def corner(self, shape: tuple[int, ...], bits: np.ndarray) -> tuple[int, int]:
        """The top left corner of the crop in an image."""
        crop = self.param.crop_size
        if not crop:
            return 0, 0
        free = (shape[1] - crop, shape[2] - crop)
        if not self.train:
            return free[0] // 2, free[1] // 2
        return int(below(bits[0], free[0] + 1)), int(below(bits[1], free[1] + 1))


class CroppedWindows:
    """The windows of a batch of images.  `cut` takes one of each image, which is not needed any more after it, and then
    `numbers` or `in_bytes` makes the batch."""

    def __init__(self, transform: Transform, first: int, count: int):
        self.transform, self.first = transform, first
        self.bits = words(first, count, *transform.key)
        self.mirrored = (self.bits[:, 2] & np.uint64(1)).astype(bool) & bool(transform.param.mirror)  # by image
        self.corners = np.zeros((count, 2), np.int32)
        self.outputs: dict[tuple[int, ...], tuple[int, int, int]] = {}  # by the shape of an image

    def cut(self, index: int, image: np.ndarray) -> np.ndarray:
        """The window of image `index` of the batch, a copy if it is not the whole image."""
        augment = self.transform.augment
        image = image if augment is None else augment.change(image, self.first + index)
        if image.shape not in self.outputs:
            self._check(image.shape)
        size = self.outputs[image.shape][1:]
        self.corners[index] = self.transform.corner(image.shape, self.bits[index])
        return image if image.shape[1:] == size else image[self._place(index, size)].copy()

    def numbers(self, cut: Sequence[np.ndarray]) -> np.ndarray:
        """The batch as float32 [N,C,h,w]."""
        mean, values, scale = self.transform.mean, self.transform.mean_values, self.transform.param.scale
        out = np.empty((len(cut), *cut[0].shape), np.float32)
        for index, image in enumerate(cut):
            target = out[index, :, :, ::-1] if self.mirrored[index] else out[index]
            part = values if mean is None else mean[self._place(index, image.shape[1:])]
            transformed(image, part, scale, target)
        return out

    def in_bytes(self, cut: Sequence[np.ndarray]) -> ByteImages | None:
        """The batch with the rest of the transform left to do; None if any image is not in bytes."""
        if any(image.dtype != np.uint8 for image in cut):
            return None
        each, channels = self.transform, len(cut[0])
        mean = np.broadcast_to(each.mean_values, (channels, 1, 1)) if each.mean is None else each.mean
        return ByteImages(np.stack(cut), self.corners, self.mirrored, mean, each.param.scale)

    def _check(self, shape: tuple[int, ...]) -> None:
        """InputError for an image that is no part of one batch with those before it."""
        output = self.transform.shape(shape)
        if self.outputs and (not self.transform.any_size or output not in self.outputs.values()):
            sizes = " and ".join("x".join(map(str, each)) for each in sorted([*self.outputs, shape])[:2])
            raise InputError(f"has images of {sizes} in one batch; resize the images, or set crop_size")
        self.outputs[shape] = output

    def _place(self, index: int, size: tuple[int, ...]) -> tuple[slice, slice, slice]:
        (top, left), (height, width) = self.corners[index], size
        return slice(None), slice(top, top + height), slice(left, left + width)


def read_mean(path: Path, read: Read = read_bytes) -> np.ndarray:
    """The mean image [C,H,W] in a binary BlobProto, the format of compute_image_mean; `read` gets its bytes."""
    raw = read(path, what="mean image", limit=MESSAGE_LIMIT_BYTES)
    try:
        blob = BlobProto.FromString(raw)
    except DecodeError as error:
        raise InputError(
            f"cannot be read as a mean image ({error}); write it with compute_image_mean", path=str(path)
        ) from None
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    shape = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    values = np.array(blob.data or blob.double_data, np.float32)
    if len(shape) != 3 or shape_fault(shape) or values.size != np.prod(shape):
        raise InputError(
            f"is not a mean image: {values.size} values with shape {shape}; write it with compute_image_mean",
            path=str(path),
        )
    return values.reshape(shape)
