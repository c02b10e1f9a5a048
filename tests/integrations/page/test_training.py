"""The training of a page, from the records of a log."""

from layermem.integrations.page import training
from layermem.integrations.page.training import training_page

START = {
    "event": "start", "format": 1, "net": "it x4", "device": "cpu", "strategy": "auto", "budget_bytes": 2048,
    "predicted_peak_bytes": 1024, "predicted_seconds": 0.5, "max_iter": 6, "iteration": 0, "resumed_from": None,
    "loss_weights": {"train": {"loss": 1.0, "accuracy": 0.0}},
}  # fmt: skip


def train(iteration, loss, seconds):
    return {
        "event": "train",
        "iteration": iteration,
        "seconds": seconds,
        "loss": loss,
        "average_loss": loss,
        "learning_rate": 0.1,
        "outputs": {"loss": loss, "accuracy": 0.5},
    }


TEST = {"event": "test", "iteration": 2, "test_net": 0, "seconds": 5.0, "loss": None, "outputs": {"accuracy": 0.9}}
RECORDS = [START, train(0, 3.0, 1.0), train(2, None, 4.0), TEST]


def charts_of(page):
    return {
        each["title"]: {curve["name"]: (curve["x"], curve["y"]) for curve in each["curves"]} for each in page["charts"]
    }


def test_the_charts_are_those_of_the_plot_of_curves_and_the_speed():
    page = training_page("a/run.jsonl", RECORDS)
    charts = charts_of(page)
    assert charts["loss"] == {"train loss": ([0, 2], [3.0, None])}
    assert charts["accuracy"] == {"train accuracy": ([0, 2], [0.5, 0.5]), "test accuracy": ([2], [0.9])}
    assert charts["seconds per iteration"] == {"train": ([2], [1.5])}
    assert [each["title"] for each in page["charts"]] == ["loss", "accuracy", "seconds per iteration"]


def test_a_run_without_an_end_goes_on_and_one_with_an_end_says_how_it_ended():
    page = training_page("a/run.jsonl", RECORDS)
    assert (page["source"], page["title"], page["status"], page["iteration"], page["max_iter"], page["seconds"]) == (
        "run.jsonl",
        "it x4",
        "running",
        2,
        6,
        5.0,
    )
    assert ["budget", "2.00 KiB (2,048 bytes)"] in page["facts"]
    end = {
        "event": "end",
        "status": "diverged",
        "iteration": 3,
        "message": "NaN",
        "measured_peak_bytes": 1024,
        "seconds": 9,
    }
    page = training_page(
        "run.jsonl", [*RECORDS, {"event": "snapshot", "iteration": 2}, {"event": "note", "text": "<b>"}, end]
    )
    assert (page["status"], page["message"], page["snapshots"], page["notes"]) == ("diverged", "NaN", [2], ["<b>"])
    assert ["measured peak", "1.00 KiB (1,024 bytes)"] in page["facts"]


def test_the_remaining_time_of_a_run_goes_by_its_pace_of_now(monkeypatch):
    assert training_page("run.jsonl", RECORDS[:2])["remaining_seconds"] is None
    late = [*RECORDS, train(4, 1.0, 14.0)]  # of 6 iterations, 0 to 5
    assert training_page("run.jsonl", late)["remaining_seconds"] == 13.0 / 4
    resumed = [{**START, "iteration": 3, "resumed_from": "x"}, train(3, 1.0, 1.0), train(4, 1.0, 1.5)]
    assert training_page("run.jsonl", [*RECORDS, *resumed])["remaining_seconds"] == 0.5
    monkeypatch.setattr(training, "PACE", 2)
    assert training_page("run.jsonl", late)["remaining_seconds"] == 5.0
    end = {"event": "end", "status": "done", "iteration": 5, "message": None, "seconds": 15.0}
    assert training_page("run.jsonl", [*late, end])["remaining_seconds"] is None


def test_a_log_is_quiet_after_some_of_its_longest_waits():
    assert training_page("run.jsonl", RECORDS)["quiet_seconds"] == 60
    late = [*RECORDS, train(4, 1.0, 105.0), train(6, 1.0, 106.0)]
    assert training_page("run.jsonl", late)["quiet_seconds"] == 500
    assert training_page("run.jsonl", [{**START, "every": 100}])["quiet_seconds"] == 250


def test_an_empty_log_is_a_page_without_charts():
    page = training_page("run.jsonl", [])
    assert page["charts"] == [] and page["iteration"] is None and page["status"] == "running"


def test_a_long_curve_of_the_speed_keeps_every_nth_point(monkeypatch):
    monkeypatch.setattr(training, "POINTS", 12)
    page = training_page("run.jsonl", [START, *(train(i, 1.0, 2.0 * i) for i in range(100))])
    assert charts_of(page)["seconds per iteration"]["train"] == (list(range(1, 100, 9)), [2.0] * 11)
