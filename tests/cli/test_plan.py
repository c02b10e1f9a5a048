"""`layermem plan`."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from layermem.graph.net import NetOptions
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_solver
from layermem.solver.build import build_nets
from layermem.utils.units import format_exact_bytes
from tests.data.makers import datum, make_lmdb

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
    ended = layermem("plan", "--net", NET, "--strategy", "hybrid", "--host-budget", "1TiB")
    labels = [re.split(r"\s{2,}", line)[0] for line in ended.out.splitlines() if not line.startswith(" ")]
    assert ended.code == 0 and labels == [
        "LeNet x64", "peak", "peak at", "live bytes", "largest", "offloaded", "host memory", "time", "throughput",
        "lower bounds", "optimality gap", "baseline", "BVLC Caffe", "process",
    ]  # fmt: skip
    assert "(strategy caffe)" in ended.out and "optimality gap  <= " in ended.out


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("columns", [40, 80, 100, 250])
@pytest.mark.parametrize("words", [("plan", "--budget", "60%"), ("compare", "--budget", "60%"), ("show", "--fused")])
def test_text_stays_within_the_columns(layermem, monkeypatch, words, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = layermem(*words, "--net", "prototxt/googlenet/train_val.prototxt")
    assert ended.code == 0
    longest = max(ended.out.splitlines(), key=len)
    assert len(longest) <= (min(columns, 100) if columns >= 80 else 80), longest


def test_json_has_the_keys_that_programs_rely_on(values):
    found, code = values("--net", NET, "--minimum")
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
    assert "host 0 bytes, so nothing is offloaded (--host-budget B: to memory;" in ended.sentence
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
    saved = layermem(
        "plan", "--net", NET, "--budget", "5MiB", "--host-budget", "1TiB", "--save", path, "--schedule"
    ).out
    again = layermem("plan", "--net", NET, "--host-budget", "1TiB", "--load", path, "--schedule").out
    assert saved.split("# LeNet train")[1] == again.split("# LeNet train")[1]
    assert values("--net", NET, "--host-budget", "1TiB", "--load", path)[0]["strategy"] == "auto"


def test_a_plan_of_another_net_is_refused(layermem, tmp_path):
    path = tmp_path / "plan.json"
    layermem("plan", "--net", NET, "--save", path)
    ended = layermem("plan", "--net", NET, "--batch", "2", "--load", path)
    assert ended.code == 2 and "was made for another net, batch, device, precision or storage" in ended.sentence
    path.write_text("{}")
    assert layermem("plan", "--net", NET, "--load", path).code == 2


def test_the_minimum_is_searched_for_on_request_alone(layermem, values, monkeypatch):
    words = ("--net", NET, "--strategy", "hybrid")
    found = values(*words, "--minimum")[0]["minimum_bytes"]
    line = f"minimum         {format_exact_bytes(found)} of strategy hybrid\n"
    assert line in layermem("plan", *words, "--minimum").out
    monkeypatch.setattr("layermem.planning.budget_search.BudgetSearch.min_memory_program", None)
    assert values(*words) == ({**values(*words)[0], "minimum_bytes": None}, 0)
    assert "minimum " not in layermem("plan", *words).out


@pytest.mark.parametrize("text", ["name: 'net'", '{"strategy": '])
def test_a_plan_that_is_no_json_is_refused_in_one_sentence(layermem, tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    ended = layermem("plan", "--net", NET, "--load", path)
    assert ended.code == 2 and ended.sentence.endswith(
        "plan.json: is not a plan that layermem saved: it is no JSON; give a file that `layermem plan --save` wrote"
    )


def test_hints_reach_the_strategy(values):
    deep = ("--net", "prototxt/resnet20/train_val.prototxt", "--strategy", "sublinear", "--budget", "1")
    kept, free = values(*deep, "--keep", "*")[0], values(*deep)[0]
    assert kept["recomputed_ops"] == 0 < free["recomputed_ops"]
    none = values("--net", NET, "--strategy", "inter", "--host-budget", "0")[0]
    assert (
        none["host_bytes"] == 0 < values("--net", NET, "--strategy", "inter", "--host-budget", "1TiB")[0]["host_bytes"]
    )


def test_the_bound_in_seconds_knows_the_host_budget(values):
    net = "prototxt/vgg16/train_val.prototxt"
    free = values("--net", net, "--budget", "30%", "--host-budget", "1TiB")[0]
    none = values("--net", net, "--budget", "30%", "--host-budget", "0")[0]
    assert free["lower_bound_seconds"] < none["lower_bound_seconds"] <= none["predicted_seconds"]


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
        (("--net", NET, "--strategy", "hybird"), "unknown strategy 'hybird' (did you mean hybrid? choose from intra"),
        (("--net", NET, "--device", "cdua"), "unknown device 'cdua' (did you mean cuda? choose from "),
        (("--net", NET, "--phase", "TRIAN"), "unknown --phase 'TRIAN' (did you mean TRAIN? choose from TRAIN, TEST)"),
        (("--net", NET, "--device", "toaster"), "unknown device 'toaster' (choose from "),
        (("--net", NET, "--budget", "lots"), "'lots' is not an amount of memory; use a size such as"),
        (("--net", NET, "--costs", "nowhere.csv"), "nowhere.csv: no such file; give an existing cost file (make"),
        (("--net", NET, "--load", "nowhere.json"), "no such file; give an existing plan"),
        (("--net", NET, "--plot", "arena.gif"), "ends in .png, .svg, .pdf or .html"),
        (("--net", NET, "--save", "/nowhere/plan.json"), "there is no folder"),
        (("--net", "nowhere.prototxt"), "no such file"),
        (("--net", NET, "--batch", "0"), "give a number from 1"),
    ],
)
def test_impossible_input_is_refused_with_a_remedy(layermem, words, says):
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


def test_the_schedule_is_part_of_the_json(layermem):
    words = ("plan", "--solver", SOLVER, "--budget", "45%", "--schedule")
    found, lines = json.loads(layermem(*words, "--json").out), layermem(*words).out.splitlines()
    train, test = found["schedules"][:2]
    assert train["graph"].endswith(" train") and train["peak_bytes"] == found["peak_bytes"] and test["instructions"]
    first = next(i for i, line in enumerate(lines) if line.startswith("tick")) + 1
    for instruction, line in zip(train["instructions"], lines[first:]):
        assert line.split()[:4] == [str(instruction["tick"]), *(instruction[key] for key in ("stream", "op", "what"))]
        assert len(instruction["writes"]) + len(instruction["reads"]) == line.count("@")
    assert len(train["instructions"]) == found["peak"]["ticks"]
    assert "schedules" not in json.loads(layermem(*words[:-1], "--json").out)


@pytest.mark.parametrize("option", ["--strategy", "--keep", "--recompute", "--segment-ends", "--hints"])
@pytest.mark.parametrize("verb", [("plan", "--net", NET), ("train", "--solver", SOLVER)])
def test_what_a_loaded_plan_cannot_honour_is_refused(layermem, verb, option):
    ended = layermem(*verb, "--load", "plan.json", option, "auto")
    assert ended.code == 2 and f"{option} has no effect on the plan of --load; give only one" in ended.sentence


def test_a_phase_is_refused_beside_a_solver(layermem):
    for phase in ("TRAIN", "TEST"):
        ended = layermem("plan", "--solver", SOLVER, "--phase", phase)
        assert ended.code == 2 and "--phase needs --net; a solver has a train net" in ended.sentence


def test_two_outputs_of_one_name_are_refused(layermem, tmp_path):
    ended = layermem("plan", "--net", NET, "--save", tmp_path / "a.json", "--trace", f"{tmp_path}/./a.json")
    assert ended.code == 2 and "a.json: is given for two outputs; give each a name" in ended.sentence
    assert not ended.out and not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("option", ["--plot", "--trace", "--save", "--export-graph"])
def test_a_folder_that_is_not_there_is_reported_before_any_planning(layermem, monkeypatch, option):
    monkeypatch.setattr("layermem.cli.plan.job_of", None)
    ended = layermem("plan", "--net", NET, option, "nowhere/a.html")
    assert ended.code == 2 and "nowhere/a.html: cannot be written: there is no folder" in ended.sentence


@pytest.mark.parametrize("columns", [80, 200])
def test_a_schedule_is_folded_on_a_terminal_and_not_in_a_pipe(layermem, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ("plan", "--net", "prototxt/alexnet/train_val.prototxt", "--schedule", "--strategy", "hybrid")
    piped = layermem(*words).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = layermem(*words).out
    widest = max(map(len, piped.splitlines()))
    assert 80 < widest < 200 and (shown == piped) == (columns == 200)
    assert max(map(len, shown.splitlines())) <= columns


ABSENT = """
    layer { name: "d" type: "Data" top: "x" top: "t" include { phase: TRAIN }
            data_param { source: "no" batch_size: 8 } }
    layer { name: "d" type: "Data" top: "x" top: "t" include { phase: TEST }
            data_param { source: "no" batch_size: 3 } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 5 } }
    layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" }
"""


def test_a_solver_whose_data_are_absent_is_planned_with_their_shapes(layermem, values, prototxt):
    net = prototxt(ABSENT)
    text = f'net: "{net}" base_lr: 1 lr_policy: "fixed" max_iter: 1 test_iter: 1 test_interval: 1'
    solver = prototxt(text, "solver.prototxt")
    refused = layermem("plan", "--solver", solver)
    assert refused.code == 2 and "or give --input x=8,C,H,W --input t=8" in refused.sentence
    assert values("--solver", solver, "--input", "x=4,1,6,6")[1] == 0
    ended = layermem("plan", "--solver", solver, "--input", "x=4,1,6,6", "--schedule")
    assert ended.out.startswith("net x4 ")
    ended = layermem("plan", "--solver", solver, "--input", "z=4,1,6,6", "--input", "x=4,1,6,6")
    assert ended.code == 2 and "has no blob 'z' to give a shape to" in ended.sentence


def test_a_test_net_keeps_its_own_batch_size_beside_a_shape_that_is_given(prototxt):
    net = prototxt(ABSENT)
    text = f'net: "{net}" base_lr: 1 lr_policy: "fixed" max_iter: 1 test_iter: 1 test_interval: 1'
    nets = build_nets(read_solver(prototxt(text, "solver.prototxt")), NetOptions(inputs={"x": (4, 1, 6, 6)}))
    assert [each.blobs["x"].shape for each in nets.all] == [(4, 1, 6, 6), (3, 1, 6, 6)]
    assert [each.blobs["t"].shape for each in nets.all] == [(4,), (3,)]


def test_verbs_that_need_the_data_do_not_advise_to_give_shapes(layermem, prototxt):
    net = prototxt(ABSENT)
    text = f'net: "{net}" base_lr: 1 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false'
    for words in (("train", "--solver", prototxt(text, "s.prototxt")), ("test", "--net", net, "--weights", "w")):
        ended = layermem(*words)
        assert ended.code == 2 and "there is no 'no'" in ended.sentence and "--input" not in ended.sentence


SOURCE = """
    layer { name: "src" type: "MyData" top: "x" top: "t" }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 5 } }
    layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" }
"""


def test_a_source_of_an_unknown_type_is_planned_where_its_shapes_are_given(layermem, prototxt):
    net = prototxt(SOURCE)
    refused = layermem("show", "--net", net)
    assert refused.code == 2 and "give --input x=... --input t=..., or use Input" in refused.sentence
    words = ("--net", net, "--input", "x=2,3,4,4", "--input", "t=2")
    assert layermem("show", *words).code == layermem("plan", *words).code == layermem("time", *words).code == 0


def test_an_input_without_a_shape_takes_that_of_an_option(layermem, prototxt):
    layer = 'layer { name: "r" type: "ReLU" bottom: "x" top: "%s" }'
    for text in ('layer { name: "in" type: "Input" top: "x" }' + layer % "y", 'input: "x"' + layer % "x"):
        net = prototxt(text)
        refused = layermem("show", "--net", net)
        assert refused.code == 2 and "or --input x=N,C,H,W" in refused.sentence
        assert layermem("show", "--net", net, "--input", "x=2,3,4,4").code == 0


def test_slices_are_named_in_the_text_and_in_the_json(layermem, values):
    net = "prototxt/digits/train_val.prototxt"
    ended = layermem("plan", "--net", net, "--slices", "conv1..pool1/4")
    assert ended.code == 0 and re.search(r"^slices +conv1\.\.pool1 in 4$", ended.out, re.MULTILINE)
    assert values("--net", net, "--slices", "conv1..pool1/4")[0]["slices"] == "conv1..pool1/4"
    assert values("--net", net)[0]["slices"] is None
    assert layermem("plan", "--net", net, "--slices", "conv1..pool1/5").code == 2


def test_split_weights_are_an_option_of_their_own(layermem, values):
    net = ("--net", "prototxt/digits/train_val.prototxt")
    options = ("--slices", "conv1..pool1/4", "--split-weights", "ip1/4,ip2/2")
    found = values(*net, *options)[0]
    assert (found["slices"], found["split_weights"]) == ("conv1..pool1/4", "ip1/4,ip2/2")
    assert values(*net, "--split-weights", "ip1/4")[0]["slices"] is None
    assert "rows of ip1 in 4 bands, rows of ip2 in 2 bands" in layermem("plan", *net, *options).out
    refused = layermem("plan", *net, "--slices", "conv1..pool1/4,ip1/rows/4")
    assert refused.code == 2 and "give these as --split-weights ip1/4" in refused.err
    table = layermem("compare", *net, "--strategies", "liveness,hybrid", *options).out
    assert re.search(r" slices +split weights$", table, re.MULTILINE)
    assert re.search(r"^liveness .* conv1\.\.pool1/4 +ip1/4,ip2/2$", table, re.MULTILINE)


def test_a_saved_plan_in_slices_is_loaded_without_naming_them(layermem, values, tmp_path):
    net, path = "prototxt/digits/train_val.prototxt", str(tmp_path / "plan.json")
    assert layermem("plan", "--net", net, "--slices", "whole/2", "--save", path).code == 0
    assert values("--net", net, "--load", path)[0]["slices"] == "whole/2"
    assert "--slices has no effect" in layermem("plan", "--net", net, "--load", path, "--slices", "whole/2").err


@pytest.mark.parametrize(
    "words", [("--net", NET, "--ranks", "4"), ("--solver", SOLVER, "--ranks", "4", "--iter-size", "8")]
)
def test_the_first_of_several_ranks_is_planned_without_the_others(layermem, values, words):
    ended = layermem("plan", *words)
    count = 8 if "--solver" in words else 4
    assert ended.code == 0 and f"rank 0 of 4, {count} micro-batches an iteration" in ended.out
    shared, _ = values(*words)
    alone, _ = values(*words[:2], "--iter-size", str(count))
    assert (shared["ranks"], shared["rank"], shared["micro_batches"]) == (4, 0, count)
    assert (alone["ranks"], alone["micro_batches"]) == (1, count)
    assert shared["peak_bytes"] < alone["peak_bytes"] and shared["fingerprint"] != alone["fingerprint"]


# -- GPUs that are not here --------------------------------------------------------------------------------------------

RESNET = ("--net", "prototxt/resnet50/train_val.prototxt", "--batch", "32", "--device", "cuda")


def test_a_gpu_by_name_gives_its_rates_and_its_memory_as_the_budget(layermem):
    ended = layermem("plan", *RESNET, "--card", "rtx 4090", "--precision", "tf32")
    text = " ".join(ended.out.split())
    assert ended.code == 0 and "budget 22.0 GiB" in text
    says = "RTX 4090: 82.6 TFLOP/s, 1,008 GB/s, link 31.5 GB/s published; modelled at 76, 62, 71 % of these"
    assert says in text


VGG = ("--net", "prototxt/vgg16/train_val.prototxt", "--batch", "64", "--device", "cuda")


def test_a_faster_gpu_has_the_shorter_step(layermem):
    def plan(*words):
        return json.loads(layermem("plan", *VGG, *words, "--json").out)

    names = ("T4", "A100 40GB", "H100 PCIe", "H200")
    times = [plan("--card", name, "--budget", "4GiB")["predicted_seconds"] for name in names]
    assert times == sorted(times, reverse=True) and times[0] > 3 * times[-1]
    typical, same = plan("--budget", "4GiB"), plan("--card", "h200", "--budget", "4GiB")
    assert same["predicted_seconds"] == typical["predicted_seconds"]  # of which the model is
    assert (typical["gpu"], same["gpu"], same["costs"]) == (None, "H200", "modelled")
    assert plan("--card", "H200", "--budget", "50%free")["budget_bytes"] == plan("--card", "H200")["budget_bytes"] // 2


def test_a_gpu_that_the_kernels_do_not_run_on_is_planned_for_with_a_warning(layermem):
    ended = layermem("plan", "--net", "prototxt/digits/train_val.prototxt", "--device", "cuda", "--card", "GTX 1080")
    says = "warning GTX 1080 has compute capability 6.1, and the kernels need 7.5 or later: this step cannot run there"
    assert ended.code == 0 and "budget 7.00 GiB" in ended.out and says in " ".join(ended.out.split())


def test_costs_of_another_gpu_are_refused(layermem, tmp_path):
    net, path = ("--net", "prototxt/digits/train_val.prototxt", "--device", "cuda"), tmp_path / "costs.csv"
    path.write_text("# gpu T4\nop,seconds\nconv1+relu1.forward,1\n")
    refused = layermem("plan", *net, "--card", "L4", "--costs", path)
    assert refused.code == 2 and f"{path}: was measured on T4, and the GPU is L4; measure" in refused.sentence
    assert layermem("plan", *net, "--card", "t4", "--costs", path).code == 0


NOISY = """
    layer { name: "d" type: "Data" top: "x" top: "t" data_param { source: "%s" batch_size: 2 }
      transform_param { crop_size: 4 force_gray: true noise_param { prob: 0.5 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 5 } }
    layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" }
"""


def test_a_field_that_only_augments_is_planned_and_trained_on_noise_and_refused_on_data(layermem, prototxt, tmp_path):
    net = prototxt(NOISY % make_lmdb(tmp_path / "db", [datum(np.zeros((1, 6, 6), np.uint8), 1)] * 4))
    text = f'net: "{net}" base_lr: 1 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false'
    solver = prototxt(text, "s.prototxt")
    planned = layermem("plan", "--solver", solver)
    said = " ".join(planned.out.split())
    assert planned.code == 0 and f"its data cannot be read: {net}:3: layer 'd' 'noise_param'" in said
    assert layermem("train", "--solver", solver, "--data", "noise").code == 0
    refused = layermem("train", "--solver", solver)
    assert refused.code == 2 and f"{net}:3: layer 'd' 'noise_param'" in refused.sentence
