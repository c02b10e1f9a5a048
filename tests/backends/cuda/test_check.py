"""The kernels that check others: naive convolutions beside sums in double precision, drawn numbers, comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.backends.cuda.checks import check
from layermem.backends.narrow import widened
from layermem.ops import NARROW, ConvProblem
from tests.backends.cuda.harness import PLAIN, Way
from tests.backends.cuda.naive import differences, product, product_and_sums, whole_numbers
from tests.cases.fused import FUSED, problem_of
from tests.emulator.emulate import WAYS

PROBLEMS = FUSED["naive products"]
EVERYWHERE = [Way(*way) for way in WAYS]


def check_product(name: str, problem: ConvProblem, word: str, way: Way) -> None:
    got, want = product_and_sums(name, problem, word, way)
    np.testing.assert_array_equal(got, want)
    assert np.unique(want).size >= 4


@pytest.mark.parametrize("word", ["", *NARROW])
@pytest.mark.parametrize("name", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_naive_kernel_has_the_sums_of_the_definition(problem, name, word):
    check_product(name, PROBLEMS[problem], word, PLAIN)


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("word", ["", "bf16"])
@pytest.mark.parametrize("name", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("way", EVERYWHERE, ids=lambda way: f"{way.mode}-{way.order}")
def test_a_naive_kernel_stays_in_bounds_in_any_order_of_threads(way, name, word):
    check_product(name, PROBLEMS["groups, strides, pads and dilations"], word, way)


def test_the_parts_of_a_long_weight_gradient_take_a_workspace():
    assert check.naive_wgrad_workspace_bytes(PROBLEMS["parts of the weight gradient"]) == 3 * 4 * 4
    assert check.naive_wgrad_workspace_bytes(PROBLEMS["an inner product"]) == 0


@pytest.mark.parametrize("way", EVERYWHERE, ids=lambda way: f"{way.mode}-{way.order}")
def test_drawn_numbers_are_whole_and_the_same_in_every_type(way):
    floats = whole_numbers(1027, 5, way)
    assert {*floats} == {-2.0, -1.0, 0.0, 1.0, 2.0} and abs(floats.mean()) < 0.2
    for word, dtype in NARROW.items():
        np.testing.assert_array_equal(widened(whole_numbers(1027, 5, way, word), dtype), floats)
    assert (whole_numbers(1027, 6, way) != floats).mean() > 0.7


@pytest.mark.parametrize("way", EVERYWHERE, ids=lambda way: f"{way.mode}-{way.order}")
@pytest.mark.parametrize("kind", [np.uint32, np.uint16])
@pytest.mark.parametrize("count", [1, 31, 257, 3001])
def test_a_comparison_counts_the_elements_of_other_bits_and_names_the_first(count, kind, way):
    wanted = np.random.default_rng(count).integers(0, 1 << 16, count).astype(kind)
    got = wanted.copy()
    assert differences(got, wanted, way) == (0, -1)
    changed = sorted({count - 1, count // 2, count // 3})
    got[changed] ^= 1
    assert differences(got, wanted, way) == (len(changed), changed[0])


@pytest.mark.parametrize("name, role", [("fprop", "maps"), ("dgrad", "image"), ("wgrad", "filter")])
def test_a_part_of_the_runs_is_computed(name, role):
    """Others keep what was there."""
    problem = PROBLEMS["an inner product"]
    each = {"maps": problem.maps, "image": problem.image, "filter": problem.filter}
    operands = {role: np.full(tensor.shape, 2, np.float32) for role, tensor in each.items()}
    whole, part = (product(name, problem, operands, "", PLAIN, every).reshape(-1) for every in (1, 3))
    runs = np.arange(whole.size) // check.RUN % 3 == 0
    np.testing.assert_array_equal(part, np.where(runs, whole, 2))


@pytest.mark.parametrize("every", [3, 5])
def test_a_part_of_the_runs_is_compared(every):
    """Others are not looked at."""
    wanted = np.zeros(1000, np.uint32)
    got = np.ones(1000, np.uint32)
    runs = np.arange(1000) // check.RUN % every == 0
    assert differences(got, wanted, PLAIN, every) == (runs.sum(), 0)
    got[runs] = 0
    assert differences(got, wanted, PLAIN, every) == (0, -1)


def test_a_comparison_takes_more_elements_than_it_has_threads():
    count = 2 * check.MAX_BLOCKS * 256 + 5
    wanted = np.zeros(count, np.uint16)
    got = wanted.copy()
    got[[count - 1, 70_000]] = 7
    assert differences(got, wanted, PLAIN) == (2, 70_000)


def test_the_part_that_is_computed_meets_all_columns_and_keeps_to_its_work():
    problem = problem_of(64, 64, 96, 56)
    every = check.every_of(problem, 96, problem.macs // 6)
    assert every == 7 and check.every_of(problem, 96, problem.macs) == 1
    first = np.arange(0, 1 << 20, check.RUN * every)
    assert {*(first % 96)} == {0, 32, 64}
