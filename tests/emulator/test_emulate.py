"""Transfer of arrays to kernels and back, and recovery after a failed kernel."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.emulator import hosts
from tests.emulator.build import MODES
from tests.emulator.emulate import EmulationError, at, load, pack

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "tests/emulator/kernels/elementwise.cu"


@pytest.fixture(params=MODES)
def kernels(request):
    return load(SOURCE, request.param)


def counted(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def test_a_struct_is_laid_out_as_c_does_it():
    x = counted(4)
    packed = pack("iPfP", 1, x, 2.0, None)
    assert len(packed.data) == 32 and [place for place, _ in packed.pointers] == [8]
    assert struct.unpack_from("P", packed.data, 8) == (x.ctypes.data,)


def test_a_struct_ends_at_a_multiple_of_its_widest_member():
    assert len(pack("Pi", None, 1).data) == 16
    assert len(pack("iii", 1, 2, 3).data) == 12


def test_one_array_may_be_read_and_written(kernels):
    x = counted(300)
    kernels.launch("scale_add", 2, 256, pack("PPPif", x, x, x, 300, 2.0))
    assert np.array_equal(x, 3 * counted(300))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "asan"])  # asan has a process for each module
def test_a_module_gives_back_the_mappings_of_its_stacks_and_runs_again(mode):
    kernels, left = load(SOURCE, mode), []
    for _ in range(2):
        x = counted(300)
        kernels.launch("scale_add", 2, 256, pack("PPPif", x, x, x, 300, 2.0))
        assert np.array_equal(x, 3 * counted(300))
        opened = Path("/proc/self/maps").read_bytes().count(b"\n")
        hosts.close_stacks()
        left.append(Path("/proc/self/maps").read_bytes().count(b"\n"))
        assert opened - left[-1] >= 2 * 256 - 2
    assert abs(left[1] - left[0]) < 100


def test_a_pointer_may_point_into_an_array(kernels):
    both = counted(20)
    args = pack("PPPif", at(both, 40), both, None, 10, 5.0)
    kernels.launch("scale_add", 1, 256, args)
    assert np.array_equal(both, np.concatenate([counted(10), 5 * counted(10)]))


def test_bare_bytes_find_their_arrays_by_address(kernels):
    y, x = np.zeros(10, np.float32), counted(10)
    args = struct.pack("PPPif", y.ctypes.data, x.ctypes.data, 0, 10, 2.0)
    kernels.launch("scale_add", 1, 256, args, buffers=[x, y])
    assert np.array_equal(y, 2 * x)


def test_a_kernel_may_not_write_to_a_read_only_array_under_asan():
    x = counted(10)
    x.flags.writeable = False
    with pytest.raises(EmulationError, match="wrote to an array that is read-only"):
        load(SOURCE, "asan").launch("scale_add", 1, 256, pack("PPPif", x, x, None, 10, 2.0))


def test_arrays_that_overlap_are_refused_under_asan():
    x = counted(20)
    with pytest.raises(ValueError, match="overlap"):
        load(SOURCE, "asan").launch("scale_add", 1, 256, pack("PPPif", x[:12], x[8:], None, 10, 2.0))


def test_a_module_serves_again_after_a_failure(kernels):
    x, y = counted(10), np.zeros(10, np.float32)
    with pytest.raises(EmulationError):
        kernels.launch("scale_add", 1, 512, pack("PPPif", y, x, None, 10, 2.0))
    kernels.launch("scale_add", 1, 256, pack("PPPif", y, x, None, 10, 2.0))
    assert np.array_equal(y, 2 * x)


def test_a_worker_that_a_sanitizer_has_ended_is_started_again():
    x, y = counted(10), np.zeros(9, np.float32)
    kernels = load(SOURCE, "asan")
    with pytest.raises(EmulationError, match="heap-buffer-overflow"):
        kernels.launch("scale_add", 1, 256, pack("PPPif", y, x, None, 10, 2.0))
    kernels.launch("scale_add", 1, 256, pack("PPPif", y, x, None, 9, 2.0))
    assert np.array_equal(y, 2 * x[:9])


def test_a_block_that_fails_leaves_nothing_behind_for_the_next_launch():
    kernels = load("tests/emulator/seeded_bugs/left_before_barrier.cu", "plain")
    x, y = counted(50), np.full(50, np.nan, np.float32)
    for _ in range(3):
        with pytest.raises(EmulationError, match="divergent"):
            kernels.launch("wrong", 1, 64, pack("PPi", y, x, 50))
        kernels.launch("right", 1, 64, pack("PPi", y, x, 50))
        assert np.array_equal(y, x[::-1])


def test_a_worker_leaves_no_open_file_at_exit():
    program = f"""
import numpy as np
from tests.emulator.emulate import load, pack
x = np.ones(9, np.float32)
load({SOURCE!r}, "asan").launch("scale_add", 1, 256, pack("PPPif", x, x, None, 9, 2.0))
"""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", program]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
