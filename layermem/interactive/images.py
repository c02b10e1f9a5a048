"""Nets whose input is images, with the preprocessing of pycaffe's Classifier and Detector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.interactive.net import Net
from layermem.io import Transformer

Array = npt.NDArray[Any]
IMAGE_AXES = 4  # N, K, H, W


class ImageNet(Net):
    """A net in phase TEST with one input [N,K,H,W], for which `transformer` converts images [H,W,K]."""

    def __init__(
        self,
        model_file: Any,
        pretrained_file: Any,
        mean: Array | None,
        input_scale: float | None,
        raw_scale: float | None,
        channel_swap: Sequence[int] | None,
        **options: Any,
    ):
        super().__init__(model_file, "TEST", weights=pretrained_file, **options)
        if not self.inputs or len(self.blobs[self.inputs[0]].shape) != IMAGE_AXES:
            what = f"net '{self.name}' has no Input layer with a blob of shape [N,K,H,W]; use a deploy net for images"
            raise InputError(what, path=str(self.definition.path))
        name = self.image_input
        self.transformer = Transformer({name: self.blobs[name].shape})
        self.transformer.set_transpose(name, (2, 0, 1))
        if mean is not None:
            self.transformer.set_mean(name, mean)
        if input_scale is not None:
            self.transformer.set_input_scale(name, input_scale)
        if raw_scale is not None:
            self.transformer.set_raw_scale(name, raw_scale)
        if channel_swap is not None:
            self.transformer.set_channel_swap(name, channel_swap)

    @property
    def image_input(self) -> str:
        """The name of its input."""
        name: str = self.inputs[0]
        return name

    def outputs_of(self, images: Sequence[Array]) -> Array:
        """Return the first output of the net for images [H,W,K] of any size and number: one row per image."""
        name = self.image_input
        blob = np.stack([self.transformer.preprocess(name, each) for each in images])
        inputs: dict[str, Any] = {name: blob}
        return self.forward_all(**inputs)[self.outputs[0]]
