"""BatchNorm with the Scale, residual and ReLU that follow it.

The statistics of a batch are computed once and stashed; everything else is one or two launches over the blob.  A Scale,
a residual and a ReLU run in the same launches: the gradients of factor and bias are the sums that BatchNorm's backward
needs anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, itemsize, kernel, suffix
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums, merge_lanes, merge_parts
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.cuda.support.moments import MOMENTS, SUMS, NormOperands, Units, batch_moments, gradient_sums
from layermem.backends.struct_layout import StructValues
from layermem.ops import BatchNorm, BatchNormScale, MovingAverage
from layermem.utils.units import aligned

NORMALIZE_BYTES, BACKWARD_GROUPS = 16, 2  # per thread, groups of V elements, as in cuda/batch_norm.cuh
FORWARD_BLOBS, BACKWARD_BLOBS = "x0|x1|y0", "x0|x1|dx0|dx1|dy0"  # roles that may be in 16 bits

# -- launches ----------------------------------------------------------------------------------------------------------

NO_EPILOGUE: StructValues = {"factor": 0, "bias": 0, "relu": 0, "largest_zero": 0.0}


def affine_relu(call: CudaCall, relu: bool, largest_zero: float = 0.0) -> StructValues:
    """The fields of the Scale, and the ReLU if there is one, of a BatchNormScale."""
    return {"factor": call["w3"], "bias": call["w4"], "relu": relu, "largest_zero": largest_zero}


def normalize(
    op: BatchNorm,
    y: int,
    x: int,
    mean: int,
    inv_std: int,
    accumulate: bool = False,
    epilogue: StructValues = NO_EPILOGUE,
    residual: int = 0,
    mask: int = 0,
    storage: str = "",
) -> Launch:
    at, groups = Columns.of(op.x), NORMALIZE_BYTES // itemsize(storage)
    return launch(
        "normalization",
        f"normalize_v{at.v}{suffix(storage)}",
        "NormalizeArgs",
        ceil_div(op.x.count, THREADS * at.v * groups),
        y=y,
        x=x,
        residual=residual,
        mask=mask,
        mean=mean,
        inv_std=inv_std,
        epilogue=epilogue,
        by_inner=divider(at.inner),
        by_channels=divider(at.columns),
        count=op.x.count,
        accumulate=accumulate,
    )


def global_statistics(op: BatchNorm, call: CudaCall, mean: int, inv_std: int) -> Launch:
    return launch(
        "normalization",
        "global_statistics",
        "GlobalArgs",
        ceil_div(op.channels, THREADS),
        mean=mean,
        inv_std=inv_std,
        sum_means=call["w0"],
        sum_variances=call["w1"],
        sum_weights=call["w2"],
        channels=op.channels,
        eps=op.eps,
    )


def batch_statistics(op: BatchNorm, call: CudaCall, mean: int, inv_std: int, memory: int) -> Iterator[Launch]:
    """`memory` holds the moments of units; for a slice it is the carry, and the last slice writes mean and inv_std."""
    at, n = units_of(op), op.per_channel
    if "moments" not in call:
        yield from batch_moments(at, call["x0"], memory, call.suffix)
    if not at.ends_here:
        return
    lanes = merge_lanes(at.parts)
    over_parts = {**Columns(at.parts, at.columns, pitch=MOMENTS * at.columns).struct(at.parts), "width": lanes}
    yield launch(
        "normalization",
        "batch_statistics",
        "StatisticsArgs",
        ceil_div(at.columns, lanes),
        mean=mean,
        inv_std=inv_std,
        sum_means=call["w0"],
        sum_variances=call["w1"],
        sum_weights=call["w2"],
        parts=memory,
        at=over_parts,
        rows=n,
        eps=op.eps,
        fraction=op.fraction,
        unbiased=n / (n - 1) if n > 1 else 1.0,
    )


def statistics_addresses(op: BatchNorm, call: CudaCall, workspace: Workspace) -> tuple[int, int]:
    """The addresses of mean and inv_std: the stash, or the workspace if no backward reads them."""
    nbytes = FLOAT * op.channels
    return call["mean"] or workspace.take(nbytes), call["inv_std"] or workspace.take(nbytes)


def statistics_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    return sum(aligned(FLOAT * op.channels) for stash in ("mean", "inv_std") if stash not in roles)


def units_of(op: BatchNorm) -> Units:
    return Units.of(op.x).within(op.batch_slice)


def moment_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    """Bytes of the workspace for moments; 0 if the convolution before has computed them."""
    return 0 if "moments" in roles else units_of(op).nbytes


def moments_address(op: BatchNorm, call: CudaCall, workspace: Workspace) -> int:
    return call["moments"] or workspace.take(units_of(op).nbytes)


def norm_operands(call: CudaCall, op: BatchNormScale | None = None) -> NormOperands:
    """The operands of the gradient; `op` is given if a Scale follows."""
    relu, largest_zero = (False, 0.0) if op is None else (op.relu, op.largest_zero)
    return NormOperands(call["x0"], call["mean"], call["inv_std"], call["w3"], call["w4"], relu, largest_zero)


def whole_gradient_sums(
    op: BatchNorm, call: CudaCall, norm: NormOperands, workspace: Workspace
) -> tuple[int, list[Launch]]:
    """The address of the sums of dy and of dy y, [2][C], and the launches that compute them in the workspace."""
    at, parts, launches = units_of(op), call["norm_sums"], []
    if not parts:
        parts = workspace.take(at.nbytes)
        launches = list(gradient_sums(at, call["dy0"], norm, parts, call.suffix))
    if at.parts == 1:
        return parts, launches
    sums = workspace.take(FLOAT * SUMS * at.columns)
    return sums, [*launches, merge_parts(at.parts, SUMS * at.columns, sums, parts, False)]


def gradient_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    """Bytes of the workspace for gradient sums; a dgrad may already have computed the sums of units."""
    at, workspace = units_of(op), Workspace()
    if "norm_sums" not in roles:
        workspace.take(at.nbytes)
    if at.parts > 1:
        workspace.take(FLOAT * SUMS * at.columns)
    return workspace.nbytes


def scale_gradients(op: BatchNormScale, call: CudaCall, sums: int) -> Iterator[Launch]:
    """Write the gradients of bias and factor, which are the sums."""
    channels = op.norm.channels
    for role, address in (("dw4", sums), ("dw3", sums + FLOAT * channels)):
        if role in call:
            yield from channel_sums(Columns(1, channels), call[role], address, call.accumulates(role), 0)


def input_gradient(op: BatchNorm, call: CudaCall, sums: int, norm: NormOperands) -> Launch:
    at = Columns.of(op.x)
    blocks = ceil_div(op.x.count, THREADS * at.v * BACKWARD_GROUPS)
    base: StructValues = {
        **norm.struct,
        "dx": call["dx0"],
        "sums": sums,
        "by_inner": divider(at.inner),
        "by_channels": divider(at.columns),
        "count": op.x.count,
        "accumulate": call.accumulates("dx0"),
        "inv_count": 1 / op.per_channel,
    }
    function = f"batch_norm_backward_v{at.v}{call.suffix}"
    return launch("normalization", function, "BatchNormBackwardArgs", blocks, base=base, dy=call["dy0"])


# -- BatchNorm ---------------------------------------------------------------------------------------------------------


def batch_norm_forward_workspace_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    return statistics_bytes(op, roles) + (0 if op.global_stats else moment_bytes(op, roles))


@kernel(BatchNorm, "forward", workspace=batch_norm_forward_workspace_bytes, narrow=FORWARD_BLOBS)
def batch_norm_forward(op: BatchNorm, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    mean, inv_std = statistics_addresses(op, call, workspace)
    if op.global_stats:
        yield global_statistics(op, call, mean, inv_std)
    else:
        yield from batch_statistics(op, call, mean, inv_std, moments_address(op, call, workspace))
    yield normalize(op, call["y0"], call["x0"], mean, inv_std, storage=call.storage)


@kernel(BatchNorm, "recompute", narrow=FORWARD_BLOBS)
def batch_norm_recompute(op: BatchNorm, call: CudaCall) -> Iterator[Launch]:
    yield normalize(op, call["y0"], call["x0"], call["mean"], call["inv_std"], storage=call.storage)


def batch_norm_backward_workspace_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    return 2 * aligned(FLOAT * op.channels) if op.global_stats else gradient_bytes(op, roles)


@kernel(BatchNorm, "backward", workspace=batch_norm_backward_workspace_bytes, narrow=BACKWARD_BLOBS)
def batch_norm_backward(op: BatchNorm, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    if op.global_stats:
        inv_std, mean = workspace.take(FLOAT * op.channels), workspace.take(FLOAT * op.channels)
        yield global_statistics(op, call, mean, inv_std)
        yield normalize(op, call["dx0"], call["dy0"], 0, inv_std, call.accumulates("dx0"), storage=call.storage)
        return
    norm = norm_operands(call)
    sums, launches = whole_gradient_sums(op, call, norm, workspace)
    yield from launches
    yield input_gradient(op, call, sums, norm)


# -- BatchNormScale ----------------------------------------------------------------------------------------------------


def batch_norm_scale_forward_workspace_bytes(op: BatchNormScale, roles: Collection[str]) -> int:
    return batch_norm_forward_workspace_bytes(op.norm, roles)


@kernel(BatchNormScale, "forward", workspace=batch_norm_scale_forward_workspace_bytes, narrow=FORWARD_BLOBS)
def batch_norm_scale_forward(op: BatchNormScale, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    mean, inv_std = statistics_addresses(op.norm, call, workspace)
    if op.norm.global_stats:
        yield global_statistics(op.norm, call, mean, inv_std)
    else:
        yield from batch_statistics(op.norm, call, mean, inv_std, moments_address(op.norm, call, workspace))
    yield from apply_statistics(op, call, mean, inv_std)


@kernel(BatchNormScale, "recompute", narrow=FORWARD_BLOBS)
def batch_norm_scale_recompute(op: BatchNormScale, call: CudaCall) -> Iterator[Launch]:
    yield from apply_statistics(op, call, call["mean"], call["inv_std"])


def apply_statistics(op: BatchNormScale, call: CudaCall, mean: int, inv_std: int) -> Iterator[Launch]:
    """y = relu(factor (x - mean) inv_std + bias + residual)"""
    epilogue, residual = affine_relu(call, op.relu, op.largest_zero), call["x1"]
    yield normalize(
        op.norm,
        call["y0"],
        call["x0"],
        mean,
        inv_std,
        epilogue=epilogue,
        residual=residual,
        mask=call["mask"],
        storage=call.storage,
    )


def batch_norm_scale_backward_workspace_bytes(op: BatchNormScale, roles: Collection[str]) -> int:
    return gradient_bytes(op.norm, roles)


@kernel(BatchNormScale, "backward", workspace=batch_norm_scale_backward_workspace_bytes, narrow=BACKWARD_BLOBS)
def batch_norm_scale_backward(op: BatchNormScale, call: CudaCall) -> Iterator[Launch]:
    norm = norm_operands(call, op)
    sums, launches = whole_gradient_sums(op.norm, call, norm, Workspace(call.workspace))
    yield from launches
    yield from scale_gradients(op, call, sums)
    if "dx0" in call:
        yield input_gradient(op.norm, call, sums, norm)


# -- in two passes over slices of a batch ------------------------------------------------------------------------------


def carry_bytes(op: BatchNorm | BatchNormScale, role: str) -> int:
    """Bytes of the carry: moments and sums are carried once, and all results are computed from them."""
    if role == "mean":
        return Units.of(op.x).within(op.batch_slice).carry_bytes()
    return Units.of(op.x).within(op.batch_slice).carry_bytes(SUMS, blobs=2) if role == "sums" else 0


@kernel(BatchNorm, "statistics", carry=carry_bytes, narrow=FORWARD_BLOBS)
def batch_norm_statistics(op: BatchNorm, call: CudaCall) -> Iterator[Launch]:
    yield from batch_statistics(op, call, call["mean"], call["inv_std"], call.carry("mean"))


@kernel(BatchNormScale, "statistics", carry=carry_bytes, narrow=FORWARD_BLOBS)
def batch_norm_scale_statistics(op: BatchNormScale, call: CudaCall) -> Iterator[Launch]:
    yield from batch_norm_statistics(op.norm, call)


def last_gradient_sums(op: BatchNorm, call: CudaCall, norm: NormOperands) -> Iterator[Launch]:
    """Add the sums of this slice to the carry; the last slice adds up the units."""
    at, memory = units_of(op), call.carry("sums")
    yield from gradient_sums(at, call["dy0"], norm, memory, call.suffix)
    if "sums" in call:
        yield merge_parts(at.parts, SUMS * at.columns, call["sums"], memory, False)


@kernel(BatchNorm, "gradient_sums", carry=carry_bytes, narrow=BACKWARD_BLOBS)
def batch_norm_gradient_sums(op: BatchNorm, call: CudaCall) -> Iterator[Launch]:
    yield from last_gradient_sums(op, call, norm_operands(call))


@kernel(BatchNormScale, "gradient_sums", carry=carry_bytes, narrow=BACKWARD_BLOBS)
def batch_norm_scale_gradient_sums(op: BatchNormScale, call: CudaCall) -> Iterator[Launch]:
    yield from last_gradient_sums(op.norm, call, norm_operands(call, op))
    if "sums" in call:
        yield from scale_gradients(op, call, call["sums"])


@kernel(BatchNorm, "input_gradient", narrow=BACKWARD_BLOBS)
def batch_norm_input_gradient(op: BatchNorm, call: CudaCall) -> Iterator[Launch]:
    yield input_gradient(op, call, call["sums"], norm_operands(call))


@kernel(BatchNormScale, "input_gradient", narrow=BACKWARD_BLOBS)
def batch_norm_scale_input_gradient(op: BatchNormScale, call: CudaCall) -> Iterator[Launch]:
    yield input_gradient(op.norm, call, call["sums"], norm_operands(call, op))


@kernel(MovingAverage, "average")
def moving_average(op: MovingAverage, call: CudaCall) -> Iterator[Launch]:
    averages, statistics = ([call[f"{stem}{i}"] for i in range(3)] for stem in "wx")
    yield move_averages(op, call.step_scalars, averages, statistics)


def move_averages(op: MovingAverage, step: int, averages: Sequence[int], statistics: Sequence[int]) -> Launch:
    """Move averages of means, of variances and of weights by rows of statistics; the last address of each may be 0."""
    (means, variances, weights), (mean, variance, weight) = averages, statistics
    return launch(
        "normalization",
        "move_averages",
        "AveragesArgs",
        ceil_div(op.channels, THREADS),
        sum_means=means,
        sum_variances=variances,
        sum_weights=weights,
        means=mean,
        variances=variance,
        weights=weight,
        step=step,
        channels=op.channels,
        batches=op.batches,
        ops=op.ops,
        fraction=op.kept,
    )
