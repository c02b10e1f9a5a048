"""ConvNd and DeconvNd: the kernels of Conv on neighbouring frames, for one outer tap after the other.

The filter of a tap is copied into the workspace, [K, kh, kw, C/g], unless it is the only one; likewise the gradient of
a tap is summed there and copied out.  A DeconvNd is the reverse problem, like a Deconv.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.convolution import bias_gradient, native, rows_and_columns
from layermem.backends.cpu.launch import launch, query
from layermem.ops import ConvNd, ConvNdProblem, DeconvNd, Tensor
from layermem.ops.frames import FrameRun, frame_runs, image_frames, maps_frames, unreached_frames
from layermem.utils.units import aligned

FLOAT = 4  # bytes


# -- filters of single taps --------------------------------------------------------------------------------------------


def tap_floats(problem: ConvNdProblem) -> int:
    """Floats of one output channel's filter under one outer tap."""
    return problem.filter.count // (problem.k * problem.outer_taps)


def tap_bytes(problem: ConvNdProblem) -> int:
    """Bytes of workspace for the filter of one outer tap."""
    return aligned(FLOAT * problem.k * tap_floats(problem)) if problem.outer_taps > 1 else 0


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


def largest_workspace(problem: ConvNdProblem, runs: list[FrameRun], kernel: str) -> int:
    """Workspace of one tap's filter and of the launch with the largest workspace."""
    counts = {run.count for run in runs}
    return tap_bytes(problem) + max((query(kernel, native(problem.of_frames(count))) for count in counts), default=0)


def fprop_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    return largest_workspace(op.problem, frame_runs(op.problem.outer, "maps"), "conv_fprop_workspace_bytes")


def dgrad_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    return largest_workspace(op.problem, frame_runs(op.problem.outer, "image"), "conv_dgrad_workspace_bytes")


def wgrad_workspace_bytes(op: ConvNd | DeconvNd, roles: Collection[str]) -> int:
    runs = frame_runs(op.problem.outer, "taps")
    weights = largest_workspace(op.problem, runs, "conv_wgrad_workspace_bytes") if "dw0" in roles else 0
    bias = query("column_sums_workspace_bytes", *rows_and_columns(top_of(op))) if "dw1" in roles else 0
    return max(weights, bias)


def top_of(op: ConvNd | DeconvNd) -> Tensor:
    return op.problem.maps if isinstance(op, ConvNd) else op.problem.image


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
    workspace = call.workspace + tap_bytes(problem)
    for tap, runs in groupby(frame_runs(problem.outer, "maps"), key=lambda run: run.tap):
        w, copies = tap_filter(problem, tap, call["w0"], call.workspace)
        launches += copies
        for run in list(runs):
            part = native(problem.of_frames(run.count))
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
    workspace = call.workspace + tap_bytes(problem)
    for tap, runs in groupby(frame_runs(problem.outer, "image"), key=lambda run: run.tap):
        w, copies = tap_filter(problem, tap, call["w0"], call.workspace)
        launches += copies
        for run in list(runs):
            part = native(problem.of_frames(run.count))
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
    if "dw0" in call:
        by_tap: dict[int, list[FrameRun]] = {tap: [] for tap in range(op.problem.outer_taps)}
        for run in frame_runs(op.problem.outer, "taps"):
            by_tap[run.tap].append(run)
        for tap, runs in by_tap.items():
            launches += tap_gradient(op.problem, call, tap, runs, [(f"{maps}{i}", f"{image}{i}") for i in pairs])
    if "dw1" in call:
        rows, columns = rows_and_columns(top_of(op))
        for number, i in enumerate(pairs):
            accumulate = number > 0 or call.accumulates("dw1")
            launches += bias_gradient(op, call, rows, columns, f"dy{i}", accumulate)
    return launches


def tap_gradient(
    problem: ConvNdProblem, call: CpuCall, tap: int, runs: list[FrameRun], sides: list[tuple[str, str]]
) -> list[Launch]:
    """Compute the gradient of one outer tap's filter, over all runs and pairs."""
    width, direct = tap_floats(problem), problem.outer_taps == 1
    dw, workspace = (call["dw0"] if direct else call.workspace), call.workspace + tap_bytes(problem)
    accumulate, launches = direct and call.accumulates("dw0"), list[Launch]()
    for maps, image in sides:
        for run in runs:
            launches.append(
                launch(
                    "conv_wgrad",
                    native(problem.of_frames(run.count)),
                    dw=dw,
                    x=at(call[image], run.image, image_frames(problem.outer), problem.image),
                    dy=at(call[maps], run.maps, maps_frames(problem.outer), problem.maps),
                    accumulate=accumulate,
                    workspace=workspace,
                )
            )
            accumulate = True
    if not accumulate:  # this tap pairs no frames
        launches.append(launch("pointwise", "fill", problem.k * width, out=dw, alpha=0.0))
    if not direct:
        pitch = problem.outer_taps * width
        launches.append(
            launch(
                "copy_rows",
                problem.k,
                width,
                out=call["dw0"] + FLOAT * tap * width,
                out_pitch=pitch,
                x=dw,
                x_pitch=width,
                accumulate=call.accumulates("dw0"),
            )
        )
    return launches


# -- kernels -----------------------------------------------------------------------------------------------------------


@kernel(ConvNd, "forward", workspace=fprop_workspace_bytes)
def convolution_fprop(op: ConvNd, call: CpuCall) -> list[Launch]:
    return fprop(op, call, "y", "x", call["w1"])


@kernel(ConvNd, "dgrad", workspace=dgrad_workspace_bytes)
def convolution_dgrad(op: ConvNd, call: CpuCall) -> list[Launch]:
    return dgrad(op, call, "dx", "dy", 0)


@kernel(ConvNd, "wgrad", workspace=wgrad_workspace_bytes)
def convolution_wgrad(op: ConvNd, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="dy", image="x")


@kernel(DeconvNd, "forward", workspace=dgrad_workspace_bytes)
def deconvolution_fprop(op: DeconvNd, call: CpuCall) -> list[Launch]:
    return dgrad(op, call, "y", "x", call["w1"])


@kernel(DeconvNd, "dgrad", workspace=fprop_workspace_bytes)
def deconvolution_dgrad(op: DeconvNd, call: CpuCall) -> list[Launch]:
    return fprop(op, call, "dx", "dy", 0)


@kernel(DeconvNd, "wgrad", workspace=wgrad_workspace_bytes)
def deconvolution_wgrad(op: DeconvNd, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="x", image="dy")
