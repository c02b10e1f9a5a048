"""The fuzzer of files: it has no findings on its inputs, and detects exceptions, hangs and deaths."""

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from layermem.errors import InputError
from layermem.proto.read import read_solver_text
from tools import fuzz
from tools.campaign import file_kinds
from tools.campaign.mutations import mutate_bytes, mutate_text
from tools.campaign.session import Campaign

# Children start before any reads, and use nothing that another thread may hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.whole
def test_some_inputs_of_every_kind_are_read_or_refused(tmp_path):
    command = [sys.executable, "tools/fuzz.py", "--count", "60", "--seed", "5", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " read" in ended.stdout and " refused" in ended.stdout and not [*tmp_path.iterdir()]


def refusing(folder):
    raise InputError("no")


def failing(folder):
    raise ValueError("found")


def full(folder):
    bytearray(2 << 30)


def dying(folder):
    os._exit(3)


def sleeping(folder):
    time.sleep(600)


def computing(folder):
    while True:
        pass


@pytest.mark.parametrize(
    "reader, outcome",
    [
        (lambda folder: None, "read"),
        (refusing, "refused"),
        (failing, "ValueError: found"),
        (full, "MemoryError"),
        (dying, "the process ended with 3"),
        (sleeping, "no answer in 0.5 s"),
        (computing, "more than 1 s of CPU time"),
    ],
)
def test_whatever_is_no_answer_is_found(tmp_path, monkeypatch, reader, outcome):
    monkeypatch.setitem(file_kinds.KINDS, "net", replace(file_kinds.KINDS["net"], read=reader))
    monkeypatch.setattr(fuzz, "WAIT", 0.5 if reader is sleeping else 120.0)
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 1 if reader is computing else 60)
    child = fuzz.Child(tmp_path)
    assert outcome in child.read("net", b"name: 'x'")
    child.close()


@pytest.mark.whole
def test_an_input_that_fails_is_saved_under_its_seed(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(file_kinds.KINDS, "net", replace(file_kinds.KINDS["net"], read=failing))
    (tmp_path / "run").mkdir()
    campaign = Campaign("fuzz", 0, 9, tmp_path / "out")
    fuzz.fuzz(campaign, tmp_path / "run", ["net"])
    assert campaign.finish() == 1 and "repeat with --seed 9 --only 0" in capsys.readouterr().out
    saved = tmp_path / "out/fuzz-9-0"
    assert "ValueError" in (saved / "traceback.txt").read_text() and (saved / "fuzz.prototxt").stat().st_size


def test_mutations_depend_on_the_seed_alone_and_often_leave_a_solver_that_parses():
    texts = [seed.decode() for seed in file_kinds.solver_seeds()]
    made = [mutate_text(random.Random(i), texts[i % len(texts)], texts) for i in range(60)]
    assert made == [mutate_text(random.Random(i), texts[i % len(texts)], texts) for i in range(60)]
    assert mutate_bytes(random.Random(1), b"abcdef" * 9, [b"x" * 20]) == mutate_bytes(
        random.Random(1), b"abcdef" * 9, [b"x" * 20]
    )
    parsed = 0
    for text in made:
        try:
            read_solver_text(text)
            parsed += 1
        except InputError:
            pass
    assert 15 < parsed < 60
