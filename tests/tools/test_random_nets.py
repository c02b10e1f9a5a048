"""The campaign of random nets: it has no findings on a few nets, and detects wrong bits, bytes and refusals."""

import random
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from layermem._native import cpu
from layermem.graph.net import Net
from layermem.layers import LAYERS, Layer
from layermem.proto.read import read_net_text
from layermem.proto.schema import Message
from layermem.runtime.runner import Runner
from tests.cases import CASES
from tests.layers.harness import TRAIN
from tests.layers.test_forks import TYPES as OF_FORKS
from tools import random_nets
from tools.campaign.net_grammar import random_net
from tools.campaign.session import Campaign

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def same_kernels_afterwards():
    isa, threads = cpu.active_isa(), cpu.threads()
    yield
    cpu.set_isa(isa)
    cpu.set_threads(threads)


def campaign_of_one(folder) -> Campaign:
    """The campaign after one net."""
    campaign = Campaign("random_nets", 0, 7, folder / "found")
    (folder / "run").mkdir()
    for index, rng in campaign.inputs():
        random_nets.try_net(campaign, index, rng, folder / "run")
    return campaign


@pytest.mark.whole
def test_a_net_trains_to_the_same_bits_under_every_plan(tmp_path):
    command = [sys.executable, "tools/random_nets.py", "--count", "1", "--seed", "3", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 findings in " in ended.stdout and ": 1 nets, " in ended.stdout and not [*tmp_path.iterdir()]


@cache
def net_of(number: int) -> Message:
    return read_net_text(random_net(random.Random(f"3/{number}")))


@pytest.mark.whole
def test_nets_of_one_seed_are_the_same_and_soon_use_every_layer():
    first, again, other = (random_net(random.Random(seed)) for seed in ("3/0", "3/0", "3/1"))
    assert first == again != other
    rarest = {"Silence", "PReLU", "Crop", "Exp"}
    others = {
        "Filter",
        "HDF5Output",
        "Python",
        "TimeSlice",
    }  # run by no device; writes a file; users' code; long sequences
    left = set(LAYERS) - set(OF_FORKS) - rarest - others
    for number in range(60):
        left -= {node.layer.type for phase in (0, 1) for node in Net(net_of(number), phase).nodes}
        if not left:
            break
    assert not left


def forms_of_state(layer: Layer) -> set[tuple[str, bool]]:
    """The type, and whether forward changes parameters that no solver updates; empty for a layer without any."""
    step = layer.forward()
    state = {f"w{i}" for i, param in enumerate(layer.params) if not param.learned}
    return {(layer.type, not state.isdisjoint((*step.writes, *step.updates)))} if state else set()


@pytest.mark.whole
def test_nets_soon_use_every_layer_with_state_whether_it_moves_or_not():
    """Such layers, including running averages, are taken from the case list."""
    layers = [
        case.layer() for case in CASES.values() if {"small", "medium"} & case.sizes.keys() and case.phase == TRAIN
    ]
    left = {form for layer in layers if layer.type in LAYERS for form in forms_of_state(layer)}
    assert left >= {(kind, moves) for kind in ("BatchNorm", "BN") for moves in (True, False)}
    for number in range(60):
        left -= {form for node in Net(net_of(number), TRAIN).nodes for form in forms_of_state(node.layer)}
        if not left:
            break
    assert not left


def test_wrong_bits_are_found_and_their_solver_saved(tmp_path, monkeypatch):
    train = random_nets.train

    def wrong(text, run, *rest):
        bits = train(text, run, *rest)
        return bits if run == random_nets.BASELINE else (*bits[:-1], bits[-1][:-1] + "0")

    monkeypatch.setattr(random_nets, "train", wrong)
    campaign = campaign_of_one(tmp_path)
    assert campaign.findings and campaign.finish() == 1
    assert "net_param" in (tmp_path / "found/random_nets-7-0/solver.prototxt").read_text()


def test_a_measured_peak_above_the_predicted_one_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Runner, "measured_peak_bytes", property(lambda self: self.program.arena_bytes + 256))
    assert campaign_of_one(tmp_path).findings and "bytes where" in capsys.readouterr().out


def test_a_refusal_at_the_minimum_is_found(tmp_path, monkeypatch, capsys):
    checked = random_nets.check_budgets

    def lower(run, *rest):
        budget = checked(run, *rest)
        return budget and budget // 2

    runs = replace(random_nets.BASELINE, strategy="liveness", budget="minimum")
    monkeypatch.setattr(random_nets.Run, "random", staticmethod(lambda *random: runs))
    monkeypatch.setattr(random_nets, "check_budgets", lower)
    assert campaign_of_one(tmp_path).findings and "is refused" in capsys.readouterr().out
