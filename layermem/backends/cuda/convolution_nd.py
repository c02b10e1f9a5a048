"""ConvNd and DeconvNd: the kernels of Conv on neighbouring frames, one outer tap after the other.

The filter of a tap is copied into the workspace, [K, kh, kw, C/g], unless it is the only one; likewise the gradient of
a tap is summed there and copied out.  A DeconvNd is the transposed problem, like a Deconv.

The gradient of a tap is summed item by item, although the images lie frame by frame, so that slices of the batch can
carry the sum.  Sums that must each be complete before they are added, those of several runs or pairs, are carried one
by one.

    dw0.carry, dw0.open   for each tap, pair and run: what conv_wgrad carries
    dw1.carry             for each pair: what channel_sums carries
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel, sums_role
from layermem.backends.cuda.copy import copy_runs
from layermem.backends.cuda.fill import fill
from layermem.backends.cuda.products.gemm_tiles import engine_of_fp32
from layermem.backends.cuda.products.implicit_gemm import Epilogue, conv_dgrad, conv_fprop
from layermem.backends.cuda.products.wgrad import Frames
from layermem.backends.cuda.products.wgrad_slices import (
    WgradMemory,
    conv_wgrad_carry_bytes,
    conv_wgrad_of,
    conv_wgrad_open_bytes,
    conv_wgrad_workspace_bytes_of,
)
from layermem.backends.cuda.scale import scale
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import Bias, ConvNd, ConvNdProblem, ConvProblem, DeconvNd, Fill, Tensor
from layermem.ops.frames import StridedRun, frame_runs, image_frames, maps_frames, strided_runs, unreached_frames
from layermem.utils.units import aligned

# -- filters of single taps --------------------------------------------------------------------------------------------


def tap_floats(problem: ConvNdProblem) -> int:
    """Floats of one output channel's filter for one outer tap."""
    return problem.filter.count // (problem.k * problem.outer_taps)


def tap_bytes(op: ConvNd | DeconvNd, roles: Collection[str] = ()) -> int:
    """Bytes of the workspace for the filter of one outer tap."""
    problem = op.problem
    return aligned(FLOAT * problem.k * tap_floats(problem)) if problem.outer_taps > 1 else 0


def copy_tap(problem: ConvNdProblem, tap: int, w: int, workspace: int) -> Iterator[Launch]:
    """Copy the filter of an outer tap into the workspace, unless it is the only one."""
    if problem.outer_taps > 1:
        width = tap_floats(problem)
        source = w + FLOAT * tap * width
        yield from copy_runs(workspace, source, problem.k, width, width, problem.outer_taps * width)


# -- fprop and dgrad ---------------------------------------------------------------------------------------------------


def at(address: int, frame: int, frames: int, side: Tensor) -> int:
    """The address of `frame` of an operand with `frames` frames."""
    return address + FLOAT * frame * (side.count // frames)


def fprop(op: ConvNd | DeconvNd, call: CudaCall, y: str, x: str, bias: int) -> Iterator[Launch]:
    """Compute maps `y` from images `x`, for all pairs."""
    problem, engine = op.problem, engine_of_fp32(call)
    pairs = [i for i in range(op.pairs) if f"{y}{i}" in call]
    for tap, runs in groupby(frame_runs(problem.outer, "maps"), key=lambda run: run.tap):
        yield from copy_tap(problem, tap, call["w0"], call.workspace)
        w = call.workspace if problem.outer_taps > 1 else call["w0"]
        for run in list(runs):
            for i in pairs:
                maps = at(call[f"{y}{i}"], run.maps, maps_frames(problem.outer), problem.maps)
                image = at(call[f"{x}{i}"], run.image, image_frames(problem.outer), problem.image)
                added = not run.first or call.accumulates(f"{y}{i}")
                epilogue = Epilogue(residual=maps) if added else Epilogue(bias=bias)
                yield conv_fprop(engine, problem.of_frames(run.count), maps, image, w, epilogue)
    for i in pairs:
        if not call.accumulates(f"{y}{i}"):
            unreached = unreached_frames(problem.outer, "maps")
            yield from empty_sums(unreached, maps_frames(problem.outer), problem.maps, call[f"{y}{i}"], bias)


def dgrad(op: ConvNd | DeconvNd, call: CudaCall, dx: str, dy: str, bias: int) -> Iterator[Launch]:
    """Compute images `dx` from maps `dy`, for all pairs."""
    problem, engine = op.problem, engine_of_fp32(call)
    pairs = [i for i in range(op.pairs) if f"{dx}{i}" in call]
    for tap, runs in groupby(frame_runs(problem.outer, "image"), key=lambda run: run.tap):
        yield from copy_tap(problem, tap, call["w0"], call.workspace)
        w = call.workspace if problem.outer_taps > 1 else call["w0"]
        for run in list(runs):
            for i in pairs:
                image = at(call[f"{dx}{i}"], run.image, image_frames(problem.outer), problem.image)
                maps = at(call[f"{dy}{i}"], run.maps, maps_frames(problem.outer), problem.maps)
                added = not run.first or call.accumulates(f"{dx}{i}")
                part = problem.of_frames(run.count)
                yield conv_dgrad(engine, part, image, maps, w, 0 if added else bias, accumulate=added)
    for i in pairs:
        if not call.accumulates(f"{dx}{i}"):
            unreached = unreached_frames(problem.outer, "image")
            yield from empty_sums(unreached, image_frames(problem.outer), problem.image, call[f"{dx}{i}"], bias)


def empty_sums(frames: list[int], of: int, side: Tensor, out: int, bias: int) -> Iterator[Launch]:
    """Write zero, or the bias, to frames that no tap reaches."""
    part = Tensor((side.shape[0] // of, *side.shape[1:]))
    for frame in frames:
        there = at(out, frame, of, side)
        yield from fill(Fill(0.0), CudaCall({"y0": there}, {"y0": part.count}))
        if bias:
            yield scale(Bias(part, "w1", part.shape[1:2], (0, 2, 3)), there, there, 0, bias)


@kernel(ConvNd, "forward", workspace=tap_bytes)
def convolution_fprop(op: ConvNd, call: CudaCall) -> Iterator[Launch]:
    yield from fprop(op, call, "y", "x", call["w1"])


@kernel(ConvNd, "dgrad", workspace=tap_bytes)
def convolution_dgrad(op: ConvNd, call: CudaCall) -> Iterator[Launch]:
    yield from dgrad(op, call, "dx", "dy", 0)


@kernel(DeconvNd, "forward", workspace=tap_bytes)
def deconvolution_fprop(op: DeconvNd, call: CudaCall) -> Iterator[Launch]:
    yield from dgrad(op, call, "y", "x", call["w1"])


@kernel(DeconvNd, "dgrad", workspace=tap_bytes)
def deconvolution_dgrad(op: DeconvNd, call: CudaCall) -> Iterator[Launch]:
    yield from fprop(op, call, "dx", "dy", 0)


# -- wgrad -------------------------------------------------------------------------------------------------------------


def runs_of_taps(op: ConvNd | DeconvNd) -> list[tuple[ConvProblem, StridedRun]]:
    """The runs of all taps, each with the problem of its images."""
    runs = (run for tap in range(op.problem.outer_taps) for run in strided_runs(op.problem.outer, tap))
    return [(op.problem.of_frames(run.count), run) for run in runs]


def bias_columns(op: ConvNd | DeconvNd) -> Columns:
    """The frames of a top."""
    top = op.problem.maps if isinstance(op, ConvNd) else op.problem.image
    of_frame = Columns.of(Tensor((op.problem.n, *top.shape[1:]))).within(op.batch_slice)
    return replace(of_frame, frames=top.shape[0] // op.problem.n)


def wgrad_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    problems = {problem for problem, _ in runs_of_taps(op)}
    weights = max((conv_wgrad_workspace_bytes_of(problem, op.batch_slice) for problem in problems), default=0)
    return max(
        tap_bytes(op) + weights if sums_role("dw0", roles) else 0,
        bias_columns(op).part_bytes() if sums_role("dw1", roles) else 0,
    )


def wgrad_carry_bytes(op: ConvNd | DeconvNd, role: str) -> int:
    if op.batch_slice is None:
        return 0
    if role == "dw1":
        return op.pairs * bias_columns(op).carry_bytes()
    return op.pairs * sum(conv_wgrad_carry_bytes(problem) for problem, _ in runs_of_taps(op))


def wgrad_open_bytes(op: ConvNd | DeconvNd, role: str) -> int:
    if op.batch_slice is None or role != "dw0":
        return 0
    return op.pairs * sum(conv_wgrad_open_bytes(problem, op.batch_slice) for problem, _ in runs_of_taps(op))


def weight_gradient(op: ConvNd | DeconvNd, call: CudaCall, sides: list[tuple[str, str]]) -> Iterator[Launch]:
    """Sum the filter's gradient tap by tap, over all pairs of (maps, image) and runs; the last slice writes it."""
    problem, width, single = op.problem, tap_floats(op.problem), op.problem.outer_taps == 1
    dw, workspace = (call["dw0"] if single else call.workspace), call.workspace + tap_bytes(op)
    memory = WgradMemory(workspace, call.carry("dw0"), call.open("dw0"))
    is_last = op.batch_slice is None or op.batch_slice.is_last
    for tap in range(problem.outer_taps):
        accumulate = single and call.accumulates("dw0")
        for maps, image in sides:
            for run in strided_runs(problem.outer, tap):
                yield from conv_wgrad_of(
                    op.batch_slice,
                    engine_of_fp32(call),
                    problem.of_frames(run.count),
                    dw,
                    at(call[maps], run.maps, maps_frames(problem.outer), problem.maps),
                    at(call[image], run.image, image_frames(problem.outer), problem.image),
                    accumulate,
                    memory,
                    Frames(run.count, problem.n * run.image_step, problem.n * run.maps_step),
                )
                memory, accumulate = memory_of_next(op, memory, run), True
        if not accumulate and is_last:  # no input frame meets an output frame under this tap
            yield from fill(Fill(0.0), CudaCall({"y0": dw}, {"y0": problem.k * width}))
        if not single and is_last:
            into, pitch = call["dw0"] + FLOAT * tap * width, problem.outer_taps * width
            yield from copy_runs(into, dw, problem.k, width, pitch, width, call.accumulates("dw0"))


def memory_of_next(op: ConvNd | DeconvNd, memory: WgradMemory, run: StridedRun) -> WgradMemory:
    """The memory of the sum after that of `run`."""
    if op.batch_slice is None:
        return memory
    problem = op.problem.of_frames(run.count)
    open_bytes = conv_wgrad_open_bytes(problem, op.batch_slice)
    return WgradMemory(memory.workspace, memory.sums + conv_wgrad_carry_bytes(problem), memory.open + open_bytes)


def wgrad(op: ConvNd | DeconvNd, call: CudaCall, *, maps: str, image: str) -> Iterator[Launch]:
    """Sum the gradients of filter and bias over the pairs; `image` and `maps` are the roles of the problem's sides."""
    pairs = [i for i in range(op.pairs) if f"dy{i}" in call]
    if call.sums("dw0"):
        yield from weight_gradient(op, call, [(f"{maps}{i}", f"{image}{i}") for i in pairs])
    if call.sums("dw1"):
        sums, carried = call.carry("dw1", call.workspace), wgrad_carry_bytes(op, "dw1") // op.pairs
        for number, i in enumerate(pairs):
            accumulate = number > 0 or call.accumulates("dw1")
            yield from channel_sums(bias_columns(op), call["dw1"], call[f"dy{i}"], accumulate, sums + number * carried)


@kernel(ConvNd, "wgrad", workspace=wgrad_workspace_bytes, carry=wgrad_carry_bytes, open=wgrad_open_bytes)
def convolution_wgrad(op: ConvNd, call: CudaCall) -> Iterator[Launch]:
    yield from wgrad(op, call, maps="dy", image="x")


@kernel(DeconvNd, "wgrad", workspace=wgrad_workspace_bytes, carry=wgrad_carry_bytes, open=wgrad_open_bytes)
def deconvolution_wgrad(op: DeconvNd, call: CudaCall) -> Iterator[Launch]:
    yield from wgrad(op, call, maps="x", image="dy")
