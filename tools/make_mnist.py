"""Make the LMDBs that prototxt/mnist reads from the four files of MNIST, gzipped or not.

    python tools/make_mnist.py FOLDER                  into examples/mnist/mnist_{train,test}_lmdb
    python tools/make_mnist.py FOLDER --out examples/mnist

FOLDER contains train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.
source  LeCun, Cortes, Burges: the MNIST database; the IDX format is a magic number (two zeros, the type, the rank),
        one big-endian 32-bit extent per axis, then the values
"""

from __future__ import annotations

import argparse
import gzip
import struct
import sys
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("examples/mnist"))
    args = parser.parse_args()
    for name, stem in (("train", "train"), ("test", "t10k")):
        try:
            images = read_idx(args.folder / f"{stem}-images-idx3-ubyte")
            labels = read_idx(args.folder / f"{stem}-labels-idx1-ubyte")
        except (OSError, struct.error) as error:
            sys.exit(f"make_mnist: {error}")
        count = write_lmdb(args.out / f"mnist_{name}_lmdb", (datum(i[None], y) for i, y in zip(images, labels)))
        print(f"{args.out / f'mnist_{name}_lmdb'}: {count} images")


if __name__ == "__main__":
    main()
