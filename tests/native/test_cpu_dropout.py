"""Dropout of the cpu device: the counter-based generator, and which elements it drops."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.native.numbers import at, normal


def philox(counter, key):
    """Philox4x32-10 in Python's integers."""
    c, k, word = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & word, (a >> 32) ^ c[3] ^ k[1], a & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def test_philox_gives_the_published_words():
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("count", [1, 63, 130, 20001])
def test_dropout_drops_where_its_random_word_is_below_the_ratio(count, isa, every_way):
    x, ratio, seed, stream, step = normal(1, count), 0.3, (5 << 32) + 77, 0xDEADBEEF, (3 << 32) + 9
    words = [w for e in range(-(-count // 4)) for w in philox((e, 0, 9, 3), (77, stream))][:count]
    kept = np.array(words) >= int(ratio * 2**32)

    def make(memory):
        X, y, own, added = memory.put(x), memory.empty(count), memory.put(x), memory.put(x)
        launch("dropout", count, out=at(y), x=at(X), ratio=ratio, seed=seed, stream=stream)(step)
        launch("dropout", count, out=at(own), x=at(own), ratio=ratio, seed=seed, stream=stream)(step)
        launch("dropout", count, out=at(added), x=at(X), ratio=ratio, seed=seed, stream=stream, accumulate=True)(step)
        return y, own, added

    y, own, added = every_way(make)
    assert (y == np.where(kept, x * np.float32(1 / 0.7), 0)).all()
    assert (own == y).all() and (added == x + y).all()
