"""The driver of a GPU: what is said where there is none, contexts, shared memory of launches."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.driver.context import pycuda
from layermem.backends.cuda.support.launch import Launch
from layermem.errors import CudaUnavailable
from layermem.schedule.ir import COMPUTE
from tests.backends.cuda.on_fake_driver import run


def test_without_pycuda_the_error_says_what_its_installation_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(CudaUnavailable, match="no CUDA toolkit is needed"):
        pycuda.__wrapped__()


LAUNCH = """
import sys
from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.products.gemm_tiles import ENGINES, TILES
from layermem.backends.cuda.products.implicit_gemm import conv_dgrad, conv_fprop
from layermem.backends.cuda.products.wgrad import SplitK, wgrad_splits
from layermem.errors import DeviceError
from layermem.ops import ConvProblem, Window
from layermem.schedule.ir import COMPUTE

class OnlyDynamic(Driver):
    # What is compared with 48 KiB is the dynamic shared memory alone.
    def _opt_in(self, of):
        if of.shared > 48 * 1024:
            super()._opt_in(of)

precision, name, kind = sys.argv[1:4]
driver = (OnlyDynamic if kind == "only dynamic" else Driver)(0)
(tile,) = (each for each in TILES if each.name == name)
by_time = gemm_tiles.by_time
gemm_tiles.by_time = lambda *arguments: [tile, *(each for each in by_time(*arguments) if each != tile)]
window, memory, engine = Window(9, 3, 1, 1, 1), driver.allocate(1 << 20), ENGINES[precision]
place = int(memory)
problem, maps, image = ConvProblem(2, 4, 8, window, window), place + (1 << 18), place + (1 << 19)
for launch in (
    conv_fprop(engine, problem, place, maps, image),
    conv_dgrad(engine, problem, place, maps, image),
    wgrad_splits(engine, problem, SplitK(2, 1), place, maps, image, range(1), images=2),
):
    try:
        driver.launcher(launch, launch.args, COMPUTE)()
        driver.synchronize()
        print(driver.fitting(launch).function)
    except (driver.cuda.Error, DeviceError) as error:
        print(error)
driver.close()
"""
TILES_OF_48_KIB = [("fp32", "128x64"), ("tf32", "64x64"), ("bf16", "64x64"), ("fp32x3", "64x64")]
PRODUCTS = ("conv_fprop", "conv_dgrad", "conv_wgrad")
TABLES = "convolution*.conv_[fd]*=2048"  # static: 16 bytes a row of the tile; conv_wgrad has none


def launched(*arguments: str, **settings: object) -> list[str]:
    done = run(LAUNCH, *arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("precision, tile", TILES_OF_48_KIB)
def test_a_tile_whose_stages_take_48_kib_opts_in_for_its_tables(precision, tile):
    assert launched(precision, tile, "now", static=TABLES) == [f"{product}_{tile}_v4" for product in PRODUCTS]


@pytest.mark.parametrize("precision, tile", TILES_OF_48_KIB)
def test_a_driver_that_forgets_static_shared_memory_is_refused(precision, tile):
    fprop, dgrad, wgrad = launched(precision, tile, "only dynamic", static=TABLES)
    assert "invalid argument" in fprop and "invalid argument" in dgrad
    assert wgrad == f"conv_wgrad_{tile}_v4"  # which has no tables


@pytest.mark.parametrize("precision, tile", TILES_OF_48_KIB)
def test_a_rule_without_static_shared_memory_would_let_it_pass(precision, tile):
    """So it is that rule of the fake driver which the test above holds."""
    found = launched(precision, tile, "only dynamic", static=TABLES, shared="dynamic")
    assert found == [f"{product}_{tile}_v4" for product in PRODUCTS]


def test_a_gpu_of_64_kib_gets_the_fastest_tile_that_fits():
    assert launched("fp32", "128x128", "now", static=TABLES, capability=75) == [
        "conv_fprop_128x32_v4",  # of eight and four columns
        "conv_dgrad_128x32_v4",
        "conv_wgrad_128x128_v4",  # 64 KiB without tables
    ]
    found = launched("fp32", "128x128", "now", static=TABLES, capability=86)
    assert found == [f"{product}_128x128_v4" for product in PRODUCTS]


class Recorded:
    """Streams, events and the delay of a driver, whose calls are put down in their order."""

    def __init__(self) -> None:
        self.streams, self.log, self.names = {COMPUTE: COMPUTE}, [], iter(("begin", "end"))
        self.gpu = SimpleNamespace(clock=0)

    def event(self, *, timed: bool) -> SimpleNamespace:
        name = next(self.names)
        assert timed
        return SimpleNamespace(record=lambda stream: self.log.append((name, stream)), time_till=lambda end: 2.5)

    def launcher(self, launch: Launch, arguments: object, stream: str) -> Callable[[], None]:
        return lambda: self.log.append((launch.function, stream))


def test_what_is_timed_begins_behind_a_delay_on_the_same_stream(monkeypatch):
    """So its first launch is in the queue when the event before it is reached, and its latency is not measured."""
    device, driver = CudaDevice(), Recorded()
    device.driver = driver
    monkeypatch.setattr(device, "run", lambda calls: [call() for call in calls])
    seconds = device.seconds([lambda: driver.log.append(("op", COMPUTE))] * 2)
    assert driver.log == [(name, COMPUTE) for name in ("delay", "begin", "op", "op", "end")]
    assert seconds == 2.5e-3


TWO_GPUS = """
from layermem.backends.cuda.driver.context import Driver, pycuda
from layermem.backends.cuda import CudaDevice
import numpy as np

def current():
    return pycuda().Context.get_device().pci_bus_id()

pycuda()
one, two = CudaDevice(0), CudaDevice(1)
arenas = [device.arena(1 << 16) for device in (one, two)]
print(current(), one.free_bytes(), two.free_bytes())
for device, arena, number in zip((one, two), arenas, (1.0, 2.0)):
    one.driver.fill(arena.address, 0, 64)  # whichever is current
    device.run([device.bind_fill(arena.span(0, 64), 255, "compute")])
    device.seconds([])
one.driver.close()
print(current())
two.driver.close()
print(pycuda().Context.get_current())
"""


def test_two_gpus_in_one_thread_keep_their_contexts_apart():
    """The driver of the first is used and closed while the context of the second is current."""
    done = run(TWO_GPUS, devices=2, memory=128 << 20)
    assert done.returncode == 0 and not done.stderr, done.stderr
    first, second, last = done.stdout.splitlines()
    assert first.split()[0] == second == "0000:01:00.0" and last == "None"
    free_one, free_two = first.split()[1:]
    assert free_one == free_two


def test_a_driver_that_is_closed_in_another_thread_leaves_that_threads_contexts_alone():
    done = run(
        """
from threading import Thread
from layermem.backends.cuda.driver.context import Driver, pycuda
cuda, held = pycuda(), []
one = Driver(0)
def work():
    held.append(Driver(1))
    one.close()
    print(cuda.Context.get_device().pci_bus_id())
    held[0].close()
thread = Thread(target=work)
thread.start()
thread.join()
cuda.Context.pop()
print("done")
""",
        devices=2,
    )
    assert done.stdout.splitlines() == ["0000:01:00.0", "done"], done.stderr


def test_shared_memory_takes_all_of_the_carveout():
    done = run(
        """
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.backends.cuda.products.implicit_gemm import conv_fprop
from layermem.ops import ConvProblem, Window
from layermem.schedule.ir import COMPUTE
driver, window = Driver(0), Window(9, 3, 1, 1, 1)
launch = conv_fprop(ENGINES["fp32"], ConvProblem(2, 4, 8, window, window), 256, 512, 768)
driver.launcher(launch, launch.args, COMPUTE)
driver.load()
attribute = driver.cuda.function_attribute.PREFERRED_SHARED_MEMORY_CARVEOUT
print(driver._function(launch).get_attribute(attribute))
"""
    )
    assert done.stdout.strip() == "100", done.stderr


LOST = """
from threading import Thread
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.support.launch import launch
from layermem.errors import DeviceError
from layermem.schedule.ir import COMPUTE

driver = Driver(0)
held = [driver.allocate(4096), driver.pinned(4096), driver.event()]
wrong = launch("fill", "fill", "FillArgs", 1, y=4096, count=100, value=0, accumulate=0)

def again():
    for call in (driver.synchronize, lambda: driver.allocate(4096), driver.free_bytes, lambda: driver.pinned(64)):
        try:
            call()
        except DeviceError as error:
            print(type(error).__name__, error)

driver.launcher(wrong, wrong.args, COMPUTE)()
again()
thread = Thread(target=again)
thread.start()
thread.join()
"""


def test_a_kernel_that_fails_is_one_sentence_at_every_call_and_clean_up_prints_nothing():
    done = run(LOST, streams="random")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 8 and len(set(lines)) == 1, done.stdout + done.stderr
    assert lines[0].startswith("GpuLost ") and "an illegal memory access" in lines[0]
    assert lines[0].endswith("this process cannot use it any more") and "host-budget" not in lines[0]
    assert "PyCUDA" not in done.stderr and len(done.stderr.splitlines()) <= 2  # of the fake driver itself


def test_memory_that_the_host_lacks_is_put_down_to_its_budget():
    done = run(
        """
from layermem.backends.cuda.driver.context import Driver
from layermem.errors import DeviceError
try:
    Driver(0).pinned(1 << 20)
except DeviceError as error:
    print(error)
""",
        pinned=1 << 19,
    )
    assert "the host cannot pin 1.00 MiB" in done.stdout and "--host-budget" in done.stdout, done.stdout + done.stderr
    assert "control group or container" in done.stdout and "ulimit" not in done.stdout  # which bounds no pinned memory


PINNED = """
import sys
from layermem.backends.cuda.driver import context
from layermem.errors import DeviceError
context.RESERVED_BYTES = context.GRANULARITY_BYTES = 256
driver, host_bytes = context.Driver(0), 8 << 20
held = driver.allocate(driver.free_bytes(host_bytes if sys.argv[1] == "reserved" else 0))
try:
    print(driver.pinned(host_bytes).nbytes)
except DeviceError as error:
    print(error)
"""


def test_what_is_free_beside_pinned_memory_is_free_once_it_is_pinned():
    """Page tables of the host's memory take some of the GPU's; where that is gone, the error names it."""
    assert run(PINNED, "reserved", memory=1 << 20).stdout.strip() == f"{8 << 20}"
    refused = run(PINNED, "taken", memory=1 << 20).stdout
    assert "left, and to pin 8.00 MiB of the host takes 16.0 KiB of it for page tables" in refused, refused


def test_a_gpu_that_another_process_has_alone_is_named_in_a_sentence():
    done = run("from layermem.backends.cuda.driver.context import Driver; Driver(0)", exclusive="yes")
    assert "cannot be used" in done.stderr and "busy or unavailable" in done.stderr
    assert "CudaUnavailable" in done.stderr.splitlines()[-1] and "end other processes" in done.stderr


def test_a_driver_that_does_not_say_its_clock_is_used_all_the_same():
    done = run(
        """
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.driver.delay import delay
from layermem.backends.cuda import CudaDevice
driver = Driver(0)
delay(driver, "compute")()
driver.synchronize()
print(driver.gpu.clock, driver.gpu.flops)
print(CudaDevice().describe())
""",
        clock=0,
    )
    assert done.stdout.splitlines()[0] == "0.0 0.0" and "sm_90" in done.stdout, done.stdout + done.stderr


def test_what_other_processes_have_is_not_free():
    program = "from layermem.backends.cuda.driver.context import Driver; print(Driver(0).free_bytes())"
    free, less = (int(run(program, taken=taken).stdout) for taken in (0, 512 << 20))
    assert free - less == 512 << 20
