"""Costs that are kept by GPU, step and precision; what is of no use is said, and never a traceback."""

from __future__ import annotations

import pytest

from layermem.api import build_net
from layermem.errors import InputError
from layermem.planning.costs import write_costs
from layermem.planning.gpus import TargetGpu, find_gpu
from layermem.planning.kept_costs import costs_folder, keep_costs, kept_path, read_kept
from layermem.solver.jobs import StepOptions, net_job

GPU = TargetGpu("T4", find_gpu("T4"))
DEVICE, STEP = "cuda tf32", "0123456789abcdef"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def graph():
    net = build_net("prototxt/digits/train_val.prototxt", batch=4)
    return net_job(net, StepOptions(device="cuda")).graphs[0]


def text_of(graph, gpu: TargetGpu = GPU) -> str:
    return write_costs({"conv1.forward": 0.5}, d2h=1e9, h2d=2e9, net="LeNet", graph=graph, gpu=gpu)


def test_what_is_kept_is_read_again(graph):
    fingerprint = graph.fingerprint
    assert read_kept(GPU, "cuda", fingerprint) is None
    path = keep_costs(text_of(graph), GPU, "cuda", fingerprint)
    assert path == kept_path(GPU, "cuda", fingerprint) and path.name == f"{fingerprint}-fp32.csv"
    costs = read_kept(GPU, "cuda", fingerprint)
    assert costs.measured == {"conv1.forward": 0.5} and costs.is_kept and costs.gpu == GPU
    assert costs.source("cuda") == f"measured on T4, kept in {path}"


def test_each_gpu_step_precision_and_slicing_has_a_file_of_its_own():
    others = [
        (GPU, DEVICE, STEP, ""),
        (TargetGpu("L4", None), DEVICE, STEP, ""),
        (GPU, "cuda", STEP, ""),
        (GPU, DEVICE, "f" * 16, ""),
        (GPU, DEVICE, STEP, "whole/4"),
        (GPU, DEVICE, STEP, "fc6/rows/8"),
    ]
    assert len({kept_path(*each) for each in others}) == len(others)
    odd = kept_path(TargetGpu("../../a b\n", None), DEVICE, STEP, "x/" * 500)
    assert odd.parent.parent == costs_folder() and len(odd.name) < 255


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2].rpartition("\n")[0],
        lambda text: text.replace("0.5", "soon"),
        lambda text: text.replace("# gpu T4", "# gpu L4"),
        lambda text: text.replace("# device cuda", "# device"),
        lambda text: text.replace("# device cuda", "# device cuda bf16"),
        lambda text: "\0" * 100,
        lambda text: text.replace("op,seconds", "a,b"),
        lambda text: text.replace("# fingerprint ", "# fingerprint 1"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(graph, damage):
    path = keep_costs(text_of(graph), GPU, "cuda", graph.fingerprint)
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError) as refused:
        read_kept(GPU, "cuda", graph.fingerprint)
    assert str(path) in str(refused.value)


def test_bytes_that_are_no_text_are_an_error_too(graph):
    path = keep_costs(text_of(graph), GPU, "cuda", graph.fingerprint)
    path.write_bytes(b"\xff\xfe\x80" * 50)
    with pytest.raises(InputError):
        read_kept(GPU, "cuda", graph.fingerprint)


def test_a_folder_that_cannot_be_written_keeps_nothing(graph, monkeypatch, cache):
    (cache / "file").write_text("")
    monkeypatch.setenv("LAYERMEM_CACHE", str(cache / "file"))
    assert keep_costs(text_of(graph), GPU, "cuda", graph.fingerprint) is None
    assert read_kept(GPU, "cuda", graph.fingerprint) is None


@pytest.mark.parametrize("named, expected", [("/x", "/x/layermem/costs"), ("", "~"), ("relative", "~")])
def test_the_folder_is_that_of_the_xdg_convention(monkeypatch, tmp_path, named, expected):
    monkeypatch.delenv("LAYERMEM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(costs_folder()) == expected.replace("~", f"{tmp_path}/.cache/layermem/costs")
