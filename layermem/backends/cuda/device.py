"""The cuda device: launches packed at bind time, copies on streams of their own, events where the schedule asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from layermem.backends.base import Bound, Device, NextBatch, register_device, sequence
from layermem.backends.cuda.driver.context import Card, Driver, cards
from layermem.backends.cuda.driver.error_flags import DeviceErrorFlags
from layermem.backends.cuda.driver.host_io import HostIO
from layermem.backends.cuda.driver.memory import CudaArena, PinnedArena, Place
from layermem.backends.cuda.driver.step_run import StepRun
from layermem.backends.cuda.fused import FUSED
from layermem.backends.cuda.implicit_gemm import ENGINES
from layermem.backends.cuda.kernels import KERNELS, WORKSPACES
from layermem.backends.cuda.launch import Addresses, Launch
from layermem.errors import CudaUnavailable, InputError
from layermem.graph.ops import Op
from layermem.layers.data import FEEDS
from layermem.schedule.ir import COMPUTE, D2H, H2D, Instruction
from layermem.utils.units import format_bytes

OUTPUT = "Net.output"
TENSOR_CORES = 80  # compute capability of the first cards with tf32 and bf16


@register_device("cuda")
class CudaDevice(Device):
    """Card number `index`.  It is opened when the first arena is asked for: plans are made without one.

    precision   of matrix products, one of ENGINES; all else, and every blob and parameter, is fp32
    graph       run steps as CUDA graphs: one launch instead of one for each kernel and copy
    """

    def __init__(self, index: int = 0, precision: str = "fp32", graph: bool = False):
        if precision not in ENGINES:
            raise InputError(f"there is no precision '{precision}'; choose one of: {' '.join(ENGINES)}")
        self.index, self.precision, self.graph = index, precision, graph

    fuses = frozenset({"BatchNormScale", "EltwiseReLU", "InnerProduct.backward_update", *FUSED})

    @property
    def title(self) -> str:
        return self.name if self.precision == "fp32" else f"{self.name} {self.precision}"

    @cached_property
    def driver(self) -> Driver:
        driver = Driver(self.index)
        if self.precision != "fp32" and int(driver.card.capability) < TENSOR_CORES:
            raise CudaUnavailable(
                f"{driver.card.name} has compute capability {driver.card.capability}; --precision {self.precision} "
                f"needs {TENSOR_CORES} or later: use fp32"
            )
        return driver

    @cached_property
    def host_io(self) -> HostIO:
        return HostIO(self.driver, self._bind_launches)

    @cached_property
    def error_flags(self) -> DeviceErrorFlags:
        return DeviceErrorFlags(self.driver)

    def describe(self) -> str:
        """The cards of this machine; CudaUnavailable if there are none."""
        return "; ".join(map(described, cards()))

    # -- what a graph asks -----------------------------------------------------------------------------------------

    def workspace(self, kernel: str, layer: object, roles: Collection[str], accumulates: Collection[str]) -> int:
        return WORKSPACES[kernel](layer, roles) if kernel in WORKSPACES else 0

    def has_kernel(self, kernel: str) -> bool:
        return kernel in KERNELS or kernel == OUTPUT or kernel.removesuffix(".forward") in FEEDS

    def free_bytes(self) -> int:
        return self.driver.free_bytes()

    # -- memory ----------------------------------------------------------------------------------------------------

    def arena(self, nbytes: int, *, poison: bool = False) -> CudaArena:
        if poison and self.graph:
            raise InputError("a captured step cannot poison the bytes that it frees: leave out poison, or graph")
        return CudaArena(self.driver, nbytes, poison=poison)

    def host_arena(self, nbytes: int, *, spill: Path | None = None, poison: bool = False) -> PinnedArena:
        if spill is not None:
            raise InputError("--spill goes with --device cpu; the cuda device offloads to pinned memory of the host")
        return PinnedArena(self.driver, nbytes, poison=poison)

    # -- binding -----------------------------------------------------------------------------------------------------

    def bind(self, op: Op, arrays: Mapping[str, Place], context: Mapping[str, Any]) -> Bound:
        if op.kernel == OUTPUT:
            return self.host_io.output(op.layer, arrays["x0"], context)
        if op.kernel.removesuffix(".forward") in FEEDS:
            return self.host_io.feed(op.layer.name, [arrays[f"y{i}"] for i in range(len(arrays))], context)
        addresses = {role: place.address for role, place in arrays.items()}
        addresses["error_flag"] = self.error_flags.address_for(op.layer)
        counts = {role: place.count for role, place in arrays.items()}
        launches = KERNELS[op.kernel](op.layer, Addresses(addresses, op.accumulates, counts, self.precision))
        return self._bind_launches(launches, context)

    def _bind_launches(self, launches: Any, context: Mapping[str, Any]) -> Bound:
        return sequence([self._bind_launch(launch, context) for launch in launches])

    def _bind_launch(self, launch: Launch, context: Mapping[str, Any]) -> Bound:
        if not launch.patches:
            return self.driver.launcher(launch, launch.args, COMPUTE)
        args = bytearray(launch.args)
        start = self.driver.launcher(launch, args, COMPUTE)
        first = [patch for patch in launch.patches if patch.once]
        always = [patch for patch in launch.patches if not patch.once]

        def write() -> None:
            while first:
                first.pop().write(args, context)
            for patch in always:
                patch.write(args, context)

        def run() -> None:
            write()
            start()
            if self.driver.capture is not None:
                self.driver.capture.update_arguments(COMPUTE, args, write)

        return run

    def bind_copy(self, source: Any, target: Any) -> Bound:
        if isinstance(source, Place):
            return self.driver.copier(source.address, target, D2H)
        return self.driver.copier(source, target.address, H2D)

    def bind_fill(self, span: Any, byte: int, stream: str) -> Bound:
        if not isinstance(span, Place):  # the host's own bytes, which copies may still be reading

            def fill_host() -> None:
                self.driver.synchronize()
                span[:] = byte

            return fill_host

        def fill() -> None:
            self.driver.join(stream)  # other streams may still read what ends here
            self.driver.fill(span.address, byte, span.nbytes, stream)

        return fill

    # -- order and running -------------------------------------------------------------------------------------------

    def order_streams(self, instructions: Sequence[Instruction], calls: Sequence[Bound]) -> Sequence[Bound]:
        awaited = {tick for instruction in instructions for tick in instruction.after}
        events = {tick: self.driver.event() for tick in awaited}
        ordered = []
        for instruction, call in zip(instructions, calls, strict=True):
            stream = self.driver.streams[instruction.stream]
            before = [_waiting(stream, events[tick]) for tick in instruction.after]
            after = [_recording(stream, events[instruction.tick])] if instruction.tick in awaited else []
            ordered.append(sequence([*before, call, *after]))
        return StepRun(self.driver, self.host_io, ordered, self.host_io.take_new_stagers(), self.graph)

    def seconds(self, calls: Sequence[Bound]) -> float:
        """Between two events on the compute stream."""
        stream = self.driver.streams[COMPUTE]
        begin, end = (self.driver.event(timed=True) for _ in range(2))
        self.run([_recording(stream, begin), *calls, _recording(stream, end)])
        return 1e-3 * begin.time_till(end)

    def run(self, calls: Sequence[Bound], next_batch: NextBatch | None = None) -> None:
        with self.driver.reporting_device_errors():
            try:
                if isinstance(calls, StepRun):
                    calls.start()
                    calls.stage_next_batch(next_batch)
                else:
                    for call in calls:
                        call()
            finally:
                self.driver.synchronize()
        self.error_flags.check()
        self.host_io.collect_outputs()


def described(card: Card) -> str:
    """A card on one line: what plans and rates depend on, at its boost clock."""
    rates = f", {card.flops / 1e12:.3g} TFLOP/s fp32, {card.memory_rate / 1e9:.0f} GB/s" if card.flops else ""
    memory = f"{format_bytes(card.memory)}, {card.multiprocessors} multiprocessors"
    return f"{card.number}: {card.name}, sm_{card.capability}, {memory}{rates}"


def _waiting(stream: Any, event: Any) -> Callable[[], None]:
    return lambda: stream.wait_for_event(event)


def _recording(stream: Any, event: Any) -> Callable[[], None]:
    return lambda: event.record(stream)
