"""Random numbers by key: they depend only on the key, never on earlier draws.

    generator(seed, "conv1", 0)           a numpy Generator, for instance for a parameter
    words(first, count, seed, "data")     four 64-bit words for each of the samples first, first + 1, ...

So a resumed run draws the same numbers as an uninterrupted one, and a new layer changes no other layer's values.
The bits come from Philox4x64-10 (Salmon et al. 2011), keyed by a hash of the parts.
"""

from __future__ import annotations

import hashlib

import numpy as np

WORDS = 4  # per step of Philox's counter


def key_of(*parts: int | str) -> int:
    """Return a 128-bit hash of the parts; ("a", 1) and ("a1",) have different hashes."""
    text = "".join(f"{type(part).__name__}{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest(), "little")


def generator(*parts: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key_of(*parts)))


def words(first: int, count: int, *parts: int | str) -> np.ndarray:
    """Return uint64 [count, 4]; row i belongs to sample `first + i`, independent of how samples are split into
    calls."""
    bits = np.random.Philox(key=key_of(*parts), counter=first)
    return bits.random_raw(count * WORDS).reshape(count, WORDS)


def below(bits: np.ndarray, limit: int) -> np.ndarray:
    """Integers in [0, limit) from uint64 words, for limits below 2^32: the high half of a product, without a modulo."""
    return ((bits >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)
