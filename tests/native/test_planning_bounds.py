"""The native bounds of a step, fed by hand; tests/planning/test_bounds.py has graphs and optima."""

from math import inf

import pytest

from layermem._native import StepBounds


def op(seconds, reads, writes):
    return (seconds, 0, reads, [], writes, [])


def diamond():
    """a -> b, c, and from them e, of no bytes; then d takes 40 bytes, and after it b and c are read again."""
    step = StepBounds(1e9, 1e9)
    a, b, c, d, e, f = (step.add_buffer(nbytes, False) for nbytes in (10, 10, 10, 40, 0, 0))
    step.add_op(op(1.0, [], [a]))
    for value, seconds in ((b, 3.0), (c, 5.0)):
        step.add_op(op(seconds, [a], [value]), op(seconds, [a], [value]))
    for reads, writes in (([a, b, c], [e]), ([e], [d]), ([d], [f]), ([b, c, f], [])):
        step.add_op(op(1.0, reads, writes))
    return step


def test_what_two_values_follow_from_is_held_once():
    """Beside d: b and c in 20 bytes, or one of them and a in as many, or a alone in 10, and both are recomputed."""
    step = diamond()
    once = 13.0
    assert step.least_seconds([70, 60, 50, 49], 0) == pytest.approx([once, once, once + 8.0, inf])
    assert step.least_seconds([55], 0) == pytest.approx([once + 4.0])  # halfway, by relaxation
    assert (step.least_bytes(0), step.least_bytes(5), step.least_bytes()) == (50, 45, 40)


def test_an_unknown_buffer_is_refused():
    step = diamond()
    with pytest.raises(IndexError, match="no buffer 9"):
        step.add_op(op(1.0, [9], []))
    with pytest.raises(IndexError, match="no buffer -1"):
        step.add_op(op(1.0, [], []), op(1.0, [], [-1]))


def test_a_step_without_ops_takes_nothing():
    step = StepBounds(1.0, 1.0)
    assert (step.least_bytes(0), step.least_seconds([0], 0)) == (0, [0.0])
