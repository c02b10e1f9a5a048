"""Binds an op with 16-bit operands: each of its passes, part by part (graph/storage.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from layermem.backends.base import Bound, Device, Memory, sequence
from layermem.backends.registry import StepContext
from layermem.graph.ops import Op, Pass
from layermem.ops import Tensor


def bind_op(device: Device, op: Op, arrays: Mapping[str, Memory], context: StepContext) -> Bound:
    """Bind the op to arrays by role, in the form in which they are stored."""
    if not op.part_passes:
        return device.bind(op, arrays, context)
    parts = ((each, part) for each in op.part_passes for part in each.parts())
    return sequence([call for each, part in parts for call in _part(device, each, part, arrays, context)])


def _part(device: Device, made: Pass, part: Op, arrays: Mapping[str, Memory], context: StepContext) -> Iterator[Bound]:
    """Widen the operands that the kernel reads, run it, and round its results."""
    workspace = arrays["workspace"]
    taken = Tensor((made.workspace_bytes,), "uint8")
    operands: dict[str, Memory] = {"workspace": device.view(workspace, made.workspace_place, taken)}
    after: list[Bound] = []
    for role in part.roles:
        operand, view = made.operands[role], part.views.get(role)
        begin = 0 if view is None else operand.source_tensor.nbytes * view.first // view.count
        source = device.view(arrays[operand.source], begin, operand.source_tensor) if operand.source else None
        if operand.place is None:
            operands[role] = source
            continue
        operands[role] = device.view(workspace, operand.place, operand.tensor)
        if source is not None and operand.reads:
            yield device.bind_widen(operands[role], source, operand.source_tensor.dtype, part.stream)
        if source is not None and operand.writes:
            after.append(device.bind_narrow(source, operands[role], operand.source_tensor.dtype, part.stream))
    yield device.bind(part, operands, context)
    yield from after
