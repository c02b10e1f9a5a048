"""layermem.Detector: classifies windows of images, which it crops as R-CNN does.

    detector = layermem.Detector("deploy.prototxt", "weights.caffemodel", context_pad=16, budget="1GiB")
    for each in detector.detect_windows([("cat.jpg", [(10, 20, 110, 140)])]):
        print(each["filename"], each["window"], each["prediction"].argmax())

source  Caffe python/caffe/detector.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.interactive.images import Array, ImageNet
from layermem.io import load_image, resize_image
from layermem.utils.files import PathName


class Detection(TypedDict):
    """The filename as given, the window (ymin, xmin, ymax, xmax), and the output of the net for it."""

    window: Any
    prediction: Array
    filename: Any


class Detector(ImageNet):
    """A net that classifies windows of images.

    model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap, options   as for layermem.Classifier
    context_pad   pixels on each side of the net's input that show the surroundings of the window, filled with the
                  mean beyond the image; the input of the net must then be square
    """

    def __init__(
        self,
        model_file: Any,
        pretrained_file: Any = None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
        **options: Any,
    ):
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap, **options)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set context_pad."""
        channels, height, width = self.blobs[self.image_input].shape[1:]
        if context_pad and (height != width or 2 * context_pad >= width):
            what = f"context_pad {context_pad} needs a square input of more than {2 * context_pad} pixels"
            raise InputError(f"{what}, and that of the net is {height}x{width}; reduce it")
        self.context_pad = context_pad or 0
        self.crop_dims = np.array((height, width, channels))
        self.crop_mean = self._mean_as_image()

    def detect_windows(
        self, images_windows: Iterable[tuple[PathName | Array, Iterable[Sequence[float]]]]
    ) -> list[Detection]:
        """Return the outputs of the net for all windows, in order.

        images_windows   pairs of an image, by its file name or as an array [H,W,K], and its windows (ymin, xmin, ymax,
                         xmax) in pixels
        """
        crops: list[Array] = []
        places: list[tuple[Any, Any]] = []
        for image, windows in images_windows:
            pixels = image if isinstance(image, np.ndarray) else load_image(image)
            for window in windows:
                crops.append(self.crop(pixels, window))
                places.append((image, window))
        rows: Iterable[Array] = self.outputs_of(crops) if crops else []
        return [{"window": window, "prediction": row, "filename": image} for (image, window), row in zip(places, rows)]

    def crop(self, im: Array, window: Sequence[float]) -> Array:
        """Return the window of an image [H,W,K], with its context if there is a context_pad."""
        box = np.round(np.asarray(window, np.float64)).astype(int)
        plain = im[box[0] : box[2], box[1] : box[3]]
        if not plain.size:
            raise InputError(
                f"window {tuple(box.tolist())} has no pixel of an image of {im.shape[0]}x{im.shape[1]}; give ymin, "
                "xmin, ymax, xmax in pixels"
            )
        return self._with_context(im, box) if self.context_pad else plain

    def _with_context(self, im: Array, window: npt.NDArray[np.int64]) -> Array:
        """Return the enlarged window, such that the window itself fills the input less context_pad on each side, over
        the mean."""
        size = int(self.crop_dims[1])
        half = (window[2:] - window[:2] + 1) / 2.0
        reach = half * size / (size - 2.0 * self.context_pad)
        centre = window[:2] + half
        low, high = np.round(centre - reach), np.round(centre + reach)
        scale = size / (high - low + 1)
        pad = np.round(np.maximum(0, -low) * scale).astype(int)  # pixels of the input outside of the image
        low, high = np.clip(low, 0, im.shape[:2]), np.clip(high, 0, im.shape[:2])
        extent = np.minimum(np.round((high - low + 1) * scale).astype(int), size - pad)
        (top, left), (bottom, right) = low.astype(int), high.astype(int)
        crop = np.broadcast_to(self.crop_mean, tuple(self.crop_dims)).astype(np.float32)
        inside = resize_image(im[top:bottom, left:right], extent)
        crop[pad[0] : pad[0] + extent[0], pad[1] : pad[1] + extent[1]] = inside
        return crop

    def _mean_as_image(self) -> Array:
        """Return the mean as pixels of an image [H,W,K], or [1,1,K]; zeros without one."""
        t, name = self.transformer, self.image_input
        mean = t.mean.get(name)
        if mean is None:
            return np.zeros((1, 1, 1), np.float32)
        pixels = np.transpose(mean.reshape(-1, *mean.shape[-2:]), (1, 2, 0)).astype(np.float64)
        swap, scale = t.channel_swap.get(name), t.raw_scale.get(name)
        if swap is not None and pixels.shape[2] == len(swap):
            pixels = pixels[:, :, np.argsort(swap)]
        return pixels / scale if scale is not None else pixels
