"""Lines that programs which read Caffe's logs can read: the expressions below are those of Caffe's parse_log.py."""

import io
import re
from datetime import datetime

import numpy as np

from layermem.interactive.solver import Solver
from layermem.report import events
from layermem.report.log import Log, lines
from tests.nets import solver_file

ITERATION = re.compile(r"Iteration (\d+)")
TRAIN_OUTPUT = re.compile(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)")
TEST_OUTPUT = re.compile(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)")
RATE = re.compile(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)")


def time_of(line, year=2024):
    """I0704 20:49:42.009958 -> a date; ValueError where a line has none."""
    day, clock = line.split()[:2]
    if not day.startswith("I"):
        raise ValueError(line)
    return datetime.strptime(f"{year} {day[1:]} {clock}", "%Y %m%d %H:%M:%S.%f")


def parse(text):
    """Rows as parse_log.py finds them: train and test outputs by iteration, with rate and seconds since Solving."""
    start = next(time_of(line) for line in text.splitlines() if "] Solving " in line)
    train, test, iteration, rate = {}, {}, -1, float("nan")
    for line in text.splitlines():
        if match := ITERATION.search(line):
            iteration = int(match[1])
        if iteration < 0:
            continue
        seconds = (time_of(line) - start).total_seconds()
        if match := RATE.search(line):
            rate = float(match[1])
        for table, pattern in ((train, TRAIN_OUTPUT), (test, TEST_OUTPUT)):
            if match := pattern.search(line):
                row = table.setdefault(iteration, {"seconds": seconds, "lr": rate})
                row[match[2]] = float(match[3])
    return train, test


def test_the_log_of_a_run_is_one_that_caffes_parser_reads(tmp_path):
    stream, seen = io.StringIO(), []
    log = Log(stream)

    def both(event):
        seen.append(event)
        log(event)

    file = solver_file("chain", tmp_path, display=2, lr_policy="step", gamma=0.5, stepsize=4, snapshot_after_train=True)
    with Solver(file, device="reference", log=both) as solver:
        solver.solve()
    train, test = parse(stream.getvalue())
    assert sorted(train) == [0, 2, 4] and sorted(test) == [0, 3, 6]
    shown = {e.iteration: e for e in seen if isinstance(e, events.Displayed)}
    tested = {e.iteration: e for e in seen if isinstance(e, events.Tested)}
    for iteration, row in train.items():
        assert row["loss"] == float(f"{float(shown[iteration].outputs[0].values):.6g}")
    for iteration, row in test.items():
        values = {o.name: float(f"{float(o.values):.6g}") for o in tested[iteration].outputs}
        assert {name: row[name] for name in ("accuracy", "loss")} == values
    assert test[6]["lr"] == 0.025 and train[4]["seconds"] >= train[0]["seconds"] >= 0
    text = stream.getvalue()
    assert f"Snapshotting to binary proto file {tmp_path}/run_iter_6.caffemodel\n" in text
    assert re.search(r"iter_6.solverstate\n.*Iteration 6, loss = [\d.]+\n.*Iteration 6, Testing net", text)
    assert text.endswith("Optimization Done.\n")


def test_a_line_has_glogs_prefix():
    stream = io.StringIO()
    Log(stream, now=lambda: datetime(2024, 7, 4, 20, 49, 42, 9958))(events.Note("hello"))
    assert re.fullmatch(r"I0704 20:49:42\.009958 +\d+ layermem\.py:1\] hello\n", stream.getvalue())


def test_a_display_says_pace_loss_outputs_with_their_weights_and_rate():
    outputs = (events.Output("aux", np.float32(2.0), 0.3), events.Output("top", np.array([0.5, 1 / 3])))
    event = events.Displayed(100, 1.25, 0.01, outputs, interval=50, done=50, seconds=4.0)
    assert list(lines(event)) == [
        ("solver.cpp:239", "Iteration 100 (12.5 iter/s, 4s/50 iters), loss = 1.25"),
        ("solver.cpp:258", "    Train net output #0: aux = 2 (* 0.3 = 0.6 loss)"),
        ("solver.cpp:258", "    Train net output #1: top = 0.5"),
        ("solver.cpp:258", "    Train net output #2: top = 0.333333"),
        ("sgd_solver.cpp:112", "Iteration 100, lr = 0.01"),
    ]


def test_a_display_says_the_items_in_a_second_where_they_are_counted():
    event = events.Displayed(100, 1.25, 0.01, (), interval=50, done=50, seconds=4.0, items=50 * 128)
    assert ("layermem.py:1", "    1,600 items/s") in [*lines(event)]
    first = events.Displayed(0, 1.25, 0.01, (), interval=50, done=0, seconds=0.0, items=0)
    assert not any("items/s" in text for _, text in lines(first))


def test_the_first_display_has_no_pace_yet():
    (first, *_) = lines(events.Displayed(0, 2.0, 0.1, (), interval=20, done=0, seconds=0.0))
    assert first[1] == "Iteration 0 (0 iter/s, 0s/20 iters), loss = 2"


def test_tests_snapshots_and_ends_have_caffes_words():
    def said(event):
        return [text for _, text in lines(event)]

    assert said(events.Solving("LeNet", "inv")) == ["Solving LeNet", "Learning Rate Policy: inv"]
    assert said(events.Testing(500, 1)) == ["Iteration 500, Testing net (#1)"]
    tested = events.Tested(500, 1, (events.Output("accuracy", np.array(0.9871)),), loss=0.04)
    assert said(tested) == ["Test loss: 0.04", "    Test net output #0: accuracy = 0.9871"]
    assert said(events.Saving("a.caffemodel.h5", "a.solverstate.h5", True)) == [
        "Snapshotting to HDF5 file a.caffemodel.h5",
        "Snapshotting solver state to HDF5 file a.solverstate.h5",
    ]
    assert said(events.Restored(7, "a.solverstate")) == [
        "Restoring previous solver status from a.solverstate",
        "SGDSolver: restoring history",
    ]
    assert said(events.RateDropped(7, 2)) == ["MultiStep Status: Iteration 7, step = 2"]
    assert said(events.FinalLoss(9, 0.5)) == ["Iteration 9, loss = 0.5"]
    assert said(events.Finished(9, early=True)) == ["Optimization stopped early."]
    assert said(events.Finished(9, early=False)) == ["Optimization Done."]
    assert said(events.Stepped(3, 0.5)) == []


def test_every_line_of_a_run_names_a_place_in_caffes_solver():
    output = (events.Output("loss", np.array(0.5), 1.0),)
    run = [
        events.Solving("LeNet", "inv"),
        events.Testing(0, 0),
        events.Tested(0, 0, output, loss=0.04),
        events.Displayed(0, 2.0, 0.1, output, interval=20, done=0, seconds=0.0),
        events.Saving("a.caffemodel", "a.solverstate", False),
        events.Restored(7, "a.solverstate"),
        events.FinalLoss(9, 0.5),
        events.Finished(9, early=False),
    ]
    places = [place for event in run for place, _ in lines(event)]
    assert {place.partition(":")[0] for place in places} == {"solver.cpp", "sgd_solver.cpp"}
    assert all(int(place.partition(":")[2]) for place in places)


def test_of_an_output_of_many_values_the_first_have_lines_and_the_rest_are_counted():
    values = {"mask": np.arange(80_000.0), "per_class": np.arange(1000.0), "last": np.ones(())}
    event = events.Tested(0, 0, tuple(events.Output(*item) for item in values.items()))
    said = [text for _, text in lines(event)]
    assert len(said) == 10 + 1 + 1000 + 1 and "'mask' has 79,990 more values" in said[10] and "Silence" in said[10]
    found = [TEST_OUTPUT.search(line) for line in said]
    numbered = [(int(match[1]), match[2]) for match in found if match]
    assert numbered[9:11] == [(9, "mask"), (80_000, "per_class")] and numbered[-1] == (81_000, "last")
    assert found[10] is None  # no parser takes the sentence for a value
