"""Every seeded bug is detected by its mode, and its correct counterpart passes in every mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.build import MODES, build_many
from tests.emulator.emulate import WAYS, EmulationError, load, pack
from tests.numbers import numbers_for

SEEDED_BUGS = "tests/emulator/seeded_bugs"


@dataclass(frozen=True)
class Pair:
    """The launch of a pair, the right result, and the modes that detect the wrong kernel, each with words of its
    report.

    If the words are None, the launch succeeds with wrong numbers.
    """

    want: Callable[[np.ndarray], np.ndarray]
    caught: dict[str, str | None]
    grid: int = 1
    block: int = 64
    elements: int = 64  # elements of x
    shared: int = 0
    n: int | None = None  # the struct's n; the number of elements unless given
    bound: float = 0.0  # largest relative error that passes


def reversed_by_64(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 64)[:, ::-1].reshape(-1)


def neighbours_swapped(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 2)[:, ::-1].reshape(-1)


def pair_sums(x: np.ndarray) -> np.ndarray:
    return x + neighbours_swapped(x)


def same(x: np.ndarray) -> np.ndarray:
    return x


def total(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    return np.add.accumulate(x.reshape(-1, 64)[:, order])[-1]


TRIANGLE = np.triu(np.ones((8, 8), np.float32))
MASK = 0x5A0F3C99
IN_FLIGHT = r"race: read at .*\.cu:\d+.* while the asynchronous copy issued at .*\.cu:\d+ is in flight"
LEFT = r"thread .* has left the kernel without waiting for its asynchronous copies"

CASES = {
    "missing_barrier": Pair(reversed_by_64, {"race": r"race: .*missing_barrier\.cu:\d+"}, grid=3, elements=192),
    "missing_barrier_in_ring": Pair(
        lambda x: total(x, np.arange(64) ^ 32),
        {"race": r"race: .* at missing_barrier_in_ring\.cu:(10 .* and .*:19|19 .* and .*:10) "},
        elements=512,
    ),
    "missing_warp_barrier": Pair(
        neighbours_swapped, {"race": r"race: .*missing_warp_barrier\.cu:(8 .* and .*:10|10 .* and .*:8) "}
    ),
    "warp_barrier_for_block": Pair(
        lambda x: np.repeat((x + np.roll(x, 32)).reshape(8, 8).sum(axis=1), 8),
        {"race": r"race: .*warp_barrier_for_block\.cu:(9 .* and .*:16|16 .* and .*:9) "},
        bound=1e-6,
    ),
    "shuffle_is_no_barrier": Pair(neighbours_swapped, {"race": r"race: .*shuffle_is_no_barrier\.cu:8"}),
    "overrun_static_shared": Pair(same, {"asan": r"global-buffer-overflow(.|\n)*overrun_static_shared\.cu:4"}),
    "index_beyond_row": Pair(same, {"asan": r"undefined: (.|\n)*#0 .*/index_beyond_row\.cu:8\n"}),
    "overrun_dynamic_shared": Pair(
        same, {"asan": r"heap-buffer-overflow(.|\n)*overrun_dynamic_shared\.cu:8"}, shared=256
    ),
    "overrun_global": Pair(
        lambda x: 2 * x, {"asan": r"heap-buffer-overflow(.|\n)*overrun_global\.cu:7"}, grid=2, elements=100
    ),
    "copy_beyond_global": Pair(same, {"asan": r"heap-buffer-overflow(.|\n)*copy_beyond_global\.cu:8"}, elements=100),
    "missing_wait": Pair(reversed_by_64, {"race": IN_FLIGHT, "plain": None}, grid=2, elements=128),
    "missing_commit": Pair(reversed_by_64, {"race": IN_FLIGHT, "plain": None}, grid=2, elements=128),
    "wait_before_barrier": Pair(reversed_by_64, {"race": IN_FLIGHT, "plain": None}, grid=2, elements=128),
    "left_with_copies": Pair(neighbours_swapped, dict.fromkeys(MODES, LEFT)),
    "left_with_arrivals": Pair(neighbours_swapped, dict.fromkeys(MODES, LEFT), block=128),
    "wrong_wait_count": Pair(lambda x: total(x, np.arange(64)[::-1]), {"race": IN_FLIGHT, "plain": None}, elements=512),
    "wrong_fragment": Pair(
        lambda x: (x.reshape(16, 8) @ TRIANGLE).reshape(-1), {"plain": None}, block=32, elements=128, bound=5e-4
    ),
    "unrounded_tf32": Pair(
        lambda x: (x.reshape(16, 8) @ x[:64].reshape(8, 8).T).reshape(-1),
        {"plain": None},
        block=32,
        elements=128,
        bound=5e-4,
    ),
    "divergent_barrier": Pair(reversed_by_64, dict.fromkeys(MODES, r"divergent: .*:10, .*:12|divergent: .*:12, .*:10")),
    "left_before_barrier": Pair(
        lambda x: x[::-1], dict.fromkeys(MODES, r"divergent: .*left_before_barrier\.cu:10"), elements=50
    ),
    "divergent_shuffle": Pair(pair_sums, dict.fromkeys(MODES, r"divergent: .*divergent_shuffle\.cu:9")),
    "shuffle_beyond_warp": Pair(
        pair_sums,
        dict.fromkeys(
            ("plain", "asan", "race"), r"shuffle_beyond_warp\.cu:8: .* lane (1[6-9]|2\d|3[01]), which its warp"
        ),
        block=48,
        elements=48,
    ),
    "blocks_share_a_sum": Pair(
        lambda x: x.reshape(-1, 64).sum(axis=1),
        {"race": r"race: .*blocks_share_a_sum\.cu:14 by thread 0 of block \d"},
        grid=3,
        elements=192,
        bound=1e-6,
    ),
    "uninitialised_shared": Pair(
        lambda x: np.concatenate([[0], x[:-1]]),
        {"race": r"uninitialised: read at uninitialised_shared\.cu:11", "plain": None},
    ),
    "shift_out_of_range": Pair(
        lambda x: np.array([MASK >> t & 1 for t in range(64)]),
        {"asan": r"undefined: (.|\n)*#0 .*/shift_out_of_range\.cu:8\n"},
        n=MASK,
    ),
    "offset_overflow": Pair(same, {"asan": r"undefined: (.|\n)*#0 .*/offset_overflow\.cu:7\n"}),
    "misaligned_vector": Pair(
        lambda x: x[1:], {"asan": r"undefined: (.|\n)*#0 .*/misaligned_vector\.cu:9\n"}, block=16, elements=65
    ),
    "misaligned_copy": Pair(
        lambda x: x[1:],
        dict.fromkeys(MODES, r"the source of thread .* is not aligned to 16 bytes"),
        block=16,
        elements=65,
    ),
    "misaligned_zeros": Pair(
        lambda x: np.append(x[4:], np.zeros(4, np.float32)),
        dict.fromkeys(MODES, r"the source of thread .* is not aligned to 16 bytes"),
        block=16,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _built_on_all_cores():
    build_many((f"{SEEDED_BUGS}/{case}.cu", mode) for case in CASES for mode in MODES)


def run(case: str, kernel: str, mode: str, order: str, copies: str) -> tuple[np.ndarray, np.ndarray]:
    """The result of a kernel and the expected result."""
    pair = CASES[case]
    x = numbers_for(case).standard_normal(pair.elements, dtype=np.float32)
    want = pair.want(x)
    y = np.zeros(want.size, np.float32) if case == "blocks_share_a_sum" else np.full(want.size, np.nan, np.float32)
    args = pack("PPi", y, x, x.size if pair.n is None else pair.n)
    kernels = load(f"{SEEDED_BUGS}/{case}.cu", mode, order=order, copies=copies)
    kernels.launch(kernel, pair.grid, pair.block, args, pair.shared)
    return y, want


def is_right(y: np.ndarray, want: np.ndarray, bound: float) -> bool:
    return bool(np.linalg.norm(y - want) <= bound * np.linalg.norm(want))  # never where there is a NaN


@pytest.mark.exhaustive(16)
@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("case", CASES)
def test_the_correct_kernel_passes_in_every_way(case, way):
    assert is_right(*run(case, "right", *way), CASES[case].bound)


@pytest.mark.parametrize("case, mode", [(case, mode) for case in CASES for mode in CASES[case].caught])
def test_the_seeded_bug_is_caught(case, mode):
    words = CASES[case].caught[mode]
    if words is None:
        assert not is_right(*run(case, "wrong", mode, "shuffled", "late"), CASES[case].bound)
    else:
        with pytest.raises(EmulationError, match=words):
            run(case, "wrong", mode, "shuffled", "late")


def test_a_race_that_gives_the_right_sum_is_still_a_race():
    assert "plain" not in CASES["blocks_share_a_sum"].caught
    y, want = run("blocks_share_a_sum", "wrong", "plain", "shuffled", "late")
    assert np.isclose(y[0], want.sum(), rtol=1e-4, atol=1e-4) and not y[1:].any()
