"""Batches of images in bytes (ByteImages): a quarter of the bytes over the link, transformed on the GPU.

They are staged as one block, which one copy brings to the workspace of the input layer's op:

    | pixels [N,C,H,W] | scale and means [1 + C] float | mirrored [N] |
"""

from __future__ import annotations

from layermem.backends.cuda.base import FLOAT, Workspace
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import Feed, Tensor


class ImageBlock:
    """Where the parts of a block lie that begins at `address`."""

    def __init__(self, images: Tensor, address: int = 0):
        self.items, self.channels, self.height, self.width = images.shape
        block = Workspace(address)
        self.pixels = block.take(images.count)
        self.settings = block.take(FLOAT * (1 + self.channels))
        self.mirrored = block.take(self.items)
        self.nbytes = block.nbytes


def feed_workspace_bytes(op: Feed) -> int:
    """Of the block, also where the batches turn out to be numbers."""
    return 0 if op.images is None else ImageBlock(op.images).nbytes


def transform_images(images: Tensor, y: int, block: int) -> Launch:
    """y = the images of the block at this address."""
    at = ImageBlock(images, block)
    places = at.height * at.width
    return launch(
        "images", "transform_images", "ImagesArgs", ceil_div(at.items * places, THREADS), y=y, x=at.pixels,
        settings=at.settings, mirrored=at.mirrored, by_item=divider(places), by_row=divider(at.width),
        channels=at.channels, count=at.items * places,
    )  # fmt: skip
