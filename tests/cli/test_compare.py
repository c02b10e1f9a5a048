"""`layermem compare` and `layermem fit`."""

import json

import pytest

from layermem.planning.strategies import STRATEGIES

NET = "prototxt/digits/train_val.prototxt"


def test_every_strategy_is_a_row_sorted_by_time_among_those_that_fit(layermem):
    ended = layermem("compare", "--net", NET, "--strategies", "all", "--budget", "50%", "--host-budget", "1TiB")
    lines = ended.out.splitlines()
    rows = [line.split() for line in lines[2 : 2 + len(STRATEGIES)]]
    assert ended.code == 0 and {row[0] for row in rows} == set(STRATEGIES)
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)  # yes before no
    assert rows[-1][:2] == ["caffe", "no"] and "\nBVLC Caffe " in ended.out and "\nlower bounds " in ended.out


def test_json_has_a_record_a_strategy(layermem):
    found = json.loads(layermem("compare", "--net", NET, "--strategies", "liveness,caffe", "--json").out)
    caffe = next(each for each in found["strategies"] if each["strategy"] == "caffe")
    assert caffe["peak_bytes"] == found["caffe_bytes"] and caffe["share_of_caffe"] == 1 and caffe["feasible"]
    assert caffe["measured_seconds"] is None and found["budget_bytes"] is None
    assert found["lower_bound_bytes"] <= min(each["peak_bytes"] for each in found["strategies"])


def test_running_measures_the_peak_that_was_predicted(layermem):
    words = (
        "--strategies",
        "liveness,hybrid,caffe",
        "--budget",
        "60%",
        "--host-budget",
        "1TiB",
        "--run",
        "2",
        "--json",
    )
    found = {each["strategy"]: each for each in json.loads(layermem("compare", "--net", NET, *words).out)["strategies"]}
    for name in ("liveness", "hybrid"):
        assert found[name]["measured_peak_bytes"] == found[name]["peak_bytes"] and found[name]["measured_seconds"] > 0
    assert found["caffe"]["measured_seconds"] is None  # it does not fit


@pytest.mark.samples(4)
@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_a_comparison_is_drawn(layermem, tmp_path, ending):
    if ending != "html":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"memory.{ending}"
    ended = layermem("compare", "--net", NET, "--strategies", "liveness,recompute,auto", "--plot", path)
    assert ended.code == 0 and path.stat().st_size > 10_000


def test_a_solver_is_compared_with_its_test_net(layermem):
    solver = "prototxt/digits/solver.prototxt"
    found = json.loads(layermem("compare", "--solver", solver, "--strategies", "liveness", "--json").out)
    alone = json.loads(layermem("compare", "--net", NET, "--strategies", "liveness", "--json").out)
    assert found["bvlc_bytes"] > alone["bvlc_bytes"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fit", "--net", NET), "fit needs an amount of memory; give --budget, such as --budget 8GiB"),
        (
            ("fit", "--net", NET, "--budget", "50%"),
            "fit needs an amount of memory; give --budget, such as --budget 8GiB",
        ),
        (
            ("fit", "--net", NET, "--budget", "1GiB", "--grow", "depth"),
            "--grow depth needs a net that tools/make_net.py resnet wrote",
        ),
        (("fit", "--net", "nowhere", "--budget", "1GiB"), "no such file"),
        (("compare", "--net", NET, "--strategies", "magic"), "unknown strategy 'magic' (choose from "),
        (("compare", "--net", NET, "--plot", "x.gif", "--strategies", "liveness"), ".pdf or .html"),
        (("compare", "--net", NET, "--run", "-1"), "--run -1 is too few"),
    ],
)
def test_impossible_input_is_refused(layermem, words, says):
    ended = layermem(*words)
    assert ended.code == 2 and says in ended.sentence


def test_a_folder_that_is_not_there_is_reported_before_any_planning(layermem, monkeypatch):
    monkeypatch.setattr("layermem.cli.compare.job_of", None)
    ended = layermem("compare", "--net", "prototxt/digits/train_val.prototxt", "--plot", "nowhere/x.html")
    assert ended.code == 2 and "nowhere/x.html: cannot be written: there is no folder" in ended.sentence


def test_strategies_are_compared_for_the_first_of_several_ranks(layermem):
    words = ("compare", "--net", NET, "--strategies", "liveness,caffe", "--ranks", "2")
    assert "rank 0 of 2, 2 micro-batches an iteration" in layermem(*words).out
    assert json.loads(layermem(*words, "--json").out)["ranks"] == 2


def test_strategies_are_compared_on_a_gpu_by_name(layermem):
    words = ("compare", "--net", "prototxt/digits/train_val.prototxt", "--device", "cuda", "--card", "L4")
    text = " ".join(layermem(*words, "--strategies", "liveness,recompute").out.split())
    assert "budget 22.0 GiB" in text and "costs L4: 30.3 TFLOP/s, 300 GB/s" in text
    found = json.loads(layermem(*words, "--strategies", "liveness", "--json").out)
    assert (found["gpu"], found["costs"]) == ("L4", "modelled")
