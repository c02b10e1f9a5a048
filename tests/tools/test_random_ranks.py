"""The campaign of ranks: it has no findings on a few nets, and detects wrong bits and bytes."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from layermem._native import cpu
from layermem.backends.reference import communication
from layermem.runtime.runner import Runner
from tools import random_ranks
from tools.campaign.session import Campaign

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def same_kernels_afterwards():
    isa, threads = cpu.active_isa(), cpu.threads()
    yield
    cpu.set_isa(isa)
    cpu.set_threads(threads)


def findings(folder: Path, net: int = 3) -> str:
    """The findings of a campaign on one net."""
    campaign = Campaign("random_ranks", 0, 5, folder / "found", only=net)
    (folder / "run").mkdir()
    for index, rng in campaign.inputs():
        random_ranks.try_net(campaign, index, rng, folder / "run")
    return str(campaign.finish())


@pytest.mark.whole
def test_a_few_nets_train_to_the_same_bits_on_every_number_of_ranks(tmp_path):
    command = [sys.executable, "tools/random_ranks.py", "--count", "2", "--seed", "5", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 findings in " in ended.stdout and " ranks, " in ended.stdout and not [*tmp_path.iterdir()]


def test_wrong_sums_are_found(tmp_path, monkeypatch, capsys):
    reduce = communication.reduce

    def wrong(op, at, context, workspace_bytes):
        reduce(op, at, context, workspace_bytes)
        for i in range(len(op.tensors)):
            if at.get(f"y{i}"):
                ctypes.c_float.from_address(at[f"y{i}"]).value += 1e-3

    monkeypatch.setattr(communication, "reduce", wrong)
    findings(tmp_path)
    assert "ends in other bits than one rank" in capsys.readouterr().out


def test_a_peak_above_the_predicted_one_is_found(tmp_path, monkeypatch, capsys):
    measured = Runner.measured_peak_bytes.fget
    monkeypatch.setattr(Runner, "measured_peak_bytes", property(lambda self: measured(self) + (1 << 30)))
    findings(tmp_path)
    assert "bytes where" in capsys.readouterr().out
