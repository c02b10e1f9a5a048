"""tools/steady_plans.py: budgets at which more bytes give a slower step."""

import csv
import os
import sys

import pytest

from tools.steady_plans import main, slower_steps


def test_a_step_is_compared_with_the_fastest_one_within_fewer_bytes():
    assert slower_steps([5.0, 4.0, 4.05, 4.5, 3.0, 3.0]) == [pytest.approx(0.5)]
    assert slower_steps([3.0, 9.0, 8.0]) == [6.0, 5.0]
    assert slower_steps([]) == slower_steps([1.0]) == []


@pytest.mark.parametrize("alone", [[], ["--alone"]])
def test_the_table_has_a_row_for_each_net_device_and_distance(monkeypatch, capsys, tmp_path, alone):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path))  # the tool changes it
    steps = ["--step", "1", "--step", "2", "--count", "3", "--out", str(tmp_path / "all.csv")]
    monkeypatch.setattr(sys, "argv", ["steady_plans.py", "digits x16", "--device", "reference", *steps, *alone])
    main()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert [row[:5] for row in lines[2:]] == [["digits x16", "reference", "off", "", step] for step in ("1 %", "2 %")]
    assert all(row[6] == "0/3" and row[7] == "0.0" for row in lines[2:])
    with open(tmp_path / "all.csv", newline="") as file:
        assert len([*csv.reader(file)]) == 6
    assert (os.environ["LAYERMEM_CACHE"] == os.devnull) == bool(alone)
