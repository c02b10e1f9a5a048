"""The command with --device cuda, on the fake driver: precisions, budgets, devices, measured costs."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from layermem.backends.cuda.kernel_images.nvrtc import Nvrtc
from tests.backends.cuda.on_fake_driver import layermem, run
from tests.emulator import fake_driver

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)

SOLVER = """
net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 max_iter: 3 random_seed: 5 display: 1
"""
NET = """
layer {{ name: "data" type: "DummyData" top: "data" dummy_data_param {{
    shape {{ dim: 4 dim: 3 dim: 9 dim: 8 }} data_filler {{ type: "gaussian" }} }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {{
    num_output: 8 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param {{
    num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "label" type: "DummyData" top: "label" dummy_data_param {{
    shape {{ dim: 4 }} data_filler {{ type: "constant" value: 2 }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


def unwrapped(done: subprocess.CompletedProcess[str]) -> str:
    """What the command wrote to stderr, on one line."""
    return " ".join(done.stderr.split())


@pytest.fixture
def solver(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET.format())
    path = tmp_path / "solver.prototxt"
    path.write_text(SOLVER.replace("net.prototxt", str(tmp_path / "net.prototxt")))
    return path


def losses(text: str) -> list[str]:
    return re.findall(r"loss = ([0-9.e-]+)", text)


def test_a_trace_has_times_of_every_op_by_events_of_the_gpu(solver, tmp_path):
    done = layermem("train", "--solver", solver, "--device", "cuda", "--trace", tmp_path / "step.json")
    assert done.returncode == 0, done.stderr
    rows = [e for e in json.loads((tmp_path / "step.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert rows and all(row["dur"] >= 0 and row["ts"] >= 0 for row in rows)
    assert "measured times of a step, mean of 2" in done.stdout
    refused = layermem("train", "--solver", solver, "--device", "cuda", "--cuda-graph", "--trace", tmp_path / "a.json")
    assert refused.returncode == 2 and "leave --cuda-graph out" in unwrapped(refused)


@pytest.mark.whole
def test_each_precision_trains_and_fp32_is_the_usual_one(solver):
    found = {}
    for precision in (None, "fp32", "fp32x3", "tf32", "bf16"):
        words = ("--precision", precision) if precision else ()
        done = layermem("train", "--solver", solver, "--device", "cuda", *words)
        assert done.returncode == 0, done.stderr
        found[precision] = losses(done.stdout)
        assert f"device cuda{f' {precision}' if precision not in (None, 'fp32') else ''} " in done.stdout
    assert found[None] == found["fp32"] and len(found["fp32"]) >= 3
    assert found["tf32"] != found["fp32"] != found["bf16"] != found["tf32"]
    exact = [float(loss) for loss in found["fp32"]]
    for precision, bound in (("fp32x3", 2e-5), ("tf32", 2e-3), ("bf16", 2e-2)):
        assert [float(loss) for loss in found[precision]] == pytest.approx(exact, rel=bound)


def test_a_plan_is_for_one_precision(layermem_here, solver, tmp_path):
    plan = tmp_path / "plan.json"
    assert (
        layermem_here("plan", "--solver", solver, "--device", "cuda", "--precision", "tf32", "--save", plan).code == 0
    )
    for words in ((), ("--precision", "bf16")):
        refused = layermem_here("plan", "--solver", solver, "--device", "cuda", *words, "--load", plan)
        assert refused.code == 2 and "another net, batch, device, precision or storage" in " ".join(refused.err.split())
    loaded = layermem_here("plan", "--solver", solver, "--device", "cuda", "--precision", "tf32", "--load", plan)
    assert loaded.code == 0


def test_an_unknown_precision_is_refused(layermem_here, solver):
    unknown = layermem_here("plan", "--solver", solver, "--device", "cuda", "--precision", "fp16")
    assert unknown.code == 2 and "(choose from fp32, fp32x3, tf32, bf16)" in unknown.err
    elsewhere = layermem_here("plan", "--solver", solver, "--device", "cpu", "--precision", "tf32")
    assert elsewhere.code == 2 and "--precision needs --device cuda" in elsewhere.err
    old = layermem("train", "--solver", solver, "--device", "cuda", "--precision", "tf32", capability=75)
    assert old.returncode == 2 and "needs 8.0 or later: use fp32" in unwrapped(old)
    assert layermem("train", "--solver", solver, "--device", "cuda", "--iterations", 1, capability=75).returncode == 0


def test_the_budget_may_be_what_the_gpu_has(solver):
    block = 64 << 20  # kept for the code of kernels
    done = layermem(
        "plan", "--solver", solver, "--device", "cuda", "--budget", "free", "--json", memory=block + (9 << 20)
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["budget_bytes"] == 8 << 20  # whole pieces of 2 MiB
    trained = layermem("train", "--solver", solver, "--device", "cuda", "--budget", "free", memory=block + (9 << 20))
    assert trained.returncode == 0, trained.stderr
    none = layermem("plan", "--solver", solver, "--device", "cuda", "--budget", "free", memory=block)
    assert none.returncode == 3 and "budget 0 B is below" in unwrapped(none)


def test_the_cpu_has_the_free_memory_of_the_machine(layermem_here, solver):
    done = layermem_here("plan", "--solver", solver, "--budget", "free")
    assert done.code == 0 and "less what the process takes beside it" in " ".join(done.out.split())


def test_devices_lists_each_gpu_with_its_memory_and_rates():
    done = layermem("devices", memory=3 << 30)
    line = " ".join(done.stdout[done.stdout.index("cuda ") :].split())
    assert "0: fake driver" in line and "sm_90, 3.00 GiB, 132 multiprocessors, 66.9 TFLOP/s fp32, 3352 GB/s" in line


@pytest.mark.parametrize(
    "name, clock, said",
    [
        ("NVIDIA H100 NVL", 0, "H100 NVL: 60.3 TFLOP/s, 3,938 GB/s, link 63 GB/s published; modelled at"),
        ("New", 1980000, "New: 66.9 TFLOP/s, 3,352 GB/s, link 63 GB/s as its driver and architecture say; modelled at"),
        ("New", 0, "New is not in the table of GPUs, and its driver does not state its clocks: modelled as a typical"),
    ],
)
def test_a_plan_says_where_the_rates_of_the_gpu_are_from(solver, name, clock, said):
    done = layermem("plan", "--solver", solver, "--device", "cuda", "--no-measure", name=name, clock=clock)
    assert done.returncode == 0 and said in " ".join(done.stdout.split()), done.stdout + done.stderr


def test_a_captured_iteration_prints_the_same_losses(layermem_here, solver):
    words = ("train", "--solver", solver, "--device")
    plain, captured = layermem(*words, "cuda"), layermem(*words, "cuda", "--cuda-graph")
    assert captured.returncode == 0, captured.stderr
    assert losses(plain.stdout) == losses(captured.stdout)
    elsewhere = layermem_here(*words, "cpu", "--cuda-graph")
    assert elsewhere.code == 2 and "--cuda-graph needs --device cuda" in elsewhere.err


def test_measured_costs_serve_a_plan(solver, tmp_path):
    costs = tmp_path / "costs.csv"
    words = ("--solver", solver, "--device", "cuda")
    done = layermem("time", *words, "--iterations", 2, "--out", costs)
    assert done.returncode == 0, done.stderr
    measured = costs.read_text().splitlines()
    assert {"op", "link.d2h", "link.h2d", "conv+relu.forward", "ip.wgrad"} <= {row.split(",")[0] for row in measured}
    assert layermem("plan", *words, "--costs", costs, "--budget", "90%").returncode == 0


def test_without_a_driver_the_command_says_what_is_missing(layermem_here, solver, monkeypatch):
    ended = layermem_here("train", "--solver", solver, "--device", "cuda")
    assert ended.code == 4 and ("PyCUDA" in ended.err or "CUDA" in ended.err)


@pytest.mark.skipif(Nvrtc.find() is None, reason="NVRTC is not here: pip install nvidia-cuda-nvrtc")
def test_kernels_that_are_not_prebuilt_are_compiled_beside_the_driver_and_kept(solver, tmp_path):
    """As far as a fake driver goes, which does not run a GPU's machine code."""
    program = """
import os, sys
os.environ.update(LAYERMEM_KERNELS="", LAYERMEM_CACHE=sys.argv.pop())
from layermem.cli import main
raise SystemExit(main())"""
    words = ("train", "--solver", str(solver), "--device", "cuda", str(tmp_path / "cache"))
    done = run(program, *words, capability=86)
    assert done.returncode == 4 and "(sm_86) does not take the kernels of " in unwrapped(done), done.stderr
    assert "if that is older, update the driver, or run `layermem setup-cuda`" in unwrapped(done)
    (kept,) = (tmp_path / "cache").iterdir()
    assert "-sm_86-" in kept.name and kept.read_bytes()[:4] == b"\x7fELF"


def unwrapped_out(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_step_is_measured_once_on_a_gpu_and_later_plans_say_so(solver, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "cache"))
    words = ("--solver", solver, "--device", "cuda")
    modelled = unwrapped_out(layermem("plan", *words))
    assert "measured" not in modelled and not (tmp_path / "cache").exists()  # a plan measures nothing by itself
    first = layermem("train", *words)
    (kept,) = (tmp_path / "cache" / "costs").rglob("*.csv")
    assert kept.parent.name.startswith("fake-driver") and kept.name.endswith("-fp32.csv")
    head = dict(line[2:].split(" ", 1) for line in kept.read_text().splitlines() if line.startswith("#"))
    assert head["device"] == "cuda" and head["gpu"].startswith("fake driver") and head["fingerprint"] in kept.name
    written = kept.stat().st_mtime_ns
    says = f"measured on {head['gpu']}, kept in"
    assert says in unwrapped_out(first)
    planned = layermem("plan", *words)
    assert "(predicted from measured ops)" in unwrapped_out(planned) and says in unwrapped_out(planned)
    again = layermem("train", *words)
    assert says in unwrapped_out(again) and kept.stat().st_mtime_ns == written
    off = layermem("train", *words, "--no-measure")
    assert "measured on" not in unwrapped_out(off) and "measured ops" not in unwrapped_out(off)
    assert losses(first.stdout) == losses(again.stdout) == losses(off.stdout)
    assert unwrapped_out(layermem("plan", *words, "--no-measure")) == modelled
    compared = json.loads(layermem("compare", *words, "--strategies", "liveness", "--json").stdout)
    assert (compared["costs"], compared["gpu"]) == ("measured", head["gpu"])
    other = layermem("plan", *words, "--precision", "tf32")
    assert "measured" not in unwrapped_out(other)  # of another precision nothing is kept


def test_kept_costs_that_are_damaged_are_said_so_and_measured_again(solver, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "cache"))
    words = ("--solver", solver, "--device", "cuda")
    assert layermem("plan", *words, "--measure").returncode == 0  # keeps them too
    (kept,) = (tmp_path / "cache" / "costs").rglob("*.csv")
    text = kept.read_text()
    kept.write_text(text.replace("op,seconds", "op;seconds"))
    planned = layermem("plan", *words)
    assert "measured" not in unwrapped_out(planned)
    assert f"warning: {kept}:" in unwrapped(planned) and "measure this step again" in unwrapped(planned)
    assert "measured on" in unwrapped_out(layermem("train", *words, "--iterations", 1))
    assert kept.read_text().splitlines()[:6] == [*text.splitlines()[:5], kept.read_text().splitlines()[5]]
    planned = layermem("plan", *words)
    assert "measured on" in unwrapped_out(planned) and planned.stderr == ""


def test_nothing_is_measured_for_a_gpu_that_is_not_here(solver):
    refused = layermem("plan", "--solver", solver, "--device", "cuda", "--card", "H200", "--measure")
    assert refused.returncode == 2
    assert "the plan is for H200, and the GPU here is fake driver" in unwrapped(refused)
