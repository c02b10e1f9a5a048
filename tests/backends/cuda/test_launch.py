"""Packed arguments: structs as their sources declare them, division by multiplication, values of the step."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.kernel_images.sources import modules
from layermem.backends.cuda.support import struct_layout
from layermem.backends.cuda.support.launch import Later, divider, launch
from layermem.backends.cuda.support.strided_index import merge_axes, strided_index
from layermem.backends.cuda.support.struct_layout import layout
from layermem.errors import InputError
from tests.backends.cuda.harness import kernel_names
from tests.emulator import emulate


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
@example(2**31 - 1, 1)
@example(2**31 - 1, 2**31 - 1)
@example(2**31 - 1, 2**30 + 1)
@example(2**31 - 2, 7)
def test_a_divider_divides(n, divisor):
    d = divider(divisor)
    assert d["multiplier"] < 2**32
    quotient = n if d["divisor"] == 1 else (n * d["multiplier"] >> 32) >> d["shift"]
    assert quotient == n // divisor


FILL = {"y": 512, "count": 3, "value": 0.5, "accumulate": 0}


def test_a_struct_is_packed_by_the_names_of_its_members():
    data, patches = layout("fill", "FillArgs").pack(FILL)
    assert data == struct.pack("Pifi4x", 512, 3, 0.5, 0) and patches == ()


def test_a_member_too_many_or_too_few_is_an_error():
    with pytest.raises(TypeError, match=r"unknown \['valeu'\], missing \['value'\]"):
        layout("fill", "FillArgs").pack({"y": 0, "count": 3, "accumulate": 0, "valeu": 0.5})


def test_an_array_takes_no_more_than_it_holds():
    members = {"y": 0, "winner": 0, "mask": 0, "inputs": 65, "count": 1, "wide": 0, "coefficients": ()}
    members["largest_zero"] = 0
    with pytest.raises(ValueError, match="holds 64 values"):
        layout("eltwise", "EltwiseArgs").pack({**members, "x": range(65)})


class Info(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64), ("static_shared", ctypes.c_uint64), ("threads", ctypes.c_uint32)]


def test_every_kernels_struct_is_read_as_the_compiler_lays_it_out():
    """The size of each kernel's struct, as the host's compiler has it, is that of a struct read from the source."""
    for module in modules():
        library = emulate.load(f"cuda/{module}.cu").host.library
        known = {each.nbytes for each in struct_layout.declarations(module).structs()}
        for name in kernel_names(module):
            info = Info()
            assert library.lm_emu_kernel_info(name.encode(), ctypes.byref(info)) == 0
            assert info.bytes in known, name


def test_a_setting_of_the_solver_is_written_before_the_first_launch():
    late = launch("fill", "fill", "FillArgs", 1, **{**FILL, "value": Later(lambda context: context["rate"])})
    assert late.args == struct.pack("Pifi4x", 512, 3, 0, 0)
    assert late.packed({"rate": 0.25}) == struct.pack("Pifi4x", 512, 3, 0.25, 0)
    assert late.packed({"rate": 0.75}) == struct.pack("Pifi4x", 512, 3, 0.75, 0)


def test_a_grid_beyond_what_cuda_takes_is_refused():
    with pytest.raises(InputError, match="smaller batch"):
        launch("fill", "fill", "FillArgs", (1, 65536), **FILL)


def test_roles_that_an_op_does_not_have_are_null():
    call = CudaCall({"x0": 256, "x1": 512, "x3": 768}, {"x0": 9}, {"x1"})
    assert (call["x0"], call["y0"], call.count("x0")) == (256, 0, 9)
    assert call.numbered("x") == [256, 512] and call.accumulates("x1") and not call.accumulates("x0")


def test_axes_that_continue_each_other_are_merged():
    assert merge_axes([(2, 60), (1, 7), (3, 20), (4, 5), (5, 1)]) == [(120, 1)]
    assert merge_axes([(2, 1), (3, 0), (4, 0)]) == [(2, 1), (12, 0)]
    with pytest.raises(InputError, match="Reshape"):
        strided_index([(2, 900), (2, 100), (2, 30), (2, 10), (2, 3)])
