"""NCCL: the error if it is missing, and messages between ranks that are threads; its steps are in
tests/backends/cuda/test_communication.py."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from layermem.distributed import nccl
from layermem.errors import DeviceError
from tests.emulator import fake_driver

PROGRAM = """
import ctypes, sys, threading
import numpy as np
import pycuda.driver as cuda
from layermem.distributed.loopback import run_ranks
from layermem.distributed.nccl import Nccl
from layermem.errors import DeviceError

cuda.init()
case = sys.argv[1]

def rank(transport):
    context = cuda.Device(0).retain_primary_context()
    context.push()
    try:
        return talk(transport)
    finally:
        context.pop()

def talk(transport):
    nccl, stream = Nccl(transport), cuda.Stream(1)
    numbers = np.arange(6, dtype=np.float32) + 10 * transport.rank
    memory = cuda.mem_alloc(48)
    cuda.memcpy_htod_async(memory, numbers, stream)
    sends, receives = [], []
    for other in range(transport.size):
        if other != transport.rank:
            sends.append((other, [(int(memory), 8), (int(memory) + 20, 4)]))
            size = 4 if case == "sizes" else 8
            receives.append((other, [(int(memory) + 24, size), (int(memory) + 24 + size, 12 - size)]))
    nccl.exchange(sends, receives, stream.handle)
    nccl.check()
    got = np.empty(3, np.float32)
    cuda.memcpy_dtoh_async(got, int(memory) + 24, stream)
    stream.synchronize()
    if case == "abort":
        transport.allgather(None)  # what one rank aborts fails the other one's check, which has to be behind it
        nccl.abort()
        nccl.exchange(sends, receives, stream.handle)
    nccl.close()
    nccl.close()
    memory.free()
    return got.tolist()

try:
    print(run_ranks(2, rank))
except DeviceError as error:
    print("DeviceError:", error)
"""


def talk(case: str = "", **settings: object) -> str:
    done = fake_driver.run(PROGRAM, case, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


needs_pycuda = pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="needs PyCUDA")


@pytest.mark.samples(2)
@needs_pycuda
@pytest.mark.parametrize("streams", fake_driver.STREAMS)
def test_spans_arrive_one_by_one_after_the_work_before_them(streams):
    assert talk(streams=streams) == "[[10.0, 11.0, 15.0], [0.0, 1.0, 5.0]]"


@needs_pycuda
def test_errors_are_those_of_nccl():
    assert talk("sizes") == "DeviceError: ncclGroupEnd failed: invalid usage (5)"
    assert talk(nccl_fail=0) == ("DeviceError: NCCL failed: remote process exited or there was a network error (6)")
    assert talk("abort") == "DeviceError: the NCCL communicator has ended"


def test_without_the_library_the_error_says_what_to_install():
    with pytest.raises(
        DeviceError, match=r"NCCL does not load \(.*\); pip install nvidia-nccl-cu13, or --transport mpi"
    ):
        nccl.NcclLibrary("libnccl-is-not-here.so.2")


def test_an_old_library_is_refused(tmp_path):
    source, library = tmp_path / "old.c", tmp_path / "libnccl.so.2"
    functions = [name for name in nccl.ARGUMENTS if name != "ncclGetVersion"]
    source.write_text(
        "int ncclGetVersion(int* version) { *version = 2604; return 0; }\n"
        'const char* ncclGetErrorString(int status) { return ""; }\n'
        + "".join(f"int {name}(void) {{ return 0; }}\n" for name in functions)
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with pytest.raises(DeviceError, match="NCCL 2604 is too old"):
        nccl.NcclLibrary(str(library))


def test_a_unique_id_is_passed_by_value():
    assert ctypes.sizeof(nccl.UniqueId) == 128


def test_the_library_is_loaded_with_the_first_communicator_only():
    program = "import layermem.backends.cuda; print('libnccl' in open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
