"""The record of how a run was started, and the plan that is rebuilt from it."""

import json
import os
from pathlib import Path

import pytest

from layermem.cli.run_job import differences, plan_run
from layermem.errors import InputError
from layermem.report.read_log import read_records

NOISE = ("--data", "noise:3", "--batch", "6", "--budget", "70%", "--keep", "pool1")


def start_of(path):
    return read_records(str(path))[0]


@pytest.fixture
def run(layermem, solver, tmp_path, monkeypatch):
    """run(*words, ending): the start record of a training with these words; the working folder is a different one
    afterwards."""

    def train(*words, ending="jsonl"):
        log = tmp_path / f"run.{ending}"
        ended = layermem("train", "--solver", solver(), "--iterations", 1, "--log", log, *words)
        assert ended.code == 0, ended.err
        monkeypatch.chdir(tmp_path)  # also restores the folder that plan_run leaves
        return start_of(log)

    return train


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        ((), "jsonl"),
        (("--iter-size", "4"), "jsonl"),
        (NOISE, "csv"),
        (("--spill", "SPILL", "--strategy", "inter"), "jsonl"),
    ],
    ids=["plain", "micro-batches", "noise, csv", "spill"],
)
def test_the_plan_of_a_run_is_made_again_from_its_log(run, tmp_path, words, ending):
    words = [str(tmp_path) if word == "SPILL" else word for word in words]
    start = run(*words, ending=ending)
    report = plan_run(start, allow_python=False)
    assert report.job.graphs[0].fingerprint == start["fingerprint"]
    assert (report.strategy, report.budget_bytes) == (start["strategy"], start["budget_bytes"])
    assert (report.peak_bytes, report.seconds) == (start["predicted_peak_bytes"], start["predicted_seconds"])
    assert report.program.host_bytes == start["predicted_host_bytes"]
    assert list(differences(start, report)) == []


def test_a_saved_plan_is_used_again(run, layermem, solver, tmp_path):
    path = tmp_path / "p.json"
    assert layermem("plan", "--solver", solver(), "--budget", "40%", "--save", path).code == 0
    start = run("--load", path)
    report = plan_run(start, allow_python=False)
    assert report.peak_bytes == start["predicted_peak_bytes"] and start["job"]["plan"] == str(path)
    assert report.program.plan.order == plan_run(start, allow_python=False).program.plan.order


def test_a_log_without_the_options_of_its_run_is_planned_where_the_graph_is_the_same(run, monkeypatch):
    folder = os.getcwd()
    start = run("--budget", "50%")
    monkeypatch.chdir(folder)
    del start["job"]
    assert plan_run(start, allow_python=False).peak_bytes == start["predicted_peak_bytes"]
    with pytest.raises(InputError, match="a log of an earlier version lacks their options"):
        plan_run({**start, "fingerprint": "0"}, allow_python=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fingerprint": "0"}, "another training step than that of the run .they have changed since it began"),
        ({"solver_file": "gone.prototxt"}, "gone.prototxt: no such file"),
        ({"solver_file": None}, "does not name the solver of its run; give --solver F or --net F"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"strategy": "magic"}, "unknown strategy 'magic'"),
        ({"folder": "/nowhere/at/all"}, "/nowhere/at/all: the folder of its run cannot be entered"),
        ({"hints": {"magic": ["a"]}}, "what it says of its run cannot be read"),
        ({"stages": 7}, "what it says of its run cannot be read"),
    ],
)
def test_a_run_that_cannot_be_planned_again_is_one_sentence(run, change, says):
    start = run()
    of_job = {name: change[name] for name in change if name in start["job"]}
    with pytest.raises(InputError, match=says):
        plan_run({**start, **change, "job": start["job"] | of_job}, allow_python=False)


def test_a_log_cannot_allow_the_code_of_python_layers(layermem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert layermem("examples", "python_layers").code == 0
    words = ("--solver", "python_layers/solver.prototxt", "--iterations", 1, "--log", "run.jsonl")
    assert layermem("train", *words, "--allow-python").code == 0
    start = start_of("run.jsonl")
    assert start["job"]["allow_python"]
    with pytest.raises(InputError, match="--allow-python"):
        plan_run(start, allow_python=False)
    assert plan_run(start, allow_python=True).peak_bytes == start["predicted_peak_bytes"]


def test_another_peak_and_another_net_are_said(run):
    start = run("--budget", "50%")
    report = plan_run(start, allow_python=False)
    (sentence,) = differences({**start, "predicted_peak_bytes": 1 << 20}, report)
    assert "another peak, 1.00 MiB" in sentence
    (sentence,) = differences({**start, "fingerprint": "0"}, report)
    assert "another net" in sentence


def test_the_record_names_the_folder_from_which_files_are_named(run):
    folder = os.getcwd()
    start = run()
    assert start["job"]["folder"] == folder and json.loads(json.dumps(start)) == start
    assert Path(start["solver_file"]).exists()
