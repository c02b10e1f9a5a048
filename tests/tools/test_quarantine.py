"""Kernels that hang or fault: similar ones are no longer launched, and every step continues with the rest."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.backends.cuda import on_fake_driver
from tests.emulator import fake_driver
from tests.emulator.build import ROOT
from tools import gpu_check
from tools.gpu.kept import Call, rows_of_same_sources
from tools.gpu.nets import judged
from tools.gpu.quarantine import FAULTED, HUNG, Quarantine, settled, without

needs_pycuda = pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="PyCUDA is not installed")


def failing(how: str, *kernels: str) -> list[dict]:
    return [{"kernel": kernel, "passed": False, "fatal": how} for kernel in kernels]


TF32, PACKED = "convolution_tf32", "convolution_bf16_on_bf16"


@pytest.mark.parametrize(
    "failed, given_up, tried",
    [
        (
            failing(HUNG, f"{TF32}_sm90a.conv_fprop_256x128_v4"),
            f"{TF32}_sm90a.conv_wgrad_128x64_v4",
            f"{TF32}.conv_fprop_128x64_v4",
        ),
        (
            failing(FAULTED, f"{TF32}.conv_dgrad_128x64_v4"),
            f"{TF32}.conv_dgrad_sums_64x64_v4",
            f"{TF32}.conv_wgrad_64x64_v4",
        ),
        (
            failing(FAULTED, f"{TF32}.conv_dgrad_a", "convolution.conv_dgrad_b"),
            f"{TF32}.conv_dgrad_c",
            f"{PACKED}.conv_dgrad_a",
        ),
        (
            failing(FAULTED, f"{TF32}.conv_dgrad_a", "convolution.conv_dgrad_b", f"{PACKED}.conv_dgrad_c"),
            f"{TF32}_sm90a.conv_dgrad_sums_d",
            f"{TF32}_sm90a.conv_fprop_d",
        ),
        (failing(FAULTED, "shape.permute"), "shape.permute", "shape.tile_rows"),
    ],
)
def test_a_failed_kernel_takes_along_similar_ones(failed, given_up, tried):
    quarantine = Quarantine([{"name": "x", "passed": False}, *failed])
    assert quarantine.reason(given_up) and not quarantine.reason(tried)


def test_a_module_whose_kernels_have_passed_is_not_given_up_for_those_of_others():
    failed = failing(FAULTED, f"{TF32}.conv_dgrad_a", "convolution_fp32x3.conv_dgrad_b", f"{PACKED}.conv_dgrad_c")
    passed = {"kernel": "convolution.conv_dgrad_d", "passed": True}
    assert Quarantine(failed).reason("convolution.conv_dgrad_a")
    assert not Quarantine([*failed, passed]).reason("convolution.conv_dgrad_a")


ITEM = {"name": "x", "passed": False, "says": "DeviceError: misaligned", "running": {"item": "x fp32"}}


@pytest.mark.parametrize(
    "known, code, expected",
    [
        (
            {"kernel": "a.b", "family": ""},
            -signal.SIGALRM,
            {"kernel": "a.b", "family": "", "fatal": HUNG, "says": "hung in x fp32: its time limit ended it"},
        ),
        (
            {"kernel": "a.b", "family": "moments", "families": ["moments", "sums"]},
            1,
            {
                "kernel": "a.b",
                "family": "moments",
                "fatal": FAULTED,
                "says": "faulted in x fp32: DeviceError: misaligned",
            },
        ),
        (
            {"families": ["moments", "warpgroups"]},
            1,
            {"suspects": ["warpgroups"], "fatal": FAULTED, "says": "faulted in x fp32: DeviceError: misaligned"},
        ),
        (
            {"families": ["moments", "sums"]},
            -signal.SIGALRM,
            {"suspects": ["moments", "sums"], "fatal": HUNG, "says": "hung in x fp32: its time limit ended it"},
        ),
        ({}, -signal.SIGALRM, {"name": "x", "says": "its time limit ended it"}),
        (
            {"kernel": "a.b", "family": ""},
            None,
            {"name": "x", "passed": None, "late": "this", "says": "was not finished: the time was up"},
        ),
    ],
)
def test_a_kernel_is_blamed_only_for_what_ended_the_process_itself(known, code, expected):
    row = {**ITEM, "running": ITEM["running"] | known}
    assert settled(row, code) == {"passed": False, **expected}


def test_whole_nets_do_without_the_families_of_what_failed():
    rows = [*failing(HUNG, "a.b"), {"fatal": HUNG, "kernel": "c.d", "family": "moments"}]
    assert without(rows, {}) == "moments" and without([{"family": "patch"}], {}) == ""
    rows += [{"fatal": FAULTED, "suspects": ["warpgroups", "sums"]}]
    assert without(rows, {"LAYERMEM_WITHOUT": "grouped"}) == "grouped,moments,sums,warpgroups"


def test_failures_of_an_earlier_call_count_while_the_sources_are_the_same(tmp_path):
    row = failing(HUNG, "a.b")
    for name, sources in (("A", "1"), ("B", "2"), ("C", "1")):
        found = {"preparation": {"sources": sources}, "smoke": {"rows": row if name != "C" else []}}
        (tmp_path / f"results-{name}.json").write_text(json.dumps(found))
    of_these = rows_of_same_sources(Call(tmp_path / "results-C.json"), [tmp_path])
    assert of_these == row and rows_of_same_sources(Call(tmp_path / "none.json"), [tmp_path]) == []


# ---- a loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "precision, how, loss, passed",
    [
        ("tf32", "unlimited, captured", 7.001, True),
        ("tf32", "60%", 7.01, False),
        ("tf32", "60%", float("nan"), False),
        ("bf16", "unlimited", 7.1, True),
        ("tf32", "20%, activations in bf16", 7.1, True),
        ("tf32", "20%, activations in bf16", 7.2, False),
        ("tf32", "unlimited, without warpgroups", 7.0001, True),
        ("tf32", "unlimited, without warpgroups", 7.0015, False),
        ("fp32", "unlimited, captured", 9.0, None),
    ],
)
def test_a_loss_that_is_not_near_that_of_fp32_is_a_failure(precision, how, loss, passed):
    """The same holds for tf32 with warpgroups, compared without them."""
    before = [
        {"net": "a", "precision": "fp32", "how": "unlimited", "loss": 7.0},
        {"net": "b", "precision": "fp32", "how": "unlimited", "loss": 1.0},
        {"net": "a", "precision": "tf32", "how": "unlimited", "loss": 7.0002},
    ]
    row = judged(before, {"net": "a", "precision": precision, "how": how}, loss)
    assert row.get("passed") is passed and ("says" in row) == (passed is False)
    assert judged([], {"net": "a", "precision": precision, "how": how}, loss) == {}


DYING = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tools.gpu.kept import Call
from tools.gpu.results import Options, Results

words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
results = Results(Path(words["--into"]), Options(False, True, 60.0, call=Call(Path(words["--results"]))))

def net():
    for family in {{"warpgroups", "moments", "sums"}}.difference(os.environ.get("LAYERMEM_WITHOUT", "").split(",")):
        results.binds(f"module.{{family}}", family)
    if "moments" in results.rows[-1]["running"].get("families", ()):
        os._exit(9)
    results.add(net="a", ms=1.0)

results.attempt(net, net="a")
"""


def test_a_net_that_ends_its_process_is_run_without_families_of_kernels_that_it_has(tmp_path, monkeypatch):
    """It runs without warpgroups first, and then without all; so do the nets of later steps."""
    script, call = tmp_path / "step.py", Call(tmp_path / "results-x.json")
    script.write_text(DYING)
    call.folder.mkdir()
    usual = {"dry_run": False, "brief": True, "earlier": [], "out": tmp_path, "net": None, "patience": None}
    monkeypatch.setattr(gpu_check, "__file__", str(script))
    gpu_check.save(call, {"nets": {"seconds": 0.0, "ended": "begun", "rows": []}})
    step = gpu_check.one_step("nets", 60, 60, argparse.Namespace(**usual), os.environ, call)
    first, second, last = step["rows"]
    assert first["suspects"] == ["warpgroups"] and first["says"].startswith("faulted in a: ")
    assert second["suspects"] == ["moments", "sums"]
    assert last == {"net": "a", "ms": 1.0, "without": "moments,sums,warpgroups"}
    assert gpu_check.unused_families("ops", argparse.Namespace(earlier=[]), call) == {
        "LAYERMEM_WITHOUT": "moments,sums,warpgroups"
    }
    assert gpu_check.unused_families("smoke", argparse.Namespace(earlier=[]), call) == {}


# ---- on the fake driver ----------------------------------------------------------------------------------------------

FEW = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tools import gpu_check
from tools.gpu import correctness, every_kernel, tiles

chosen, all_checks = ("Convolution by quads, ", "sums of ranks"), every_kernel.all_checks
every_kernel.all_checks = lambda brief: (each for each in all_checks(brief) if each.name.startswith(chosen))
correctness.large_checks = lambda *given: ()
tiles.PRECISIONS, tiles.SMALL = ("tf32",), dict([*tiles.SMALL.items()][:1])
sys.exit(gpu_check.main())
"""


@pytest.fixture
def steps_of(tmp_path, monkeypatch):
    """Runs a call with a few checks, in which a launch has 2.5 seconds, and the first of a module five."""
    settings: dict[str, str] = {}
    (tmp_path / "step.py").write_text(FEW)

    def step(command: list[str], log: Path, seconds: float, environment: dict[str, str]) -> int:
        with patch.dict(os.environ, environment):
            return on_fake_driver.run(tmp_path / "step.py", *command[2:], streams="random", **settings).returncode

    def run(only: str, *words: str, **of_driver: str) -> dict[str, list[dict]]:
        settings.update(of_driver)
        usual = ["--dry-run", "--brief", "--patience", "0.5", "--minutes", "9", "--out", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", ["gpu_check", *usual, "--work", str(tmp_path), "--only", only, *words])
        assert gpu_check.main() == 1
        found = Call(tmp_path / "out" / f"results-{only.replace(',', '-')}.json").found()
        assert all(step["ended"].startswith("done") for step in found.values()), found
        return {name: step["rows"] for name, step in found.items()}

    monkeypatch.setattr(gpu_check, "run", step)
    monkeypatch.setattr(gpu_check, "Preparation", lambda *given: argparse.Namespace(rows=[], environment={}))
    return run


def kernels_of(rows: list[dict], **columns: object) -> set[str]:
    """The kernels of rows with these values."""
    return {row["kernel"] for row in rows if "kernel" in row and columns.items() <= row.items()}


@needs_pycuda
def test_a_module_that_hangs_costs_one_launch_and_every_step_goes_on_without_it(steps_of):
    found = steps_of("smoke,correctness,tiles", hang="convolution_tf32_sm90a.*")
    smoke, results = found["smoke"], found["correctness"]
    (hung,) = kernels_of(smoke + results + found["tiles"], fatal=HUNG)
    assert kernels_of(smoke, passed=True) > {"communication.ordered_sum", "convolution_bf16_sm90a.conv_dgrad_128x64_v4"}
    of_module = {f"convolution_tf32_sm90a.conv_{product}_128x64_v4" for product in ("fprop", "dgrad", "wgrad")}
    assert hung in of_module and kernels_of(smoke, passed=None) == of_module - {hung}
    passed = {(row["name"], row["precision"]): row["passed"] for row in results if "name" in row}
    by_warpgroups = "Convolution by quads, warpgroups 128x64"
    assert passed.pop((by_warpgroups, "tf32")) is None and passed.pop((by_warpgroups, "bf16")) is True
    assert len(passed) == 5 and all(passed.values())
    assert {row["op"] for row in found["tiles"] if "op" in row} == {"fprop", "dgrad", "wgrad"}
    assert not any("_sm90a" in row["best"] for row in found["tiles"] if "op" in row)
    assert kernels_of(found["tiles"], passed=None) > {"convolution_tf32_sm90a.conv_fprop_256x128_v4"}


@pytest.mark.whole
@needs_pycuda
def test_kernels_that_fault_everywhere_cost_a_few_launches_and_the_others_are_checked(steps_of):
    found = steps_of("smoke,correctness", fault="*.conv_dgrad*")
    smoke, results = found["smoke"], found["correctness"]
    faulted = kernels_of(smoke, fatal=FAULTED)
    assert len(faulted) == 3 and not kernels_of(results, fatal=FAULTED)
    assert sum(row["passed"] is False for row in smoke) == len(faulted)
    left_out = kernels_of(smoke, passed=None)
    assert left_out and all(".conv_dgrad" in kernel for kernel in left_out | faulted)
    for product in ("conv_fprop", "conv_wgrad"):
        assert len([kernel for kernel in kernels_of(smoke, passed=True) if f".{product}" in kernel]) >= 6
    assert not any(row.get("late") for row in smoke + results)
    errors = [row for row in results if row.get("says", "").startswith("not tried: ") and "name" in row]
    assert errors and all(row["passed"] is None and row["error"] > 0 for row in errors)  # of the other ops
    assert all(row["passed"] is True for row in results if "name" in row and row not in errors)
