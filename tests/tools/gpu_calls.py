"""Calls of tools/gpu_check.py, and steps of it on the fake driver."""

from __future__ import annotations

import argparse
import subprocess

import pytest

from tests.backends.cuda import on_fake_driver
from tests.emulator import fake_driver
from tests.emulator.build import ROOT
from tools.gpu.kept import Call, read_rows

needs_pycuda = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)


def call_in(tmp_path) -> Call:
    return Call(tmp_path / "out" / "results-x.json")


def options(tmp_path, **more) -> argparse.Namespace:
    call_in(tmp_path).folder.mkdir(parents=True, exist_ok=True)
    usual = dict.fromkeys(("net", "wheels", "step", "carried", "part", "only", "patience")) | {
        "dry_run": False,
        "brief": True,
        "minutes": 9.0,
        "earlier": [],
    }
    return argparse.Namespace(**usual | {"work": tmp_path, "out": tmp_path / "out"} | more)


def step_on_fake_driver(tmp_path, name: str, **settings: object) -> tuple[subprocess.CompletedProcess, list[dict]]:
    """Run one step, brief and small; return its process and rows."""
    into = tmp_path / f"{name}.json"
    words = ["--step", name, "--into", str(into), "--out", str(tmp_path), "--dry-run", "--brief"]
    done = on_fake_driver.run(ROOT / "tools/gpu_check.py", *words, **settings)
    return done, list(read_rows(into).values())
