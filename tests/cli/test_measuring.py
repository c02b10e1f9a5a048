"""--measure: plans with times that are measured first."""

import json

from layermem.api import build_net, job_of
from layermem.planning.costs import read_costs, write_costs
from layermem.planning.gpus import TargetGpu, find_gpu
from layermem.planning.kept_costs import keep_costs

NET = ("--net", "prototxt/digits/train_val.prototxt", "--batch", "4")
SOLVER = ("--solver", "prototxt/digits/solver.prototxt", "--batch", "4")


def test_one_line_measures_and_plans_within_the_budget_and_keeps_the_costs(layermem, tmp_path):
    path = tmp_path / "costs.csv"
    measured = layermem("plan", *NET, "--budget", "75%", "--measure", "--costs", path)
    assert measured.code == 0 and "per step (predicted from measured ops)" in measured.out
    again = layermem("plan", *NET, "--budget", "75%", "--costs", path)
    assert again.code == 0 and again.out == measured.out  # the file has all that was measured
    assert read_costs(path, "cpu").measured


def test_a_budget_that_nothing_fits_is_refused_before_anything_runs(layermem, tmp_path):
    ended = layermem("plan", *NET, "--budget", "1KiB", "--measure", "--costs", tmp_path / "costs.csv")
    assert ended.code == 3 and not (tmp_path / "costs.csv").exists()


def test_compare_measures_once_for_all_strategies(layermem, tmp_path):
    path, names = tmp_path / "costs.csv", ("--strategies", "liveness,recompute", "--json")
    found = json.loads(layermem("compare", *NET, "--measure", "--costs", path, *names).out)
    assert found == json.loads(layermem("compare", *NET, "--costs", path, *names).out)


def test_fit_measures_each_largest_size(layermem):
    words = ("fit", *NET[:2], "--budget", "2MiB", "--strategies", "liveness", "--json")
    (modelled,), (measured,) = (json.loads(layermem(*words, *more).out)["strategies"] for more in ((), ("--measure",)))
    assert measured["batch"] == modelled["batch"] and measured["predicted_seconds"] != modelled["predicted_seconds"]
    ended = layermem(*words, "--costs", "costs.csv")
    assert ended.code == 2 and "--costs are of one size, and fit tries many; give --measure" in ended.sentence


def test_training_that_measures_ends_with_the_same_bits(layermem, tmp_path):
    path, logs = tmp_path / "costs.csv", []
    words = ("train", *SOLVER, "--data", "noise", "--iterations", "2", "--budget", "75%", "--seed", "1")
    for more in ((), ("--measure", "--costs", path)):
        log = tmp_path / f"{len(logs)}.jsonl"
        assert layermem(*words, *more, "--log", log).code == 0
        logs.append([json.loads(line).get("loss") for line in log.read_text().splitlines()])
    assert logs[0] == logs[1] and read_costs(path, "cpu").fingerprint


def test_a_verb_that_only_measures_does_not_plan_with_it(layermem):
    assert "unknown argument '--measure'" in layermem("time", *NET, "--measure").sentence


def test_times_kept_of_a_gpu_elsewhere_serve_a_plan_here(layermem, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path))
    words = ("plan", *NET, "--device", "cuda", "--card", "tesla t4")
    modelled = layermem(*words)
    gpu = TargetGpu("T4", find_gpu("T4"))
    job = job_of(build_net(NET[1], batch=4), device="cuda")
    times = {op.name: 0.25 for op in job.graphs[0].ops}
    text = write_costs(times, d2h=1e9, h2d=1e9, net=job.title, graph=job.of_one_machine, gpu=gpu)
    path = keep_costs(text, gpu, "cuda", job.of_one_machine.fingerprint)
    found = " ".join(layermem(*words).out.split())
    assert "(predicted from measured ops)" in found and f"costs measured on T4, kept in {path}" in found
    assert json.loads(layermem(*words, "--json").out)["predicted_seconds"] == 0.25 * len(times)
    assert layermem(*words, "--no-measure").out == modelled.out
    assert "modelled at" in layermem(*words, "--precision", "fp32", "--batch", "8").out  # another step
    path.write_text(path.read_text().replace("op,seconds", ""))
    damaged = layermem(*words)
    assert damaged.out == modelled.out and f"warning: {path}" in damaged.err.replace("\n  ", " ")


def test_a_device_without_gpus_keeps_nothing(layermem, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "cache"))
    assert layermem("plan", *NET, "--measure").code == 0
    assert layermem("train", *SOLVER, "--data", "noise", "--iterations", "1").code == 0
    assert not (tmp_path / "cache").exists()
