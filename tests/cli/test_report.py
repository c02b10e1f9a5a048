"""`layermem report`: a page in a file, refused before any planning where it could not be written."""

import re

import pytest

from layermem.integrations.page.columns import unpack

NET = "prototxt/digits/train_val.prototxt"
SOLVER = "prototxt/digits/solver.prototxt"
SMALL_COMPARISON = "--strategies", "liveness,auto", "--points", "2"


def data_of(path):
    return unpack(re.search(r'id="data">([^<]*)<', path.read_text())[1])


def test_a_page_of_a_solver_has_its_plan_and_the_strategies_that_were_asked_for(layermem, tmp_path):
    path = tmp_path / "report.html"
    ended = layermem("report", "--solver", SOLVER, "--budget", "50%", *SMALL_COMPARISON, "-o", path)
    assert ended.code == 0 and "under auto, peak" in ended.out and not ended.err
    data = data_of(path)
    assert [row["strategy"] for row in data["strategies"]["rows"]] == ["auto", "liveness"]
    assert data["summary"]["peak_bytes"] <= data["summary"]["budget_bytes"]
    assert dict(data["facts"])["peak"].startswith("741 KiB")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("-o", "nowhere/x.html"), 2, "nowhere/x.html: cannot be written: there is no folder"),
        (("-o", "x.pdf"), 2, "x.pdf: is not a page by its name; use a name that ends in .html"),
        (("-o", "x.html", "--points", "1"), 2, "--points 1 is no number of budgets; give 2 to 100"),
        (("-o", "x.html", "--strategies", "magic"), 2, "unknown strategy 'magic'"),
        ((), 2, "the following arguments are required: -o/--output"),
    ],
)
def test_impossible_input_is_refused_before_planning(layermem, monkeypatch, words, code, says):
    def planned(*_):
        raise AssertionError("planned")

    monkeypatch.setattr("layermem.report.plan_report.evaluate", planned)
    ended = layermem("report", "--net", NET, *words)
    assert ended.code == code and says in ended.sentence


def test_a_budget_that_nothing_fits_leaves_no_page(layermem, tmp_path):
    ended = layermem("report", "--net", NET, "--budget", "10KiB", "-o", tmp_path / "x.html")
    assert ended.code == 3 and "is below the minimum of 'auto'" in ended.err and not list(tmp_path.iterdir())


def test_a_page_has_the_curves_of_a_log(layermem, tmp_path):
    log, path = tmp_path / "run.jsonl", tmp_path / "x.html"
    log.write_text('{"event": "start", "format": 1, "net": "it"}\n')
    assert layermem("report", "--net", NET, *SMALL_COMPARISON, "--log", log, "-o", path).code == 0
    assert data_of(path)["training"]["source"] == "run.jsonl"
    ended = layermem("report", "--net", NET, "--log", tmp_path / "no.jsonl", "-o", path)
    assert ended.code == 2 and "no such file" in ended.sentence
