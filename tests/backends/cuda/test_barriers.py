"""Every barrier, wait and fence of the kernels, left out one by one: some launch shows it.

The race checker's build of a kernel leaves out what a run names, so that one compilation serves all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from layermem.backends.cuda import copy
from layermem.backends.cuda.kernel_images.sources import SOURCES
from layermem.backends.cuda.products import depthwise, gemm_tiles, warpgroup
from layermem.backends.cuda.products.gemm_tiles import COMMON_TILES
from layermem.backends.cuda.products.warpgroup import WARPGROUP_TILES
from layermem.backends.cuda.products.wgrad import sum_parts
from layermem.ops import ConvProblem, Window
from tests.backends.cuda import conv_moments
from tests.backends.cuda.harness import Case, Memory, Way, case_of, layer_of
from tests.backends.cuda.masked_dgrad import masked_dgrad
from tests.backends.cuda.narrow_steps import taken_steps
from tests.backends.cuda.norm_sums import dgrad
from tests.backends.cuda.test_channel_sums import in_order
from tests.backends.cuda.test_conv_patch import both
from tests.cases import CASES
from tests.cases.convolution import conv_text
from tests.cases.fused import FUSED
from tests.emulator import emulate, hosts
from tests.emulator.emulate import EmulationError
from tests.op_case import OpCase

Program = Callable[[], object]
RACE = Way("race")
ORDERING = (
    "block_sync",
    "block_any",
    "warp_sync",
    "async_wait",
    "barrier_arrive",
    "barrier_arrive_behind_copies",
    "barrier_expect",
    "barrier_wait",
    "bulk_copy",
    "proxy_fence",
    "products_commit",
    "products_wait",
)
CALL = re.compile(rf"^[^/\n]*\b(?:{'|'.join(ORDERING)})(?:<[^;()]*>)?\(", re.MULTILINE)
THEMSELVES = ("primitives.cuh", "warpgroup.cuh")


def layer(name: str, precision: str = "fp32") -> Program:
    """A case forward and backward, whose results must be right."""
    return lambda: case_of(CASES[name], replace(RACE, precision=precision)).check_once()


def right(text: str, shape: tuple[int, ...], way: Way = RACE) -> None:
    rng, own = np.random.default_rng(3), layer_of(text, shape)
    ws = [rng.standard_normal(param.tensor.shape) for param in own.params]
    bounds = dict.fromkeys(("y0", "dx0", "dw0", "dw1"), 2e-3)
    Case(own, [rng.standard_normal(shape)], ws, way, bounds, rng=rng).check_once()


def softmax_in_place() -> None:
    case_of(CASES["SoftmaxWithLoss and its softmax"], RACE).check()


def lrn() -> None:
    right('type: "LRN" lrn_param { local_size: 3 }', (1, 20, 3, 3))


def transposition() -> None:
    with patched((copy, "MAX_ITEMS", 2)):
        right('type: "Flatten"', (5, 3, 4, 9))


def of_images() -> None:
    """A weight gradient whose blocks add up images one after the other."""
    with patched((depthwise, "BLOCKS", 1)):
        right('type: "Convolution" convolution_param { num_output: 8 kernel_size: 3 group: 8 }', (9, 8, 5, 4))


def splits() -> None:
    """More than a block stages at once."""
    rng, memory, count = np.random.default_rng(3), Memory(), 1100
    problem = ConvProblem(2, 5, 3, Window(1, 1), Window(1, 1))
    parts = memory.stored(rng.standard_normal((count, problem.filter.count)), np.float32)
    dw = memory.stored(np.full(problem.filter.count, np.nan), np.float32)
    launch = sum_parts(problem, dw.ctypes.data, parts.ctypes.data, count, False)
    kernels = emulate.load(f"cuda/{launch.module}.cu", "race")
    kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=[dw, parts])
    np.testing.assert_array_equal(dw, in_order(parts, None))


def moments() -> None:
    """Of two stages: what is still copied behind the last one would lie where the moments do."""
    y, left, _ = conv_moments.forward(
        FUSED["fprop + moments"]["groups"], replace(RACE, precision="tf32"), np.random.default_rng(3)
    )
    np.testing.assert_array_equal(left, conv_moments.moments(y))


def sums() -> None:
    with patched((gemm_tiles, "TILES", COMMON_TILES[:1])):
        way = replace(RACE, precision="tf32")
        stated, left, _ = dgrad("one tile of some rows", way, np.random.default_rng(3), accumulate=True)
    np.testing.assert_array_equal(left, stated)


def packed() -> None:
    """Blobs in bfloat16, by warpgroups."""
    way = replace(RACE, precision="bf16", capability=warpgroup.CAPABILITY)
    case = OpCase("", conv_text(320, "kernel_size: 3 stride: 2"), {"small": [(2, 32, 13, 11)]})
    with patched((warpgroup, "THRESHOLDS", warpgroup.NO_THRESHOLDS), (warpgroup, "SMS", 1)):
        for taken in taken_steps(case, "bf16", "bf16", exact=True):
            if "x0" in taken.narrow or "x0" not in taken.step.reads:
                found = taken.run(True, way)
                for role, value in taken.run(True, replace(way, mode="plain")).items():
                    np.testing.assert_array_equal(found[role], value)


def packed_and_masked() -> None:
    way = replace(RACE, precision="bf16", capability=warpgroup.CAPABILITY)
    with patched((warpgroup, "THRESHOLDS", warpgroup.NO_THRESHOLDS), (warpgroup, "SMS", 1)):
        together, apart = masked_dgrad("one by one, strided", False, way, np.random.default_rng(3), "bf16")
    np.testing.assert_array_equal(together, apart)


def patch() -> None:
    both(FUSED["fprop by a patch"]["wide windows"], "tf32", leaves_moments=True, mode="race")


SMALL_TILE = (
    (warpgroup, "WARPGROUP_TILES", WARPGROUP_TILES[1:]),
    (warpgroup, "THRESHOLDS", warpgroup.NO_THRESHOLDS),
    (warpgroup, "SMS", 1),
)


def by_warpgroups(settings: str, shape: tuple[int, ...]) -> Program:
    """In blocks that take several tiles each."""
    way = replace(RACE, precision="tf32", capability=warpgroup.CAPABILITY)
    text = f'type: "Convolution" convolution_param {{ {settings} }}'

    def program() -> None:
        with patched(*SMALL_TILE):
            right(text, shape, way)

    return program


def moments_by_warpgroups() -> None:
    """Of blocks that take several tiles each."""
    way = replace(RACE, precision="tf32", capability=warpgroup.CAPABILITY)
    with patched(*SMALL_TILE):
        y, left, _ = conv_moments.forward(FUSED["fprop + moments"]["rows of many tiles"], way, np.random.default_rng(3))
    np.testing.assert_array_equal(left, conv_moments.moments(y))


def sums_by_warpgroups() -> None:
    way = replace(RACE, precision="tf32", capability=warpgroup.CAPABILITY)
    with patched(*SMALL_TILE):
        stated, left, _ = dgrad("rows of many tiles", way, np.random.default_rng(3), accumulate=True, masked=True)
    np.testing.assert_array_equal(left, stated)


DEEP = by_warpgroups("num_output: 136 kernel_size: 3 pad: 1 stride: 2", (1, 20, 13, 11))
PHASES_WITHOUT_TAPS = by_warpgroups("num_output: 8 kernel_size: 1 stride: 2", (4, 68, 15, 15))

# What launches the kernels of a file: each of its barriers shows in one of these, which are tried in this order.
PROGRAMS: Mapping[str, Sequence[Program]] = {
    "batch_norm.cuh": [layer("BatchNorm by quads"), layer("BatchNorm")],
    "batch_norm_backward.cuh": [layer("BatchNorm by quads"), layer("BatchNorm")],
    "channel_sums.cu": [splits],
    "channel_sums.cuh": [layer("Convolution by quads")],
    "common.cuh": [layer("Normalize of items, by blocks")],
    "conv_dgrad.cuh": [sums, layer("Convolution by quads", "tf32"), layer("Convolution")],
    "conv_fprop.cuh": [moments, layer("Convolution by quads", "tf32"), layer("Convolution"), patch],
    "conv_patch.cuh": [patch],
    "conv_sums.cuh": [sums],
    "conv_warpgroup.cuh": [PHASES_WITHOUT_TAPS, DEEP, packed, packed_and_masked],
    "depthwise.cu": [layer("Convolution, depthwise 3x3"), of_images],
    "grouped.cu": [layer("Convolution, groups of 4")],
    "implicit_gemm.cuh": [moments, layer("Convolution by quads", "tf32")],
    "lrn.cu": [lrn],
    "mvn.cu": [layer("MVN")],
    "shape.cu": [transposition],
    "softmax.cu": [softmax_in_place],
    "warpgroup_gemm.cuh": [DEEP, packed],
    "warpgroup_tiles.cuh": [PHASES_WITHOUT_TAPS, DEEP, packed, packed_and_masked],
    "warpgroup_units.cuh": [moments_by_warpgroups, sums_by_warpgroups],
}


@contextmanager
def patched(*settings: tuple[ModuleType, str, object]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in settings:
            patch.setattr(module, name, value)
        yield


def places(file: str) -> Iterator[str]:
    """The lines of a source that call one of ORDERING."""
    text = (SOURCES / file).read_text(encoding="utf-8")
    for call in CALL.finditer(text):
        yield f"{file}:{text.count(chr(10), 0, call.end()) + 1}"


Calls = Mapping[hosts.Library, Mapping[str, Sequence[int]]]  # by module and line


@contextmanager
def left_out(place: str, calls: Calls) -> Iterator[None]:
    """No kernel makes the calls of this line."""
    for library, of_line in calls.items():
        library.leave_out(of_line.get(place, ()))
    try:
        yield
    finally:
        for library in calls:
            library.leave_out(())


def shows(program: Program) -> bool:
    try:
        program()
    except (AssertionError, EmulationError):
        return True
    return False


def test_every_file_with_barriers_has_a_program():
    """A new one: give it a line of PROGRAMS that launches its kernels."""
    files = (path.name for path in sorted(SOURCES.glob("*.cu*")) if path.name not in THEMSELVES)
    assert {file for file in files if any(places(file))} == PROGRAMS.keys()


@pytest.mark.samples(24)
@pytest.mark.parametrize("file", PROGRAMS)
def test_a_barrier_that_is_left_out_shows(file):
    first: dict[str, int] = {}  # of a place, the number of a program before which none reaches it
    for number, program in enumerate(PROGRAMS[file]):
        program()
        calls: Calls = {library: library.reached() for library in hosts.in_use()}
        first = {**{place: number for of_line in calls.values() for place in of_line}, **first}
    assert set(places(file)) <= set().union(*calls.values()), "add a program that launches these"
    hidden = []
    for place in places(file):
        with left_out(place, calls):
            if not any(map(shows, PROGRAMS[file][first[place] :])):
                hidden.append(place)
    assert not hidden, "needed by no kernel, or launched by no program that shows it"
