"""Which device -gpu and a solver choose, on machines with several GPUs, one and none."""

from types import SimpleNamespace

import pytest

from layermem.backends.cuda.driver.context import Gpu
from layermem.cli.caffe_tools import devices
from layermem.cli.caffe_tools.devices import DeviceChoice, asked_of, choose
from layermem.distributed.group import Group
from layermem.errors import CudaUnavailable, InputError
from layermem.proto.read import read_solver_text


class Call:
    """A call whose log is a list."""

    def __init__(self, transport=None):
        self.lines = []
        self.log = SimpleNamespace(write=lambda text, place, severity="I": self.lines.append((severity, text)))
        self.group = SimpleNamespace(transport=transport, size=2) if transport else Group()


@pytest.fixture
def gpus(monkeypatch):
    """Gives this machine so many GPUs, and returns CUDA_VISIBLE_DEVICES as it is afterwards."""

    def have(count):
        def found():
            if not count:
                raise CudaUnavailable("no driver")
            return [Gpu(i, f"Tesla {i}", "90", 2**34, 132) for i in range(count)]

        monkeypatch.setattr(devices, "found_gpus", found)
        monkeypatch.delenv(devices.VISIBLE, raising=False)

    return have


@pytest.mark.parametrize(
    ("fields", "gpu", "asked"),
    [
        ("", "", ("", "")),
        ("solver_mode: CPU", "", ("", "")),
        ("device_id: 3", "", ("", "")),
        ("solver_mode: GPU", "", ("0", "solver_mode: GPU")),
        ("solver_mode: GPU device_id: 3", "", ("3", "solver_mode: GPU with device_id: 3")),
        ("solver_mode: CPU", "1", ("1", "-gpu 1")),
        ("solver_mode: GPU device_id: 3", "all", ("all", "-gpu all")),
    ],
)
def test_the_flag_comes_before_the_solver(fields, gpu, asked):
    solver = read_solver_text(f'net: "n.prototxt" base_lr: 0.1 lr_policy: "fixed" {fields}')
    assert asked_of(solver, gpu) == asked


def test_one_gpu_is_chosen_by_its_number(gpus):
    gpus(3)
    for asked, index in (("2", 2), ("0", 0), ("1,2", 1), ("all", 0)):
        call = Call()
        assert choose(call, asked, f"-gpu {asked}") == DeviceChoice("cuda", index)
        assert call.lines == [("I", f"Using GPUs {index}"), ("I", f"GPU {index}: Tesla {index}")]


@pytest.mark.parametrize(
    ("visible", "asked", "names", "count"),
    [(None, "1,2", "1,2", 2), (None, "all", "0,1,2", 3), ("4,GPU-5,6", "2,1", "6,GPU-5", 2)],
)
def test_ranks_see_the_gpus_that_are_chosen(gpus, monkeypatch, visible, asked, names, count):
    gpus(3)
    if visible:
        monkeypatch.setenv(devices.VISIBLE, visible)
    choice = choose(Call(), asked, "-gpu", several=True)
    assert choice.name == "cuda" and choice.count == count
    assert devices.os.environ[devices.VISIBLE] == names
    assert choose(Call(transport="mpi"), asked, "-gpu", several=True) == DeviceChoice("cuda", None, 2)


def test_without_a_gpu_the_cpu_computes_with_a_warning(gpus):
    gpus(0)
    for asked, several, count in (("0", True, 1), ("all", True, 1), ("0,1,2", True, 3), ("0,1,2", False, 1)):
        call = Call()
        assert choose(call, asked, "-gpu", several=several) == DeviceChoice("cpu", None, count)
        ((severity, text),) = call.lines
        assert severity == "W" and text.startswith("No GPU was found for -gpu, so the CPU computes")
        assert text.endswith(": no driver") and ("batches an iteration" in text) == (count > 1)


def test_no_gpu_is_asked_for(gpus):
    gpus(2)
    call = Call()
    assert choose(call, "", "") == DeviceChoice("cpu") and call.lines == [("I", "Use CPU.")]


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ("2", "-gpu names GPU 2, and this machine has 2, from 0 on"),
        ("-1", "is no list"),
        ("0,", "is no list"),
        ("a", "is no list"),
    ],
)
def test_gpus_that_are_not_there_are_refused(gpus, asked, what):
    gpus(2)
    with pytest.raises(InputError, match=what):
        choose(Call(), asked, "-gpu", several=True)
