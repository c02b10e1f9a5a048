"""Each primitive has the effect of its definition on the host, in every mode and for both generations of GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.build import MODES
from tests.emulator.emulate import COPIES, EmulationError, Kernels, load, pack

SOURCE = "tests/emulator/kernels/primitives.cu"


@pytest.fixture(params=MODES)
def kernels(request) -> Kernels:
    return load(SOURCE, request.param)


@pytest.fixture(params=["sm_90", "sm_75"])
def both_generations(request) -> Kernels:
    """Kernels with mma and asynchronous copies, and with their replacements for a GPU that has neither."""
    return load(SOURCE, "plain", defines=() if request.param == "sm_90" else ("LM_EMULATE_ARCH=750",))


def words(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 2**32, shape, dtype=np.uint32)


@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_lanes_exchange_values_and_votes(kernels, rng, threads):
    x, y = words(rng, threads), np.zeros((5, threads), np.uint32)
    kernels.launch("exchange", 1, threads, pack("PPi", y, x, 1))
    warps, lane = x.reshape(-1, 32), np.arange(32)
    assert np.array_equal(y[0].reshape(-1, 32), warps[:, (7 * lane + 3) % 32])
    assert np.array_equal(y[1].reshape(-1, 32), warps[:, lane ^ 5])
    assert np.array_equal(y[2].reshape(-1, 32), warps[:, np.where(lane + 9 < 32, lane + 9, lane)])
    votes = (warps % 2 << lane.astype(np.uint32)).sum(axis=1, dtype=np.uint32)
    assert np.array_equal(y[3].reshape(-1, 32), np.repeat(votes[:, None], 32, axis=1))


@pytest.mark.parametrize("present", [False, True])
def test_a_block_learns_whether_any_thread_brought_true(kernels, present):
    x, y = np.zeros(96, np.uint32), np.zeros((5, 96), np.uint32)
    x[70] = 12 if present else 0
    kernels.launch("exchange", 1, 96, pack("PPi", y, x, 12))
    assert (y[4] == present).all()


def test_matrices_arrive_in_the_lanes_that_the_instruction_set_names(kernels, rng):
    x, y = words(rng, 32, 4), np.zeros((32, 12), np.uint32)
    kernels.launch("matrices", 1, 32, pack("PPi", y, x, 0))
    halves = x.view(np.uint16).reshape(4, 8, 8)  # matrix, row, element
    for lane in range(32):
        g, t = divmod(lane, 4)
        plain = [int(m[g, 2 * t]) | int(m[g, 2 * t + 1]) << 16 for m in halves]
        transposed = [int(m[2 * t, g]) | int(m[2 * t + 1, g]) << 16 for m in halves]
        assert y[lane].tolist() == plain + transposed + plain[:2] + transposed[:2]


def fragments(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The registers that hold a [16,8] and b [8,8] (elements or pairs of them), by the tables of the PTX manual."""
    a_registers, b_registers = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    for lane in range(32):
        g, t = divmod(lane, 4)
        a_registers[lane] = a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4]
        b_registers[lane] = b[t, g], b[t + 4, g]
    return a_registers, b_registers


def accumulators(d: np.ndarray) -> np.ndarray:
    rows = [divmod(lane, 4) for lane in range(32)]
    return np.array([[d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1]] for g, t in rows], np.float32)


def test_a_tf32_product_ignores_the_low_13_bits_of_its_operands(both_generations, rng):
    a, b, d = (rng.standard_normal(shape, dtype=np.float32) for shape in ((16, 8), (8, 8), (16, 8)))
    cut = np.uint32(0xFFFFE000)
    a_cut, b_cut = ((m.view(np.uint32) & cut).view(np.float32).astype(np.float64) for m in (a, b))
    got = accumulators(d)
    both_generations.launch("product_tf32", 1, 32, pack("PPP", got, *fragments(a.view(np.uint32), b.view(np.uint32))))
    assert np.allclose(got, accumulators(d + a_cut @ b_cut), rtol=0, atol=4e-6)


def test_a_bf16_product_takes_neighbours_along_k_from_one_register(both_generations, rng):
    a, b, d = (rng.standard_normal(shape, dtype=np.float32) for shape in ((16, 16), (16, 8), (16, 8)))
    a_bits, b_bits = (m.view(np.uint32) >> 16 for m in (a, b))
    a_pairs, b_pairs = a_bits[:, ::2] | a_bits[:, 1::2] << 16, b_bits[::2] | b_bits[1::2] << 16
    a_cut, b_cut = ((bits << 16).view(np.float32).astype(np.float64) for bits in (a_bits, b_bits))
    got = accumulators(d)
    both_generations.launch("product_bf16", 1, 32, pack("PPP", got, *fragments(a_pairs, b_pairs)))
    assert np.allclose(got, accumulators(d + a_cut @ b_cut), rtol=0, atol=8e-6)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.4e38, -3.4e38, 1e-45, 1.00390625, 1.01171875, 1.0039063]


def nearest_bfloat16(x: np.float32) -> int:
    """The 16 bits of the nearest value, found by comparing both neighbours in float64."""
    if np.isnan(x):
        return 0x7FFF
    below = int(np.float32(x).view(np.uint32)) >> 16  # towards zero; infinity is the neighbour of the largest number
    values = [
        2.0**128 if np.isinf(v) else float(v) for v in map(bfloat16_value, (below & 0x7FFF, (below & 0x7FFF) + 1))
    ]
    distance = [abs(abs(float(x)) - value) for value in values]
    up = not np.isinf(x) and (distance[1] < distance[0] or (distance[1] == distance[0] and below % 2 == 1))
    return below + up


def bfloat16_value(bits: int) -> float:
    return float(np.array([bits << 16], np.uint32).view(np.float32)[0])


def test_bf16_rounds_to_nearest_with_ties_to_even(kernels, rng):
    x = np.concatenate([np.array(SPECIAL, np.float32), words(rng, 500).view(np.float32)])
    y = np.zeros((4, x.size), np.uint32)
    kernels.launch("formats", 3, 256, pack("PPi", y, x, x.size))
    assert y[1].tolist() == [nearest_bfloat16(value) for value in x]
    assert np.array_equal(y[2], y[1] | np.roll(y[1], -1) << 16)
    rounded = (y[1] << 16).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = rounded + np.roll(rounded, -1)
    assert np.array_equal(y[3].view(np.float32), sums, equal_nan=True)


def test_tf32_operands_are_rounded_to_nearest(kernels, rng):
    x = rng.standard_normal(300, dtype=np.float32)
    y = np.zeros((4, x.size), np.uint32)
    kernels.launch("formats", 2, 256, pack("PPi", y, x, x.size))
    kept = (y[0] & 0xFFFFE000).view(np.float32).astype(np.float64)
    ulp = 2.0 ** (np.floor(np.log2(np.abs(x.astype(np.float64)))) - 10)
    assert (np.abs(kept - x) <= ulp / 2).all()


NANS = [0x7FC00000, 0x7FFFFFFF, 0x7F800001, 0x7F801000, 0xFFC00000, 0xFF800001, 0xFFFFFFFF, 0xFFFFA5FF, 0xFFFFF000]


def rounded(kernels: Kernels, bits: list[int]) -> np.ndarray:
    """The first three formats of kernels/primitives.cu, of numbers given by their bits."""
    x, y = np.array(bits, np.uint32).view(np.float32), np.zeros((4, len(bits)), np.uint32)
    kernels.launch("formats", 1, 256, pack("PPi", y, x, x.size))
    return y[:3]


@pytest.mark.parametrize("architecture", [750, 800, 900])
def test_every_nan_survives_rounding_to_every_precision(architecture):
    tf32, bf16, _ = rounded(load(SOURCE, "plain", defines=(f"LM_EMULATE_ARCH={architecture}",)), NANS)
    assert np.isnan((tf32 & 0xFFFFE000).view(np.float32)).all() and np.isnan((bf16 << 16).view(np.float32)).all()


@pytest.mark.parametrize("architecture, ties", [(750, 0x3F806000), (800, 0x3F806000), (900, 0x3F804000)])
def test_ties_of_tf32_go_to_even_from_sm_90_on_and_away_from_zero_before(architecture, ties):
    kernels = load(SOURCE, "plain", defines=(f"LM_EMULATE_ARCH={architecture}",))
    bits = [0x3F805000, 0x3F804FFF, 0x3F805001, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x80000000]
    expected = [ties, 0x3F804000, 0x3F806000, 0x7F800000, 0xFF800000, 0x7F800000, 0x80000000]
    assert (rounded(kernels, bits)[0] & 0xFFFFE000).tolist() == expected


# counter, key and words of Random123's known answers for philox4x32-10
KNOWN_RANDOM = [
    ([0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_random_words_are_the_published_ones(kernels):
    x = np.array([numbers for numbers, _ in KNOWN_RANDOM], np.uint32)
    y = np.zeros((3, 4), np.uint32)
    kernels.launch("random_words", 1, 32, pack("PPi", y, x, 3))
    assert y.tolist() == [answer for _, answer in KNOWN_RANDOM]


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inside", [0, 100, 256])
def test_an_asynchronous_copy_brings_zeros_from_outside(mode, rng, copies, inside):
    x, y = words(rng, 256), np.zeros((3, 256), np.uint32)
    load(SOURCE, mode, copies=copies).launch("copies", 1, 64, pack("PPi", y, x, inside))
    assert np.array_equal(y, np.tile(np.where(np.arange(256) < inside, x, 0), (3, 1)))


def test_a_gpu_without_asynchronous_copies_copies_all_the_same(both_generations, rng):
    x, y = words(rng, 256), np.zeros((3, 256), np.uint32)
    both_generations.launch("copies", 1, 64, pack("PPi", y, x, 100))
    assert np.array_equal(y, np.tile(np.where(np.arange(256) < 100, x, 0), (3, 1)))


@pytest.mark.parametrize(
    "name, grid, block, args, shared, words_of_error",
    [
        ("no_such_kernel", 1, 32, pack("PPi", None, None, 0), 0, "no kernel 'no_such_kernel'"),
        ("exchange", 1, 32, pack("PP", None, None), 0, "takes a struct of 24 bytes, the launch brings 16"),
        ("product_tf32", 1, 64, pack("PPP", None, None, None), 0, "takes 1 to 32 threads a block"),
        ("exchange", 0, 32, pack("PPi", None, None, 0), 0, "is empty or too large"),
        ("exchange", 1, 32, pack("PPi", None, None, 0), 1 << 20, "bytes of shared memory"),
    ],
)
def test_a_launch_that_no_gpu_would_take_is_refused(kernels, name, grid, block, args, shared, words_of_error):
    with pytest.raises(EmulationError, match=words_of_error):
        kernels.launch(name, grid, block, args, shared)
