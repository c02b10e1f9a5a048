"""Transformer: converts an image [H,W,K] to the input of a net [K,H,W], and back.

    resize -> transpose -> channel swap -> raw scale -> mean -> input scale

source  Caffe python/caffe/io.py (Transformer)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import ArgumentError
from layermem.io.images import resize_image
from layermem.utils.similar import did_you_mean

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class Transformer:
    """Conversions for the inputs of a net, by their names.

    inputs   shapes [N,K,H,W] by name: {"data": net.blobs["data"].shape}

        t = Transformer({"data": (1, 3, 227, 227)})
        t.set_transpose("data", (2, 0, 1))             [H,W,K] to [K,H,W]
        t.set_mean("data", np.array([104, 117, 123]))  subtracted
        t.set_raw_scale("data", 255)                   before the mean: images of load_image are in [0, 1]
        t.set_channel_swap("data", (2, 1, 0))          red, green, blue to blue, green, red
        net.blobs["data"].data[...] = t.preprocess("data", layermem.io.load_image("cat.jpg"))

    ArgumentError for an input that `inputs` does not name, and for an order or a mean that does not fit its shape.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Array] = {}
        self.input_scale: dict[str, float] = {}

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.inputs.items())
        return f"<Transformer: {shapes}>"

    def preprocess(self, in_: str, data: Array) -> Floats:
        """`data` [H',W',K] as a float32 array [K,H,W] for the input `in_`; `data` is not changed."""
        shape = self._shape(in_)
        image = np.array(data, np.float32)
        if image.shape[:2] != shape[2:]:
            image = resize_image(image, shape[2:])
        if (order := self.transpose.get(in_)) is not None:
            image = image.transpose(order)
        if (order := self.channel_swap.get(in_)) is not None:
            image = image[list(order)]
        if (scale := self.raw_scale.get(in_)) is not None:
            image *= scale
        if (mean := self.mean.get(in_)) is not None:
            image -= mean
        if (scale := self.input_scale.get(in_)) is not None:
            image *= scale
        return image

    def deprocess(self, in_: str, data: Array) -> Array:
        """The inverse of preprocess, but for the size: [K,H,W] or [1,K,H,W] as [H,W,K]."""
        self._shape(in_)
        order = self.transpose.get(in_)
        image = np.array(data).squeeze()
        if order is not None and image.ndim < len(order):
            image = image.reshape(np.shape(data)[-len(order) :])
        if (scale := self.input_scale.get(in_)) is not None:
            image /= scale
        if (mean := self.mean.get(in_)) is not None:
            image += mean
        if (scale := self.raw_scale.get(in_)) is not None:
            image /= scale
        if (swap := self.channel_swap.get(in_)) is not None:
            image = image[np.argsort(swap)]
        return image if order is None else image.transpose(np.argsort(order))

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the axes of `data` that gives [K,H,W]: (2, 0, 1) for [H,W,K]."""
        axes = len(self._shape(in_)) - 1
        if sorted(order) != list(range(axes)):
            raise ArgumentError(
                f"{tuple(order)} is no order of the {axes} axes of '{in_}'; give each of 0 to {axes - 1} once"
            )
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of channels after the transpose: (2, 1, 0) swaps red, green, blue to blue, green, red."""
        channels = self._shape(in_)[1]
        if len(order) != channels:
            raise ArgumentError(
                f"{tuple(order)} does not order the {channels} channels of '{in_}'; give {channels} numbers"
            )
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set the factor of images before the mean is subtracted: 255 for means in [0, 255]."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set the factor of inputs after the mean is subtracted."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def set_mean(self, in_: str, mean: Array) -> None:
        """Set the mean to subtract: one value per channel [K], or an image [K,H',W'], which is resized to [K,H,W]."""
        shape = self._shape(in_)
        channels = shape[1]
        if mean.ndim == 1:
            if len(mean) != channels:
                raise ArgumentError(
                    f"a mean of {len(mean)} channels does not fit '{in_}', which has {channels}; give {channels}"
                )
            self.mean[in_] = mean[:, None, None]
            return
        sizes = (1, *mean.shape) if mean.ndim == 2 else mean.shape
        if len(sizes) != 3 or sizes[0] not in (1, channels):
            text = "x".join(map(str, mean.shape))
            raise ArgumentError(
                f"a mean of shape {text} does not fit '{in_}'; give one of shape [{channels}] or [{channels},H,W]"
            )
        if sizes[1:] != shape[2:]:
            mean = resize_image(mean.reshape(sizes).transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def _shape(self, in_: str) -> tuple[int, ...]:
        """The shape of an input; ArgumentError if no input has that name."""
        if in_ not in self.inputs:
            hint = did_you_mean(in_, self.inputs) or f"choose from {' '.join(self.inputs)}"
            raise ArgumentError(f"'{in_}' is none of the inputs of this Transformer; {hint}")
        return self.inputs[in_]
