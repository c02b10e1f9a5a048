"""--measure: plans with times that are measured first."""

import json
import os
from datetime import date
from types import SimpleNamespace

import pytest

from layermem.api import build_net, job_of
from layermem.planning.costs import read_costs, write_costs
from layermem.planning.gpus import TargetGpu, find_gpu
from layermem.planning.kept_costs import keep_costs, keep_spill, read_spill
from layermem.planning.spill import file_system_of

NET = ("--net", "prototxt/digits/train_val.prototxt", "--batch", "4")
SOLVER = ("--solver", "prototxt/digits/solver.prototxt", "--batch", "4")


def test_one_line_measures_and_plans_within_the_budget_and_keeps_the_costs(layermem, tmp_path):
    path = tmp_path / "costs.csv"
    measured = layermem("plan", *NET, "--budget", "75%", "--measure", "--save-costs", path)
    assert measured.code == 0 and "per step (predicted from measured ops)" in measured.out
    again = layermem("plan", *NET, "--budget", "75%", "--costs", path)
    assert again.code == 0 and again.out == measured.out  # the file has all that was measured
    assert read_costs(path, "cpu").measured


@pytest.mark.parametrize(
    "words, said",
    [
        (("--measure", "--costs", "a.csv"), "--measure makes times in place of --costs"),
        (("--save-costs", "a.csv"), "--save-costs has no effect without --measure"),
        (("--measure", "--save-costs", "a.json"), "a file of costs"),
        (("--measure", "--save-costs", "none/a.csv"), "none"),
    ],
)
@pytest.mark.parametrize("verb", [("plan", *NET), ("compare", *NET), ("train", *SOLVER)], ids=lambda words: words[0])
def test_times_are_read_or_measured_and_are_saved_where_they_are_measured(layermem, verb, words, said):
    ended = layermem(*verb, *words)
    assert ended.code == 2 and said in ended.sentence


@pytest.mark.parametrize(
    "verb, other", [("plan", "--plot"), ("compare", "--plot"), ("train", "--plot"), ("train", "--log")]
)
def test_times_are_not_written_over_another_output(layermem, tmp_path, verb, other):
    path, link = tmp_path / "a.csv", tmp_path / ("b.csv" if other == "--log" else "a.html")
    link.symlink_to(path)
    ended = layermem(verb, *(SOLVER if verb == "train" else NET), "--measure", "--save-costs", path, other, link)
    assert ended.code == 2 and "is given for two outputs" in ended.sentence


def test_a_budget_that_nothing_fits_is_refused_before_anything_runs(layermem, tmp_path):
    ended = layermem("plan", *NET, "--budget", "1KiB", "--measure", "--save-costs", tmp_path / "costs.csv")
    assert ended.code == 3 and not (tmp_path / "costs.csv").exists()


def test_compare_measures_once_for_all_strategies(layermem, tmp_path):
    path, names = tmp_path / "costs.csv", ("--strategies", "liveness,recompute", "--json")
    found = json.loads(layermem("compare", *NET, "--measure", "--save-costs", path, *names).out)
    assert found == json.loads(layermem("compare", *NET, "--costs", path, *names).out)


@pytest.mark.whole
def test_fit_measures_each_largest_size(layermem):
    words = ("fit", *NET[:2], "--budget", "2MiB", "--strategies", "liveness", "--json")
    (modelled,), (measured,) = (json.loads(layermem(*words, *more).out)["strategies"] for more in ((), ("--measure",)))
    assert measured["batch"] == modelled["batch"] and measured["predicted_seconds"] != modelled["predicted_seconds"]
    ended = layermem(*words, "--costs", "costs.csv")
    assert ended.code == 2 and "--costs are of one size, and fit tries many; give --measure" in ended.sentence


def test_training_that_measures_ends_with_the_same_bits(layermem, tmp_path):
    path, logs = tmp_path / "costs.csv", []
    words = ("train", *SOLVER, "--data", "noise", "--iterations", "2", "--budget", "75%", "--seed", "1")
    for more in ((), ("--measure", "--save-costs", path)):
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


def keep_rates(monkeypatch, cache, folder, write, read):
    monkeypatch.setenv("LAYERMEM_CACHE", str(cache))
    keep_spill(file_system_of(folder), write, read)


def test_every_verb_plans_with_the_kept_rates_of_a_spill_folder_as_training_does(layermem, tmp_path, monkeypatch):
    keep_rates(monkeypatch, tmp_path / "cache", tmp_path, 1.5e9, 2.5e9)
    words = ("--strategy", "inter", "--spill", tmp_path)
    log, saved = tmp_path / "run.jsonl", tmp_path / "p.json"
    planned = layermem("plan", *SOLVER, *words, "--save", saved)
    line = f"writes 1.5 GB/s, reads 2.5 GB/s (measured on {date.today()}, or again with --measure; kept in"
    assert planned.code == 0 and line in " ".join(planned.out.split())
    values = json.loads(layermem("plan", *SOLVER, *words, "--json").out)
    assert values["spill"] == json.loads(saved.read_text())["spill"]
    assert (values["spill"]["write"], values["spill"]["read"]) == (1.5e9, 2.5e9) and values["host_bytes"] > 0
    assert layermem("train", *SOLVER, "--data", "noise", "--iterations", "1", *words, "--log", log).code == 0
    start = json.loads(log.read_text().splitlines()[0])
    assert (start["fingerprint"], start["predicted_peak_bytes"], start["predicted_host_bytes"]) == (
        values["fingerprint"],
        values["peak_bytes"],
        values["host_bytes"],
    )
    assert start["predicted_seconds"] == values["predicted_seconds"] and start["job"]["spill"] == values["spill"]
    compared = layermem("compare", *SOLVER, *words[2:], "--strategies", "inter", "--run", "1")
    assert compared.code == 0 and line in " ".join(compared.out.split())
    fitted = layermem("fit", *NET[:2], "--budget", "1MiB", "--spill", tmp_path, "--strategies", "hybrid", "--max", "9")
    assert fitted.code == 0 and line in " ".join(fitted.out.split())


def test_measuring_with_a_spill_folder_measures_its_rates_again(layermem, tmp_path, monkeypatch):
    keep_rates(monkeypatch, tmp_path, tmp_path, 1.0, 1.0)
    path = tmp_path / "costs.csv"
    assert layermem("plan", *NET, "--measure", "--save-costs", path, "--spill", tmp_path).code == 0
    kept = read_spill(file_system_of(tmp_path))
    assert min(kept) > 1e3 and f"# spill {file_system_of(tmp_path).name}" in path.read_text()
    assert f"link.d2h,{kept[0]:.9g}\n" in path.read_text()


def test_a_spill_folder_that_takes_no_file_is_refused_by_every_verb(layermem, tmp_path):
    for verb, words in (("plan", NET), ("compare", NET), ("fit", (*NET[:2], "--budget", "1MiB")), ("train", SOLVER)):
        ended = layermem(verb, *words, "--spill", tmp_path / "none")
        assert ended.code == 2 and "No such file or directory; name another --spill" in ended.sentence


def test_a_disk_with_too_little_space_is_refused_by_plan_as_by_train(layermem, tmp_path, monkeypatch):
    keep_rates(monkeypatch, tmp_path / "cache", tmp_path, 1e9, 1e9)
    left = SimpleNamespace(f_bavail=1, f_frsize=4096, f_fsid=os.statvfs(tmp_path).f_fsid)
    monkeypatch.setattr(os, "statvfs", lambda path: left)
    ended = layermem("plan", *SOLVER, "--strategy", "inter", "--spill", tmp_path)
    assert ended.code == 2 and "No space left on device; name another --spill" in ended.sentence


def test_a_device_without_gpus_keeps_nothing(layermem, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "cache"))
    assert layermem("plan", *NET, "--measure").code == 0
    assert layermem("train", *SOLVER, "--data", "noise", "--iterations", "1").code == 0
    assert not (tmp_path / "cache").exists()
