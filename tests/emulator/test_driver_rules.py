"""The fake driver refuses the same calls as a real one: each rule of README.md is broken by a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.emulator import fake_driver
from tests.emulator.build import ROOT, build

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)

PROGRAM, RULES = ROOT / "tests/emulator/programs/rules.py", ROOT / "tests/emulator/rules"
STATIC = 1024  # bytes of shared memory that the kernel is made to declare
OPT_IN = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # KiB of a block, by architecture

VALUE, MEMORY, BEGIN, TAKEN, CODE, CONTEXT, PTX = "1", "2", "3", "46", "209", "201", "222"
HANDLE, MISSING, BUSY = "400", "500", "600"
ADDRESS, RESOURCES, CAPTURING, LOST, UNMATCHED, UNJOINED, ISOLATED, OF_CAPTURE = (
    "700",
    "701",
    "900",
    "901",
    "903",
    "904",
    "905",
    "907",
)

EXPECTED = {
    "nothing_is_allocated": VALUE,
    "nothing_is_pinned": VALUE,
    "more_is_pinned_than_the_host_has": MEMORY,
    "pinned_memory_has_an_unknown_flag": VALUE,
    "pinned_memory_has_page_tables_on_the_device": "2048 ok",
    "memory_that_other_processes_have_is_not_free": f"700 {MEMORY}",
    "a_fill_is_not_awaited_by_another_stream": "1 ok",
    "a_copy_of_pageable_memory_is_not_awaited_by_another_stream": "1 ok",
    "a_copy_on_the_device_is_not_awaited_by_another_stream": "1 ok",
    "a_fill_is_done_once_the_context_was_awaited": "2 ok",
    "a_copy_of_pinned_memory_is_done_on_return": "2 ok",
    "a_blocking_stream_follows_the_default_one": "2 ok",
    "memory_is_freed_twice": VALUE,
    "pinned_memory_is_freed_twice": VALUE,
    "freed_memory_is_copied": VALUE,
    "freed_pinned_memory_is_copied": VALUE,
    "a_kernel_uses_freed_memory": ADDRESS,
    "a_kernel_leaves_its_memory": ADDRESS,
    "after_an_illegal_address_nothing_works": ADDRESS,
    "after_a_refused_launch_all_works": "ok",
    "a_stream_that_is_none": HANDLE,
    "a_stream_is_used_after_it_was_destroyed": HANDLE,
    "a_stream_is_destroyed_twice": HANDLE,
    "the_default_stream_is_destroyed": HANDLE,
    "a_stream_has_an_unknown_flag": VALUE,
    "an_event_has_an_unknown_flag": VALUE,
    "an_event_that_is_none": HANDLE,
    "an_event_is_recorded_after_it_was_destroyed": HANDLE,
    "an_event_is_awaited_after_it_was_destroyed": HANDLE,
    "an_event_is_queried_after_it_was_destroyed": HANDLE,
    "an_event_is_destroyed_twice": HANDLE,
    "an_event_may_be_destroyed_before_it_is_reached": "ok",
    "time_between_events_of_which_one_was_not_recorded": HANDLE,
    "time_between_events_that_have_none": HANDLE,
    "time_between_events_that_are_not_reached": BUSY,
    "a_kernel_that_is_none": HANDLE,
    "a_kernel_of_an_unloaded_module": HANDLE,
    "a_kernel_that_the_module_does_not_have": MISSING,
    "a_variable_that_the_module_does_not_have": MISSING,
    "a_module_has_its_image_on_the_device": "all ok",
    "an_image_is_larger_than_the_device": MEMORY,
    "machine_code_of_a_newer_toolkit": CODE,
    "ptx_of_a_newer_toolkit": PTX,
    "ptx_of_the_toolkit_of_the_driver": CODE,  # the emulator does not run it
    "more_threads_than_the_kernel_declares": VALUE,
    "more_threads_along_z_than_any_gpu_takes": VALUE,
    "more_registers_than_a_multiprocessor_has": RESOURCES,
    "an_empty_grid": VALUE,
    "a_grid_too_large_along_y": VALUE,
    "a_grid_too_large_along_z": VALUE,
    "arguments_of_another_size": VALUE,
    "arguments_given_twice": VALUE,
    "dynamic_shared_memory_of_48_kib_beside_static": VALUE,
    "dynamic_shared_memory_beyond_its_opt_in": VALUE,
    "all_shared_memory_of_a_block": "ok",
    "a_byte_more_shared_memory_than_a_block_has": VALUE,
    "a_carveout_beyond_100_percent": VALUE,
    "an_attribute_that_cannot_be_set": VALUE,
    "the_default_stream_is_captured": CAPTURING,
    "a_stream_is_captured_twice": CAPTURING,
    "a_capture_that_never_began_is_ended": VALUE,
    "memory_is_allocated_while_capturing": f"{CAPTURING} {LOST}",
    "memory_is_pinned_while_capturing": f"{CAPTURING} {LOST}",
    "a_module_is_loaded_while_capturing": f"{CAPTURING} {LOST}",
    "a_captured_stream_is_awaited": f"{CAPTURING} {LOST}",
    "a_captured_stream_is_queried": f"{CAPTURING} {LOST}",
    "a_captured_stream_is_destroyed": f"{CAPTURING} {LOST}",
    "the_context_is_awaited_while_capturing": f"{CAPTURING} {LOST}",
    "the_default_stream_is_used_while_capturing": f"{CAPTURING} {LOST}",
    "a_captured_event_is_queried": f"{OF_CAPTURE} {LOST}",
    "a_captured_event_is_awaited": f"{OF_CAPTURE} {LOST}",
    "an_event_is_destroyed_while_its_capture_is_open": f"{OF_CAPTURE} {LOST}",
    "an_event_from_outside_is_awaited_while_capturing": f"{ISOLATED} {LOST}",
    "pageable_memory_is_copied_while_capturing": f"{CAPTURING} {LOST}",
    "pageable_memory_is_copied_to_while_capturing": f"{CAPTURING} {LOST}",
    "another_thread_allocates_while_this_one_captures_for_itself": "0 ok",
    "another_thread_allocates_while_this_one_captures_for_all": f"{CAPTURING} {LOST}",
    "a_kernel_is_launched_first_in_a_capture": f"{CAPTURING} {LOST}",
    "a_kernel_that_was_launched_before_is_captured": "ok",
    "a_graph_has_its_nodes_on_the_device": "3072 ok",
    "a_capture_does_not_join_its_streams": UNJOINED,
    "a_graph_is_destroyed_twice": VALUE,
    "a_destroyed_graph_is_launched": VALUE,
    "a_graph_that_was_only_captured_is_launched": VALUE,
    "a_context_that_is_none": CONTEXT,
    "more_contexts_are_popped_than_pushed": CONTEXT,
    "a_call_without_a_context": CONTEXT,
    "a_stream_of_another_context": HANDLE,
    "a_kernel_of_another_context": CONTEXT,
    "an_event_of_another_context_is_recorded": HANDLE,
    "an_event_of_another_context_is_awaited": "ok",
    "memory_of_each_device_is_its_own": "ok",
    "a_device_that_another_process_has_alone": TAKEN,
    "a_copy_of_the_process_calls_the_driver": f"{BEGIN} ok",
    "a_copy_of_the_process_begins_anew": f"{BEGIN} ok",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "more_is_pinned_than_the_host_has": {"pinned": 1 << 19},
    "memory_of_each_device_is_its_own": {"memory": 1000},
    "memory_that_other_processes_have_is_not_free": {"memory": 1000, "taken": 300},
    "an_image_is_larger_than_the_device": {"memory": 1000},
    "machine_code_of_a_newer_toolkit": {"version": 12080},
    "ptx_of_a_newer_toolkit": {"version": 12040},
    "ptx_of_the_toolkit_of_the_driver": {"version": 12040},
    "a_device_that_another_process_has_alone": {"exclusive": "yes"},
    "more_registers_than_a_multiprocessor_has": {"registers": 264},
    "time_between_events_that_are_not_reached": {"streams": "awaited-first"},
}


def scale_add(registers: int) -> dict[str, str]:
    """Settings with which the kernel has this number of registers, and static shared memory, on a GPU."""
    name = "elementwise.scale_add"
    return {"registers": f"{name}={registers}", "static": f"{name}={STATIC}"}


def outcomes(names: Sequence[str], capability: int = 90, registers: int = 40, **settings: object) -> dict[str, str]:
    image, limit = build("tests/emulator/kernels/elementwise.cu"), str(OPT_IN[capability] << 10)
    settings |= {"capability": capability, "devices": 2, **scale_add(registers)}
    done = fake_driver.run(PROGRAM, str(image), limit, *names, **settings)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, done.stdout.splitlines(), strict=True))


@pytest.fixture(scope="module")
def usual() -> dict[str, str]:
    return outcomes([name for name in EXPECTED if name not in SETTINGS])


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in SETTINGS])
def test_launches_that_a_driver_refuses_are_refused(name, usual):
    assert usual[name] == EXPECTED[name]


@pytest.mark.samples(3)
@pytest.mark.parametrize("name", SETTINGS)
def test_launches_that_a_small_or_slow_gpu_refuses_are_refused(name):
    assert outcomes([name], **SETTINGS[name]) == {name: EXPECTED[name]}


@pytest.mark.parametrize("capability", OPT_IN)
def test_a_block_has_the_shared_memory_of_its_architecture_and_not_a_byte_more(capability):
    names = ("all_shared_memory_of_a_block", "a_byte_more_shared_memory_than_a_block_has")
    assert list(outcomes(names, capability).values()) == ["ok", VALUE]


OCCUPANCY = """
import ctypes, sys
import pycuda.driver as cuda
cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
driver, module, function, blocks = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
assert driver.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read()) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"scale_add") == 0
assert driver.cuFuncSetAttribute(function, 8, 60_000) == 0
for threads, shared in ((256, 0), (64, 0), (64, 32768), (64, 60_000), (257, 0), (64, 60_001)):
    of_shared = ctypes.c_size_t(shared)
    assert driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(blocks), function, threads, of_shared) == 0
    print(blocks.value, end=" ")
context.pop()
"""


def occupancy(registers: int, capability: int) -> list[int]:
    image = build("tests/emulator/kernels/elementwise.cu")
    done = fake_driver.run(OCCUPANCY, str(image), capability=capability, **scale_add(registers))
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_occupancy_follows_registers_threads_and_shared_memory():
    """The expected values were computed by hand: 256 threads of 128 registers take half of 65536; 34816 bytes fit
    233472 6 times."""
    assert occupancy(128, 90) == [2, 4, 4, 3, 0, 0]
    assert occupancy(32, 90) == [8, 16, 6, 3, 0, 0]
    assert occupancy(32, 75) == [4, 16, 1, 1, 0, 0]


MISALIGNED = """
import struct, sys
import pycuda.driver as cuda
cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
f = cuda.module_from_buffer(open(sys.argv[1], "rb").read()).get_function("widen_bf16_v4")
y, x, stream = cuda.mem_alloc(4096), cuda.mem_alloc(4096), cuda.Stream(1)
f._launch_kernel((1,), (256,), struct.pack("PPi4x", int(y) + 4, int(x), 1000), 0, stream)
try:
    stream.synchronize()
except cuda.Error as error:
    print(error)
context.pop()
"""


def test_a_vector_at_an_odd_address_ends_the_context():
    done = fake_driver.run(MISALIGNED, str(build("cuda/half.cu")), streams="random")
    assert "misaligned address" in done.stdout and "misaligned: thread" in done.stderr, done.stderr


def test_every_rule_is_in_the_readme_and_has_an_answer():
    """README.md lists the calls of the project with their rules, and which function of rules/ breaks each."""
    texts = [path.read_text(encoding="utf-8") for path in RULES.glob("*.py")]
    named = {name for text in texts for name in re.findall(r"^@rule\ndef (\w+)", text, re.MULTILINE)}
    assert named == set(EXPECTED)
    text = (ROOT / "tests/emulator/README.md").read_text(encoding="utf-8")
    assert set(EXPECTED) == set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){2,})`", text)) & set(EXPECTED)


def test_every_call_that_the_project_makes_is_in_the_readme():
    called = {
        name
        for path in (ROOT / "layermem/backends/cuda").rglob("*.py")
        for name in re.findall(r'"(cu[A-Z]\w+?)(?:_v\d)?"', path.read_text(encoding="utf-8"))
    }
    text = (ROOT / "tests/emulator/README.md").read_text(encoding="utf-8")
    assert called and not {name for name in called if name not in text}
