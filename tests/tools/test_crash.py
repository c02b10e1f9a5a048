"""The campaign of interrupted training: it has no findings, and detects wrong bits, tracebacks, damage and
leftovers."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tools import crash
from tools.campaign.session import Campaign

# Children start before any trains, and use nothing that another thread may hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
ROOT = Path(__file__).resolve().parents[2]
SETTING = crash.Setting(crash.RULES[0], 3, False)


@pytest.fixture
def alone(monkeypatch):
    """Children that are not disturbed."""
    monkeypatch.setattr(crash, "EVENTS", {"nothing": ()})


def findings(folder, capsys, expected):
    """The findings in one chain."""
    campaign = Campaign("crash", 0, 1, folder / "found")
    crash.try_chain(campaign, 0, crash.Chain(folder, SETTING), expected, random.Random(1))
    assert campaign.finish() == 1
    return capsys.readouterr().out


@pytest.mark.whole
def test_interrupted_chains_end_in_the_bits_of_an_uninterrupted_run(tmp_path):
    command = [sys.executable, "tools/crash.py", "--count", "2", "--seed", "2", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " chains, " in ended.stdout and " 0 findings in " in ended.stdout and not [*tmp_path.iterdir()]


def test_other_bits_and_what_is_left_behind_are_found(tmp_path, alone, capsys):
    chain = crash.Chain(tmp_path, SETTING)
    (chain.out / ".run_iter_3.caffemodel.1-0.part").touch()
    campaign = Campaign("crash", 0, 1, tmp_path / "found")
    crash.try_chain(campaign, 0, chain, {"run_iter_16.caffemodel": b""}, random.Random(1))
    said = capsys.readouterr().out
    assert "has other bits" in said and "left behind: .run_iter_3.caffemodel.1-0.part" in said


def test_a_traceback_is_found(tmp_path, alone, monkeypatch, capsys):
    def failing(words):
        raise ValueError("found")

    monkeypatch.setattr(crash, "layermem_main", failing)
    assert "exit code 1" in findings(tmp_path, capsys, {})
    assert "ValueError: found" in (tmp_path / "found/crash-1-0/stderr.txt").read_text()


def test_a_damaged_snapshot_is_found(tmp_path, alone, monkeypatch, capsys):
    def damaging(words):
        Path("out/run_iter_3.solverstate").write_bytes(b"no state")
        return 0

    monkeypatch.setattr(crash, "layermem_main", damaging)
    assert "a damaged snapshot" in findings(tmp_path, capsys, {})


def test_a_child_that_ends_before_it_has_a_standard_error_said_nothing(tmp_path):
    chain = crash.Chain(tmp_path, SETTING)
    assert not chain.said
