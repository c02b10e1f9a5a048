"""The device interface: buffer sizes, arenas, binding ops to addresses, ordering streams, execution.

Ops are bound once per schedule, when every address is known; a bound op is a callable without arguments.  It reads
per-step values (seed, step, learning rate, batch) from the context that it was bound to.
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
from layermem.utils.free_memory import free_memory
from layermem.utils.steps import report_step
from layermem.utils.stopwatch import seconds_since
from layermem.utils.text import advice_for
from layermem.utils.units import format_bytes

Memory: TypeAlias = Any  # a range of an arena: a NumPy view, or an address on another device
Batch = Mapping[str, Sequence[npt.NDArray[Any] | ByteImages]]  # arrays (NCHW) by input layer
NextBatch = Callable[[], "Batch | None"]  # fetches the batch after this one, None after the last


STORAGES = (FP32, *NARROW)


class Stopwatch:
    """When each call of a step begins and ends, by the clock of the host; devices with streams have their own."""

    def __init__(self, count: int):
        self._times = [(0.0, 0.0)] * count

    def around(self, tick: int, stream: str, call: Bound) -> Bound:
        """Return `call` with its times taken."""

        def timed() -> None:
            begin = time.perf_counter()
            call()
            self._times[tick] = begin, time.perf_counter()

        return timed

    def times(self) -> list[tuple[float, float]]:
        """The begin and end of each call in the last run, in seconds since any one moment; the run is complete."""
        return self._times


class Device:
    """Base of all devices; the defaults serve devices that compute in the host's memory, one instruction at a time."""

    name = ""
    real = "float32"  # element type of blobs
    has_streams = False  # whether instructions of different streams run at the same time
    storage = FP32  # storage of activations; names in NARROW have 16 bits (graph/storage.py)
    least_parts = 8  # smallest number of parts of the largest op with 16-bit activations
    part_bytes = 8 << 20  # fp32 bytes of a part with 16-bit activations: they stay in a cache
    shares_host_memory = True  # its arena is in host memory: offloading frees nothing
    fusions: frozenset[str] = frozenset()  # fused ops that it runs (OpRecord.fusion)

    @property
    def gpu(self) -> TargetGpu | None:
        """The GPU that plans are made for, on a device with GPUs."""
        return None

    @property
    def title(self) -> str:
        """The target of plans and costs: the name, and other properties that change the kernels."""
        return self.name

    @property
    def arithmetic(self) -> str:
        """The properties besides the net that determine the bits of results; snapshots record them."""
        return self.title + self._of_storage

    @property
    def _of_storage(self) -> str:
        return "" if self.storage == FP32 else f" storing {self.storage}"

    def nbytes(self, tensor: Tensor) -> int:
        return tensor.count * np.dtype(self.dtype(tensor)).itemsize

    def dtype(self, tensor: Tensor) -> str:
        """The NumPy element type of the tensor in memory; unsigned integers if NumPy lacks the type."""
        return self.real if tensor.dtype == "float32" else BITS.get(tensor.dtype, tensor.dtype)

    def _set_storage(self, storage: str) -> None:
        if storage not in STORAGES:
            raise InputError(f"unknown storage '{storage}' (choose from {', '.join(STORAGES)})")
        self.storage = storage

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        """Bytes of workspace for an op with these roles."""
        return 0

    def host_workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        """Bytes of host workspace for an op, on devices that stage bytes there."""
        return 0

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None:
        """Bytes that slices of a batch carry for a result that sums over its items (OpRecord); None if this device
        cannot run the op in slices.  `record` belongs to one slice."""
        return None

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int:
        """Additional bytes that slices carry for a sum that a slice does not complete."""
        return 0

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool:
        """Whether the carry of a result is the incomplete result itself: if both have the same size, the last slice may
        have them in the same memory.  If the result `accumulates`: whether the sums begin with the value that it is
        added to."""
        return False

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        """The 16-bit roles of an op, in these element types, that its kernel takes directly; others are converted
        (graph/storage.py).  Both ways give the same bits."""
        return frozenset()

    def row_bands(self, record: InnerProduct) -> BandRules | None:
        """The rules by which this device computes the whole `record` in bands of the rows of its weights
        (graph/bands.py); None if bands would not have the bits of the whole."""
        return None

    def implements(self, record: OpRecord, step: str) -> bool:
        raise NotImplementedError

    def bind(self, op: Op, arrays: Mapping[str, Memory], context: StepContext) -> Bound:
        """Bind an op to `arrays`: channels-last views by role, and "workspace" and "host_workspace" as bytes."""
        raise NotImplementedError

    takes_bytes = False  # whether the device itself transforms ByteImages

    def bind_joined(self, bindings: Sequence[tuple[Op, Mapping[str, Memory]]], context: StepContext) -> Bound:
        """Return one call for ops that join each other (Op.joins), each with its `arrays`."""
        return sequence([self.bind(op, arrays, context) for op, arrays in bindings])

    def view(self, memory: Memory, begin: int, tensor: Tensor) -> Memory:
        """Return the memory of a tensor at byte `begin` of a range of an arena."""
        begins, dtype = memory.reshape(-1).view(np.uint8)[begin:], np.dtype(self.dtype(tensor))
        return begins[: tensor.count * dtype.itemsize].view(dtype).reshape(tensor.stored)

    def bind_widen(self, target: Memory, source: Memory, dtype: str, stream: str) -> Bound:
        """Return a call that writes `source`, in `dtype` of NARROW, to `target` in fp32."""

        def run() -> None:
            target[...] = widened(source, dtype)

        return run

    def bind_narrow(self, target: Memory, source: Memory, dtype: str, stream: str) -> Bound:
        """Return a call that writes `source`, in fp32, to `target` in `dtype`, rounded to nearest even."""

        def run() -> None:
            target[...] = narrowed(source, dtype)

        return run

    def bind_copy(self, target: Memory, source: Memory) -> Bound:
        """Return a call that copies bytes between the device's arena and the host's."""

        def copy() -> None:
            target[:] = source

        return copy

    def bind_fill(self, span: Memory, byte: int, stream: str) -> Bound:
        """Return a call that sets all bytes of `span`, after earlier work on the stream."""

        def fill() -> None:
            span[:] = byte

        return fill

    def load(self) -> None:
        """Do slow preparations for everything that was bound, such as compiling kernels."""

    def bind_guard(self, call: Bound, what: str, watched: Sequence[tuple[str, Memory]]) -> Bound:
        """Return `call` with a DeviceError if it changes one of the spans `watched`, each next to the buffer of that
        name."""

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
        """Return the bound instructions; each waits for the instructions of other streams in its `after`.

        A device without streams completes each call before the next, so nothing is added, except on COMM: its calls
        run on a separate thread if `cancel` can end their waits, otherwise in order.

        free_from   by input layer: the tick from which the bytes of its workspace are free for the next batch, until
                    the end of the step
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

    def stopwatch(self, count: int) -> Stopwatch:
        """A stopwatch for the `count` calls of a step."""
        return Stopwatch(count)

    @property
    def communication_bytes(self) -> int:
        """Bytes of the device, outside of the arena, for communication between ranks."""
        return 0

    def connect(self, transport: Transport) -> None:
        """Prepare communication with the other ranks of `transport`, before a plan is made."""

    def check_kernels(self, graphs: Sequence[Graph], say: Callable[[str], None]) -> bool:
        """Check the kernels of `graphs`, unless this machine has a record of the check, and `say` the results; return
        whether other kernels replace some, so that the graphs must be made again."""
        return False

    def default_host_bytes(self, *, spill: bool = False) -> int | None:
        """The host budget if the user states none: no limit, or 0 if offloading to memory would free none."""
        return 0 if self.shares_host_memory and not spill else None

    def free_bytes(self, host_bytes: int = 0, held_bytes: int = 0) -> int:
        """Bytes that an arena may take now, next to `host_bytes` of the host for other things, and in place of one that
        holds `held_bytes`: the budget `free`."""
        free = free_memory() if self.shares_host_memory else None
        if free is None:
            raise InputError(
                f"budget 'free': this system does not say how much memory it has for device {self.name}; give a number "
                "of bytes"
            )
        if not held_bytes:  # a training looks again each second
            report_step("budget free: %s, %s", format_bytes(free.nbytes), free.whose)
        return max(0, free.nbytes + held_bytes - host_bytes)

    def seconds(self, calls: Sequence[Bound]) -> float:
        """Seconds of the calls on their own, without launch latency if the device can measure that."""
        began = time.perf_counter()
        self.run(calls)
        return seconds_since(began)

    def describe(self) -> str:
        """Return one line for `layermem devices`."""
        return self.name

    def arena(self, nbytes: int, *, poison: bool = False, persistent_bytes: int = 0) -> Arena:
        """Allocate the arena of a step, in which Arena.touched_bytes() measures."""
        return Arena(nbytes, poison=poison, measured=True, persistent_bytes=persistent_bytes)

    def check_spill(self) -> None:
        """Raise InputError if the host arena of this device cannot be a file."""

    def host_arena(
        self, nbytes: int, *, spill: Path | None = None, direct: bool = False, poison: bool = False
    ) -> Arena:
        """Allocate the arena of offloaded buffers: host memory, or a memory-mapped file in the folder `spill`, which is
        written past the cache of the system if `direct`."""
        return Arena(nbytes, spill=spill, direct=direct, poison=poison)


def sequence(calls: Sequence[Bound]) -> Bound:
    """Return one call that makes all `calls` in order."""
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
    """Make the device called `name`, from the package of that name; `settings` go to its class."""
    available = [each for each in NAMES if find_spec(f"layermem.backends.{each}")]
    if name not in DEVICES and name in available:
        import_module(f"layermem.backends.{name}")
    if name not in DEVICES:
        raise InputError(f"unknown device '{name}' ({advice_for({'gpu': 'cuda'}.get(name, name), available)})")
    return DEVICES[name](**settings)


def describe_devices() -> dict[str, str]:
    """Return one line per device: its description, or the reason why it is not available."""
    lines = {}
    for name in NAMES:
        try:
            lines[name] = get_device(name).describe()
        except DeviceError as error:
            lines[name] = f"not available: {error}"
        except InputError:
            lines[name] = "not in this version"
    return lines
