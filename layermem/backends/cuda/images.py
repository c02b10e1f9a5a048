"""Batches of images in bytes (ByteImages): they need a quarter of the bytes of the link, and are transformed on the
GPU.

They are staged as one block, which is copied to the workspace of the input layer's op:

    | pixels [N,C,h,w] | scale and mean, 1 + C or 1 + C H W float | corners [N,2] int | mirrored [N] |
"""

from __future__ import annotations

from math import prod

from layermem.backends.cuda.base import FLOAT, Workspace
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import ByteImages, Feed

INT = 4  # bytes


class ImageBlock:
    """The addresses of the parts of a block at `address`; `mean` is the shape of the mean."""

    def __init__(self, op: Feed, address: int = 0):
        assert op.images is not None
        self.images = op.images
        self.mean = (op.images.shape[1], 1, 1) if op.mean is None else op.mean.shape
        block = Workspace(address)
        self.pixels = block.take(op.images.count)
        self.settings = block.take(FLOAT * (1 + prod(self.mean)))
        self.corners = block.take(INT * 2 * op.images.shape[0])
        self.mirrored = block.take(op.images.shape[0])
        self.nbytes = block.nbytes

    def takes(self, batch: object) -> bool:
        """Whether `batch` has images in bytes, with a mean of this shape."""
        return isinstance(batch, ByteImages) and batch.mean.shape == self.mean


def feed_workspace_bytes(op: Feed) -> int:
    """Bytes of the block, which are reserved even if the batches turn out to be floats."""
    return 0 if op.images is None else ImageBlock(op).nbytes


def transform_images(op: Feed, y: int, address: int) -> Launch:
    """y = the transformed images of the block at this address."""
    at = ImageBlock(op, address)
    items, channels, height, width = at.images.shape
    _, mean_height, mean_width = at.mean
    is_image = op.mean is not None
    return launch(
        "images",
        "transform_images",
        "ImagesArgs",
        ceil_div(items * height * width, THREADS),
        y=y,
        x=at.pixels,
        settings=at.settings,
        corners=at.corners,
        mirrored=at.mirrored,
        by_item=divider(height * width),
        by_row=divider(width),
        channels=channels,
        count=items * height * width,
        mean_channel=mean_height * mean_width,
        mean_row=mean_width * is_image,
        mean_column=int(is_image),
    )
