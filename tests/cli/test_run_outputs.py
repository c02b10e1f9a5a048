"""`layermem train --log, --tensorboard, --plot`: outputs of a run besides its snapshots."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from layermem.cli.run_outputs import RunOutputs
from layermem.integrations.page.training import training_page
from layermem.report.read_log import current_start, curves, last_training, read_records
from tests.cli.test_train import started


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_logged_from_its_start_to_its_end(layermem, solver, tmp_path):
    path = tmp_path / "run.jsonl"
    words = ("--budget", "50%", "--iterations", "3", "--log", path, "--log-every", "1")
    assert layermem("train", "--solver", solver(), *words).code == 0
    start, *between, end = records(path)
    assert start["net"] == "LeNet (digits) x64" and start["strategy"] == "auto" and start["resumed_from"] is None
    assert start["loss_weights"] == {"train": {"loss": 1.0}, "test 0": {"accuracy": 0.0, "loss": 1.0}}
    assert [r["iteration"] for r in between if r["event"] == "train"] == [0, 1, 2]
    assert [r["event"] for r in between if r["event"] != "train"] == ["test", "snapshot"]
    assert end["status"] == "done" and end["iteration"] == 3
    assert end["predicted_peak_bytes"] == end["measured_peak_bytes"] == start["predicted_peak_bytes"]
    assert end["measured_peak_bytes"] <= start["budget_bytes"]


@pytest.mark.samples(2)
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_another_budget_is_recorded_and_a_refused_one_too(layermem, solver, tmp_path, monkeypatch, ending):
    path, budget, texts = tmp_path / f"run.{ending}", tmp_path / "budget.txt", ["40%", "1KiB", "100%"]
    budget.write_text("45%")

    def record(self, event):
        if type(event).__name__ == "Stepped" and texts:
            budget.write_text(texts.pop(0))
        recorded(self, event)

    recorded = RunOutputs.record
    monkeypatch.setattr(RunOutputs, "record", record)
    ended = layermem("train", "--solver", solver(), "--budget-file", budget, "--iterations", 4, "--log", path)
    assert ended.code == 0
    found = read_records(str(path))
    changes = [each for each in found if each["event"] == "budget"]
    assert [each["iteration"] for each in changes] == [1, 2, 3]
    assert [each["before_bytes"] for each in changes] == [found[0]["budget_bytes"]] + [changes[0]["budget_bytes"]] * 2
    assert changes[1]["refusal"].startswith("budget 1.00 KiB is below the minimum of 'auto', 741 KiB")
    assert changes[0]["refusal"] is changes[2]["refusal"] is None
    last, now = changes[-1], current_start(found)
    assert (now["budget_bytes"], now["predicted_peak_bytes"]) == (last["budget_bytes"], last["predicted_peak_bytes"])
    assert found[-1]["predicted_peak_bytes"] == last["predicted_peak_bytes"]
    assert all(each["text"] in " ".join(ended.out.split()) for each in changes)
    page = training_page(str(path), found)
    assert dict(page["facts"])["budget"].endswith(f"({last['budget_bytes']:,} bytes)")
    assert page["notes"][-3:] == [each["text"] for each in changes]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_resumed_run_appends_and_its_curves_are_those_of_a_whole_run(layermem, solver, tmp_path, ending):
    file = solver()
    state = tmp_path / "digits_iter_2.solverstate"

    def train(log, iterations, *words):
        words = (*words, "--iterations", iterations, "--log", tmp_path / f"{log}.{ending}", "--log-every", 1)
        assert layermem("train", "--solver", file, *words).code == 0

    train("whole", 4)
    train("parts", 2)
    train("parts", 3, "--snapshot", state)
    train("parts", 4, "--snapshot", state)
    whole, parts = (read_records(str(tmp_path / f"{name}.{ending}")) for name in ("whole", "parts"))
    assert [r["resumed_from"] for r in parts if r["event"] == "start"] == [None, str(state), str(state)]
    assert curves(last_training(parts)) == curves(whole)


def test_a_run_that_diverges_says_so_in_its_log_and_its_plot_is_drawn(layermem, solver, tmp_path):
    pytest.importorskip("matplotlib")
    log, plot = tmp_path / "run.jsonl", tmp_path / "curves.png"
    ended = layermem("train", "--solver", solver(base_lr="1e30"), "--log", log, "--plot", plot, "--log-every", 1)
    assert ended.code == 5 and plot.exists()
    end = records(log)[-1]
    assert end["status"] == "diverged" and end["message"] in ended.sentence


def test_event_files_and_a_plot_need_no_log(layermem, solver, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboardX")
    folder, plot = tmp_path / "events", tmp_path / "curves.svg"
    words = ("--iterations", "2", "--tensorboard", folder, "--plot", plot)
    assert layermem("train", "--solver", solver(), *words).code == 0
    assert len(list(folder.glob("*/events.*"))) == 2 and plot.exists()


def test_a_trace_has_the_last_iteration_and_a_table_follows(layermem, solver, tmp_path):
    path = tmp_path / "step.json"
    ended = layermem("train", "--solver", solver(), "--budget", "50%", "--iterations", "3", "--trace", path)
    assert ended.code == 0 and "measured times of a step, mean of 2\n" in ended.out
    rows = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {row["cat"] for row in rows} == {"forward", "backward", "update"} and rows[0]["ts"] == 0
    assert all(row["dur"] >= 0 for row in rows) and "Convolution" in ended.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--trace", "a.caffemodel"), "is not a trace"),
        (("--trace", "none/a.json"), "there is no folder"),
        (("--log", "run.txt"), "'run.txt'|run.txt: is not a log by its name"),
        (("--plot", "a.jpg"), "a.jpg: is not a plot by its name"),
        (("--log", "a.csv", "--log-every", "0"), "--log-every 0 is too few"),
        (("--log-every", "3"), "--log-every has no effect without"),
        (("--log", "none/a.csv"), "there is no folder"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_the_run(layermem, solver, tmp_path, words, says):
    ended = layermem("train", "--solver", solver(), *words)
    assert ended.code == 2 and ended.out == "" and says.split("|")[-1] in ended.sentence


@pytest.mark.parametrize("output", [("--log", "lf/run.jsonl"), ("--log", "lf/run.csv"), ("--tensorboard", "lf/tb")])
def test_an_output_that_is_taken_away_is_said_and_the_training_goes_on(tmp_path, output):
    if output[0] == "--tensorboard":
        pytest.importorskip("tensorboardX")
    (tmp_path / "lf").mkdir()
    with started(tmp_path, 200, words=output, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        for line in run.stdout:
            if "Iteration 3 " in line:
                break
        shutil.rmtree(tmp_path / "lf")
        run.stdout.read()
        said = " ".join(run.stderr.read().split())
    assert run.returncode == 0 and (tmp_path / "s_iter_200.solverstate").exists()
    assert said.startswith(f"layermem: warning: {output[1]} was removed, moved or replaced while the run wrote to it")


FULL = """
import errno, os, sys
write, limit = os.write, 4000
def until_full(file, data):
    if os.fstat(file).st_size > limit:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(file, data)
os.write = until_full
from layermem.cli import main
raise SystemExit(main())
"""


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv"])
def test_a_full_disk_of_the_log_ends_the_training_with_a_snapshot(tmp_path, name):
    words, streams = ("--log", name, "--log-every", "1"), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(tmp_path, 500, words=words, program=FULL, **streams) as run:
        out, said = run.communicate()
    assert run.returncode == 2 and " ".join(said.split()) == (
        f"layermem: {name}: cannot be written: No space left on device; free some space or use another path"
    )
    [state] = tmp_path.glob("s_iter_*.solverstate")
    iteration = int(state.stem.rpartition("_")[2])
    assert 1 < iteration < 500 and "resume with     layermem train" in out
    assert (tmp_path / name).read_bytes().endswith(b"\n")


FULL_OUTPUT = """
import os
from layermem.solver.training import Training
solve = Training.solve
def on_a_full_disk(self, **words):
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    solve(self, **words)
Training.solve = on_a_full_disk
from layermem.cli import main
raise SystemExit(main())
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is of Linux")
def test_a_full_disk_of_standard_output_ends_the_training_with_a_snapshot(tmp_path):
    with started(tmp_path, 500, program=FULL_OUTPUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        _, said = run.communicate()
    assert run.returncode == 2 and said.startswith("layermem: cannot write the output: No space left on device")
    assert len([*tmp_path.glob("s_iter_*.solverstate")]) == 1


@pytest.mark.parametrize("lost", ["a file", "nothing that may be entered"])
def test_snapshots_that_can_no_longer_be_written_end_the_training_and_the_earlier_ones_stay(tmp_path, lost):
    (tmp_path / "out").mkdir()
    # A pipe holds fewer lines than there are between two snapshots, so none is under way when the line is read.
    with started(tmp_path, 10**6, "out/s", "snapshot: 1600", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        for line in run.stdout:
            if "Iteration 1610 " in line:
                break
        (tmp_path / "out").rename(tmp_path / "kept")
        (tmp_path / "out").write_text("") if lost == "a file" else (tmp_path / "out").symlink_to("out")
        run.stdout.read()
        said = run.stderr.read()
    wanted = r"layermem: out/s_iter_\d+\.(caffemodel|solverstate): cannot be written: .*\n(  .*\n)*"
    assert run.returncode == 2 and re.fullmatch(wanted, said)
    states = [path.name for path in (tmp_path / "kept").iterdir()]
    assert "s_iter_1600.solverstate" in states and not any("tmp" in name for name in states)
