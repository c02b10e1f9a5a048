"""ConvNd and DeconvNd: the kernels of Conv on neighbouring frames, for one outer tap after the other.

The filter of a tap is copied into the workspace, [K, kh, kw, C/g], unless it is the only one.  A DeconvNd is the
reverse problem, like a Deconv.

The gradient of a tap is summed item by item, although the images lie frame by frame, so that slices of the batch can
carry the sum.  Sums that must each be complete before they are added, those of several runs or bottoms, and of a bias'
frames, are separate: each is made in the workspace, and slices carry each of them.

    dw0.carry   for each tap, bottom and run: what conv_wgrad carries, or the sum itself, [K, kh, kw, C/g]
    dw1.carry   for each bottom and frame: what column_sums carries
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.convolution import native
from layermem.backends.cpu.support import slices
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.struct_layout import StructValues
from layermem.ops import CARRY, ConvNd, ConvNdProblem, DeconvNd, Tensor
from layermem.ops.frames import StridedRun, frame_runs, image_frames, maps_frames, strided_runs, unreached_frames
from layermem.utils.units import aligned

FLOAT = 4  # bytes


# -- filters of single taps --------------------------------------------------------------------------------------------


def tap_floats(problem: ConvNdProblem) -> int:
    """Floats of one output channel's filter under one outer tap."""
    return problem.filter.count // (problem.k * problem.outer_taps)


def tap_bytes(problem: ConvNdProblem) -> int:
    """Bytes of the filter of one outer tap."""
    return aligned(FLOAT * problem.k * tap_floats(problem))


def copied_bytes(problem: ConvNdProblem) -> int:
    """Bytes of workspace for the filter of one outer tap."""
    return tap_bytes(problem) if problem.outer_taps > 1 else 0


def tap_filter(problem: ConvNdProblem, tap: int, w: int, workspace: int) -> tuple[int, list[Launch]]:
    """The address of the filter of an outer tap, and the launches that copy it there."""
    if problem.outer_taps == 1:
        return w, []
    width = tap_floats(problem)
    copy = launch(
        "copy_rows",
        problem.k,
        width,
        out=workspace,
        out_pitch=width,
        x=w + FLOAT * tap * width,
        x_pitch=problem.outer_taps * width,
    )
    return workspace, [copy]


# -- workspaces --------------------------------------------------------------------------------------------------------


def fprop_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    counts = {run.count for run in frame_runs(op.problem.outer, "maps")}
    parts = (native(op.problem.of_frames(count), op.batch_slice) for count in counts)
    return copied_bytes(op.problem) + max((query("conv_fprop_workspace_bytes", part) for part in parts), default=0)


def dgrad_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    counts = {run.count for run in frame_runs(op.problem.outer, "image")}
    parts = (native(op.problem.of_frames(count), op.batch_slice) for count in counts)
    return copied_bytes(op.problem) + max((query("conv_dgrad_workspace_bytes", part) for part in parts), default=0)


def wgrad_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    weights = bias = 0
    if "dw0" in roles or "dw0" + CARRY in roles:
        needed = (query("conv_wgrad_workspace_bytes", run_problem(op, run)) for _, run in runs_of_taps(op.problem))
        weights = tap_bytes(op.problem) + max(needed, default=0)
    if "dw1" in roles or "dw1" + CARRY in roles:
        _, rows, columns = frames_of_top(op)
        bias = aligned(FLOAT * columns) + slices.column_sums_workspace_bytes(op, rows, columns)
    return max(weights, bias)


def wgrad_carry_bytes(op: ConvNd | DeconvNd, role: str) -> int:
    if role == "dw1":
        frames, rows, columns = frames_of_top(op)
        return op.pairs * frames * slices.column_sums_carry_bytes(op, rows, columns)
    return op.pairs * sum(run_carry_bytes(op, run) for _, run in runs_of_taps(op.problem))


def run_carry_bytes(op: ConvNd | DeconvNd, run: StridedRun) -> int:
    return query("conv_wgrad_carry_bytes", run_problem(op, run)) or tap_bytes(op.problem)


def runs_of_taps(problem: ConvNdProblem) -> list[tuple[int, StridedRun]]:
    return [(tap, run) for tap in range(problem.outer_taps) for run in strided_runs(problem.outer, tap)]


def run_problem(op: ConvNd | DeconvNd, run: StridedRun) -> StructValues:
    """The problem whose images are the frames of a run, item by item."""
    n, images = op.problem.n, native(op.problem.of_frames(run.count), op.batch_slice)
    return {**images, "frames": run.count, "x_step": n * run.image_step, "y_step": n * run.maps_step}


def frames_of_top(op: ConvNd | DeconvNd) -> tuple[int, int, int]:
    """The frames of a top, and the rows and columns of each as a matrix whose column sums are the bias' gradient."""
    is_maps = isinstance(op, ConvNd)
    top, frames = (op.problem.maps if is_maps else op.problem.image), op.problem.outer
    count = maps_frames(frames) if is_maps else image_frames(frames)
    return count, top.count // (count * top.shape[1]), top.shape[1]


# -- the three sums ----------------------------------------------------------------------------------------------------


def at(address: int, frame: int, frames: int, side: Tensor) -> int:
    """The address of a frame on a side that has `frames` frames."""
    return address + FLOAT * frame * (side.count // frames)


def empty_sums(frames: list[int], of: int, side: Tensor, out: int, bias: int) -> list[Launch]:
    """Write zero, or the bias, to frames that no tap reaches."""
    launches: list[Launch] = []
    count, channels = side.count // of, side.shape[1]
    for frame in frames:
        there = at(out, frame, of, side)
        launches.append(launch("pointwise", "fill", count, out=there, alpha=0.0))
        if bias:
            shape = (count // channels, channels, 1)
            launches.append(launch("bias_forward", shape, y=there, x=there, bias=bias))
    return launches


def fprop(op: ConvNd | DeconvNd, call: CpuCall, y: str, x: str, bias: int) -> list[Launch]:
    """Compute maps `y` from images `x`, for all pairs."""
    problem, launches = op.problem, list[Launch]()
    pairs = [i for i in range(op.pairs) if f"{y}{i}" in call]
    frames, images = maps_frames(problem.outer), image_frames(problem.outer)
    workspace = call.workspace + copied_bytes(problem)
    for tap, runs in groupby(frame_runs(problem.outer, "maps"), key=lambda run: run.tap):
        w, copies = tap_filter(problem, tap, call["w0"], call.workspace)
        launches += copies
        for run in list(runs):
            part = native(problem.of_frames(run.count), op.batch_slice)
            for i in pairs:
                accumulate = not run.first or call.accumulates(f"{y}{i}")
                launches.append(
                    launch(
                        "conv_fprop",
                        part,
                        y=at(call[f"{y}{i}"], run.maps, frames, problem.maps),
                        x=at(call[f"{x}{i}"], run.image, images, problem.image),
                        w=w,
                        bias=0 if accumulate else bias,
                        accumulate=accumulate,
                        workspace=workspace,
                    )
                )
    for i in pairs:
        if not call.accumulates(f"{y}{i}"):
            launches += empty_sums(unreached_frames(problem.outer, "maps"), frames, problem.maps, call[f"{y}{i}"], bias)
    return launches


def dgrad(op: ConvNd | DeconvNd, call: CpuCall, dx: str, dy: str, bias: int) -> list[Launch]:
    """Compute images `dx` from maps `dy`, for all pairs."""
    problem, launches = op.problem, list[Launch]()
    pairs = [i for i in range(op.pairs) if f"{dx}{i}" in call]
    frames, images = maps_frames(problem.outer), image_frames(problem.outer)
    workspace = call.workspace + copied_bytes(problem)
    for tap, runs in groupby(frame_runs(problem.outer, "image"), key=lambda run: run.tap):
        w, copies = tap_filter(problem, tap, call["w0"], call.workspace)
        launches += copies
        for run in list(runs):
            part = native(problem.of_frames(run.count), op.batch_slice)
            for i in pairs:
                accumulate = not run.first or call.accumulates(f"{dx}{i}")
                launches.append(
                    launch(
                        "conv_dgrad",
                        part,
                        dx=at(call[f"{dx}{i}"], run.image, images, problem.image),
                        dy=at(call[f"{dy}{i}"], run.maps, frames, problem.maps),
                        w=w,
                        bias=0 if accumulate else bias,
                        accumulate=accumulate,
                        workspace=workspace,
                    )
                )
    for i in pairs:
        if not call.accumulates(f"{dx}{i}"):
            launches += empty_sums(
                unreached_frames(problem.outer, "image"), images, problem.image, call[f"{dx}{i}"], bias
            )
    return launches


def wgrad(op: ConvNd | DeconvNd, call: CpuCall, *, maps: str, image: str) -> list[Launch]:
    """Compute gradients of filter and bias, summed over the pairs; `image` and `maps` are roles of the problem's
    sides."""
    launches: list[Launch] = []
    pairs = [i for i in range(op.pairs) if f"dy{i}" in call]
    if "dw0" in call or "dw0" + CARRY in call:
        launches += weight_gradient(op, call, [(f"{maps}{i}", f"{image}{i}") for i in pairs])
    if "dw1" in call or "dw1" + CARRY in call:
        launches += frame_gradient(op, call, [f"dy{i}" for i in pairs])
    return launches


def weight_gradient(op: ConvNd | DeconvNd, call: CpuCall, sides: list[tuple[str, str]]) -> list[Launch]:
    """Sum the filter's gradient tap by tap, over all pairs and runs; the last slice copies the sums to it."""
    problem, launches = op.problem, list[Launch]()
    sums, workspace, carry = call.workspace, call.workspace + tap_bytes(problem), call["dw0" + CARRY]
    for tap in range(problem.outer_taps):
        runs, accumulate = strided_runs(problem.outer, tap), call.accumulates("dw0")
        for maps, image in sides:
            for run in runs:
                part = run_problem(op, run)
                in_carry = slices.is_slice(op) and not query("conv_wgrad_carry_bytes", part)
                launches.append(
                    launch(
                        "conv_wgrad",
                        part,
                        dw=carry if in_carry else sums,
                        x=at(call[image], run.image, image_frames(problem.outer), problem.image),
                        dy=at(call[maps], run.maps, maps_frames(problem.outer), problem.maps),
                        accumulate=in_carry and not is_first(op),
                        workspace=workspace,
                        carry=carry,
                    )
                )
                launches += tap_result(op, call, tap, carry if in_carry else sums, accumulate)
                accumulate, carry = True, carry and carry + run_carry_bytes(op, run)
        if not runs:  # this tap pairs no frames
            launches.append(launch("pointwise", "fill", problem.k * tap_floats(problem), out=sums, alpha=0.0))
            launches += tap_result(op, call, tap, sums, accumulate)
    return launches


def is_first(op: ConvNd | DeconvNd) -> bool:
    return op.batch_slice is None or op.batch_slice.is_first


def tap_result(op: ConvNd | DeconvNd, call: CpuCall, tap: int, sums: int, accumulate: bool) -> list[Launch]:
    """Copy the complete sums of one outer tap to the filter's gradient, or add them."""
    width, pitch = tap_floats(op.problem), op.problem.outer_taps * tap_floats(op.problem)
    return copy_of_last(op, op.problem.k, width, call["dw0"] + FLOAT * tap * width, pitch, sums, accumulate)


def copy_of_last(
    op: ConvNd | DeconvNd, rows: int, width: int, out: int, pitch: int, sums: int, accumulate: bool
) -> list[Launch]:
    """Copy or add rows of sums, in the last slice."""
    if op.batch_slice is not None and not op.batch_slice.is_last:
        return []
    return [launch("copy_rows", rows, width, out=out, out_pitch=pitch, x=sums, x_pitch=width, accumulate=accumulate)]


def frame_gradient(op: ConvNd | DeconvNd, call: CpuCall, dys: list[str]) -> list[Launch]:
    """Sum the bias' gradient frame by frame, over all pairs."""
    launches: list[Launch] = []
    frames, rows, columns = frames_of_top(op)
    sums, workspace, carry = call.workspace, call.workspace + aligned(FLOAT * columns), call["dw1" + CARRY]
    accumulate = call.accumulates("dw1")
    for dy in dys:
        for frame in range(frames):
            launches.append(
                launch(
                    "column_sums",
                    rows,
                    columns,
                    out=sums,
                    x=call[dy] + FLOAT * frame * rows * columns,
                    workspace=workspace,
                    carry=carry,
                    **slices.rows_of_batch(op, rows),
                )
            )
            launches += copy_of_last(op, 1, columns, call["dw1"], columns, sums, accumulate)
            accumulate, carry = True, carry and carry + slices.column_sums_carry_bytes(op, rows, columns)
    return launches


# -- kernels -----------------------------------------------------------------------------------------------------------


@kernel(ConvNd, "forward", workspace=fprop_workspace_bytes)
def convolution_fprop(op: ConvNd, call: CpuCall) -> list[Launch]:
    return fprop(op, call, "y", "x", call["w1"])


@kernel(ConvNd, "dgrad", workspace=dgrad_workspace_bytes)
def convolution_dgrad(op: ConvNd, call: CpuCall) -> list[Launch]:
    return dgrad(op, call, "dx", "dy", 0)


@kernel(ConvNd, "wgrad", workspace=wgrad_workspace_bytes, carry=wgrad_carry_bytes)
def convolution_wgrad(op: ConvNd, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="dy", image="x")


@kernel(DeconvNd, "forward", workspace=dgrad_workspace_bytes)
def deconvolution_fprop(op: DeconvNd, call: CpuCall) -> list[Launch]:
    return dgrad(op, call, "y", "x", call["w1"])


@kernel(DeconvNd, "dgrad", workspace=fprop_workspace_bytes)
def deconvolution_dgrad(op: DeconvNd, call: CpuCall) -> list[Launch]:
    return fprop(op, call, "dx", "dy", 0)


@kernel(DeconvNd, "wgrad", workspace=wgrad_workspace_bytes, carry=wgrad_carry_bytes)
def deconvolution_wgrad(op: DeconvNd, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="x", image="dy")
