"""Philox4x32-10: the generator against published vectors, and which word an element takes."""

import numpy as np
import pytest

from layermem.backends.reference.support.philox import philox4x32, words

# Random123, tests/kat_vectors, the lines "philox4x32 10": counter, key, result
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def hexadecimal(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("counter, key, result", KNOWN_ANSWERS)
def test_philox_gives_the_known_answers_of_random123(counter, key, result):
    first, second = hexadecimal(key)
    assert [int(word) for word in philox4x32(hexadecimal(counter), (first, second))] == hexadecimal(result)


def test_philox_takes_many_counters_at_once():
    counters = np.array([hexadecimal(counter) for counter, *_ in KNOWN_ANSWERS]).T
    together = np.stack(philox4x32(list(counters), (7, 9)), axis=1)
    alone = [philox4x32(column, (7, 9)) for column in counters.T]
    np.testing.assert_array_equal(together, alone)


def test_element_e_takes_word_e_mod_4_of_block_e_div_4_of_its_step():
    step = (5 << 32) + 11
    drawn = words(10, -1, 77, step)  # a negative seed is taken mod 2^32
    for e in range(10):
        assert drawn[e] == philox4x32((e // 4, 0, 11, 5), (0xFFFFFFFF, 77))[e % 4]
