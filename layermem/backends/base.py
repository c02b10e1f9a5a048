"""The device interface: buffer sizes, arenas, binding ops to addresses, ordering streams, execution.

Ops are bound once per schedule, when every address is known; a bound op is a callable without arguments.  Per-step
values (seed, step, learning rate, batch) are read from the context that it was bound to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from layermem.backends.arena import Arena
from layermem.backends.comm_thread import Bound as Bound
from layermem.backends.comm_thread import CommCalls
from layermem.backends.narrow import BITS, narrowed, widened
from layermem.backends.registry import StepContext
from layermem.distributed.transport import Transport
from layermem.errors import DeviceError, InputError
from layermem.graph.ops import COMM, Graph, Op
from layermem.ops import FP32, NARROW, BandRules, ByteImages, InnerProduct, OpRecord, Tensor
from layermem.planning.gpus import TargetGpu
from layermem.schedule.ir import Instruction
from layermem.utils.text import choices

Memory: TypeAlias = Any  # what an arena gives for a range of bytes: a NumPy view, or an address on another device
Batch = Mapping[str, Sequence[npt.NDArray[Any] | ByteImages]]  # arrays (NCHW) by input layer
NextBatch = Callable[[], "Batch | None"]  # fetches the batch after this one, None after the last


STORAGES = (FP32, *NARROW)


class Device:
    """Base of all devices; the defaults serve devices that compute in the host's memory, one instruction at a time."""

    name = ""
    real = "float32"  # element type of blobs
    has_streams = False  # whether instructions of different streams run at the same time
    storage = FP32  # of activations: in 16 bits where it is one of NARROW (graph/storage.py)
    least_parts = 8  # of the largest op, where activations are in 16 bits
    part_bytes = 8 << 20  # of an op in fp32, where activations are in 16 bits: they stay in a cache
    shares_host_memory = True  # its arena and the host's are the same memory: offloading to it frees nothing
    fusions: frozenset[str] = frozenset()  # names of the fused ops that it runs (OpRecord.fusion)

    @property
    def gpu(self) -> TargetGpu | None:
        """The GPU that plans are for, on a device that has some."""
        return None

    @property
    def title(self) -> str:
        """What plans and costs are made for: its name, and what else changes the kernels that run."""
        return self.name

    @property
    def arithmetic(self) -> str:
        """What the bits of results depend on beside the net: snapshots record it."""
        return self.title + self._of_storage

    @property
    def _of_storage(self) -> str:
        return "" if self.storage == FP32 else f" storing {self.storage}"

    def nbytes(self, tensor: Tensor) -> int:
        return tensor.count * np.dtype(self.dtype(tensor)).itemsize

    def dtype(self, tensor: Tensor) -> str:
        """The NumPy element type of the tensor in memory; bits where NumPy has no such type."""
        return self.real if tensor.dtype == "float32" else BITS.get(tensor.dtype, tensor.dtype)

    def _set_storage(self, storage: str) -> None:
        if storage not in STORAGES:
            raise InputError(f"unknown storage '{storage}' (choose from {', '.join(STORAGES)})")
        self.storage = storage

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        """Bytes that an op with these roles needs while it runs."""
        return 0

    def host_workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        """The same in the host arena, on devices that stage bytes there."""
        return 0

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None:
        """Bytes that slices of a batch carry of a result that sums over its items (OpRecord); None where this device
        cannot run the op in slices.  `record` is that of one slice."""
        return None

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int:
        """Bytes that slices carry beside those, of a sum that a slice does not complete."""
        return 0

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool:
        """Whether what slices of a batch carry of a result is that result itself, incomplete: where both have the same
        size, the last slice may have them in the same memory.  If the result `accumulates`: whether the sums begin with
        what it is added to."""
        return False

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        """Of the roles of an op, in these element types, those in 16 bits that its kernel takes as they are; the others
        are converted (graph/storage.py).  Both ways have the same bits."""
        return frozenset()

    def row_bands(self, record: InnerProduct) -> BandRules | None:
        """How this device computes `record`, the whole one, in bands of the rows of its weights (graph/bands.py); None
        where their bits would not be those of the whole."""
        return None

    def implements(self, record: OpRecord, step: str) -> bool:
        raise NotImplementedError

    def bind(self, op: Op, arrays: Mapping[str, Memory], context: StepContext) -> Bound:
        """`arrays`: stored (channels-last) views by role, and "workspace" and "host_workspace" as bytes."""
        raise NotImplementedError

    takes_bytes = False  # whether it transforms ByteImages itself

    def bind_joined(self, bindings: Sequence[tuple[Op, Mapping[str, Memory]]], context: StepContext) -> Bound:
        """One call for ops that join each other (Op.joins), each with its `arrays`."""
        return sequence([self.bind(op, arrays, context) for op, arrays in bindings])

    def view(self, memory: Memory, begin: int, tensor: Tensor) -> Memory:
        """A tensor at byte `begin` of what an arena gave for some bytes, or for a tensor."""
        begins, dtype = memory.reshape(-1).view(np.uint8)[begin:], np.dtype(self.dtype(tensor))
        return begins[: tensor.count * dtype.itemsize].view(dtype).reshape(tensor.stored)

    def bind_widen(self, source: Memory, target: Memory, dtype: str, stream: str) -> Bound:
        """`target` in fp32 = `source` in `dtype`, one of NARROW."""

        def run() -> None:
            target[...] = widened(source, dtype)

        return run

    def bind_narrow(self, source: Memory, target: Memory, dtype: str, stream: str) -> Bound:
        """`target` in `dtype` = `source` in fp32, rounded to nearest even."""

        def run() -> None:
            target[...] = narrowed(source, dtype)

        return run

    def bind_copy(self, source: Memory, target: Memory) -> Bound:
        """A copy of bytes between the device's arena and the host's."""

        def copy() -> None:
            target[:] = source

        return copy

    def bind_fill(self, span: Memory, byte: int, stream: str) -> Bound:
        """Set all bytes of `span`, after the work issued to the stream before."""

        def fill() -> None:
            span[:] = byte

        return fill

    def load(self) -> None:
        """Make ready what has been bound, where that takes long: kernels that are compiled at their first use."""

    def bind_guard(self, call: Bound, what: str, watched: Sequence[tuple[str, Memory]]) -> Bound:
        """`call`, and DeviceError if it changes one of the spans `watched`, each beside the buffer of that name."""

        def guarded() -> None:
            before = [span.copy() for _, span in watched]
            call()
            for (buffer, span), saved in zip(watched, before):
                if not np.array_equal(span, saved):
                    raise DeviceError(f"{what} writes outside '{buffer}'")

        return guarded

    def order_streams(
        self,
        instructions: Sequence[Instruction],
        calls: Sequence[Bound],
        cancel: Bound | None = None,
        free_from: Mapping[str, int] = {},
    ) -> Sequence[Bound]:
        """The bound instructions, each waiting for those of other streams that its `after` names.

        A device without streams completes each call before the next: nothing to add, but for those on COMM.  They run
        on a thread of their own if there is a way to `cancel` what they wait for, else in their turn.

        free_from   by input layer: the tick from which the bytes of its workspace are free for the next batch, to the
                    end of the step
        """
        if cancel is None or all(each.stream != COMM for each in instructions):
            return calls
        return CommCalls(instructions, calls, cancel)

    def run(self, calls: Sequence[Bound], next_batch: NextBatch | None = None) -> None:
        """Call all in order; all work is complete on return.

        next_batch   fetches the batch of the next run, for devices that stage it while they compute
        """
        if isinstance(calls, CommCalls):
            calls.run()
            return
        for call in calls:
            call()

    @property
    def communication_bytes(self) -> int:
        """Bytes of the device that communication between ranks takes beside the arena."""
        return 0

    def connect(self, transport: Transport) -> None:
        """What the device prepares to communicate with the other ranks beside `transport`, before a plan is made."""

    def check_kernels(self, graphs: Sequence[Graph], say: Callable[[str], None]) -> bool:
        """Check the kernels that the steps of `graphs` launch, where this machine has no record of that, and `say` what
        was found; whether other kernels take the place of some, so that the graphs must be made again."""
        return False

    def default_host_bytes(self, *, spill: bool = False) -> int | None:
        """The host budget where the user states none: no limit, but 0 where offloading to memory would free none."""
        return 0 if self.shares_host_memory and not spill else None

    def free_bytes(self, host_bytes: int = 0) -> int:
        """Bytes that an arena may take now beside a host arena of so many: the budget `free`."""
        raise InputError(f"budget 'free' needs a GPU's driver; give a number of bytes for device {self.name}")

    def seconds(self, calls: Sequence[Bound]) -> float:
        """Seconds that the calls take on their own; without launch latency where the device can measure that."""
        began = time.perf_counter()
        self.run(calls)
        return time.perf_counter() - began

    def describe(self) -> str:
        """One line for `layermem devices`."""
        return self.name

    def arena(self, nbytes: int, *, poison: bool = False) -> Arena:
        """The one allocation of a step, in which Arena.touched_bytes() measures."""
        return Arena(nbytes, poison=poison, measured=True)

    def check_spill(self) -> None:
        """InputError where the host arena of this device cannot be a file."""

    def host_arena(self, nbytes: int, *, spill: Path | None = None, poison: bool = False) -> Arena:
        """The arena of offloaded buffers: host memory, or a memory-mapped file in the folder `spill`."""
        return Arena(nbytes, spill=spill, poison=poison)


def sequence(calls: Sequence[Bound]) -> Bound:
    """One call that makes all `calls` in order."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run


NAMES = ("reference", "cpu", "cuda")
DEVICES: dict[str, Callable[..., Device]] = {}


def register_device(name: str) -> Callable[[type[Device]], type[Device]]:
    def register(cls: type[Device]) -> type[Device]:
        cls.name = name
        DEVICES[name] = cls
        return cls

    return register


def get_device(name: str, **settings: object) -> Device:
    """The device called `name`, from the package of that name; `settings` go to its class."""
    available = [each for each in NAMES if find_spec(f"layermem.backends.{each}")]
    if name not in DEVICES and name in available:
        import_module(f"layermem.backends.{name}")
    if name not in DEVICES:
        raise InputError(f"unknown device '{name}' ({choices({'gpu': 'cuda'}.get(name, name), available)})")
    return DEVICES[name](**settings)


def describe_devices() -> dict[str, str]:
    """One line per device: its description, or why it is not available here."""
    lines = {}
    for name in NAMES:
        try:
            lines[name] = get_device(name).describe()
        except DeviceError as error:
            lines[name] = f"not available: {error}"
        except InputError:
            lines[name] = "not in this version"
    return lines
