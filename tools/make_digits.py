"""Make prototxt/digits/digits_{train,test}_lmdb from the handwritten digits of scikit-learn.

    python tools/make_digits.py                  into prototxt/digits/
    python tools/make_digits.py --out FOLDER

1,797 real images of 8x8 pixels with 17 grey levels (0 to 16), stored unchanged, one Datum each.  Every fifth image,
starting with the first, is a test image: 360 to test, 1,437 to train.  The training images are shuffled once,
because the set is sorted by writer.
origin   E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998 (its
         test part), licence CC BY 4.0; https://archive.ics.uci.edu/dataset/80
needs    scikit-learn (pip install 'layermem[digits]'); training on the result does not
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from lmdb_writer import datum, write_lmdb

HERE = Path(__file__).resolve().parent.parent / "prototxt" / "digits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    out = parser.parse_args().out

    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.images.astype("uint8"), digits.target
    test = list(range(0, len(labels), 5))
    train = [index for index in range(len(labels)) if index % 5]
    random.Random(1).shuffle(train)
    for name, chosen in (("train", train), ("test", test)):
        folder = out / f"digits_{name}_lmdb"
        write_lmdb(folder, (datum(images[index][None], labels[index]) for index in chosen))
        print(f"{folder}: {len(chosen)} images")


if __name__ == "__main__":
    main()
