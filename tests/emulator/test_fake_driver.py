"""Unmodified PyCUDA on the fake driver: the whole flow, refusals, and errors that lazy streams reveal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.emulator import fake_driver
from tests.emulator.build import ROOT, build

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)

PROGRAMS = ROOT / "tests/emulator/programs"
LAZY = [order for order in fake_driver.STREAMS if order != "eager"]
WAITS = {  # event whose wait is left out -> orders that must detect this in every trial
    "data is there": ("awaited-first",),
    "data may leave": ("awaited-last",),
    "data has left": ("awaited-first",),
    "data may come back": ("awaited-last",),
    "data is back": ("awaited-first",),
}

BEGIN = """
import struct, numpy as np, pycuda.driver as cuda
cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
try:
    {body}
finally:
    context.pop()
"""


@pytest.fixture(scope="module")
def elementwise() -> str:
    return str(build("tests/emulator/kernels/elementwise.cu"))


def session(body: str, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs statements in a context of the fake driver."""
    return fake_driver.run(BEGIN.format(body=body.strip().replace("\n", "\n    ")), *arguments, **settings)


def output(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0 and finished.stderr == "", finished.stderr
    return finished.stdout.strip()


def wrong_trials(image: str, missing: str | None, order: str, trials: int, seed: int = 0) -> int:
    named = [missing] if missing else []
    return int(output(fake_driver.run(PROGRAMS / "offload.py", image, str(trials), *named, streams=order, seed=seed)))


# ---- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.samples(2)
@pytest.mark.parametrize("order", fake_driver.STREAMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_program_that_waits_where_it_must_is_right_in_every_order(elementwise, order, seed):
    assert wrong_trials(elementwise, None, order, 20, seed) == 0


@pytest.mark.samples(2)
@pytest.mark.parametrize("missing", WAITS)
def test_a_missing_wait_is_caught_by_lazy_streams(elementwise, missing):
    for order in WAITS[missing]:
        assert wrong_trials(elementwise, missing, order, 5) == 5
    assert wrong_trials(elementwise, missing, "random", 60) > 0


def test_eager_streams_do_not_see_a_missing_wait(elementwise):
    assert wrong_trials(elementwise, "data is there", "eager", 5) == 0


@pytest.mark.parametrize("order", LAZY)
def test_a_query_neither_runs_for_ever_nor_answers_too_soon(order):
    said = session(
        """
n = 1000
host = cuda.pagelocked_zeros(n, np.float32)
source = cuda.pagelocked_empty(n, np.float32)
source[:] = np.arange(n)
device = cuda.mem_alloc(4 * n)
stream, event = cuda.Stream(1), cuda.Event()
for _ in range(20):
    host[:] = 0
    cuda.memcpy_htod_async(device, source, stream)
    cuda.memcpy_dtoh_async(host, device, stream)
    event.record(stream)
    while not event.query():
        pass
    assert np.array_equal(host, source)
    assert stream.is_done()
print("done")""",
        streams=order,
    )
    assert output(said) == "done"


def test_pageable_copies_behave_as_on_a_gpu():
    said = session(
        """
device, stream = cuda.mem_alloc(400), cuda.Stream(1)
x = np.arange(100, dtype=np.float32)
cuda.memcpy_htod_async(device, x, stream)
x[:] = -1
y = np.empty(100, np.float32)
cuda.memcpy_dtoh_async(y, device, stream)
print(np.array_equal(y, np.arange(100)))""",
        streams="awaited-first",
    )
    assert output(said) == "True"  # the source is staged at the call; the destination is there on return


# ---- graphs ----------------------------------------------------------------------------------------------------------


def graph(image: str, order: str, *missing: str) -> str:
    return output(fake_driver.run(PROGRAMS / "graph.py", image, "40", *missing, streams=order))


@pytest.mark.samples(2)
@pytest.mark.parametrize("order", fake_driver.STREAMS)
def test_a_captured_program_may_be_launched_many_times(elementwise, order):
    assert graph(elementwise, order) == "0"


def test_a_captured_program_keeps_only_the_order_that_it_declares(elementwise):
    assert int(graph(elementwise, "random", "order")) > 0


def test_a_capture_that_does_not_join_a_stream_is_refused(elementwise):
    assert graph(elementwise, "random", "join") == "error 904"


def test_a_capture_is_lost_when_memory_is_freed_meanwhile(elementwise):
    said = fake_driver.run(PROGRAMS / "graph.py", elementwise, "1", "free")
    assert said.stdout.splitlines()[-1] == "error 901" and "cuMemFree failed: operation not permitted" in said.stderr


def test_a_capture_that_waits_for_work_outside_it_is_refused(elementwise):
    assert "dependency on uncaptured work" in graph(elementwise, "eager", "fork")


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_fresh_memory_is_not_a_number():
    said = session(
        """
y = np.zeros(8, np.float32)
cuda.memcpy_dtoh(y, cuda.mem_alloc(32))
print(np.isnan(y).all(), np.isnan(cuda.pagelocked_empty(8, np.float32)).all())"""
    )
    assert output(said) == "True True"


def test_memory_ends_where_the_limit_says():
    said = session(
        """
held = cuda.mem_alloc(600_000)
print(cuda.mem_get_info())
try:
    cuda.mem_alloc(400_001)
except cuda.MemoryError as error:
    print(error)
held.free()
cuda.mem_alloc(1_000_000)
print(cuda.mem_get_info()[0])""",
        memory=1_000_000,
    )
    assert output(said).splitlines() == ["(400000, 1000000)", "cuMemAlloc failed: out of memory", "1000000"]


@pytest.mark.parametrize(
    "copy",
    [
        "cuda.memcpy_htod(int(device) + 4, x)",
        "cuda.memcpy_dtoh(x, int(device) + 4)",
        "cuda.memcpy_htod_async(int(device) - 256, x, stream)",
        "cuda.memcpy_dtoh_async(x, int(device) + 400, stream)",
        "cuda.memcpy_dtod_async(int(device), int(device) + 200, 201, stream)",
        "cuda.memset_d32(int(device), 0, 101)",
        "cuda.memset_d8_async(int(device) + 399, 0, 2, stream)",
    ],
)
def test_a_copy_out_of_bounds_is_an_error(copy):
    said = session(
        f"""
device, stream = cuda.mem_alloc(400), cuda.Stream(1)
x = np.zeros(100, np.float32)
try:
    {copy}
except cuda.LogicError as error:
    print(error)"""
    )
    assert output(said).endswith("invalid argument")


# ---- kernels ---------------------------------------------------------------------------------------------------------


def test_attributes_are_those_of_the_kernel_and_of_a_plausible_gpu(elementwise):
    said = session(
        """
import sys
f = cuda.module_from_buffer(open(sys.argv[1], "rb").read()).get_function("scale_add")
f.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, 100_000)
device = cuda.Device(0)
print(f.max_threads_per_block, f.get_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES))
print(device.compute_capability(), device.get_attribute(cuda.device_attribute.WARP_SIZE), device.total_memory() > 0)""",
        elementwise,
        capability=86,
    )
    assert output(said).splitlines() == ["256 100000", "(8, 6) 32 True"]


@pytest.mark.parametrize(
    "launch, error",
    [
        ("f._launch_kernel((1,), (512,), args, 0, None)", "invalid argument"),  # 256 threads are declared
        ("f._launch_kernel((1,), (256,), args, 50_000, None)", "invalid argument"),  # 48 KiB without asking
        ("f._launch_kernel((1,), (256,), args[:-4], 0, None)", "invalid argument"),
        ("f._launch_kernel((0,), (256,), args, 0, None)", "invalid argument"),
        ("module.get_function('no_such_kernel')", "named symbol not found"),
        ("cuda.module_from_buffer(b'.version 8.0' + bytes(64))", "no kernel image is available"),
    ],
)
def test_launches_that_a_gpu_would_refuse_are_refused(elementwise, launch, error):
    said = session(
        f"""
import sys
module = cuda.module_from_buffer(open(sys.argv[1], "rb").read())
f = module.get_function("scale_add")
args = struct.pack("PPPif", 0, 0, 0, 0, 1.0)
try:
    {launch}
except cuda.Error as error:
    print(error)""",
        elementwise,
    )
    assert said.returncode == 0 and error in said.stdout


def test_a_kernel_that_fails_is_reported_at_the_next_wait_and_ever_after():
    image = str(build("tests/emulator/seeded_bugs/divergent_barrier.cu"))
    said = session(
        """
import sys
f = cuda.module_from_buffer(open(sys.argv[1], "rb").read()).get_function("wrong")
x, y, stream = cuda.mem_alloc(256), cuda.mem_alloc(256), cuda.Stream(1)
f._launch_kernel((1,), (64,), struct.pack("PPi0P", int(y), int(x), 64), 0, stream)
for _ in range(2):
    try:
        stream.synchronize()
    except cuda.LaunchError as error:
        print(error)""",
        image,
        streams="random",
    )
    assert said.stdout.count("cuStreamSynchronize failed: unspecified launch failure") == 2
    assert "divergent" in said.stderr and "divergent_barrier.cu" in said.stderr


def test_calls_without_a_context_are_refused():
    said = fake_driver.run(
        """
import pycuda.driver as cuda
cuda.init()
try:
    cuda.mem_alloc(4)
except cuda.Error as error:
    print(error)"""
    )
    assert "invalid device context" in said.stdout


def test_calls_that_are_not_emulated_return_not_supported():
    said = session(
        """
try:
    cuda.mem_alloc_pitch(64, 4, 4)
except cuda.Error as error:
    print(error)"""
    )
    assert output(said).endswith("operation not supported")


# ---- kernels that go wrong by a setting ------------------------------------------------------------------------------

DOUBLED = """
import sys
f = cuda.module_from_buffer(open(sys.argv[1], "rb").read()).get_function("scale_add")
x, y = cuda.mem_alloc(400), cuda.mem_alloc(400)
cuda.memcpy_htod(x, np.arange(100, dtype=np.float32))
got = np.empty(100, np.float32)
try:
    f._launch_kernel((1,), (256,), struct.pack("PPPif", int(y), int(x), 0, 100, 2.0), 0, None)
    cuda.Context.synchronize()
    cuda.memcpy_dtoh(got, y)
    print(np.flatnonzero(got != 2 * np.arange(100)).size)
except cuda.Error as error:
    print(error)"""


@pytest.mark.parametrize("pattern, wrong", [("elementwise.scale*", "1"), ("*.scale_add", "1"), ("pooling.*", "0")])
def test_a_kernel_that_is_set_to_flip_a_bit_writes_one_wrong_word(elementwise, pattern, wrong):
    assert output(session(DOUBLED, elementwise, flip=pattern)) == wrong


def test_a_kernel_that_is_set_to_fault_ends_in_a_sticky_error(elementwise):
    assert "misaligned address" in session(DOUBLED, elementwise, fault="elementwise.*").stdout


def test_a_kernel_that_is_set_to_hang_never_ends(elementwise):
    settings = fake_driver.environment(hang="*.scale_add")
    program = BEGIN.format(body=DOUBLED.strip().replace("\n", "\n    "))
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", program, elementwise], env=settings, cwd=ROOT, timeout=3)
