"""The cuda device: launches packed at bind time, copies on separate streams, events for the waits of the schedule."""

from __future__ import annotations

import atexit
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from layermem.backends.base import Bound, Device, Memory, NextBatch, Stopwatch, register_device, sequence
from layermem.backends.cuda.base import CudaCall, cuda_kernels
from layermem.backends.cuda.checks.checked import CheckedGpu, check_step, is_switched_off
from layermem.backends.cuda.communication import Staging, reduce_workspace_bytes
from layermem.backends.cuda.driver import communication
from layermem.backends.cuda.driver.communication import Communicator, HostCommunicator, NcclCommunicator
from layermem.backends.cuda.driver.context import Driver, Gpu, gpu_count, gpus, page_table_bytes
from layermem.backends.cuda.driver.delay import delay
from layermem.backends.cuda.driver.error_flags import DeviceErrorFlags
from layermem.backends.cuda.driver.host_code import HostCode
from layermem.backends.cuda.driver.host_io import HostIO
from layermem.backends.cuda.driver.memory import CudaArena, DeviceSpan, HostBytes, PinnedArena
from layermem.backends.cuda.driver.step_run import StepRun, record_event, wait_for
from layermem.backends.cuda.driver.step_scalars import StreamScalars, scalars_by_stream
from layermem.backends.cuda.driver.stopwatch import EventStopwatch
from layermem.backends.cuda.images import feed_workspace_bytes
from layermem.backends.cuda.products import narrow_products
from layermem.backends.cuda.products.gemm_tiles import DEPTH, ENGINES
from layermem.backends.cuda.products.inner_parts import dgrad_parts
from layermem.backends.cuda.support.families import families_off
from layermem.backends.cuda.support.half import narrow, widen
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.cuda.update import update_parameters
from layermem.backends.registry import StepContext, narrow_roles, storage_of
from layermem.distributed.group import Group
from layermem.distributed.nccl import Nccl
from layermem.distributed.transport import Transport
from layermem.errors import CudaUnavailable, InputError
from layermem.graph.ops import COMM, Graph, Op
from layermem.ops import (
    CONV_MOMENTS,
    DGRAD_SUMS_FUSION,
    FP32,
    JOINED_UPDATES,
    MASKED_DGRAD,
    AllGather,
    BandRules,
    Communication,
    CopyOut,
    Feed,
    InnerProduct,
    OpRecord,
    Python,
    ReadsLabels,
    ReduceScatter,
    Tensor,
    Update,
)
from layermem.planning.gpus import TENSOR_CORES, WITHOUT, TargetGpu, find_gpu, recognize_gpu, spec_by_driver
from layermem.schedule.ir import COMPUTE, D2H, H2D, Instruction
from layermem.utils.units import format_bytes

CUDA_FUSIONS = (
    "BatchNormScale", "BatchNormScale+residual", "BatchNormScale+residual+relu", "Conv+relu", "Conv+residual",
    "Conv+residual+relu", MASKED_DGRAD, CONV_MOMENTS, DGRAD_SUMS_FUSION, "Eltwise+relu", "InnerProduct+relu",
    "InnerProduct+residual", "InnerProduct+residual+relu", "InnerProduct+update", JOINED_UPDATES,
)  # fmt: skip
TRANSPORTS = ("mpi", "nccl")
WARM_UP_BYTES = 4096  # size of the messages that make NCCL open its connections
POLL_SECONDS = 1e-4  # interval between checks of NCCL's state


@register_device("cuda")
class CudaDevice(Device):
    """GPU number `index`.  It is opened when the first arena is allocated, since planning does not need it.

    precision   precision of matrix products, one of ENGINES; parameters and all other arithmetic are fp32
    graph       run steps as CUDA graphs: one launch instead of one for each kernel and copy
    transport   one of TRANSPORTS, between ranks: through host memory by MPI, or from GPU to GPU by NCCL
    planned_gpu   name of the GPU to plan for (planning/gpus.py), which may be absent; by default the GPU in use
    storage     element type of activations, fp32 or one of NARROW
    """

    def __init__(
        self,
        index: int = 0,
        precision: str = "fp32",
        graph: bool = False,
        transport: str = "mpi",
        planned_gpu: str | None = None,
        storage: str = FP32,
    ):
        self._set_storage(storage)
        if transport not in TRANSPORTS:
            raise InputError(f"unknown transport '{transport}' (choose from {', '.join(TRANSPORTS)})")
        if precision not in ENGINES:
            raise InputError(f"unknown precision '{precision}' (choose from {', '.join(ENGINES)})")
        families_off()  # InputError for an unknown one
        self.index, self.precision, self.graph, self.transport = index, precision, graph, transport
        self.planned_spec = None if planned_gpu is None else find_gpu(planned_gpu)
        if self.planned_spec is not None:
            self.planned_spec.peak(precision)  # InputError without such tensor cores
        self.nccl: Nccl | None = None
        self.nccl_bytes = 0  # bytes of the GPU's memory that NCCL has taken, outside of the arena
        self.reports_progress = True  # whether this process, of all ranks on its host, reports slow work

    shares_host_memory = False
    has_streams = True
    takes_bytes = True
    part_bytes = 64 << 20  # enough to keep all multiprocessors busy
    fusions = frozenset(CUDA_FUSIONS)

    @property
    def title(self) -> str:
        off = families_off()
        title = self.name if self.precision == "fp32" else f"{self.name} {self.precision}"
        return f"{title}{WITHOUT}{', '.join(off)}" if off else title

    @cached_property
    def driver(self) -> Driver:
        driver = Driver(self.index)
        if self.planned_spec is not None and recognize_gpu(driver.gpu.name) != self.planned_spec:
            driver.close()
            what = f"the plan is for {self.planned_spec.name}, and the GPU here is {driver.gpu.name}"
            raise InputError(f"{what}: nothing can be measured; leave --card out")
        if self.precision != "fp32" and int(driver.gpu.capability) < TENSOR_CORES:
            raise CudaUnavailable(
                f"{driver.gpu.name} has compute capability {driver.gpu.capability}; --precision {self.precision} "
                f"needs {TENSOR_CORES} or later: use fp32"
            )
        return driver

    @cached_property
    def gpu(self) -> TargetGpu | None:
        """The GPU to plan for, or the GPU in use; None if there is none."""
        if self.planned_spec is not None:
            return TargetGpu(self.planned_spec.name, self.planned_spec)
        try:
            found = self.driver.gpu if "driver" in vars(self) else gpus()[self.index]
        except (CudaUnavailable, IndexError):
            return None
        return target_gpu(found)

    @cached_property
    def host_io(self) -> HostIO:
        return HostIO(self.driver, self._bind_launches)

    @cached_property
    def host_code(self) -> HostCode:
        return HostCode(self.driver, self.host_io)

    @cached_property
    def error_flags(self) -> DeviceErrorFlags:
        return DeviceErrorFlags(self.driver)

    @cached_property
    def step_scalars(self) -> Mapping[str, StreamScalars]:
        return scalars_by_stream(self.driver)

    # -- other ranks -------------------------------------------------------------------------------------------------

    def connect(self, transport: Transport) -> None:
        """Assign this host's GPUs to its ranks in turn.  Start NCCL, if this device uses it, with all its buffers,
        before the budget is known, because they are outside of the arena.  Every rank calls this at the same point."""
        hosts = transport.allgather(socket.gethostname())
        number = hosts[: transport.rank].count(hosts[transport.rank])
        if "driver" not in vars(self):
            self.index = number % max(1, Group(transport).agree(gpu_count))
        self.reports_progress = number == 0
        if self.transport != "nccl" or self.nccl is not None:
            return
        group = Group(transport)
        before = group.agree(self.free_bytes)
        nccl = self.nccl = Nccl(transport)
        atexit.register(nccl.close)
        buffer = group.agree(lambda: self.driver.allocate(2 * nccl.size * WARM_UP_BYTES))
        group.agree(lambda: self._open_connections(nccl, int(buffer)))
        buffer.free()
        self.nccl_bytes = before - self.driver.free_bytes()

    def _open_connections(self, nccl: Nccl, buffer: int) -> None:
        """Send messages between all ranks, from the first half of each rank's part of the buffer to the second half."""
        places = [(rank, buffer + 2 * rank * WARM_UP_BYTES) for rank in range(nccl.size) if rank != nccl.rank]
        with self.driver.current(), self.driver.reporting_device_errors():
            nccl.exchange(
                [(rank, [(place, WARM_UP_BYTES)]) for rank, place in places],
                [(rank, [(place + WARM_UP_BYTES, WARM_UP_BYTES)]) for rank, place in places],
                int(self.driver.streams[COMM].handle),
            )
            self._wait_for_nccl(nccl)

    @property
    def communication_bytes(self) -> int:
        return self.nccl_bytes

    @cached_property
    def communicator(self) -> Communicator:
        if self.transport != "nccl":
            return HostCommunicator(self.driver)
        assert self.nccl is not None, "connect() starts NCCL"
        return NcclCommunicator(self.driver, self._bind_launches, self.nccl)

    def _wait_for_nccl(self, nccl: Nccl) -> None:
        """Wait until the stream is idle, or until NCCL reports an error that keeps it from ever being idle."""
        try:
            while not self.driver.streams[COMM].is_done():
                nccl.check()
                time.sleep(POLL_SECONDS)
            nccl.check()
        except BaseException:
            nccl.abort()
            raise

    def describe(self) -> str:
        """A line about the GPUs of this machine; CudaUnavailable if there are none."""
        return "; ".join(map(described, gpus()))

    # -- for planning ------------------------------------------------------------------------------------------------

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        if isinstance(record, ReduceScatter):
            return reduce_workspace_bytes(record) if self.transport == "nccl" else 0
        if isinstance(record, Feed):
            return feed_workspace_bytes(record)
        rounding = narrow_products.rounding_bytes(self.precision, record, step, self.storage)
        return max(rounding, cuda_kernels.workspace_bytes(record, step, roles))

    def host_workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        if not isinstance(record, Communication) or self.transport == "nccl":
            return 0
        return Staging(record).nbytes

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None:
        return cuda_kernels.carry_bytes(record, step, role)

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int:
        return cuda_kernels.open_bytes(record, step, role)

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool:
        """Whether a carry is the incomplete result: not if the op adds to the result, which happens at the end."""
        return not accumulates and cuda_kernels.sums_in_place(record, step, role)

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        return narrow_products.takes(self.precision, record, step, dtypes, accumulates)

    def row_bands(self, record: InnerProduct) -> BandRules | None:
        if self.storage != FP32:
            return None  # sums of bands would be rounded
        parts = dgrad_parts(record)  # dgrad sums whole parts or stages of outputs, then adds dx
        return BandRules(parts.depth if parts.number > 1 else DEPTH, adds_dx=False)

    def implements(self, record: OpRecord, step: str) -> bool:
        return cuda_kernels.implements(record, step) or isinstance(
            record, (AllGather, CopyOut, Feed, Python, ReduceScatter)
        )

    def free_bytes(self, host_bytes: int = 0, held_bytes: int = 0) -> int:
        if self.planned_spec is None:
            return self.driver.free_bytes(host_bytes) + held_bytes
        return self.planned_spec.free_bytes - page_table_bytes(host_bytes)

    def check_kernels(self, graphs: Sequence[Graph], say: Callable[[str], None]) -> bool:
        if is_switched_off() or self.planned_spec is not None:
            return False
        found = gpus()
        if self.index >= len(found):
            return False
        return check_step(CheckedGpu(found[self.index], self.precision, self.storage), self, graphs, say)

    # -- memory ----------------------------------------------------------------------------------------------------

    def arena(self, nbytes: int, *, poison: bool = False, persistent_bytes: int = 0) -> CudaArena:
        if poison and self.graph:
            raise InputError("a captured step cannot poison the bytes that it frees: leave out poison, or graph")
        return CudaArena(self.driver, nbytes, poison=poison)

    def check_spill(self) -> None:
        raise InputError("--spill goes with --device cpu; the cuda device offloads to pinned memory of the host")

    def host_arena(
        self, nbytes: int, *, spill: Path | None = None, direct: bool = False, poison: bool = False
    ) -> PinnedArena:
        if spill is not None:
            self.check_spill()
        return PinnedArena(self.driver, nbytes, poison=poison)

    # -- binding -----------------------------------------------------------------------------------------------------

    def bind(self, op: Op, arrays: Mapping[str, DeviceSpan], context: StepContext) -> Bound:
        record = op.record
        if isinstance(record, Communication):
            return communication.bind(
                self.communicator, self.driver, self._bind_launches, record, op.step, arrays, context
            )
        if isinstance(record, CopyOut):
            return self.host_io.copy_out(record.blob, arrays["x0"], context)
        if isinstance(record, Feed):
            tops = [arrays[f"y{i}"] for i in range(record.tops)]
            return self.host_io.feed(record, tops, arrays.get("workspace"), context)
        if isinstance(record, Python):
            if self.graph:
                what = "runs Python code on the host, which a CUDA graph cannot hold; leave --cuda-graph out"
                raise InputError(what, layer=op.layer_name)
            return self.host_code.bind(record, op.step, arrays, op.accumulates, context)
        call = self._call(op, arrays, context)
        return self._bind_launches(cuda_kernels.bind(record, op.step, call), context, op.stream)

    def bind_joined(self, bindings: Sequence[tuple[Op, Mapping[str, DeviceSpan]]], context: StepContext) -> Bound:
        updates = [
            (op.record, self._call(op, arrays, context)) for op, arrays in bindings if isinstance(op.record, Update)
        ]
        return self._bind_launch(update_parameters(updates), context, bindings[0][0].stream)

    def _call(self, op: Op, arrays: Mapping[str, DeviceSpan], context: StepContext) -> CudaCall:
        return CudaCall(
            addresses={role: span.address for role, span in arrays.items()},
            counts={role: span.count for role, span in arrays.items()},
            accumulated=frozenset(op.accumulates),
            context=context,
            layer=op.layer_name,
            storage=storage_of({span.tensor.dtype for span in arrays.values() if span.tensor is not None}),
            narrow=narrow_roles({role: span.tensor.dtype for role, span in arrays.items() if span.tensor is not None}),
            precision=self.precision,
            capability=self.own_gpu.capability,
            multiprocessors=self.own_gpu.multiprocessors,
            error_flag=self._error_flag(op),
            step_scalars=self._step_scalars(op.stream),
        )

    @cached_property
    def own_gpu(self) -> Gpu:
        """The GPU in use, which launches are made for."""
        return self.driver.gpu

    def _error_flag(self, op: Op) -> int:
        """The address of the error flag of an op that reads labels, otherwise 0."""
        record = op.record
        return self.error_flags.address_for(op.layer_name, record) if isinstance(record, ReadsLabels) else 0

    def _step_scalars(self, stream: str) -> int:
        return self.step_scalars[stream].address

    def _bind_launches(self, launches: Iterable[Launch], context: StepContext, stream: str = COMPUTE) -> Bound:
        return sequence([self._bind_launch(launch, context, stream) for launch in launches])

    def _bind_launch(self, launch: Launch, context: StepContext, stream: str) -> Bound:
        if not launch.patches and not launch.reads_step:
            return self.driver.launcher(launch, launch.args, stream)
        args, patches = bytearray(launch.args), list(launch.patches)
        start = self.driver.launcher(launch, args, stream)

        def run() -> None:
            while patches:
                patches.pop().write(args, context)
            if launch.reads_step:
                self.step_scalars[stream].upload(context)
            start()

        return run

    def view(self, memory: DeviceSpan | HostBytes, begin: int, tensor: Tensor) -> DeviceSpan | HostBytes:
        if not isinstance(memory, DeviceSpan):
            return memory[begin : begin + self.nbytes(tensor)]
        return DeviceSpan(memory.address + begin, self.nbytes(tensor), tensor)

    def bind_widen(self, target: DeviceSpan, source: DeviceSpan, dtype: str, stream: str) -> Bound:
        convert = widen(target.address, source.address, target.count, dtype)
        return self._bind_launches([convert], StepContext(), stream)

    def bind_narrow(self, target: DeviceSpan, source: DeviceSpan, dtype: str, stream: str) -> Bound:
        convert = narrow(target.address, source.address, target.count, dtype)
        return self._bind_launches([convert], StepContext(), stream)

    def bind_copy(self, target: DeviceSpan | HostBytes, source: DeviceSpan | HostBytes) -> Bound:
        if isinstance(source, DeviceSpan):
            assert not isinstance(target, DeviceSpan)
            return self.driver.copy_out(target, source.address, D2H)
        assert isinstance(target, DeviceSpan)
        return self.driver.copy_in(target.address, source, H2D)

    def load(self) -> None:
        self.driver.load(reports_progress=self.reports_progress)

    def bind_guard(self, call: Bound, what: str, watched: Sequence[tuple[str, Memory]]) -> Bound:
        """Return `call` itself, which only starts work; writes after the arena's end show in its measured bytes."""
        return call

    def bind_fill(self, span: DeviceSpan | HostBytes, byte: int, stream: str) -> Bound:
        if isinstance(span, DeviceSpan):
            address, nbytes = span.address, span.nbytes

            def fill() -> None:
                self.driver.join(stream)  # other streams may still read these bytes
                self.driver.fill(address, byte, nbytes, stream)

            return fill

        host = span

        def fill_host() -> None:
            self.driver.synchronize()  # copies may still read the host's bytes
            host[:] = byte

        return fill_host

    # -- order and running -------------------------------------------------------------------------------------------

    def order_streams(
        self,
        instructions: Sequence[Instruction],
        calls: Sequence[Bound],
        cancel: Bound | None = None,
        free_from: Mapping[str, int] = {},
    ) -> Sequence[Bound]:
        awaited = {tick for instruction in instructions for tick in instruction.after}
        events = {tick: self.driver.event() for tick in awaited}
        ordered = []
        for instruction, call in zip(instructions, calls, strict=True):
            stream = self.driver.streams[instruction.stream]
            before = [wait_for(stream, events[tick]) for tick in instruction.after]
            after = [record_event(stream, events[instruction.tick])] if instruction.tick in awaited else []
            ordered.append(sequence([*before, call, *after]))
        communicates = any(each.stream == COMM for each in instructions)
        if communicates and self.transport != "nccl":
            ordered = [
                self.driver.in_context(call) if each.stream == COMM else call
                for each, call in zip(instructions, ordered, strict=True)
            ]
            started = super().order_streams(instructions, ordered, cancel)
        else:
            started = ordered
        stagers = self.host_io.take_new_stagers()
        return StepRun(self.driver, self.host_io, started, stagers, self.graph and not communicates, free_from)

    def seconds(self, calls: Sequence[Bound]) -> float:
        """Seconds between two events on the compute stream, which is busy when the first event is recorded, so that the
        latency of the first launch is not measured."""
        stream = self.driver.streams[COMPUTE]
        begin, end = (self.driver.event(timed=True) for _ in range(2))
        self.run([self._delay, record_event(stream, begin), *calls, record_event(stream, end)])
        return 1e-3 * float(begin.time_till(end))

    def stopwatch(self, count: int) -> Stopwatch:
        if self.graph:
            raise InputError("times of instructions cannot be taken within a CUDA graph; leave --cuda-graph out")
        return EventStopwatch(self.driver, count)

    @cached_property
    def _delay(self) -> Bound:
        return delay(self.driver, COMPUTE)

    def run(self, calls: Sequence[Bound], next_batch: NextBatch | None = None) -> None:
        for scalars in self.step_scalars.values():
            scalars.is_new_step = True
        self.host_io.runs += 1
        self.load()  # kernels bound since the last run
        with self.driver.current(), self.driver.reporting_device_errors():
            try:
                if isinstance(calls, StepRun):
                    calls.start()
                    calls.stage_next_batch(next_batch)
                else:
                    for call in calls:
                        call()
                if self.nccl is not None:
                    self._wait_for_nccl(self.nccl)
            except BaseException:
                if self.nccl is not None:
                    self.nccl.abort()
                raise
            finally:
                self.driver.synchronize()
        self.error_flags.check()
        self.host_io.collect_outputs()


def described(gpu: Gpu) -> str:
    """A line about a GPU, with the properties that plans and rates depend on, at its boost clock."""
    rates = f", {gpu.flops / 1e12:.3g} TFLOP/s fp32, {gpu.memory_rate / 1e9:.0f} GB/s" if gpu.flops else ""
    memory = f"{format_bytes(gpu.memory_bytes)}, {gpu.multiprocessors} multiprocessors"
    spec = recognize_gpu(gpu.name)
    known = "" if spec is None else f", planned for as {spec.name}"
    return f"{gpu.number}: {gpu.name}, sm_{gpu.capability}, {memory}{rates}{known}"


def target_gpu(gpu: Gpu) -> TargetGpu:
    """The TargetGpu of a GPU of this machine."""
    spec = recognize_gpu(gpu.name) or spec_by_driver(
        gpu.name,
        int(gpu.capability),
        gpu.memory_bytes,
        gpu.multiprocessors,
        gpu.clock,
        gpu.memory_rate,
        gpu.shared_bytes,
    )
    return TargetGpu(gpu.name if spec is None else spec.name, spec)
