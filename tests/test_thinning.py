"""One in k cases of an exhaustive test runs under `--thin`, with every value of every parameter among them."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

from tests.thinning import axes, representatives

SIZES = [(1,), (7,), (2, 2), (2, 3, 5), (14, 2), (2, 2, 2, 2), (40, 6, 2)]
RATES = [1, 2, 3, 4, 6, 10, 100]


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("one_in", RATES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_value_occurs_and_about_one_in_k_cases_runs(sizes, one_in):
    cases = list(product(*map(range, sizes)))
    chosen = representatives(cases, one_in)
    for axis, size in enumerate(sizes):
        assert {cases[place][axis] for place in chosen} == set(range(size))
    assert chosen == sorted(set(chosen))
    assert len(cases) / one_in / 2 <= len(chosen) <= len(cases) / one_in + sum(sizes)


def test_a_value_beside_the_diagonals_comes_with_the_case_that_adds_most():
    assert representatives([(0, 0), (0, 1), (1, 0), (1, 1)], 4) == [0, 3]
    assert representatives([(0, 1), (2, 0), (3, 0), (3, 2), (0, 2)], 100) == [0, 1, 3]


def test_values_have_indices_by_axis_and_parameters_that_change_together_are_one_axis():
    cases = [{"a": a, "b": [a], "c": c} for a, c in product("xyz", (None, True))]
    assert axes(cases) == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 3, 1), (2, 4, 0), (2, 5, 1)]  # each list is another one
    cases = [{"a": a, "b": b, "c": c} for (a, b), c in product([("x", [1]), ("y", [1])], (1, 1.0, True))]
    assert axes(cases) == list(product(range(2), range(3)))


@pytest.mark.samples(4)
@pytest.mark.parametrize("one_in", [2, 3, 5])
def test_a_rate_beyond_all_sums_leaves_the_values(one_in):
    assert representatives([(0, 0), (1, 1), (2, 2)], 4 + one_in) == [0, 1, 2]


@pytest.mark.parametrize("one_in", [1, 2])
@pytest.mark.parametrize("size", range(4))
def test_a_matrix_without_a_mark_is_thinned_out_too(size, one_in):
    assert representatives([(0,)] * size, one_in) == list(range(size))


@pytest.mark.whole
def test_what_takes_long_runs_with_all_cases_alone(request):
    assert not request.config.getoption("thin")


def test_pytest_leaves_out_cases_that_marks_or_a_matrix_say():
    """Runs pytest on the tests of this file."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "--thin", __file__]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    matrix = list(product(range(len(SIZES)), range(len(RATES))))
    chosen = [matrix[place] for place in representatives(matrix, 6)]
    assert len(chosen) < len(matrix) / 2
    first, *others, sampled, unmarked, long, last = [name for name in globals() if name.startswith("test_")]
    expected = [f"{first}[{SIZES[i]}-{RATES[k]}]" for i, k in chosen]
    expected += [*others, f"{sampled}[2]"]
    expected += [f"{unmarked}[{i}-{k + 1}]" for i, k in product(range(4), range(2)) if (i + k) % 2 == 0]
    assert long not in ended.stdout
    expected.append(last)
    assert [line.rpartition("::")[2] for line in ended.stdout.splitlines() if "::" in line] == expected
