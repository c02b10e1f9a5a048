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

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from layermem.data.augment_images import Augmentation
from layermem.errors import InputError
from layermem.ops import ByteImages, transformed
from layermem.proto.blobs import MESSAGE_LIMIT
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
        images = images if self.augment is None else self.augment(images, first)
        channels, *size = self._output(images)
        out = np.empty((len(images), channels, *size), np.float32)
        bits = words(first, len(images), *self.key)
        mirrored = self._mirrors(bits)
        for index, window in enumerate(self._windows(images, bits, (size[0], size[1]))):
            mean = self.mean[window] if self.mean is not None else self.mean_values
            target = out[index, :, :, ::-1] if mirrored[index] else out[index]
            transformed(images[index][window], mean, self.param.scale, target)
        return out

    def in_bytes(self, images: Sequence[np.ndarray], first: int) -> ByteImages | None:
        """Crop the images and leave the rest of the transform to do; None if any image is not in bytes."""
        if any(image.dtype != np.uint8 for image in images):
            return None
        images = images if self.augment is None else self.augment(images, first)
        channels, *size = self._output(images)
        pixels = np.empty((len(images), channels, *size), np.uint8)
        corners = np.zeros((len(images), 2), np.int32)
        bits = words(first, len(images), *self.key)
        for index, window in enumerate(self._windows(images, bits, (size[0], size[1]))):
            pixels[index] = images[index][window]
            corners[index] = window[1].start, window[2].start
        mean = np.broadcast_to(self.mean_values, (channels, 1, 1)) if self.mean is None else self.mean
        return ByteImages(pixels, corners, self._mirrors(bits), mean, self.param.scale)

    def _output(self, images: Sequence[np.ndarray]) -> tuple[int, int, int]:
        """The shape of each transformed image of a batch."""
        shapes = {image.shape for image in images}
        outputs = {self.shape(shape) for shape in shapes}
        if len(outputs) > 1 or (len(shapes) > 1 and not self.any_size):
            sizes = " and ".join("x".join(map(str, shape)) for shape in sorted(shapes)[:2])
            raise InputError(f"has images of {sizes} in one batch; resize the images, or set crop_size")
        return outputs.pop()

    def mirrors(self, first: int, count: int) -> np.ndarray:
        """For each of `count` samples, from `first` on, whether it is mirrored."""
        return self._mirrors(words(first, count, *self.key))

    def _mirrors(self, bits: np.ndarray) -> np.ndarray:
        return (bits[:, 2] & np.uint64(1)).astype(bool) & bool(self.param.mirror)

    def _windows(
        self, images: Sequence[np.ndarray], bits: np.ndarray, size: tuple[int, int]
    ) -> Iterator[tuple[slice, slice, slice]]:
        """Yield, for each image, the slices of its crop."""
        height, width = size
        for image, of_sample in zip(images, bits):
            top, left = self._corner(image.shape, of_sample)
            yield slice(None), slice(top, top + height), slice(left, left + width)

    def _corner(self, shape: tuple[int, ...], bits: np.ndarray) -> tuple[int, int]:
        """The top left corner of the crop in an image."""
        crop = self.param.crop_size
        if not crop:
            return 0, 0
        free = (shape[1] - crop, shape[2] - crop)
        if not self.train:
            return free[0] // 2, free[1] // 2
        return int(below(bits[0], free[0] + 1)), int(below(bits[1], free[1] + 1))


def read_mean(path: Path, read: Read = read_bytes) -> np.ndarray:
    """The mean image [C,H,W] in a binary BlobProto, the format of compute_image_mean; `read` gets its bytes."""
    raw = read(path, what="mean image", limit=MESSAGE_LIMIT)
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
