"""`layermem plan`."""

import json
import re
from pathlib import Path

import pytest

from layermem.planning.strategies import STRATEGIES

NET = "prototxt/mnist/train_val.prototxt"
SOLVER = "prototxt/digits/solver.prototxt"
KEYS = {
    "strategy", "device", "peak_bytes", "budget_bytes", "caffe_bytes", "max_live_bytes", "parameter_bytes",
    "host_bytes", "predicted_seconds", "baseline_seconds", "feasible", "minimum_bytes",
}  # fmt: skip


@pytest.fixture
def values(layermem):
    """JSON of a plan, and the exit code."""

    def run(*words):
        ended = layermem("plan", "--json", *words)
        return json.loads(ended.out), ended.code

    return run


def test_the_text_has_peak_bounds_time_and_baseline(layermem):
    ended = layermem("plan", "--net", NET, "--strategy", "hybrid")
    labels = [re.split(r"\s{2,}", line)[0] for line in ended.out.splitlines() if not line.startswith(" ")]
    assert ended.code == 0 and labels == [
        "LeNet x64", "peak", "peak at", "live bytes", "largest", "offloaded", "host memory", "time", "lower bounds",
        "optimality gap", "baseline", "BVLC Caffe",
    ]  # fmt: skip
    assert "(strategy caffe)" in ended.out and "optimality gap  <= " in ended.out


@pytest.mark.parametrize("columns", [40, 80, 100, 250])
@pytest.mark.parametrize("words", [("plan", "--budget", "60%"), ("compare", "--budget", "60%"), ("show", "--fused")])
def test_text_stays_within_the_columns(layermem, monkeypatch, words, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = layermem(*words, "--net", "prototxt/googlenet/train_val.prototxt")
    assert ended.code == 0
    longest = max(ended.out.splitlines(), key=len)
    assert len(longest) <= (min(columns, 100) if columns >= 80 else 80), longest


def test_json_has_the_keys_that_programs_rely_on(values):
    found, code = values("--net", NET)
    assert code == 0 and set(found) >= KEYS
    assert found["strategy"] == "liveness" and found["budget_bytes"] is None and found["feasible"] is True
    assert found["max_live_bytes"] <= found["peak_bytes"] == found["minimum_bytes"] < found["caffe_bytes"]
    assert found["parameter_bytes"] == 431080 * 4 and found["host_bytes"] == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_plans_a_solver_with_its_test_net(values, strategy):
    found, code = values("--solver", SOLVER, "--strategy", strategy)
    assert code == 0 and found["strategy"] == strategy and found["peak_bytes"] <= found["caffe_bytes"]


def test_half_of_caffe_is_half_of_caffe(values):
    found, code = values("--net", NET, "--budget", "50%")
    assert code == 0 and found["budget_bytes"] == found["caffe_bytes"] // 2 >= found["peak_bytes"]
    assert values("--net", NET, "--strategy", "caffe")[0]["peak_bytes"] == found["caffe_bytes"]


def test_at_the_minimum_it_fits_and_one_byte_below_it_is_refused(values):
    minimum = values("--net", NET, "--budget", "1")[0]["minimum_bytes"]
    assert values("--net", NET, "--budget", minimum)[1] == 0
    found, code = values("--net", NET, "--budget", minimum - 1)
    assert code == 3 and found["feasible"] is False and found["minimum_bytes"] == minimum
    assert found["budget_bytes"] == minimum - 1 and f"{minimum:,}" in found["message"]


@pytest.mark.parametrize("columns", [40, 80, 100, 250])
def test_a_refusal_names_the_minimum_the_peak_and_what_fits_within_the_columns(layermem, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = layermem("plan", "--net", NET, "--budget", "1MiB", "--strategy", "caffe")
    assert ended.code == 3 and ended.out == ""
    assert "budget 1.00 MiB is below the minimum of 'caffe', 16.1 MiB (" in ended.sentence
    assert " bytes). peak at backward " in ended.sentence and "conv1 2.81 MiB" in ended.sentence
    assert ended.sentence.endswith("fits no other strategy fits this budget")
    assert max(map(len, ended.err.splitlines())) <= min(columns, 100)


def test_a_batch_scales_the_activations(values):
    small, large = (values("--net", NET, "--batch", n)[0] for n in (8, 64))
    assert small["peak_bytes"] < large["peak_bytes"] and small["parameter_bytes"] == large["parameter_bytes"]


def test_a_test_phase_is_planned_without_gradients(values):
    found, _ = values("--net", NET, "--phase", "TEST", "--strategy", "liveness")
    assert "diff" not in found["peak"]["bytes_by_kind"] and found["peak_bytes"] < values("--net", NET)[0]["peak_bytes"]


def test_the_schedule_is_printed_with_a_line_per_tick(layermem):
    ended = layermem("plan", "--net", NET, "--schedule")
    lines = ended.out.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("# LeNet train")))
    assert lines[at + 1].split() == ["tick", "stream", "op", "what", "reads", "writes", "after"]
    assert lines[at + 3].split()[:4] == ["1", "compute", "forward", "conv1.forward"]


def test_a_saved_plan_is_the_same_plan_again(layermem, values, tmp_path):
    path = tmp_path / "plan.json"
    saved = layermem("plan", "--net", NET, "--budget", "5MiB", "--save", path, "--schedule").out
    again = layermem("plan", "--net", NET, "--load", path, "--schedule").out
    assert saved.split("# LeNet train")[1] == again.split("# LeNet train")[1]
    assert values("--net", NET, "--load", path)[0]["strategy"] == "auto"


def test_a_plan_of_another_net_is_refused(layermem, tmp_path):
    path = tmp_path / "plan.json"
    layermem("plan", "--net", NET, "--save", path)
    ended = layermem("plan", "--net", NET, "--batch", "2", "--load", path)
    assert ended.code == 2 and "was made for another net, batch, device or precision" in ended.sentence
    path.write_text("{}")
    assert layermem("plan", "--net", NET, "--load", path).code == 2


def test_hints_reach_the_strategy(values):
    deep = ("--net", "prototxt/resnet20/train_val.prototxt", "--strategy", "sublinear", "--budget", "1")
    kept, free = values(*deep, "--keep", "*")[0], values(*deep)[0]
    assert kept["recomputed_ops"] == 0 < free["recomputed_ops"]
    none = values("--net", NET, "--strategy", "inter", "--host-budget", "0")[0]
    assert none["host_bytes"] == 0 < values("--net", NET, "--strategy", "inter")[0]["host_bytes"]


def test_measured_costs_change_the_prediction(values, tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("op,seconds\nconv1.forward,2.5\n")
    found, _ = values("--net", NET, "--costs", path)
    assert found["predicted_seconds"] > 2.5 > values("--net", NET)[0]["predicted_seconds"]


def test_a_trace_and_a_picture_are_written(layermem, tmp_path):
    pytest.importorskip("matplotlib")
    trace, plot = tmp_path / "trace.json", tmp_path / "arena.png"
    assert layermem("plan", "--net", NET, "--trace", trace, "--plot", plot).code == 0
    assert json.loads(trace.read_text())["traceEvents"] and plot.read_bytes().startswith(b"\x89PNG")


def test_help_lists_every_strategy_with_its_description(layermem):
    ended = layermem("plan", "--help")
    assert ended.code == 0 and "example:" in ended.out
    for strategy in STRATEGIES.values():
        assert f"{strategy.name} " in ended.out and strategy.description in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--net", NET, "--strategy", "magic"), "unknown strategy 'magic' (choose from "),
        (("--net", NET, "--device", "toaster"), "unknown device 'toaster' (choose from "),
        (("--net", NET, "--budget", "lots"), "'lots' is not an amount of memory; use a size such as"),
        (("--net", NET, "--costs", "nowhere.csv"), "nowhere.csv: no such file; make it with `layermem time`"),
        (("--net", NET, "--load", "nowhere.json"), "no such file; give an existing plan"),
        (("--net", NET, "--plot", "arena.gif"), "ends in .html or .png"),
        (("--net", NET, "--save", "/nowhere/plan.json"), "there is no folder"),
        (("--solver", SOLVER, "--input", "data=1,1,8,8"), "--input needs --net"),
        (("--net", "nowhere.prototxt"), "no such file"),
        (("--net", NET, "--batch", "0"), "give a number from 1"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(layermem, words, says):
    ended = layermem("plan", *words)
    assert ended.code == 2 and says in ended.sentence


@pytest.mark.parametrize(
    "words", [(), ("--net",), ("--net", NET, "--solver", SOLVER), ("--net", NET, "--batch", "two")]
)
def test_words_that_do_not_parse_end_with_2(layermem, words):
    ended = layermem("plan", *words)
    assert ended.code == 2 and ended.sentence.endswith("see `layermem plan --help`")


def test_the_file_beside_a_net_hints_too(layermem, values, prototxt, tmp_path):
    from layermem.nets.resnet import cifar

    net = prototxt(str(cifar(20, 8, 1)))
    words = ("--net", net, "--stage", "dummy", "--strategy", "sublinear", "--budget", "1")
    free = values(*words)[0]["recomputed_ops"]
    beside = tmp_path / "net.prototxt.hints"
    beside.write_text("keep *\n")
    assert values(*words)[0]["recomputed_ops"] == 0 < free
    elsewhere = beside.rename(tmp_path / "elsewhere")
    assert values(*words, "--hints", elsewhere)[0]["recomputed_ops"] == 0
    assert layermem("plan", *words, "--segment-ends", "absent").code == 2


ODD = {
    "only an input": 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }',
    "a scalar, silenced": """
        layer { name: "in" type: "Input" top: "x" input_param { shape { } } }
        layer { name: "s" type: "Silence" bottom: "x" }
    """,
    "no parameters": """
        layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 } shape { dim: 2 } } }
        layer { name: "l" type: "EuclideanLoss" bottom: "x" bottom: "y" top: "l" }
    """,
    "no loss": """
        input: "x" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 4
        layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
    """,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_nets_are_planned_under_every_strategy(layermem, prototxt, tmp_path, name):
    net = prototxt(ODD[name])
    for words, code in (("plan",), 0), (("plan", "--phase", "TEST"), 0), (("plan", "--budget", "1"), 3):
        assert layermem(*words, "--net", net).code == code
    assert layermem("plan", "--net", net, "--trace", tmp_path / "t.json").code == 0
    assert layermem("compare", "--net", net, "--strategies", "all", "--run", "1").code == 0


def test_a_solver_that_holds_gradients_has_its_updates_in_the_arena(layermem, values, prototxt):
    text = Path(SOLVER).read_text().replace('"train_val', '"prototxt/digits/train_val')
    plain = values("--solver", prototxt(text, "plain.prototxt"))[0]
    held = values("--solver", prototxt(text + 'iter_size: 4 type: "Adam" momentum2: 0.99', "held.prototxt"))[0]
    assert held["bvlc_bytes"] == plain["bvlc_bytes"] + plain["parameter_bytes"]  # a second history
    assert held["peak_bytes"] > plain["peak_bytes"] + plain["parameter_bytes"]  # and gradients that stay
