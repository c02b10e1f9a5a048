"""The self-test of a GPU, on the fake driver: it finds kernels that are wrong, do not end or fail, and others take
their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layermem.backends.cuda.checks.recorded import family_of_key, keys_of_step
from layermem.backends.cuda.device import CudaDevice
from layermem.backends.cuda.driver.context import Gpu
from layermem.backends.cuda.support.families import FAMILIES, VARIABLE
from layermem.graph.net import Net
from layermem.graph.ops import Graph
from layermem.graph.step_slicer import GraphMakers, StepSlicer
from layermem.graph.train import UpdateRule, train_graph
from layermem.planning.partition_choices import CHOICES
from layermem.proto.read import read_net_text
from tests.backends.cuda.on_fake_driver import PROGRAMS, layermem, run
from tests.emulator import fake_driver
from tests.nets import LOSS, conv, norm, relu

needs_pycuda = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)


def grouped(name: str, bottom: str, group: int) -> str:
    return conv(name, bottom, 16, 3).replace("num_output", f"group: {group} num_output")


NET = f"""
    layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
        shape {{ dim: 2 dim: 3 dim: 12 dim: 12 }} shape {{ dim: 2 }}
        data_filler {{ type: "gaussian" std: 1 }} data_filler {{ type: "uniform" min: 0 max: 5 }} }} }}
    {conv("first", "data", 16, 3)} {relu("first")} {conv("second", "first", 16, 3)}
    layer {{ name: "half" type: "Pooling" bottom: "second" top: "half"
            pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {conv("third", "half", 16, 3)} {norm("third")} {relu("third")} {conv("fourth", "third", 16, 3)}
    {norm("fourth")} {relu("fourth")}
    {conv("left", "fourth", 8, 1)} {conv("right", "fourth", 8, 3)}
    layer {{ name: "both" type: "Concat" bottom: "left" bottom: "right" top: "both" }}
    {grouped("depthwise", "both", 16)} {grouped("grouped", "depthwise", 4)} {LOSS % "grouped"}
"""
SAME_BITS = ("sums", "patch", "moments")
OTHER_BITS = ("depthwise", "grouped")
KERNELS = {  # of which a bit is flipped
    "sums": "*.conv_dgrad_sums_*",
    "patch": "*.conv_fprop*_patch_*",
    "depthwise": "depthwise.*fprop*",
    "grouped": "grouped.*wgrad*",
    "packed": "convolution_bf16_on_bf16.conv_wgrad*",
    "warpgroups": "*_sm90a.conv_dgrad*",
}
SMALL = {"multiprocessors": 1, "capability": 80}


def graph_on(device: CudaDevice) -> Graph:
    net = Net(read_net_text(NET), 0)

    def step(net: Net, unfused=()) -> Graph:
        return train_graph(net, device, UpdateRule("SGD", 1), unfused=unfused)

    return StepSlicer(GraphMakers(net, device, step, CHOICES)).whole


def families_of(**settings: str) -> set[str]:
    device = CudaDevice(**settings)
    return set(map(family_of_key, keys_of_step(device, [graph_on(device)], Gpu(0, "GPU", "80", 1 << 30, 132))))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_without_a_family_launches_none_of_its_kernels(name, monkeypatch):
    settings = {"packed": {"precision": "bf16", "storage": "bf16"}}.get(name, {"precision": "tf32"})
    with_all = families_of(**settings)
    assert name in with_all or name == "warpgroups"
    monkeypatch.setenv(VARIABLE, name)
    assert name not in families_of(**settings)


def trained(precision: str, **settings: object) -> list[dict] | dict:
    """The answer of programs/checked.py; settings of the job, and of the fake driver."""
    own = {name: settings.pop(name) for name in ("storage", "strategies", "seconds", "start") if name in settings}
    job = json.dumps({"net": NET, "precision": precision, **own})
    done = run(PROGRAMS / "checked.py", job, **{**SMALL, **settings})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def any_of(*families: str) -> str:
    """A pattern of their kernels, for the fake driver."""
    return f"@({'|'.join(KERNELS[name] for name in families)})"


@pytest.fixture
def checking(monkeypatch, tmp_path) -> Path:
    """Runs check what they launch, and keep records in this folder."""
    monkeypatch.setenv("LAYERMEM_CHECK", "on")
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path))
    return tmp_path / "checked"


def without(monkeypatch, *names: str, **settings: object) -> dict:
    """What comes of training with families switched off by hand, without a check."""
    with monkeypatch.context() as patch:
        patch.setenv("LAYERMEM_CHECK", "off")
        patch.setenv(VARIABLE, ",".join(names))
        (answer,) = trained(**settings)
    assert answer.pop("notes") == []
    return answer


def record_in(folder: Path) -> dict[str, str]:
    (file,) = folder.glob("*.json")
    return json.loads(file.read_text())


@pytest.mark.whole
@needs_pycuda
def test_no_family_but_those_of_other_sums_changes_a_bit_and_each_may_be_off(monkeypatch):
    bits = {}
    for name in ("", *SAME_BITS, *OTHER_BITS):
        monkeypatch.setenv(VARIABLE, name)
        answers = trained("tf32", strategies=["liveness", "recompute", "hybrid"])
        assert len({answer["parameters"] for answer in answers}) == 1, name  # no strategy changes a bit
        assert all(answer["measured"] for answer in answers), name
        assert answers[0]["title"] == ("cuda tf32" + (f" without {name}" if name else ""))
        bits[name] = answers[0]["parameters"]
    assert {bits[name] for name in SAME_BITS} == {bits[""]}
    assert not {bits[name] for name in OTHER_BITS} & {bits[""]}


@needs_pycuda
def test_families_that_are_wrong_are_named_once_and_others_take_their_place(checking, monkeypatch):
    wrong = ("sums", "patch", "depthwise", "grouped")
    (answer,) = trained("tf32", flip=any_of(*wrong))
    (note,) = answer.pop("notes")
    assert "kernels checked (" in note and note.endswith(f". Please report {next(checking.glob('*.json'))}")
    for name in wrong:
        assert f"{FAMILIES[name].title} are wrong (instead: {FAMILIES[name].fallback})" in note
    assert {family_of_key(key) for key, text in record_in(checking).items() if text} == set(wrong)
    assert answer == without(monkeypatch, *wrong, precision="tf32")
    (again,) = trained("tf32", flip=any_of(*wrong))  # by the record
    assert again.pop("notes") == [] and again == answer


@pytest.mark.whole
@needs_pycuda
def test_kernels_that_hang_or_fail_end_their_process_alone(checking, monkeypatch):
    hang, fault = any_of("patch"), any_of("depthwise")
    (answer,) = trained("tf32", hang=hang, fault=fault, seconds=20)
    answer.pop("notes")
    texts = {family_of_key(key): text for key, text in record_in(checking).items() if text}
    assert texts.keys() == {"patch", "depthwise"}
    assert texts["patch"].endswith("does not end") and " fails: " in texts["depthwise"]
    assert answer == without(monkeypatch, "patch", "depthwise", precision="tf32")


@pytest.mark.whole
@needs_pycuda
def test_packed_products_and_warpgroups_are_replaced(checking, monkeypatch):
    settings = {"precision": "bf16", "storage": "bf16"}
    (answer,) = trained(**settings, flip=any_of("packed"))
    assert FAMILIES["packed"].title in answer.pop("notes")[0]
    assert answer == without(monkeypatch, "packed", **settings)


@pytest.mark.whole
@needs_pycuda
@pytest.mark.parametrize(
    "module, remedy", [("convolution_tf32", "use --precision fp32"), ("normalization", "use --device cpu")]
)
def test_kernels_that_nothing_can_replace_are_refused(module, remedy, checking):
    answer = trained("tf32", flip=f"{module}.@(conv_wgrad|batch_norm_backward|normalize)*")
    assert answer["exit_code"] == 4
    assert f"kernels of {module} are wrong" in answer["error"] and f": {remedy}. Please report" in answer["error"]


@pytest.mark.whole
@needs_pycuda
def test_a_record_is_written_whole_and_one_that_cannot_be_read_is_as_good_as_none(checking):
    trained("tf32")
    (file,) = checking.glob("*.json")
    saved = file.read_bytes()
    file.write_bytes(saved[: len(saved) // 2])
    (answer,) = trained("tf32")
    assert "kernels checked" in answer["notes"][0] and file.read_bytes() == saved
    assert {each.suffix for each in checking.iterdir()} == {".json", ".lock"}


@pytest.mark.whole
@needs_pycuda
def test_devices_check_lists_all_kernels(checking):
    done = layermem("devices", "--check", multiprocessors=1, capability=75, flip=any_of("depthwise"))
    assert done.returncode == 4, done.stderr
    assert "depthwise convolutions are wrong (instead: implicit GEMM)" in " ".join(done.stdout.split())
    assert "  pooling  " in done.stdout and record_in(checking)["pooling"] == ""


@needs_pycuda
def test_training_goes_on_where_no_other_process_can_use_the_gpu(checking):
    (answer,) = trained("tf32", start=0)
    (note,) = answer["notes"]
    assert "cannot be checked: the check does not end; let other processes use the GPU" in note
    assert answer["title"] == "cuda tf32" and not list(checking.glob("*.json"))
