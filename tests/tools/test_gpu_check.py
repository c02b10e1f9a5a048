"""tools/gpu_check.py without a GPU: all its steps on the fake driver, and what it does with steps that fail."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest

from tests.emulator import fake_driver
from tests.emulator.build import ROOT
from tools import gpu_check
from tools.gpu.process import run
from tools.gpu.report import failures, markdown
from tools.gpu.results import Options, Results
from tools.gpu.sanitizer import verdict


@pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)
def test_a_dry_run_goes_through_every_step(tmp_path):
    command = [sys.executable, "tools/gpu_check.py", "--dry-run", "--brief", "--out", str(tmp_path / "out")]
    command += ["--work", str(tmp_path / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.json", "results.md"]
    assert list(found) == ["preparation", *(step.name for step in gpu_check.STEPS)]
    assert all(step["ended"] == "done" and step["rows"] for step in found.values())
    kernels = found["correctness"]["rows"]
    assert {row["precision"] for row in kernels} == {"fp32", "fp32x3", "tf32", "bf16"}
    assert all(row["passed"] for row in kernels + found["training"]["rows"])
    assert any(row["captured"] for row in found["training"]["rows"])
    assert {row["how"] for row in found["nets"]["rows"]} == {"unlimited", "unlimited, captured", "60%", "40%", "20%"}
    assert all(row["ms"] > 0 and row["bytes"] > 0 for row in found["nets"]["rows"])
    assert {"copy on the GPU", "ffma rate", "mma bf16 rate"} <= {row["what"] for row in found["ceilings"]["rows"]}
    text = (tmp_path / "out" / "results.md").read_text()
    assert "| VGG conv2_2 |" in text


def test_all_steps_together_end_within_ten_minutes():
    assert sum(step.seconds for step in gpu_check.STEPS) <= gpu_check.WHOLE < 600


def options(tmp_path, **more) -> argparse.Namespace:
    (tmp_path / "rows").mkdir(exist_ok=True)
    return argparse.Namespace(
        **{"work": tmp_path, "dry_run": False, "brief": True, "net": None, "wheels": None, "step": None} | more
    )


def test_a_step_that_dies_is_reported_with_its_last_words(tmp_path):
    step = gpu_check.one_step("no_such_step", 60, 60, options(tmp_path), os.environ)
    assert step["ended"].startswith("failed with 1") and "no_such_step" in step["ended"] and step["rows"] == []
    assert "Traceback" in step["log"]


def test_a_step_whose_time_is_up_is_killed_with_all_that_it_started(tmp_path):
    assert gpu_check.one_step("environment", 60, 0, options(tmp_path), os.environ)["ended"].startswith("killed")
    log = tmp_path / "log"
    child = "import time; print('here', flush=True); time.sleep(30); open('late', 'w')"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert run([sys.executable, "-c", parent], log, 2) is None
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True)
    assert done.returncode != 0 or child not in done.stdout


FAILING = r"""
import os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from tools.gpu.results import Options, Results

def broken():
    raise ValueError("an illegal address\nand more")

ways = dict(b=broken, d=lambda: os._exit(9), e=lambda: time.sleep(60))
results = Results(Path({rows!r}), Options(False, True, 60.0))
for name in "abcdef":
    right = lambda: results.add(name=name, passed=True)
    results.attempt(ways.get(name, right), most=2, name=name)
"""


def test_a_step_that_fails_is_begun_again_behind_its_last_row(tmp_path, monkeypatch):
    script = tmp_path / "step.py"
    script.write_text(FAILING.format(root=str(ROOT), rows=str(tmp_path / "rows" / "x.json")))
    monkeypatch.setattr(gpu_check, "__file__", str(script))
    step = gpu_check.one_step("x", 60, 60, options(tmp_path), os.environ)
    assert step["ended"] == "done; begun again 3 times" and "ValueError" in step["log"]
    assert {row["name"]: row["passed"] for row in step["rows"]} == dict(zip("abcdef", [1, 0, 1, 0, 0, 1]))
    assert step["rows"][1]["says"] == "ValueError: an illegal address"
    assert step["rows"][4]["says"] == "the process ended in this, or was ended after 2 s"
    assert len(failures({"correctness": step})) == 3


def test_without_a_gpu_nothing_more_is_begun(tmp_path, monkeypatch):
    begun = []

    def one_step(name, *others):
        begun.append(name)
        return gpu_check.step_result(0.0, "done", [{"part": "gpu", "passed": False, "says": "there is none"}])

    monkeypatch.setattr(gpu_check, "one_step", one_step)
    monkeypatch.setattr(gpu_check, "Preparation", lambda *given: argparse.Namespace(rows=[], environment={}))
    assert gpu_check.run_all(options(tmp_path, out=tmp_path / "out", only=None)) == 1
    assert begun == ["environment"]
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["nets"]["ended"] == "not begun: the GPU cannot be used"


def test_what_is_missing_is_a_row_and_ends_nothing(tmp_path, monkeypatch):
    import tools.gpu.prepare as prepare

    def none(command, log, seconds, environment=None):
        log.write_text("no such thing\n")
        return 1

    monkeypatch.setattr(prepare, "run", none)
    (tmp_path / "wheels").mkdir()
    for name in ("pycuda-1-cp399-cp399-any.whl", "pycuda-1-cp310-cp310-any.whl", "rich-9-py3-none-any.whl"):
        (tmp_path / "wheels" / name).write_text("")
    ready = prepare.Preparation(options(tmp_path, wheels=tmp_path / "wheels"), tmp_path)
    said = {row["what"]: row["says"] for row in ready.rows if row["passed"] is False}
    assert "pycuda (no such thing), rich (no such thing)" in said["wheels"]
    assert "cannot be built" in said["native"] and "bring wheels of these: numpy" in said["packages"]
    assert "libcuda.so.1" in {**said, **{row["what"]: row["says"] for row in ready.rows}}["driver"]
    assert ready.environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "site")
    empty = prepare.Preparation(options(tmp_path, wheels=tmp_path / "rows"), tmp_path)
    assert "there are no wheels in" in empty.rows[0]["says"]


@pytest.mark.parametrize(
    "code, said, passed",
    [
        (0, "========= ERROR SUMMARY: 0 errors", True),
        (0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", True),
        (0, "========= ERROR SUMMARY: 3 errors", False),
        (1, "========= ERROR SUMMARY: 0 errors", False),
        (1, "Traceback\nImportError: no", False),
        (1, "========= Error: Device not supported. Please refer to the documentation", None),
        (None, "", None),
    ],
)
def test_a_sanitizer_that_cannot_look_is_no_failure(code, said, passed):
    assert verdict(code, said, 60)["passed"] is passed


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
