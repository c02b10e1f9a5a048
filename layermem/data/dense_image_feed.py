"""DenseImageData: images, and beside each an image that holds the index of a class for every pixel.

A label image is cropped and mirrored as its image is; no mean is subtracted from its indices, and they are not scaled.
The fork refuses mirror and crop_size, and takes the gray of the colours of a palette where its indices are taken here.
source  dense_image_data_layer.cpp of alexgkendall/caffe-segnet
"""

from __future__ import annotations

from layermem.data.feed import Batch, Feed, ImageFeed, Opening, feed_of
from layermem.data.list_source import ImagePairSource
from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.proto.schema import TransformationParameter


@feed_of("DenseImageData")
class DenseImageFeed(ImageFeed):
    """Transformed images, and their labels [N,1,H,W]."""

    list_source = ImagePairSource
    of_labels: Transform  # the same windows and mirrors, since they depend on the key of the transform alone

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        p = opening.param.transform_param
        if p.HasField("augment_param"):
            raise InputError("has an augment_param, which would change images and not their labels; remove it")
        feed = super().open(opening)
        assert isinstance(feed, DenseImageFeed)
        placed = TransformationParameter(crop_size=p.crop_size, mirror=p.mirror)
        feed.of_labels = Transform(placed, opening.phase, opening.key, opening.resolve)
        batch, _, height, width = feed.shapes[0]
        feed.shapes = (feed.shapes[0], (batch, 1, height, width))[: feed.tops]
        return feed

    def _next(self) -> Batch:
        assert isinstance(self.source, ImagePairSource)
        windows, of_labels = (each.windows(self.position, self.batch) for each in (self.transform, self.of_labels))
        images, labels = self.source.read_pairs(self.batch, windows.cut, of_labels.cut)
        data, placed = self._data(windows, images), of_labels.numbers(labels)
        self.position += self.batch
        return [data, placed][: self.tops]
