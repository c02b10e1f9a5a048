"""Repeated stages of a net."""

import pytest

from layermem.report.folding import MAX_INPUTS, Fold, find_folds


def chain(kinds: str) -> list[list[int]]:
    return [[i - 1] if i else [] for i in range(len(kinds))]


@pytest.mark.parametrize(
    ("kinds", "folds"),
    [
        ("sabcabcabcl", [Fold(1, 3, 3)]),
        ("saaaal", [Fold(1, 1, 4)]),
        ("sababxababl", [Fold(1, 2, 2), Fold(6, 2, 2)]),
        ("sabcdef", []),
        ("", []),
        ("a", []),
        ("sabcabcab", [Fold(1, 3, 2)]),  # the rest is less than one repetition
    ],
)
def test_a_fold_is_the_longest_repetition(kinds, folds):
    assert find_folds(kinds, chain(kinds)) == folds


def test_equal_kinds_with_other_wiring_are_not_folded():
    inputs = chain("sababab")
    inputs[5].append(0)  # the third `a` reads the stem too
    assert find_folds("sababab", inputs) == [Fold(1, 2, 2)]


def test_repetitions_may_read_one_box_that_is_before_all_of_them():
    inputs = [[] if i == 0 else sorted({0, i - 1}) for i in range(7)]
    assert find_folds("sababab", inputs) == [Fold(2, 2, 2)]  # the first `a` has one input


def test_a_box_with_very_many_inputs_is_in_no_fold():
    inputs = [[], *([0] * (MAX_INPUTS + 1) for _ in range(4))]
    assert find_folds("saaaa", inputs) == []
