"""Events of a solver as records of a log."""

import json
import math

import numpy as np
import pytest

from layermem.report import events
from layermem.report.records import MAX_VALUES, Recorder, number, values_of


def output(*values, name="loss", weight=1.0):
    return events.Output(name, np.array(values, np.float32), weight)


def test_an_iteration_is_counted_by_the_updates_before_it_as_caffe_does():
    record = values_of(events.Stepped(21, 0.5, 0.25, 0.01, (output(0.1),)))
    assert record == {
        "event": "train",
        "iteration": 20,
        "loss": 0.5,
        "average_loss": 0.25,
        "learning_rate": 0.01,
        "outputs": {"loss": 0.1},
    }


def test_an_output_of_several_values_is_a_list_and_a_large_one_is_left_out():
    outputs = output(1, 2, name="each"), output(*range(MAX_VALUES + 1), name="scores")
    assert values_of(events.Tested(5, 1, outputs, 0.5)) == {
        "event": "test",
        "iteration": 5,
        "test_net": 1,
        "loss": 0.5,
        "outputs": {"each": [1.0, 2.0]},
    }
    assert values_of(events.Tested(5, 1, ()))["loss"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_numbers_that_json_lacks_are_null(value):
    assert number(value) is None


@pytest.mark.parametrize(("value", "written"), [(np.float32(0.1), "0.1"), (0.1, "0.1"), (1e300, "1e+300"), (2, "2.0")])
def test_numbers_have_the_digits_that_they_need(value, written):
    assert json.dumps(number(value)) == written


def test_a_recorder_takes_each_nth_iteration_and_every_other_event_with_its_time():
    seen, times = [], iter(range(100))
    recorder = Recorder(seen.append, every=2, clock=lambda: next(times))
    for iteration in (1, 2, 3):
        recorder(events.Stepped(iteration, 1.0))
    recorder(events.Testing(3, 0))
    recorder(events.Saved(3, "m", "s"))
    recorder.end("done", message=None)
    assert [(r["event"], r["iteration"], r["seconds"]) for r in seen] == [
        ("train", 0, 1),
        ("train", 2, 2),
        ("snapshot", 3, 3),
        ("end", 3, 4),
    ]
    assert seen[-1]["status"] == "done"
