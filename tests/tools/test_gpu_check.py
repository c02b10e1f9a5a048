"""tools/gpu_check.py without a card: all its steps on the stand-in driver, and what it does with steps that fail."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest

from tests.emulator import standin
from tests.emulator.build import ROOT
from tools import gpu_check
from tools.gpu.report import failures, markdown
from tools.gpu.results import Options, Results


@pytest.mark.skipif(
    not standin.pycuda_is_installed(),
    reason="PyCUDA is not installed: python tools/build_pycuda.py --install builds it without CUDA",
)
def test_a_dry_run_goes_through_every_step(tmp_path):
    command = [sys.executable, "tools/gpu_check.py", "--dry-run", "--brief", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert list(found) == [step.name for step in gpu_check.STEPS]
    assert all(step["ended"] == "done" and step["rows"] for step in found.values())
    kernels = found["correctness"]["rows"]
    assert {row["precision"] for row in kernels} == {"fp32", "fp32x3", "tf32", "bf16"}
    assert all(row["passed"] for row in kernels + found["training"]["rows"])
    assert any(row["captured"] for row in found["training"]["rows"])
    assert {row["how"] for row in found["nets"]["rows"]} == {"unlimited", "unlimited, captured", "60%", "40%", "20%"}
    assert all(row["ms"] > 0 and row["bytes"] > 0 for row in found["nets"]["rows"])
    assert {"copy on the card", "ffma rate", "mma bf16 rate"} <= {row["what"] for row in found["ceilings"]["rows"]}
    assert "| VGG" not in (tmp_path / "results.md").read_text() and "tiny 3x3" in (tmp_path / "results.md").read_text()


def test_all_steps_together_end_within_ten_minutes():
    assert sum(step.seconds for step in gpu_check.STEPS) <= gpu_check.WHOLE < 600


def options(tmp_path) -> argparse.Namespace:
    return argparse.Namespace(out=tmp_path, dry_run=True, brief=True, net=None)


def test_a_step_that_dies_is_told_with_its_last_words(tmp_path):
    step = gpu_check.one_step("no_such_step", 60, options(tmp_path), dict(os.environ))
    assert step["ended"].startswith("failed with 1") and "no_such_step" in step["ended"] and step["rows"] == []


def test_a_step_whose_time_is_up_is_killed(tmp_path):
    assert gpu_check.one_step("environment", -4, options(tmp_path), dict(os.environ))["ended"].startswith("killed")


def test_what_is_wrong_is_listed():
    found = {
        "correctness": {
            "ended": "done",
            "seconds": 1.0,
            "rows": [
                {"name": "ReLU", "precision": "fp32", "passed": True, "error": 1e-7},
                {"name": "LRN", "precision": "fp32", "passed": False, "says": "y0 is off"},
            ],
        },
        "training": {"ended": "done", "seconds": 0.0, "rows": []},
        "layers": {"ended": "killed: its time was up", "seconds": 9.0, "rows": []},
    }
    assert failures(found) == [
        "correctness: LRN fp32 y0 is off",
        "training: says nothing",
        "layers: killed: its time was up",
    ]
    text = markdown(found)
    assert (
        "1 of 2 passed; largest relative errors: fp32 1.0e-07." in text and "| LRN | fp32 | False | y0 is off |" in text
    )


def test_rows_are_on_disk_as_soon_as_they_are_found(tmp_path):
    results = Results(tmp_path / "rows.json", Options(small=True, brief=True, seconds=1e9))
    results.add(a=1)
    assert json.loads((tmp_path / "rows.json").read_text()) == [{"a": 1}]
    assert not results.late and Results(tmp_path / "other.json", Options(True, True, seconds=-1)).late
