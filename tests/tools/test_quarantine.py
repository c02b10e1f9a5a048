"""Kernels that hang or fault: which others are not launched any more, and that every step goes on with the rest."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.cuda import on_fake_driver
from tests.emulator import fake_driver
from tests.emulator.build import ROOT
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
        (failing(HUNG, f"{TF32}_sm90a.conv_fprop_256x128_v4"), f"{TF32}_sm90a.conv_wgrad_128x64_v4",
         f"{TF32}.conv_fprop_128x64_v4"),
        (failing(FAULTED, f"{TF32}.conv_dgrad_128x64_v4"), f"{TF32}.conv_dgrad_128x64_v4",
         f"{TF32}.conv_dgrad_64x64_v4"),
        (failing(FAULTED, f"{TF32}.conv_dgrad_128x64_v4", f"{TF32}.conv_dgrad_64x64_v4"),
         f"{TF32}.conv_dgrad_sums_128x64_v4", f"{TF32}.conv_wgrad_64x64_v4"),
        (failing(FAULTED, f"{TF32}.conv_dgrad_sums_128x64_v4", f"{TF32}.conv_dgrad_sums_64x64_v4"),
         f"{TF32}.conv_dgrad_sums_128x128_v4", f"{TF32}.conv_dgrad_128x128_v4"),
        (failing(FAULTED, f"{TF32}.conv_dgrad_a", "convolution.conv_dgrad_b"), f"{TF32}.conv_dgrad_a",
         f"{PACKED}.conv_dgrad_a"),
        (failing(FAULTED, f"{TF32}.conv_dgrad_a", "convolution.conv_dgrad_b", f"{PACKED}.conv_dgrad_c"),
         f"{TF32}_sm90a.conv_dgrad_sums_d", f"{TF32}_sm90a.conv_fprop_d"),
        # all three read blobs in bf16, and so does the next
        (failing(FAULTED, f"{TF32}_on_bf16.conv_dgrad_a", "convolution_on_bf16.conv_dgrad_b", f"{PACKED}.conv_dgrad_c"),
         f"{TF32}_on_bf16.conv_dgrad_d", f"{TF32}.conv_dgrad_a"),
        (failing(FAULTED, f"{TF32}.conv_dgrad_a", f"{TF32}.conv_fprop_a", f"{TF32}.conv_wgrad_a"),
         f"{TF32}.conv_fprop_pool_b", "convolution.conv_fprop_a"),
        (failing(FAULTED, "shape.permute"), "shape.permute", "shape.transpose"),
    ],
)  # fmt: skip
def test_what_fails_takes_along_what_is_like_it(failed, given_up, tried):
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
        ({"kernel": "a.b", "family": ""}, -signal.SIGALRM,
         {"kernel": "a.b", "family": "", "fatal": HUNG, "says": "hung in x fp32: its time limit ended it"}),
        ({"kernel": "a.b", "family": "pool", "families": ["pool", "sums"]}, 1,
         {"kernel": "a.b", "family": "pool", "fatal": FAULTED, "says": "faulted in x fp32: DeviceError: misaligned"}),
        ({"families": ["pool", "warpgroups"]}, 1,
         {"suspects": ["warpgroups"], "fatal": FAULTED, "says": "faulted in x fp32: DeviceError: misaligned"}),
        ({"families": ["pool", "sums"]}, -signal.SIGALRM,
         {"suspects": ["pool", "sums"], "fatal": HUNG, "says": "hung in x fp32: its time limit ended it"}),
        ({}, -signal.SIGALRM, {"name": "x", "says": "its time limit ended it"}),
        ({"kernel": "a.b", "family": ""}, None,
         {"name": "x", "passed": None, "late": "this", "says": "was not finished: the time was up"}),
    ],
)  # fmt: skip
def test_a_kernel_is_blamed_only_for_what_ended_the_process_itself(known, code, expected):
    row = {**ITEM, "running": ITEM["running"] | known}
    assert settled(row, code) == {"passed": False, **expected}


def test_whole_nets_do_without_the_families_of_what_failed():
    rows = [*failing(HUNG, "a.b"), {"fatal": HUNG, "kernel": "c.d", "family": "pool"}]
    assert without(rows, {}) == "pool" and without([{"family": "patch"}], {}) == ""
    rows += [{"fatal": FAULTED, "suspects": ["warpgroups", "sums"]}]
    assert without(rows, {"LAYERMEM_WITHOUT": "grouped"}) == "grouped,pool,sums,warpgroups"


def test_what_failed_in_a_call_before_counts_while_the_sources_are_the_same(tmp_path):
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
    """And of tf32 with warpgroups, without them."""
    before = [
        {"net": "a", "precision": "fp32", "how": "unlimited", "loss": 7.0},
        {"net": "b", "precision": "fp32", "how": "unlimited", "loss": 1.0},
        {"net": "a", "precision": "tf32", "how": "unlimited", "loss": 7.0002},
    ]
    row = judged(before, {"net": "a", "precision": precision, "how": how}, loss)
    assert row.get("passed") is passed and ("says" in row) == (passed is False)
    assert judged([], {"net": "a", "precision": precision, "how": how}, loss) == {}


# ---- on the fake driver ----------------------------------------------------------------------------------------------

FEW = """
import sys
sys.path.insert(0, {root!r})
from tools import gpu_check
from tools.gpu import every_kernel, tiles

CHOSEN = ("Convolution by quads", "weight gradient", "sums of ranks")
all_checks = every_kernel.all_checks
every_kernel.all_checks = lambda brief: (each for each in all_checks(brief) if each.name.startswith(CHOSEN))
tiles.PRECISIONS = ("tf32",)
gpu_check.__file__ = __file__
sys.exit(gpu_check.main())
"""
