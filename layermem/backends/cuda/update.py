"""Update rules, sums of micro-batches, and the gradient norm: kernels read the rate from the scalars of the step; other
settings are packed before the first launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel
from layermem.backends.cuda.support.channel_sums import BLOCKS, Columns, channel_sums
from layermem.backends.cuda.support.launch import Later, Launch, ceil_div, launch
from layermem.ops import ACCUMULATE, GradientNorm, Update

PER_BLOCK = 1024  # elements


@kernel(Update, "update")
def update_parameter(op: Update, call: CudaCall) -> Iterator[Launch]:
    yield update(op, op.tensor.count, call)


def update(op: Update, count: int, call: CudaCall) -> Launch:
    """Update `count` elements of the parameter."""
    if op.rule == ACCUMULATE:
        blocks = ceil_div(count, PER_BLOCK)
        return launch("update", "accumulate", "AccumulateArgs", blocks, w=call["w0"], dw=call["dw0"], count=count)
    return _update([(op, count, call)])


def update_parameters(updates: Sequence[tuple[Update, CudaCall]]) -> Launch:
    """Update up to MAX_JOINED parameters by one rule and one norm."""
    return _update([(op, op.tensor.count, call) for op, call in updates])


def _update(updates: Sequence[tuple[Update, int, CudaCall]]) -> Launch:
    (first, _, call), *_ = updates
    calls = [each for _, _, each in updates]
    first_block = [0, *accumulate(ceil_div(count, PER_BLOCK) for _, count, _ in updates)]
    return launch(
        "update",
        f"update_{first.rule.lower()}",
        "UpdateArgs",
        first_block.pop(),
        norm=call["norm"],
        step=call.step_scalars,
        scaled=first.scaled,
        parameters=len(updates),
        first_block=first_block,
        w=[each["w0"] for each in calls],
        dw=[each["dw0"] for each in calls],
        h0=[each["h0"] for each in calls],
        h1=[each["h1"] for each in calls],
        lr_mult=[op.lr_mult for op, _, _ in updates],
        decay_mult=[op.decay_mult for op, _, _ in updates],
        first=[op.first_element for op, _, _ in updates],
        count=[count for _, count, _ in updates],
        l1=Later(lambda context: context["regularization"] == "L1"),
        clip=Later(lambda context: context["clip"]),
        inverse_iter_size=Later(lambda context: 1 / context["iter_size"]),
        decay=Later(lambda context: context["weight_decay"]),
        momentum=Later(lambda context: context["momentum"]),
        momentum2=Later(lambda context: context["momentum2"]),
        delta=Later(lambda context: context["delta"]),
        rms_decay=Later(lambda context: context["rms_decay"]),
    )


# -- the norm of all gradients -----------------------------------------------------------------------------------------


def norm_workspace_bytes(op: GradientNorm, roles: Collection[str]) -> int:
    workspace, gradients = Workspace(), sum(role.startswith("x") for role in roles)
    workspace.take(FLOAT * BLOCKS * gradients)
    workspace.take(FLOAT)
    workspace.take(FLOAT * BLOCKS)  # for the sums of the parts
    return workspace.nbytes


@kernel(GradientNorm, "forward", workspace=norm_workspace_bytes)
def gradient_norm(op: GradientNorm, call: CudaCall) -> Iterator[Launch]:
    """Sum the squares part by part, with the parts of all gradients in one row, then their sum, and take the root."""
    workspace, gradients = Workspace(call.workspace), call.numbered("x")
    parts, total = workspace.take(FLOAT * BLOCKS * len(gradients)), 0
    for i, x in enumerate(gradients):
        at = Columns(call.count(f"x{i}"), 1)
        yield launch(
            "update", "square_sums", "SquareSumsArgs", at.grid(), parts=parts + FLOAT * total, x=x, at=at.struct()
        )
        total += at.parts
    square = workspace.take(FLOAT)
    yield from channel_sums(Columns(total, 1), square, parts, False, workspace.next)
    yield launch("update", "square_root", "SquareRootArgs", 1, 1, y=call["y0"], x=square)
