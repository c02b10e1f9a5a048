"""Make the LMDBs that prototxt/mnist reads from the four files of MNIST, gzipped or not.

    python tools/make_mnist.py FOLDER                  into examples/mnist/mnist_{train,test}_lmdb
    python tools/make_mnist.py FOLDER --out examples/mnist
    python tools/make_mnist.py FOLDER --pairs          into examples/siamese/mnist_siamese_{train,test}_lmdb

--pairs writes as many random pairs of images for prototxt/siamese, always the same: two channels, and label 1 where
both show the same digit.

FOLDER contains train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.
source  LeCun, Cortes, Burges: the MNIST database; the IDX format is a magic number (two zeros, the type, the rank),
        one big-endian 32-bit extent per axis, then the values
"""

from __future__ import annotations

import argparse
import gzip
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lmdb_writer import datum, write_lmdb

UNSIGNED_BYTE = 8


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array of an IDX file, or of PATH.gz."""
    packed = path.with_name(path.name + ".gz")
    raw = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    zeros, kind, rank = struct.unpack_from(">HBB", raw)
    shape = struct.unpack_from(f">{rank}I", raw, 4)
    if zeros or kind != UNSIGNED_BYTE or len(raw) != 4 + 4 * rank + int(np.prod(shape)):
        sys.exit(f"make_mnist: {path} is no IDX file of bytes")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def random_pairs(images: np.ndarray, labels: np.ndarray) -> Iterator[Any]:
    """Datums of two channels, with label 1 where both images have the same label."""
    for i, j in np.random.default_rng(0).integers(len(images), size=(len(images), 2)):
        yield datum(images[[i, j]], labels[i] == labels[j])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="folder of the LMDBs (examples/mnist, or examples/siamese)")
    parser.add_argument("--pairs", action="store_true", help="pairs of digits instead of digits")
    args = parser.parse_args()
    out = args.out or Path("examples/siamese" if args.pairs else "examples/mnist")
    for name, stem in (("train", "train"), ("test", "t10k")):
        try:
            images = read_idx(args.folder / f"{stem}-images-idx3-ubyte")
            labels = read_idx(args.folder / f"{stem}-labels-idx1-ubyte")
        except (OSError, struct.error) as error:
            sys.exit(f"make_mnist: {error}")
        folder = out / (f"mnist_siamese_{name}_lmdb" if args.pairs else f"mnist_{name}_lmdb")
        single = (datum(image[None], label) for image, label in zip(images, labels))
        count = write_lmdb(folder, random_pairs(images, labels) if args.pairs else single)
        print(f"{folder}: {count} {'pairs' if args.pairs else 'images'}")


if __name__ == "__main__":
    main()
