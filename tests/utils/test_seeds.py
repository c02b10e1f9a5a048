import numpy as np
import pytest

from layermem.utils.seeds import below, generator, key_of, words


def test_the_same_name_draws_the_same_numbers():
    assert np.array_equal(generator(1, "conv1", 0).random(9), generator(1, "conv1", 0).random(9))


@pytest.mark.parametrize("other", [(2, "conv1", 0), (1, "conv2", 0), (1, "conv1", 1), (1, "conv1", "0"), (1, "conv1")])
def test_another_name_draws_others(other):
    assert key_of(1, "conv1", 0) != key_of(*other)


def test_parts_do_not_run_together():
    assert key_of("a", "bc") != key_of("ab", "c")


def test_words_belong_to_the_sample_and_not_to_the_call():
    whole = words(3, 10, 7, "data")
    parts = [words(3, 4, 7, "data"), words(7, 1, 7, "data"), words(8, 5, 7, "data")]
    assert np.array_equal(whole, np.concatenate(parts))


def test_integers_below_a_limit_reach_every_value_evenly():
    drawn = below(words(0, 4000, 5, "die")[:, 0], 6)
    counts = np.bincount(drawn, minlength=6)
    assert drawn.min() == 0 and drawn.max() == 5 and counts.min() > 550 and counts.max() < 790
