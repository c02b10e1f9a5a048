"""Make the HDF5 files that prototxt/lstm_lm reads from two texts, such as those of the Penn Treebank.

    python tools/make_words.py TRAIN TEST             into examples/lstm_lm/{train,test}.h5, with the lists of files
    python tools/make_words.py TRAIN TEST --out examples/lstm_lm --words 10000 --streams 20

A text is words between blanks, and `<eos>` at the end of each line.  The vocabulary, words.txt, has the most frequent
words of TRAIN, as many as the net takes; any other word is `<unk>`.  A text is cut into parallel streams of equal
length: word [T, streams], the following word, next [T, streams], and cont [T, streams], 0 in the first row and then 1.
source  text form of Mikolov's Penn Treebank (ptb.train.txt, ptb.test.txt)
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

END, UNKNOWN = "<eos>", "<unk>"


def read_words(path: Path) -> list[str]:
    """The words of a text, with END after each line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"make_words: {path} cannot be read as text: {error}")
    return [word for line in lines for word in (*line.split(), END)]


def vocabulary(words: list[str], size: int) -> dict[str, int]:
    """The most frequent words with their numbers; equally frequent ones in order of first occurrence."""
    counts = Counter(words)
    counts.pop(UNKNOWN, None)
    return {word: i for i, word in enumerate((UNKNOWN, *(word for word, _ in counts.most_common(size - 1))))}


def write(path: Path, words: list[str], numbers: dict[str, int], streams: int) -> int:
    """Write one file and its list; return the number of rows."""
    indices = np.array([numbers.get(word, 0) for word in words], np.float32)
    rows = (len(indices) - 1) // streams
    if rows < 1:
        sys.exit(f"make_words: a text of {len(indices)} words is too short for {streams} streams")
    cont = np.ones((rows, streams), np.float32)
    cont[0] = 0
    with h5py.File(path, "w") as file:
        for name, first in (("word", 0), ("next", 1)):
            file[name] = indices[first : first + rows * streams].reshape(streams, rows).T
        file["cont"] = cont
    path.with_suffix(".txt").write_text(f"{path}\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--out", type=Path, default=Path("examples/lstm_lm"), help="folder of the files")
    parser.add_argument("--words", type=int, default=10000, help="of the vocabulary, <unk> and <eos> included")
    parser.add_argument("--streams", type=int, default=20, help="parts of a text that are read side by side")
    args = parser.parse_args()
    texts = {"train": read_words(args.train), "test": read_words(args.test)}
    numbers = vocabulary(texts["train"], args.words)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "words.txt").write_text("".join(f"{word}\n" for word in numbers), encoding="utf-8")
    for name, words in texts.items():
        path = args.out / f"{name}.h5"
        print(f"{path}: {write(path, words, numbers, args.streams):,} rows, {len(numbers):,} words")


if __name__ == "__main__":
    main()
