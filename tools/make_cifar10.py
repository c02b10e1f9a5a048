"""Make the LMDBs that prototxt/cifar10 and the CIFAR residual nets read from the binary version of CIFAR-10.

    python tools/make_cifar10.py FOLDER              into examples/cifar10/cifar10_{train,test}_lmdb
    python tools/make_cifar10.py FOLDER --pad 4      training images with a border of 4 zeros: ..._train_pad4_lmdb

FOLDER (cifar-10-batches-bin) contains data_batch_1.bin ... data_batch_5.bin and test_batch.bin.  A record is a label
byte, then 32x32 bytes each of red, green and blue.  Datums have blue first, as in Caffe, and the training
images are shuffled once.
source  Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import numpy as np
from lmdb_writer import datum, write_lmdb

RECORD = 1 + 3 * 32 * 32


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [N,3,32,32], blue first, and labels [N]."""
    raw = np.fromfile(path, np.uint8)
    if raw.size == 0 or raw.size % RECORD:
        sys.exit(f"make_cifar10: {path} is not a batch of CIFAR-10: its length is not a multiple of {RECORD}")
    rows = raw.reshape(-1, RECORD)
    return rows[:, 1:].reshape(-1, 3, 32, 32)[:, ::-1], rows[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("examples/cifar10"))
    parser.add_argument("--pad", type=int, default=0, help="border of zeros around each training image")
    args = parser.parse_args()
    parts = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    for name, files in parts.items():
        try:
            batches = [read_batch(args.folder / file) for file in files]
        except OSError as error:
            sys.exit(f"make_cifar10: {error}")
        images, labels = (np.concatenate(part) for part in zip(*batches))
        order = list(range(len(labels)))
        folder = args.out / f"cifar10_{name}_lmdb"
        if name == "train":
            random.Random(1).shuffle(order)
            if args.pad:
                images = np.pad(images, ((0, 0), (0, 0), (args.pad, args.pad), (args.pad, args.pad)))
                folder = args.out / f"cifar10_train_pad{args.pad}_lmdb"
        count = write_lmdb(folder, (datum(images[i], labels[i]) for i in order))
        print(f"{folder}: {count} images")


if __name__ == "__main__":
    main()
