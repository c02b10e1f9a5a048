"""Binds an op with 16-bit operands: each of its passes, part by part (graph/storage.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from layermem.backends.base import Bound, Device, Memory, sequence
from layermem.backends.registry import StepContext
from layermem.graph.ops import Op
from layermem.graph.passes import Part, Pass
from layermem.ops import Tensor


def bind_op(device: Device, op: Op, arrays: Mapping[str, Memory], context: StepContext) -> Bound:
    """Bind the op to arrays by role, in the form in which they are stored."""
    if not op.passes:
        return device.bind(op, arrays, context)
    calls = (
        call for each in op.passes for part in each.parts() for call in _part(device, op, each, part, arrays, context)
    )
    return sequence([*calls])


def _part(
    device: Device, op: Op, made: Pass, part: Part, arrays: Mapping[str, Memory], context: StepContext
) -> Iterator[Bound]:
    """Widen the operands that the kernel reads, run it, and round its results."""
    workspace, stream = arrays["workspace"], op.stream
    taken = Tensor((made.workspace_bytes,), "uint8")
    operands: dict[str, Memory] = {"workspace": device.view(workspace, made.workspace_place, taken)}
    after: list[Bound] = []
    for role, begin in part.begins.items():
        operand = made.operands[role]
        source = device.view(arrays[operand.source], begin, operand.stored) if operand.source else None
        if operand.place is None:
            operands[role] = source
            continue
        operands[role] = device.view(workspace, operand.place, operand.tensor)
        if source is not None and operand.reads:
            yield device.bind_widen(source, operands[role], operand.stored.dtype, stream)
        if source is not None and operand.writes:
            after.append(device.bind_narrow(operands[role], source, operand.stored.dtype, stream))
    run = replace(op, record=part.record, step=made.step, accumulates=part.accumulates, passes=())
    yield device.bind(run, operands, context)
    yield from after
