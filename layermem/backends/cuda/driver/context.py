"""The only module that calls PyCUDA: context, memory, streams, events and kernels of one GPU.

PyCUDA is imported when the first device is opened, so that planning for a GPU needs neither.  The context is the
device's primary one, which other libraries may share in the same process.
"""

from __future__ import annotations

import atexit
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from layermem.backends.cuda.driver.graph import GraphCapture
from layermem.backends.cuda.kernel_images import ahead, build
from layermem.backends.cuda.support.launch import Launch
from layermem.errors import CudaUnavailable, DeviceError, GpuLost
from layermem.planning.gpus import GRANULARITY_BYTES
from layermem.schedule.ir import STREAMS
from layermem.utils.units import format_bytes

Array = npt.NDArray[Any]
Stream = Any  # pycuda.driver.Stream
Event = Any  # pycuda.driver.Event
P = ParamSpec("P")
R = TypeVar("R")

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no order with the default stream
RESERVED_BYTES = 64 << 20  # left free for the code of kernels and for CUDA itself
FP32_LANES = {"75": 64, "80": 64}  # per multiprocessor, by compute capability; 128 otherwise
PINNED_BYTES = 512  # pinned bytes per byte of page table on the GPU (8 bytes for 4 KiB)
SHARED_BYTES = 48 << 10  # limit of a block without an opt-in, including static ones
WHOLE_CARVEOUT = 100  # percent of the memory of shared memory and L1 cache together
DRIVER_FILE = Path("/proc/driver/nvidia/version")
LATER = "once other programs have ended"


def page_table_bytes(pinned_bytes: int) -> int:
    """Bytes of the GPU's memory for the page tables of pinned host memory."""
    return -(-pinned_bytes // PINNED_BYTES)


class Gpu(NamedTuple):
    """A CUDA device as the driver describes it; sizes are in bytes."""

    number: int
    name: str
    capability: str  # "90" for sm_90
    memory_bytes: int
    multiprocessors: int
    flops: float = 0.0  # per second, in fp32 without tensor cores; 0 if unknown
    memory_rate: float = 0.0  # bytes per second
    shared_bytes: int = SHARED_BYTES  # limit of a block with an opt-in, including static ones
    clock: float = 0.0  # Hz, of its multiprocessors


PYCUDA_MISSING = (
    "the cuda device needs PyCUDA; `layermem setup-cuda` builds and installs it (no CUDA toolkit is needed), or use "
    "--device cpu"
)


@cache
def pycuda() -> Any:
    """The initialized module pycuda.driver; CudaUnavailable states what is missing and how to get it."""
    try:
        with warnings.catch_warnings():  # about an old driver: the error below explains it
            warnings.simplefilter("ignore")
            import pycuda.driver as cuda
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pycuda":
            raise
        if error.name == "pycuda._driver":
            version = ".".join(map(str, sys.version_info[:2]))
            raise CudaUnavailable(
                f"the installed PyCUDA was built for another Python than {version}; remove it (`pip uninstall pycuda`) "
                "and run `layermem setup-cuda`"
            ) from error
        raise CudaUnavailable(PYCUDA_MISSING) from error
    except ImportError as error:
        if "undefined symbol" in str(error):
            raise CudaUnavailable(
                f"PyCUDA was built with the headers of a newer CUDA than this driver supports ({error}): "
                "`layermem setup-cuda` builds one that suits it, or update the driver"
            ) from error
        raise CudaUnavailable(
            f"PyCUDA is installed, but NVIDIA's driver is not ({error}); without a GPU use --device cpu"
        ) from error
    try:
        cuda.init()
    except cuda.Error as error:
        raise CudaUnavailable(f"the CUDA driver does not start: {error}; is there an NVIDIA GPU?") from error
    if cuda.Device.count() == 0:
        raise CudaUnavailable("the CUDA driver finds no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES")
    return cuda


def gpus() -> list[Gpu]:
    """All CUDA devices of this machine."""
    cuda = pycuda()
    return [_gpu(index, cuda.Device(index)) for index in range(cuda.Device.count())]


def driver_version() -> str:
    """The version of NVIDIA's driver, "575.57"; "CUDA 13.0" if only the CUDA version that it supports is known."""
    with suppress(OSError):
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER_FILE.read_text(errors="replace"))
        if found is not None:
            return found[0]
    major, minor = divmod(pycuda().get_driver_version(), 1000)
    return f"CUDA {major}.{minor // 10}"


def gpu_count() -> int:
    """The number of CUDA devices that this process can use."""
    count: int = pycuda().Device.count()
    return count


def _gpu(index: int, device: Any) -> Gpu:
    major, minor = device.compute_capability()
    clock, memory_clock = 1e3 * device.CLOCK_RATE, 1e3 * device.MEMORY_CLOCK_RATE
    lanes = FP32_LANES.get(f"{major}{minor}", 128) * device.MULTIPROCESSOR_COUNT
    return Gpu(
        index,
        device.name(),
        f"{major}{minor}",
        device.total_memory(),
        device.MULTIPROCESSOR_COUNT,
        2 * lanes * clock,
        2 * memory_clock * device.GLOBAL_MEMORY_BUS_WIDTH / 8,
        device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        clock,
    )


def _current(method: Callable[Concatenate[Driver, P], R]) -> Callable[Concatenate[Driver, P], R]:
    """Wrap a method of Driver to run in its own context and to turn errors of CUDA into DeviceErrors."""

    @wraps(method)
    def run(self: Driver, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.reporting_device_errors(), self.current():
            return method(self, *args, **kwargs)

    return run


class Driver:
    """A GPU with its primary context, which is current in this thread until `close`, unless another driver is opened
    there; and its streams by name."""

    def __init__(self, index: int = 0):
        self.cuda = pycuda()
        if not 0 <= index < self.cuda.Device.count():
            raise CudaUnavailable(f"there is no CUDA device {index}; there are {self.cuda.Device.count()}, from 0 on")
        device = self.cuda.Device(index)
        self.gpu = _gpu(index, device)
        try:
            self.context = device.retain_primary_context()
            self.context.push()
        except self.cuda.Error as error:
            what = f"{self.gpu.name} cannot be used ({error}); end other processes on it, or use --device cpu"
            raise CudaUnavailable(what) from error
        atexit.register(self.close)
        self._lost = ""  # the error of a kernel, which the driver repeats at every call
        self.streams = {name: self.cuda.Stream(NON_BLOCKING) for name in STREAMS}
        self.capture: GraphCapture | None = None  # set while a step is captured
        self._functions: dict[tuple[str, str], Any] = {}
        self._dynamic_bytes: dict[tuple[str, str], int] = {}  # dynamic shared memory that each function has opted in to
        self._modules: dict[str, Any] = {}
        self._bound: list[tuple[str, Callable[[], None]]] = []  # modules of launches, and calls that load their kernels

    def close(self) -> None:
        """Leave the context; a context that is still pushed at exit would abort the process."""
        atexit.unregister(self.close)
        if self.context is None:
            return
        if self._lost:
            self.cuda.Context.get_current()  # takes an abandoned context from this thread's stack
            self.context = None
            return
        with self.current():
            for owned in (self._bound, self._functions, self._modules, self.streams):  # freed while the context exists
                owned.clear()
        self._leave()
        self.context = None

    def _leave(self) -> None:
        """Remove the context from this thread's stack, at any depth; other threads have separate stacks."""
        above = []
        while (top := self.cuda.Context.get_current()) is not None:
            top.pop()
            if top.handle == self.context.handle:
                break
            above.append(top)
        for context in reversed(above):
            context.push()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the driver's context current inside, whether another GPU's or none was current (in a new thread)."""
        if self._lost:
            raise GpuLost(self._lost)
        self.context.push()
        try:
            yield
        finally:
            if self._lost:
                self.cuda.Context.get_current()  # as in `close`
            else:
                self.context.pop()

    def in_context(self, call: Callable[[], object]) -> Callable[[], None]:
        """`call` for a thread without a context."""

        def run() -> None:
            with self.current():
                call()

        return run

    # -- memory ------------------------------------------------------------------------------------------------

    @_current
    def allocate(self, nbytes: int) -> Any:
        """Allocate device memory (`int()` of it is the address); DeviceError states what would fit."""
        now_free_bytes, total_bytes = self.cuda.mem_get_info()
        try:
            return self.cuda.mem_alloc(max(nbytes, 1))
        except self.cuda.MemoryError as error:
            largest_bytes = self.free_bytes()
            advice = f"--budget free, which is now {format_bytes(largest_bytes)}" if largest_bytes else LATER
            raise DeviceError(
                f"{self.gpu.name} cannot allocate {format_bytes(nbytes)} ({nbytes} bytes): "
                f"{format_bytes(now_free_bytes)} of {format_bytes(total_bytes)} are free, "
                f"{format_bytes(total_bytes - now_free_bytes)} are taken by CUDA's context and other programs; "
                f"try {advice}"
            ) from error

    @_current
    def free_bytes(self, pinned_bytes: int = 0) -> int:
        """Bytes that an allocation may take, less a reserve for CUDA and the code of kernels, which is loaded later,
        and less the page tables of `pinned_bytes` of the host."""
        left_bytes = int(self.cuda.mem_get_info()[0]) - RESERVED_BYTES - page_table_bytes(pinned_bytes)
        return max(0, left_bytes) // GRANULARITY_BYTES * GRANULARITY_BYTES

    @_current
    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Page-locked bytes of the host, which copies and kernels use at their host address."""
        try:
            pinned: npt.NDArray[np.uint8] = self.cuda.pagelocked_empty(max(nbytes, 1), np.uint8)
        except self.cuda.MemoryError as error:
            left_bytes, needed_bytes = int(self.cuda.mem_get_info()[0]), page_table_bytes(nbytes)
            if left_bytes < needed_bytes:
                raise DeviceError(
                    f"{self.gpu.name} has {format_bytes(left_bytes)} left, and to pin {format_bytes(nbytes)} of the "
                    f"host takes {format_bytes(needed_bytes)} of it for page tables; give a smaller --budget or "
                    "--host-budget, or end other programs on the GPU"
                ) from error
            raise DeviceError(
                f"the host cannot pin {format_bytes(nbytes)} for offloaded buffers: {error}; give a smaller "
                "--host-budget, or raise the memory limit of the control group or container, or that of WSL"
            ) from error
        return pinned[:nbytes]

    @_current
    def fill(self, address: int, byte: int, nbytes: int, stream: str | None = None) -> None:
        if stream is not None:
            self.cuda.memset_d8_async(address, byte, nbytes, self.streams[stream])
        elif nbytes:
            self.cuda.memset_d8(address, byte, nbytes)
            self.context.synchronize()

    @_current
    def fill_words(self, address: int, word: int, count: int) -> None:
        """Set `count` words of 32 bits."""
        if count:
            self.cuda.memset_d32(address, word, count)
            self.context.synchronize()

    @_current
    def read(self, into: Array, address: int) -> None:
        self.cuda.memcpy_dtoh(into, address)

    @_current
    def write(self, address: int, source: Array) -> None:
        self.cuda.memcpy_htod(address, source)
        self.context.synchronize()

    def copy_out(self, target: Array, address: int, stream: str) -> Callable[[], None]:
        """A call that starts a copy from the GPU to pinned memory."""
        queue = self.streams[stream]
        return lambda: self.cuda.memcpy_dtoh_async(target, address, queue)

    def copy_in(self, address: int, source: Array, stream: str) -> Callable[[], None]:
        """A call that starts a copy from pinned memory to the GPU."""
        queue = self.streams[stream]
        return lambda: self.cuda.memcpy_htod_async(address, source, queue)

    def copy_within(self, target: int, source: int, nbytes: int, stream: str) -> Callable[[], None]:
        """A call that starts a copy from the GPU to itself."""
        queue = self.streams[stream]
        return lambda: self.cuda.memcpy_dtod_async(target, source, nbytes, queue)

    # -- order -------------------------------------------------------------------------------------------------

    @_current
    def event(self, timed: bool = False) -> Event:
        return self.cuda.Event(0 if timed else self.cuda.event_flags.DISABLE_TIMING)

    def events(self) -> dict[str, Event]:
        """New events, one for each stream, for `record`."""
        return {stream: self.event() for stream in self.streams}

    def record(self, events: Mapping[str, Event]) -> None:
        """Record `events` after all work that is queued now."""
        for stream, event in events.items():
            event.record(self.streams[stream])

    def wait(self, stream: str, events: Mapping[str, Event]) -> None:
        """Make `stream` wait for `events`."""
        for event in events.values():
            self.streams[stream].wait_for_event(event)

    def join(self, stream: str) -> None:
        """Make `stream` wait for all work that is queued on the others."""
        for name, other in self.streams.items():
            if name != stream:
                self.streams[stream].wait_for_event(self.event().record(other))

    def on_host(self, action: Callable[[], None]) -> None:
        """Run a host action of the step: now, or before each launch of the graph that is being captured."""
        if self.capture is not None:
            self.capture.before.append(action)
        else:
            action()

    @_current
    def synchronize(self) -> None:
        for stream in self.streams.values():
            stream.synchronize()

    @contextmanager
    def reporting_device_errors(self) -> Iterator[None]:
        """Turn errors of CUDA into DeviceError, or GpuLost if the context is unusable."""
        try:
            yield
        except self.cuda.Error as error:
            if self._is_lost(error):
                self._abandon()
                self._lost = f"{self.gpu.name} failed: {error}; this process cannot use it any more"
                raise GpuLost(self._lost) from error
            raise DeviceError(
                f"{self.gpu.name} failed: {error}; `layermem devices --check` checks its kernels"
            ) from error

    def _is_lost(self, error: Exception) -> bool:
        """Whether the driver repeats an error: the context is lost.  During a capture, waits are errors themselves."""
        if isinstance(error, self.cuda.MemoryError) or self.capture is not None or self.context is None:
            return False
        try:
            with self.current():
                self.cuda.Context.synchronize()
        except self.cuda.Error:
            return True
        return False

    def _abandon(self) -> None:
        """Make PyCUDA treat the context as dead: otherwise each destructor would call the driver in vain and print
        three lines. Detaching it on a thread other than its maker's only marks it."""
        thread = threading.Thread(target=self.context.detach)
        thread.start()
        thread.join()

    # -- kernels -----------------------------------------------------------------------------------------------

    def launcher(self, wanted: Launch, args: bytes | bytearray, stream: str) -> Callable[[], None]:
        """A call that starts the kernel with the content of `args` at that time.  Its kernel is loaded by `load`,
        together with all launches that are bound until then, or by the call itself."""
        queue, grid, block, shared = self.streams[stream], wanted.grid, (wanted.block, 1, 1), wanted.shared

        def load_and_start(*arguments: object) -> None:
            self.load()
            load()  # also after an error of another kernel
            start(grid, block, args, shared, queue)

        start: Callable[..., None] = load_and_start

        def load() -> None:
            nonlocal start, grid, block, shared
            chosen = self.fitting(wanted)
            self._opt_in(chosen)
            start = self._function(chosen)._launch_kernel
            grid, block, shared = chosen.grid, (chosen.block, 1, 1), chosen.shared

        self._bound.append((wanted.module, load))
        return lambda: start(grid, block, args, shared, queue)

    @_current
    def load(self, *, reports_progress: bool = True) -> None:
        """Load the kernels of all bound launches; modules that are in no cache are compiled first, together.

        reports_progress   whether this process reports it, of all that compile the same modules
        """
        bound, self._bound = self._bound, []
        if not bound:
            return
        modules = {module for module, _ in bound} - self._modules.keys()
        ahead.compile_missing(modules, self.gpu.capability, reports_progress=reports_progress)
        for _, load in bound:
            load()

    @_current
    def variable(self, module: str, name: str) -> int:
        """The address of a variable of cuda/<module>.cu."""
        with self.reporting_device_errors():
            address, _ = self._module(module).get_global(name)
        return int(address)

    def _module(self, module: str) -> Any:
        if module not in self._modules:
            self._modules[module] = self._loaded(module)
        return self._modules[module]

    def fitting(self, wanted: Launch) -> Launch:
        """The launch, or the first of its alternatives, whose blocks have enough shared memory on this GPU."""
        for choice in (wanted, *wanted.alternatives):
            needed = choice.shared + int(self._function(choice).shared_size_bytes)
            if needed <= self.gpu.shared_bytes:
                return choice
        raise DeviceError(
            f"{choice.function} needs {needed} bytes of shared memory a block, more than the {self.gpu.shared_bytes} "
            f"of {self.gpu.name} (sm_{self.gpu.capability})"
        )

    def _function(self, of: Launch) -> Any:
        key = of.module, of.function
        if key not in self._functions:
            with self.reporting_device_errors():
                self._functions[key] = self._module(of.module).get_function(of.function)
        return self._functions[key]

    def _opt_in(self, of: Launch) -> None:
        """Let the kernel use its dynamic shared memory in addition to its static one: otherwise both share 48 KiB, and
        the driver may give the L1 cache so much memory that fewer blocks run at the same time."""
        key = of.module, of.function
        if of.shared <= self._dynamic_bytes.get(key, 0):
            return
        attributes, function = self.cuda.function_attribute, self._functions[key]
        with self.reporting_device_errors():
            function.set_attribute(attributes.MAX_DYNAMIC_SHARED_SIZE_BYTES, of.shared)
            function.set_attribute(attributes.PREFERRED_SHARED_MEMORY_CARVEOUT, WHOLE_CARVEOUT)
        self._dynamic_bytes[key] = of.shared

    def _loaded(self, module: str) -> Any:
        image = build.image(module, self.gpu.capability)
        try:
            return self.cuda.module_from_buffer(image)
        except self.cuda.MemoryError as error:
            raise DeviceError(
                f"{self.gpu.name} has no memory left for the kernels of {module}.cu, {format_bytes(len(image))}; give "
                "a smaller --budget, or --budget free, which leaves enough"
            ) from error
        except self.cuda.Error as error:
            if self._is_lost(error):  # by an earlier kernel
                raise
            reason = "".join(filter(str.isprintable, str(error))).strip(" -")  # PyCUDA appends a log, maybe empty
            raise DeviceError(
                f"{self.gpu.name} (sm_{self.gpu.capability}) does not take the kernels of {module}.cu: {reason}; "
                f"{self._why_not_taken(module)}"
            ) from error

    def _why_not_taken(self, module: str) -> str:
        if build.prebuilt(module) is not None:
            return "are those that LAYERMEM_KERNELS names, or that came with the package, for other GPUs?"
        major, minor = divmod(self.cuda.get_driver_version(), 1000)
        return (
            f"{build.find_compiler().version} compiled them, and the driver supports CUDA {major}.{minor // 10}: "
            "if that is older, update the driver, or run `layermem setup-cuda`"
        )
