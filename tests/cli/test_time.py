"""`layermem time` and `layermem devices`."""

import json

import pytest

from layermem.api import build_net
from layermem.planning.costs import read_costs, write_costs
from layermem.solver.jobs import StepOptions, net_job

NET = "prototxt/digits/train_val.prototxt"
MNIST = "prototxt/mnist/train_val.prototxt"


def job(device: str):
    return net_job(build_net(NET, batch=4), StepOptions(device=device))


def test_every_op_is_measured_and_the_file_is_read_as_costs(layermem, tmp_path):
    path = tmp_path / "costs.csv"
    ended = layermem("time", "--net", NET, "--batch", "4", "--iterations", "2", "--out", path)
    assert ended.code == 0 and "link: " in ended.out
    costs, graph = read_costs(path, "cpu"), job("cpu").graphs[0]
    assert graph.fused_updates and set(costs.measured) == set(graph.by_name) and min(costs.measured.values()) > 0
    assert costs.rates.d2h > 1e6 and costs.rates.h2d > 1e6
    found = json.loads(layermem("plan", "--net", NET, "--batch", "4", "--costs", path, "--json").out)
    assert found["predicted_seconds"] == pytest.approx(sum(costs.measured[op.name] for op in graph.ops))


def test_the_table_has_a_row_a_layer_with_forward_and_backward(layermem):
    ended = layermem("time", "--net", NET, "--batch", "2", "--iterations", "1", "--device", "reference")
    rows = {line.split()[0]: line for line in ended.out.splitlines()}
    assert ended.code == 0 and {"data", "conv1", "loss", "(updates)"} <= set(rows) and "on reference" in ended.out


def test_json_names_ops_and_link(layermem):
    found = json.loads(layermem("time", "--net", NET, "--batch", "2", "--iterations", "1", "--json").out)
    assert found["device"] == "cpu" and found["ops"]["conv1+relu1.forward"] > 0  # which cpu runs as one
    assert set(found["link"]) == {"d2h", "h2d"}


def test_costs_with_awkward_names_survive_their_file(tmp_path):
    path = tmp_path / "costs.csv"
    names = {'a,"b".forward': 0.25, "c d": 1e-6}
    path.write_text(write_costs(names, d2h=2e9, h2d=3e9))
    costs = read_costs(path, "cpu")
    assert costs.measured == names and (costs.rates.d2h, costs.rates.h2d) == (2e9, 3e9)


IMPOSSIBLE = [
    "link.magic,3", "link.d2h,0", "link.d2h,nan", "link.h2d,inf", "link.h2d,1e-300", "conv1.forward,-1",
    "conv1.forward,soon", "conv1.forward,nan", "conv1.forward,inf", "conv1.forward,1e308", "conv1.forward",
]  # fmt: skip


@pytest.mark.parametrize("line", IMPOSSIBLE)
def test_costs_that_cannot_be_are_refused_with_their_line(layermem, tmp_path, line):
    path = tmp_path / "costs.csv"
    path.write_text(f"op,seconds\n{line}\n")
    ended = layermem("plan", "--net", NET, "--costs", path)
    assert ended.code == 2 and f"{path}:2" in ended.sentence


@pytest.mark.samples(4)
@pytest.mark.parametrize("seconds", ["0", "1e-320", "1e9"])
def test_extreme_costs_give_finite_numbers(layermem, tmp_path, seconds):
    path = tmp_path / "costs.csv"
    ops = [op.name for op in job("cpu").graphs[0].ops]
    path.write_text("\n".join(["op,seconds", "link.d2h,1", "link.h2d,1e18", *(f"{name},{seconds}" for name in ops)]))
    pytest.importorskip("matplotlib")
    words = ("--net", NET, "--batch", "4", "--costs", path, "--budget", "45%", "--host-budget", "1TiB", "--json")
    found = layermem("plan", *words, "--trace", tmp_path / "trace.json")
    assert found.code == 0 and json.loads(found.out)["predicted_seconds"] < 1e30
    assert "NaN" not in (tmp_path / "trace.json").read_text()
    found = layermem("compare", *words, "--strategies", "all", "--plot", tmp_path / "memory.png")
    assert found.code == 0 and json.loads(found.out)["strategies"]


@pytest.mark.parametrize("path", ["/dev/zero", "x" * 300, "a\0b", "prototxt"])
def test_a_file_that_has_no_costs_is_refused_in_a_sentence(layermem, path):
    ended = layermem("plan", "--net", NET, "--costs", path)
    assert ended.code == 2 and "cost file" in ended.sentence


@pytest.mark.parametrize("text", ["", "\n", "# LeNet\n"])
def test_a_file_without_a_row_is_no_cost_file(layermem, tmp_path, text):
    (tmp_path / "costs.csv").write_text(text)
    ended = layermem("plan", "--net", NET, "--costs", tmp_path / "costs.csv")
    assert ended.code == 2 and "costs.csv: has no costs; make it with `layermem time`" in ended.sentence


def test_costs_say_what_they_were_measured_with_and_are_refused_for_another_step_or_device(layermem, tmp_path):
    path, words = tmp_path / "costs.csv", ("--net", NET, "--batch", "4")
    assert layermem("time", *words, "--iterations", "1", "--out", path).code == 0
    graph = job("cpu").graphs[0]
    head = ["# net LeNet (digits) x4", "# device cpu", f"# fingerprint {graph.fingerprint}", "op,seconds"]
    assert path.read_text().splitlines()[:4] == head

    def refusal(*words):
        ended = layermem("plan", "--costs", path, *words)
        assert ended.code == 2 and ended.out == ""
        return ended.sentence

    assert "warning" not in layermem("plan", "--costs", path, *words).out
    assert f"{path}: was measured with LeNet (digits) x4, and this is LeNet x" in refusal("--net", MNIST)
    assert "and this is LeNet (digits) x8 (fingerprint" in refusal("--net", NET, "--batch", "8")
    assert "was measured on device cpu, and the device is reference; measure" in refusal(
        *words, "--device", "reference"
    )
    ended = layermem("compare", "--net", NET, "--batch", "8", "--costs", path, "--strategies", "liveness")
    assert ended.code == 2 and "or give --measure" in ended.sentence
    path.write_text(path.read_text().replace(graph.fingerprint, "0" * 16))
    assert "another step of LeNet (digits) x4: its layers, shapes, updates or kernels differ" in refusal(*words)


def test_costs_without_a_fingerprint_are_taken_with_a_warning(layermem, tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("op,seconds\nconv1+relu1.forward,0.5\n")
    ended = layermem("plan", "--net", NET, "--costs", path)
    says = "does not say which step it was measured with; 1 of 31 ops take their time from it; measure this one"
    assert ended.code == 0 and says in " ".join(ended.out.split())


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_devices_say_what_they_are_and_which_is_the_default(layermem, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = layermem("devices").out.splitlines()
    assert all(len(line) <= columns for line in printed)
    assert "cuda has not run on a GPU yet" in " ".join(map(str.strip, printed))
    printed = printed[: next(i for i, line in enumerate(printed) if line.startswith("note: "))]
    lines = {line.split()[0]: line for line in printed if not line.startswith(" ")}
    assert "NumPy" in lines["reference"] and "native kernels" in lines["cpu"] and "(default)" in lines["cpu"]
    found = json.loads(layermem("devices", "--json").out)
    assert found["default"] == "cpu" and set(found["devices"]) == set(lines) >= {"reference", "cpu"}


def test_nothing_is_measured_in_no_iterations(layermem):
    assert layermem("time", "--net", NET, "--iterations", "0").code == 2


@pytest.mark.whole
def test_a_stage_that_no_rule_names_is_warned_of_as_in_plan(layermem):
    words = ("time", "--net", NET, "--batch", "2", "--iterations", "1", "--json")
    plain, staged = layermem(*words), layermem(*words, "--stage", "dumy")
    assert plain.err == "" and staged.code == 0 and json.loads(staged.out)["ops"]
    assert "layermem: warning: no rule of the net names stage 'dumy'" in " ".join(staged.err.split())


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_the_table_of_gpus_is_listed(layermem, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = layermem("devices", "--gpus").out
    assert all(len(line) <= columns for line in printed.splitlines())
    assert "RTX" in printed and "989.4" in printed
    listed = json.loads(layermem("devices", "--gpus", "--json").out)["gpus"]
    (h100,) = (each for each in listed if each["name"] == "H100 SXM")
    assert h100["bf16"] == 989.4e12 and h100["source"].startswith("H100 whitepaper") and len(listed) >= 20
