"""The emulator counts how often a warp's access to shared memory has to wait for a bank."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.emulate import BankUse, load, pack


def use(kernel: str) -> dict[tuple[str, int], BankUse]:
    """The bank use by verb and width; each kernel has one instruction of a kind."""
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    rows = load("tests/emulator/kernels/banks.cu", "race").bank_use(kernel, 1, 32, pack("PP", y, x))
    return {(row.verb, row.bytes_per_lane): row for row in rows}


@pytest.mark.parametrize("pitch, wavefronts", [(32, 32), (33, 1)])
def test_a_column_of_words_meets_one_bank_unless_rows_are_padded(pitch, wavefronts):
    column, row = use(f"transpose_{pitch}")["read", 4], use(f"transpose_{pitch}")["write", 4]
    assert (column.executed, column.wavefronts, column.least) == (32, 32 * wavefronts, 32)
    assert (row.executed, row.wavefronts, row.least) == (32, 32, 32)


@pytest.mark.parametrize("stride, wavefronts", [(4, 4), (8, 8)])
def test_sixteen_bytes_a_lane_take_four_wavefronts_at_best(stride, wavefronts):
    four = use(f"sum_fours_{stride}")["read", 16]
    assert (four.executed, four.wavefronts, four.least) == (1, wavefronts, 4)


def test_the_swizzled_tiles_of_the_product_meet_no_conflict():
    a, b, c = (np.ones((64, 64), np.float32) for _ in range(3))
    kernels = load("tests/emulator/kernels/gemm_mma.cu", "race")
    rows = kernels.bank_use("gemm_tf32", 1, 128, pack("PPPiii", c, a, b, 64, 64, 64), 3 * 16384)
    assert {(row.verb, row.bytes_per_lane) for row in rows} == {("read", 16), ("write", 16)}
    assert [row for row in rows if row.wavefronts != row.least] == []


def test_only_the_race_build_sees_single_accesses():
    with pytest.raises(ValueError, match="race"):
        load("tests/emulator/kernels/banks.cu", "plain").bank_use("transpose_32", 1, 32, pack("PP", None, None))
