"""`layermem curves`: the curves in a log."""

import json

import pytest

from tests.integrations.page.test_curves import RUN


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RUN))
    return path


def test_the_table_has_the_last_the_least_and_the_largest_value(layermem, log):
    lines = [line.split() for line in layermem("curves", log).out.splitlines()]
    assert ["train", "loss", "3", "3", "2", "1", "0", "3", "2"] in lines
    assert sum(line[:2] == ["train", "loss"] for line in lines) == 1


def test_json_has_all_values(layermem, log):
    values = json.loads(layermem("curves", log, "--json").out)["curves"]
    assert values[0] == {
        "net": "train",
        "kind": "loss",
        "name": "loss",
        "iterations": [0, 1, 2],
        "values": [1.0, 2.0, 3.0],
    }


def test_the_plot_is_written_in_place_of_the_table(layermem, log, tmp_path):
    pytest.importorskip("matplotlib")
    ended = layermem("curves", log, "--plot", tmp_path / "a.svg")
    assert ended.code == 0 and ended.out == "" and (tmp_path / "a.svg").exists()


def test_a_log_without_iterations_is_refused(layermem, log):
    log.write_text(json.dumps(RUN[0]) + "\n")
    assert "has no iteration and no test yet" in layermem("curves", log).sentence
