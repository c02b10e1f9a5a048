"""Writes an LMDB of Datum messages in the form of Caffe's convert_imageset, for the make_*.py of data sets."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from layermem.proto.schema import Datum

MAP_SIZE = 1 << 32  # upper limit; the file is only as long as its content


def datum(image: np.ndarray, label: int) -> Any:
    """A Datum of a uint8 image [C,H,W]."""
    channels, height, width = image.shape
    return Datum(channels=channels, height=height, width=width, data=image.tobytes(), label=int(label))


def write_lmdb(folder: Path, records: Iterable[Any]) -> int:
    """Write the records under the keys 00000000, 00000001, ...; an existing folder is replaced at the end."""
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with lmdb.open(str(aside), map_size=MAP_SIZE) as env, env.begin(write=True) as txn:
        for record in records:
            txn.put(f"{count:08d}".encode(), record.SerializeToString(), append=True)
            count += 1
    (aside / "lock.mdb").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    return count
