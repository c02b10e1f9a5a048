"""Small data sets on disk, and the messages that name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import lmdb
import numpy as np
from google.protobuf import text_format

from layermem.data.transform import Transform
from layermem.ops import ByteImages
from layermem.proto.schema import BlobProto, Datum, LayerParameter


def layer(text: str):
    """A LayerParameter from prototxt."""
    return text_format.Parse(text, LayerParameter())


def images(count: int, channels: int = 3, height: int = 6, width: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, height, width), np.uint8)


def in_bytes(transform: Transform, images: Sequence[np.ndarray], first: int) -> ByteImages | None:
    """The batch of `images` from sample `first` on, in bytes."""
    windows = transform.windows(first, len(images))
    return windows.in_bytes([windows.cut(index, image) for index, image in enumerate(images)])


def datum(image: np.ndarray, label: int | None = 0):
    c, h, w = image.shape
    made = Datum(channels=c, height=h, width=w)
    if image.dtype == np.uint8:
        made.data = image.tobytes()
    else:
        made.float_data.extend(image.ravel().tolist())
    if label is not None:
        made.label = label
    return made


def make_lmdb(folder: Path, records: Iterable) -> Path:
    """An LMDB of messages, or of raw bytes."""
    with lmdb.open(str(folder), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for index, record in enumerate(records):
            raw = record if isinstance(record, bytes) else record.SerializeToString()
            txn.put(f"{index:08d}".encode(), raw)
    return folder


def digits_like(folder: Path, count: int = 7, **shape: int) -> tuple[Path, np.ndarray]:
    """An LMDB of `count` images, labelled 0, 1, ...; and the images."""
    pixels = images(count, **shape)
    return make_lmdb(folder, (datum(image, index) for index, image in enumerate(pixels))), pixels


def write_mean(path: Path, mean: np.ndarray) -> None:
    """A mean image [C,H,W] as compute_image_mean writes it."""
    channels, height, width = mean.shape
    blob = BlobProto(num=1, channels=channels, height=height, width=width)
    blob.data.extend(mean.ravel().tolist())
    path.write_bytes(blob.SerializeToString())
