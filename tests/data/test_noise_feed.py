"""Noise: its ranges, its boxes, and that a position alone decides it."""

import numpy as np

from layermem.data.noise_feed import NoiseFeed


def test_true_boxes_are_boxes_of_every_item_with_labels_that_the_loss_knows():
    feed = NoiseFeed(((4, 3, 2, 2), (1, 1, 12, 8)), [None, None], 0, ("a",), [None, (1, 2)])
    rows = feed.next()[1][0, 0]
    assert rows[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3] and {*rows[:, 1]} == {1, 2}
    assert (rows[:, 3:5] >= 0).all() and (rows[:, 5:7] - rows[:, 3:5] >= 0.1 - 1e-6).all() and (rows[:, 5:7] <= 1).all()


def test_noise_has_its_ranges_and_depends_on_its_key_and_position_alone():
    def feed(noise=0, key=("a",)):
        return NoiseFeed(((50, 3), (1000,), (1000,)), [None, None, 7], noise, key)

    first, second = feed(), feed()
    x, target, label = first.next()
    assert x.dtype == np.float32 and -1 <= x.min() < -0.8 and 0.8 < x.max() < 1
    assert 0 <= target.min() < 0.1 and 0.9 < target.max() < 1
    assert sorted(set(label.tolist())) == [*range(7)]
    later = first.next()
    second.restore(first.state() | {"batch": 1})
    assert all(np.array_equal(a, b) for a, b in zip(second.next(), later, strict=True))
    for other in (feed(noise=1), feed(key=("b",))):
        assert not np.array_equal(other.next()[0], x)
