"""Rules of modules and of launches."""

from __future__ import annotations

import sys
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path

from tests.emulator.rules.calls import (
    CARVEOUT,
    DYNAMIC,
    REGISTERS,
    STATIC,
    args,
    call,
    free_bytes,
    function,
    launch,
    memory,
    new,
    rule,
)


@rule
def a_kernel_that_is_none() -> None:
    launch(c_void_p(12345), b"")


@rule
def a_kernel_of_an_unloaded_module() -> None:
    module = new("cuModuleLoadData", Path(sys.argv[1]).read_bytes())
    of = new("cuModuleGetFunction", module, b"scale_add")
    call("cuModuleUnload", module)
    launch(of, args(memory(), memory()))


@rule
def a_kernel_that_the_module_does_not_have() -> None:
    function(b"no_such_kernel")


@rule
def a_variable_that_the_module_does_not_have() -> None:
    module = new("cuModuleLoadData", Path(sys.argv[1]).read_bytes())
    call("cuModuleGetGlobal_v2", byref(c_void_p()), byref(c_size_t()), module, b"no_such_variable")


@rule
def a_module_has_its_image_on_the_device() -> None:
    image, before = Path(sys.argv[1]).read_bytes(), free_bytes()
    module = new("cuModuleLoadData", image)
    assert before - free_bytes() == len(image)
    call("cuModuleUnload", module)
    assert before == free_bytes()
    print("all", end=" ")


@rule
def an_image_is_larger_than_the_device() -> None:
    function()


@rule
def machine_code_of_a_newer_toolkit() -> None:
    function()


@rule
def ptx_of_a_newer_toolkit() -> None:
    new("cuModuleLoadData", b".version 8.5\n.target sm_80\n" + bytes(64))


@rule
def ptx_of_the_toolkit_of_the_driver() -> None:
    new("cuModuleLoadData", b".version 8.4\n.target sm_80\n" + bytes(64))


@rule
def more_threads_than_the_kernel_declares() -> None:
    launch(function(), args(memory(), memory()), block=(512, 1, 1))


@rule
def more_threads_along_z_than_any_gpu_takes() -> None:
    launch(function(), args(memory(), memory()), block=(1, 1, 65))


@rule
def more_registers_than_a_multiprocessor_has() -> None:
    launch(function(), args(memory(), memory()), block=(256, 1, 1))


@rule
def an_empty_grid() -> None:
    launch(function(), args(memory(), memory()), grid=(1, 0, 1))


@rule
def a_grid_too_large_along_y() -> None:
    launch(function(), args(memory(), memory()), grid=(1, 65536, 1))


@rule
def a_grid_too_large_along_z() -> None:
    launch(function(), args(memory(), memory()), grid=(1, 1, 65536))


@rule
def arguments_of_another_size() -> None:
    launch(function(), args(memory(), memory())[:-4])


@rule
def arguments_given_twice() -> None:
    launch(function(), args(memory(), memory()), both=True)


@rule
def dynamic_shared_memory_of_48_kib_beside_static() -> None:
    launch(function(), args(memory(), memory()), shared=48 << 10)


@rule
def dynamic_shared_memory_beyond_its_opt_in() -> None:
    of = function()
    call("cuFuncSetAttribute", of, DYNAMIC, 50_000)
    launch(of, args(memory(), memory()), shared=50_001)


def opt_in(total: int) -> None:
    """Use all of a block's shared memory, including the kernel's static bytes, in a launch."""
    of, static = function(), c_int()
    call("cuFuncGetAttribute", byref(static), STATIC, of)
    call("cuFuncSetAttribute", of, DYNAMIC, total - static.value)
    launch(of, args(memory(), memory()), shared=total - static.value)


@rule
def all_shared_memory_of_a_block() -> None:
    opt_in(int(sys.argv[2]))


@rule
def a_byte_more_shared_memory_than_a_block_has() -> None:
    opt_in(int(sys.argv[2]) + 1)


@rule
def a_carveout_beyond_100_percent() -> None:
    call("cuFuncSetAttribute", function(), CARVEOUT, 101)


@rule
def an_attribute_that_cannot_be_set() -> None:
    call("cuFuncSetAttribute", function(), REGISTERS, 32)
