"""Finds the families of kernels that a step launches, without a GPU: its ops are bound to unused addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from layermem.backends.base import Bound, Device
from layermem.backends.cuda.driver.context import Gpu
from layermem.backends.cuda.driver.memory import DeviceSpan
from layermem.backends.cuda.support.families import family_of, is_on
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.registry import StepContext
from layermem.backends.storage import bind_op
from layermem.graph.ops import Graph, Op
from layermem.ops import Communication, CopyOut, Feed, Python

ON_HOST = (Communication, CopyOut, Feed, Python)  # records without kernels that could be replaced
ADDRESS = 1 << 20  # of all operands
PRODUCT = "convolution"  # prefix of modules of products


class LaunchRecorder:
    """A copy of `device`, a CudaDevice, for this GPU, which records launches instead of making them."""

    def __init__(self, device: Device, gpu: Gpu):
        self._launches: list[Launch] = []
        self._device = copy(device)
        vars(self._device).update(
            own_gpu=gpu, _bind_launch=self._note, _error_flag=_no_address, _step_scalars=_no_address
        )

    def _note(self, launch: Launch, context: StepContext, stream: str) -> Bound:
        self._launches.append(launch)
        return _nothing

    def launched_by(self, op: Op, graph: Graph) -> list[Launch]:
        self._launches.clear()
        if not isinstance(op.record, ON_HOST):
            spans = spans_of(op, graph, dict.fromkeys(op.roles.values(), ADDRESS), ADDRESS)
            bind_op(self._device, op, spans, StepContext())
        return list(self._launches)


def spans_of(op: Op, graph: Graph, addresses: Mapping[str, int], workspace: int) -> dict[str, DeviceSpan]:
    """The spans of the roles of `op`, if its buffers have these addresses."""
    spans = {"workspace": DeviceSpan(workspace, op.workspace_bytes)} if op.workspace_bytes else {}
    for role, name in op.roles.items():
        buffer, items = graph.buffers[name], op.views.get(role)
        begin = items.span(buffer.nbytes)[0] if items else 0
        tensor = items.rows_of(buffer.tensor) if items else buffer.tensor
        spans[role] = DeviceSpan(addresses[name] + begin, buffer.nbytes, tensor)
    return spans


def keys_of(op: Op, launches: Iterable[Launch]) -> frozenset[str]:
    """The keys of an op's kernels in records: families, each with the module of its kernels."""
    found = {key_of(family_of(each.module, each.function), each.module) for each in launches}
    products = [each.module for each in launches if each.module.startswith(PRODUCT)]
    if "moments" in op.roles and op.step == "forward" and is_on("moments"):  # computed by kernels of products
        found |= {key_of("moments", module) for module in products}
    return frozenset(found)


def key_of(family: str, module: str) -> str:
    return family if family == module else f"{family} {module}"


def family_of_key(key: str) -> str:
    return key.partition(" ")[0]


def module_of_key(key: str) -> str:
    return key.rpartition(" ")[2]


def keys_of_step(device: Device, graphs: Iterable[Graph], gpu: Gpu) -> frozenset[str]:
    """All keys that the steps of these graphs launch on this GPU."""
    recorder = LaunchRecorder(device, gpu)
    found: dict[object, frozenset[str]] = {}  # shared by ops with the same launches
    for graph in graphs:
        for op in (*graph.ops, *graph.fused_updates):
            dtypes = tuple((role, graph.buffers[name].tensor.dtype) for role, name in op.roles.items())
            alike = op.record, op.step, dtypes, op.accumulates, len(op.part_passes)
            if alike not in found:
                found[alike] = keys_of(op, recorder.launched_by(op, graph))
    return frozenset().union(*found.values())


def _no_address(of: object) -> int:
    """The address of anything that exists only on a GPU."""
    return ADDRESS


def _nothing() -> None:
    """A launch that is only recorded."""
