"""Writes an LMDB of Datum messages in the form of Caffe's convert_imageset, for make_*.py scripts of data sets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from layermem.data import databases
from layermem.proto.schema import Datum


def datum(image: np.ndarray, label: int) -> Any:
    """A Datum of a uint8 image [C,H,W]."""
    channels, height, width = image.shape
    return Datum(channels=channels, height=height, width=width, data=image.tobytes(), label=int(label))


def write_lmdb(folder: Path, records: Iterable[Any]) -> int:
    """Write the records under the keys 00000000, 00000001, ...; an existing folder is replaced at the end."""
    numbered = ((f"{number:08d}".encode(), record) for number, record in enumerate(records))
    return databases.write_database(folder, numbered, replace=True)
