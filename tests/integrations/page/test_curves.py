"""The plot of a training: its content, and that every file has the format of its name."""

import math

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.integrations.page.curves import draw_curves
from layermem.integrations.page.timeline import check_plot
from layermem.report.curves_picture import curves_picture, running_mean
from tests.report.test_read_log import start, test, train

WEIGHTS = {"train": {"total": 1.0}, "test 0": {"total": 1.0}}
RUN = [
    start() | {"net": "<b>n</b>$x$ x2", "device": "cpu", "loss_weights": WEIGHTS},
    test(0, accuracy=0.5, total=2.0),
    *(train(i, 1.0 + i, total=1.0 + i) for i in range(3)),
    {"event": "end", "status": "done", "iteration": 3},
]


def test_losses_and_other_outputs_have_panels():
    picture = curves_picture(RUN)
    assert [(panel.label, [line.name for line in panel.lines]) for panel in picture.panels] == [
        ("loss", ["train loss", "test total"]),
        ("accuracy", ["test accuracy"]),
    ]
    assert picture.title == "<b>n</b>$x$ x2 on cpu: done at iteration 3" and picture.resumed == ()


def test_a_learning_rate_that_changes_has_a_panel_and_a_resumed_run_a_mark():
    again = [start(3, "s"), train(3, 1.0) | {"learning_rate": 0.01}]
    picture = curves_picture([*RUN, *again])
    assert [panel.label for panel in picture.panels] == [
        "loss",
        "total and accuracy",
        "learning rate",
    ] and picture.resumed == (3,)


def test_several_parts_of_a_loss_are_shown_beside_it():
    weights = {"loss_weights": {"train": {"a": 1.0, "b": 0.3, "c": 0.0}}}
    panels = curves_picture([start() | weights, train(0, 1.0, a=1.0, b=1.0, c=1.0)]).panels
    assert [line.name for line in panels[0].lines] == ["train loss", "train a", "train b"]
    assert [line.name for line in panels[1].lines] == ["train c"]


def test_many_points_have_a_running_mean_and_not_finite_ones_are_gaps():
    losses = [None if i == 7 else float(i % 2) for i in range(100)]
    faint, mean = curves_picture([start(), *(train(i, loss) for i, loss in enumerate(losses))]).panels[0].lines
    assert faint.faint and not mean.faint and mean.name == "mean of 2" and math.isnan(faint.ys[7])
    assert mean.ys[0] == 0.5 and mean.xs[0] == 1
    np.testing.assert_allclose(running_mean(np.array([1.0, 2.0, 6.0]), 2), [1.5, 4.0])


def test_a_wide_range_of_losses_has_a_logarithmic_axis():
    assert curves_picture([start(), train(0, 1.0), train(1, 1e-3)]).panels[0].logarithmic
    assert not curves_picture([start(), train(0, 1.0), train(1, 0.0)]).panels[0].logarithmic


@pytest.mark.samples(4)
@pytest.mark.parametrize(
    ("name", "begin"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!doctype html>")]
)
def test_a_file_is_what_its_name_says(tmp_path, name, begin):
    if not name.endswith("html"):
        pytest.importorskip("matplotlib")
    draw_curves(RUN, str(tmp_path / name))
    content = (tmp_path / name).read_bytes()
    assert content.lower().startswith(begin.lower()) and b"<b>n</b>" not in content


def test_a_run_without_iterations_is_drawn_empty(tmp_path):
    pytest.importorskip("matplotlib")
    draw_curves([start()], str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_another_name_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.png, \.svg, \.pdf or \.html"):
        check_plot("curves.jpg")
    with pytest.raises(InputError, match="there is no folder"):
        check_plot(str(tmp_path / "none" / "a.png"))
