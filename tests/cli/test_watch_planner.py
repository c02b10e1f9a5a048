"""The process that plans the run of a log."""

import argparse
import json
import multiprocessing
import os
import time

import pytest

from layermem.cli import watch_planner
from layermem.cli.main import make_parser
from layermem.cli.watch_planner import Planner, sections, work
from layermem.integrations.page.planned import PlannedPage
from tests.cli.test_report import data_of

SMALL_COMPARISON = ("--strategies", "liveness,auto", "--points", "2")
SECONDS = 20  # until a process has ended, at most


def options(*words):
    return vars(make_parser().parse_args(["watch", "run.jsonl", *map(str, words)]))


class Sent(list):
    """The sending end of a pipe, whose messages are kept."""

    send = list.append


def test_the_sections_are_those_of_the_page_that_report_writes(layermem, solver, tmp_path, monkeypatch):
    file, log, path = solver(), tmp_path / "run.jsonl", tmp_path / "x.html"
    assert layermem("train", "--solver", file, "--budget", "50%", "--iterations", 1, "--log", log).code == 0
    assert layermem("report", "--solver", file, "--budget", "50%", *SMALL_COMPARISON, "-o", path).code == 0
    page, start, progress = data_of(path), json.loads(log.read_text().splitlines()[0]), Sent()
    monkeypatch.chdir(tmp_path)
    nice: list[int] = []
    monkeypatch.setattr(watch_planner, "_be_nice", nice.append)
    made = {name: json.loads(content) for name, content in sections(start, options(*SMALL_COMPARISON), progress)}
    assert made["strategies"] == page["strategies"] and nice == [19]
    plan = {name: page[name] for name in ("version", "made_by", "title", "summary", "facts", "net", "arena")}
    assert made["plan"] == plan
    assert progress == [("progress", "liveness", 0, 2), ("progress", "auto", 1, 2), ("progress", "", 2, 2)]


def test_options_plan_another_job_and_a_budget_that_nothing_fits_is_said(layermem, monkeypatch):
    monkeypatch.setattr(watch_planner, "_prepare", lambda thresholds: None)
    monkeypatch.setattr(watch_planner, "_be_nice", lambda value: None)
    start, sent = {"event": "start", "fingerprint": "0"}, Sent()
    net = ("--net", "prototxt/digits/train_val.prototxt", *SMALL_COMPARISON)
    work(start, options(*net), (0, 0, 0), sent)
    assert [kind for kind, *_ in sent] == ["note", "plan", "progress", "progress", "progress", "strategies", "end"]
    assert "another net" in sent[0][1]
    sent.clear()
    work(start, options(*net, "--budget", "1KiB"), (0, 0, 0), sent)
    (message,) = sent
    assert message[0] == "failed" and "is below the minimum of 'auto'" in message[1]


def wait_for(planned, plan):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        state = planned.state()[1]
        if state["plan"] == plan and state["error"]:
            return state["error"]
        time.sleep(0.01)
    raise AssertionError("no error")


def describe_process(start, given, thresholds, sender):
    """Replaces work(): reports the properties of the process as an error."""
    watch_planner._prepare(thresholds)
    session = "own session" if os.getsid(0) == os.getpid() else "session of the parent"
    sender.send(("failed", f"{start['net']}: nice {os.nice(0)}, {session}"))


def die(start, given, thresholds, sender):
    os._exit(1)


def test_a_run_is_planned_once_in_a_process_of_low_priority_and_the_next_one_anew(capfd, monkeypatch):
    monkeypatch.setattr(watch_planner, "work", describe_process)
    planned = PlannedPage()
    with Planner(argparse.Namespace(**options()), planned) as planner:
        planner.follow({"net": "a", "fingerprint": "1"})
        assert "a: nice 5, own session; --solver F" in wait_for(planned, 1)
        planner.follow({"net": "a", "fingerprint": "1", "resumed_from": "s", "iteration": 5})
        assert planned.state()[1]["plan"] == 1
        planner.follow({"net": "b", "fingerprint": "2"})
        assert "b: nice 5" in wait_for(planned, 2)
    assert not multiprocessing.active_children()
    assert "run.jsonl: the plan of its run cannot be shown: a:" in " ".join(capfd.readouterr().err.split())


def test_a_process_that_dies_is_said(capfd, monkeypatch):
    monkeypatch.setattr(watch_planner, "work", die)
    planned = PlannedPage()
    with Planner(argparse.Namespace(**options()), planned) as planner:
        planner.follow({"net": "a"})
        assert "has ended early" in wait_for(planned, 1)


def test_the_end_of_watch_ends_the_process_without_a_word(capfd, monkeypatch):
    planned = PlannedPage()
    with Planner(argparse.Namespace(**options()), planned) as planner:
        planner.follow({"net": "a"})
    assert not multiprocessing.active_children()
    pytest.importorskip("threading")
    assert capfd.readouterr().err == "" and planned.state()[1]["error"] is None
