"""layermem.Classifier: classes of images.

    classifier = layermem.Classifier(
        "deploy.prototxt", "weights.caffemodel", image_dims=(256, 256), mean=np.array([104, 117, 123]), raw_scale=255,
        channel_swap=(2, 1, 0), budget="1GiB",
    )
    probabilities = classifier.predict([layermem.io.load_image("cat.jpg")])

source  Caffe python/caffe/classifier.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.interactive.images import Array, ImageNet
from layermem.io import oversample as ten_crops
from layermem.io import resize_image
from layermem.io.images import CROPS


class Classifier(ImageNet):
    """A net that classifies images.

    model_file, pretrained_file   the deploy net (a path, a NetParameter or a NetSpec) and its weights
    image_dims     (height, width) that images are resized to before they are cropped to the input of the net; by
                   default the size of the input
    mean           subtracted from images: one value per channel [K], or an image [K,H,W]
    input_scale    factor after the mean is subtracted
    raw_scale      factor before the mean is subtracted: 255 for means in [0, 255]
    channel_swap   (2, 1, 0) for nets that take blue, green, red
    options        options of layermem.Net: budget, device, strategy, host_budget, batch, keep, seed, ...
    """

    def __init__(
        self,
        model_file: Any,
        pretrained_file: Any = None,
        image_dims: Sequence[int] | None = None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        **options: Any,
    ):
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap, **options)
        self.crop_dims = np.array(self.blobs[self.image_input].shape[2:])
        self.image_dims = np.array(self.crop_dims if image_dims is None or not len(image_dims) else image_dims)
        if np.any(self.image_dims < self.crop_dims):
            wanted, least = ("x".join(map(str, each)) for each in (self.image_dims, self.crop_dims))
            raise InputError(f"image_dims {wanted} is smaller than the input of the net; give {least} or more")

    def predict(  # type: ignore[override]  # pycaffe's Classifier has this method, with other arguments than Net's
        self, inputs: Sequence[Array], oversample: bool = True
    ) -> npt.NDArray[np.float32]:
        """Return the output of the net for images [H,W,K] of any size and number: [N, classes].

        oversample   average over ten crops: corners, centre and their mirrors; False: only the centre
        """
        if not len(inputs):
            raise InputError("there are no images to classify; give one or more")
        images = [resize_image(np.asarray(each), self.image_dims) for each in inputs]
        if oversample:
            rows = self.outputs_of(list(ten_crops(images, self.crop_dims)))
            means: npt.NDArray[np.float32] = rows.reshape(len(images), CROPS, -1).mean(axis=1)
            return means
        (top, left), (height, width) = ((self.image_dims - self.crop_dims) / 2).astype(int), self.crop_dims
        return self.outputs_of([each[top : top + height, left : left + width] for each in images])
