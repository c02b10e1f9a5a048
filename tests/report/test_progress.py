"""The display of a run on a terminal."""

import io

import numpy as np
from rich.console import Console

from layermem.report import events
from layermem.report.progress import Bar


def shown(*given):
    """The screen after events, 100 columns wide."""
    file = io.StringIO()
    with Bar(10, 2, console=Console(file=file, force_terminal=True, width=100, color_system=None)) as bar:
        for event in given:
            bar(event)
    return file.getvalue()


def test_the_bar_counts_iterations_and_shows_the_loss():
    assert "2/10" in shown()
    text = shown(events.Stepped(7, 0.12345))
    assert "7/10" in text and "loss 0.1235" in text


def test_tests_and_snapshots_stay_on_the_screen():
    outputs = (events.Output("accuracy", np.array(0.97)), events.Output("loss", np.array(0.1), 1.0))
    text = shown(events.Tested(5, 0, outputs), events.Saving("a.caffemodel", "a.solverstate", False))
    assert "iteration 5, test 0:  accuracy 0.97  loss 0.1" in text and "saving a.solverstate" in text


def test_names_with_brackets_are_shown_as_they_are():
    assert "layer [red] is ignored" in shown(events.Note("layer [red] is ignored"))


def test_the_end_is_reported():
    assert "done after 10 iterations" in shown(events.Finished(10, False))
    assert "stopped at iteration 4" in shown(events.Finished(4, True))
