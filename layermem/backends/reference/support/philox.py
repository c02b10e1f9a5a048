"""Philox4x32-10: four random words from a counter and a key, without state between calls.

source  Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ROUNDS = 10
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85  # added to the key after each round
WORD = 0xFFFFFFFF
LOW, HALF = np.uint64(WORD), np.uint64(32)


def philox4x32(counter: Sequence[npt.ArrayLike], key: tuple[int, int]) -> list[npt.NDArray[np.uint32]]:
    """The four words for each counter: `counter` is four arrays (or numbers) of 32-bit words, broadcast together."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    for r in range(ROUNDS):
        k0, k1 = (np.uint64((part + r * step) & WORD) for part, step in zip(key, WEYL, strict=True))
        left, right = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (right >> HALF) ^ c1 ^ k0, right & LOW, (left >> HALF) ^ c3 ^ k1, left & LOW
    return [np.asarray(word, np.uint32) for word in (c0, c1, c2, c3)]


def words(count: int, seed: int, stream: int, step: int, first: int = 0) -> npt.NDArray[np.uint32]:
    """uint32 [count]: word e for element e of one layer (`stream`) in one step, from element `first` on."""
    blocks = np.arange(first // 4, -(-(first + count) // 4), dtype=np.uint64)
    counter = (blocks, 0, step & WORD, (step >> 32) & WORD)
    return np.stack(philox4x32(counter, (seed & WORD, stream & WORD)), axis=-1).reshape(-1)[first % 4 :][:count]
