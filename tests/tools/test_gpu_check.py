"""tools/gpu_check.py without a GPU: all its steps on the fake driver, and steps that fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from layermem.backends.cuda.kernel_images.sources import modules
from layermem.backends.cuda.products import inner_parts
from layermem.backends.cuda.products.gemm_tiles import ENGINES, PACKED_BF16
from layermem.backends.cuda.products.warpgroup import WARPGROUP_TILES
from layermem.ops import ConvProblem, Window
from tests.backends.cuda import on_fake_driver
from tests.backends.cuda.harness import kernel_names
from tests.emulator.build import ROOT
from tests.tools.gpu_calls import needs_pycuda, step_on_fake_driver
from tools import gpu_check
from tools.gpu import correctness, ncu, tiles
from tools.gpu.every_kernel import every_kernel
from tools.gpu.kept import Call, read_rows
from tools.gpu.nets import ways
from tools.gpu.report import TITLES
from tools.gpu.results import Options, Results
from tools.gpu.timeline import Span, summary, trace
from tools.gpu.whole_nets import Wanted


@pytest.mark.whole
@needs_pycuda
def test_a_dry_run_goes_through_every_step(tmp_path):
    command = [sys.executable, "tools/gpu_check.py", "--dry-run", "--brief", "--out", str(tmp_path / "out")]
    command += ["--work", str(tmp_path / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    call = Call(tmp_path / "out" / "results-all.json")
    found = call.found()
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["details-all.zip", "log-all.txt", "results-all.json", "results-all.md"]
    assert list(found) == ["preparation", *(step.name for step in gpu_check.STEPS)]
    assert all(step["ended"] == "done" and step["rows"] for step in found.values())
    kernels = found["correctness"]["rows"]
    assert {row["precision"] for row in kernels} == {"fp32", "fp32x3", "tf32", "bf16"}
    assert all(row["passed"] for row in kernels + found["training"]["rows"])
    assert any(row["captured"] for row in found["training"]["rows"])
    budgets = {"60%", "40%", "20%"}
    assert {row["how"] for row in found["nets"]["rows"]} == {
        "unlimited",
        "unlimited, captured",
        *budgets,
        *(f"{budget}, measured costs" for budget in budgets),
    }
    assert all(row["ms"] > 0 and row["bytes"] > 0 for row in found["nets"]["rows"])
    ceilings = {row["what"] for row in found["ceilings"]["rows"]}
    assert {"copy on the GPU", "reading L2 cache", "kernel of a graph"} <= ceilings
    assert {"ffma rate", "mma bf16 rate", "wgmma tf32 rate"} <= ceilings
    smoke = [row for row in found["smoke"]["rows"] if "kernel" in row]
    launched = {row["kernel"].partition(".")[0] for row in smoke}
    assert {name for name in modules() if name.startswith("convolution")} <= launched
    assert all(row["blocks"] >= 1 for row in smoke)
    assert {row["op"] for row in found["tiles"]["rows"]} == {"fprop", "dgrad", "wgrad"}
    ops = {row["op"]: row for row in found["ops"]["rows"]}
    dgrad, wgrad = (ops[f"conv2+relu2.{step}"] for step in ("dgrad", "wgrad"))
    assert "ip1.w0.update" in ops and wgrad["GB moved"] > wgrad["GB"] > 0
    assert dgrad["kernels"].startswith("conv_dgrad_")
    assert [row["says"] for row in ops.values() if "says" in row] == ["roofline by measured ceilings"]
    assert all(row["step ms"] > 0 for row in found["timeline"]["rows"])
    trace = json.loads(call.detail("timeline.json"))
    assert {event["tid"] for event in trace} == {"compute", "d2h", "h2d"}
    assert "| VGG conv2_2 |" in call.markdown.read_text()
    lines = [json.loads(line) for line in call.detail(tiles.TIMES).decode().splitlines()]
    assert {(line["op"], line["parts"]) for line in lines if line["h"] == 1} >= {("fprop", 2), ("wgrad", 1)}
    assert len(lines) == len(
        {(*(line[key] for key in ("shape", "op", "function", "parts")), *line["split"]) for line in lines}
    )


class Recorder:
    """Stands for a GPU: notes the launched kernels and their capability."""

    def __init__(self):
        self.launched = set()

    def placed(self, arrays):
        return {role: array.ctypes.data for role, array in arrays.items()}

    def launch(self, launch, context):
        self.launched.add(f"{launch.module}.{launch.function}")

    def bring_back(self):
        pass


@pytest.mark.whole
def test_smoke_and_correctness_launch_every_kernel_that_the_sources_declare():
    """Kernels of one architecture are launched on it."""
    launched, first = {"80": Recorder(), "90": Recorder()}, set()
    for number, check in enumerate(every_kernel(brief=False)):
        if number == len(modules()):
            first = {kernel.split(".")[0] for recorder in launched.values() for kernel in recorder.launched}
        recorder = launched["80" if check.runs_on("80") else "90"]
        with check.tiles():
            check.make(check.way(recorder)).run_once()
    of_every_gpu, of_one = launched["80"].launched, launched["90"].launched
    declared = {f"{module}.{name}" for module in modules() for name in kernel_names(module)}
    missing = declared - of_every_gpu - of_one
    assert not missing, "no check launches these: the head of tools/gpu/every_kernel.py says where to add one"
    assert of_every_gpu | of_one == declared
    assert of_every_gpu == {name for name in declared if not re.match(r"\w+_sm90a\.", name)}
    assert first == {name.split(".")[0] for name in declared}, "FIRST has no check that reaches one of these modules"
    names = [(check.name, check.precision) for check in correctness.checks(brief=False)]
    assert {(check.name, check.precision) for check in every_kernel(brief=False)} <= {*names}
    assert len(names) == len({*names}), "of two checks with one name the second is taken for done"


def test_modules_that_a_bare_machine_runs_need_no_pytest():
    """A bare machine has only the dependencies of layermem."""
    steps = ", ".join(f"tools.gpu.{step.name}" for step in gpu_check.STEPS if step.name != "ncu")
    text = f"import sys; import {steps}; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)


def test_nets_are_run_with_activations_in_16_bits_where_there_are_tensor_cores(tmp_path):
    options = Options(small=False, brief=False, seconds=1.0, call=Call(tmp_path / "results.json"))
    for precision, expected in (("fp32", []), ("tf32", [None, "60%", "40%", "20%"])):
        each = Wanted("digits", 8, precision)
        found = [way for way in ways(each, each.build(), options) if way.how.endswith(", activations in bf16")]
        assert [way.budget for way in found] == expected
        assert all((way.device.storage, way.device.precision) == ("bf16", "bf16") for way in found)
        assert all(way.job.graphs[0].storage == "bf16" for way in found)


@pytest.mark.parametrize("part", gpu_check.PARTS)
def test_the_steps_of_a_part_end_within_its_minutes(part):
    """Two parts fit into the quarter of an hour for which a machine is rented, with a start of two minutes each."""
    chosen = gpu_check.chosen_part(part, None)
    assert sum(step.seconds for step in chosen.steps) <= 60 * chosen.minutes < 345
    assert chosen.steps[0].name == "environment"
    assert len({step.name for step in chosen.steps}) == len(chosen.steps) >= 4


def test_every_step_is_in_a_part_and_has_a_title():
    names = {step.name for step in gpu_check.STEPS}
    parts = [part.steps for part in gpu_check.PARTS.values()]
    assert {step.name for steps in parts for step in steps} == names == set(TITLES) - {"preparation"}
    assert [step.name for step in gpu_check.chosen_part(None, "nets,smoke").steps] == ["smoke", "nets"]
    assert [step.name for step in gpu_check.chosen_part("B", "layers,nets").steps] == ["nets", "layers"]
    with pytest.raises(SystemExit, match="there is no step smoke among environment nets"):
        gpu_check.chosen_part("B", "smoke,nets")


@pytest.mark.whole
@needs_pycuda
def test_a_launch_that_is_refused_is_a_row_and_the_next_kernel_is_tried(tmp_path):
    """A kernel with too many registers is refused at its launch, and nothing else is affected."""
    done, rows = step_on_fake_driver(tmp_path, "smoke", registers="convolution.conv_dgrad_128x32_v4=600")
    assert done.returncode == 0, done.stderr
    wrong = [row for row in rows if row["passed"] is False]
    assert {row["kernel"] for row in wrong if "kernel" in row} == {"convolution.conv_dgrad_128x32_v4"}
    assert all("too many resources requested for launch" in row["says"] for row in wrong)
    assert sum(row["passed"] is True for row in rows) > 30


BROKEN = """
import struct, sys
from pathlib import Path
from layermem.backends.cuda.support.launch import launch
from layermem.schedule.ir import COMPUTE
from tools.gpu.gpu import Gpu
from tools.gpu.results import Options, Results

gpu, results = Gpu(small=True), Results(Path(sys.argv[1]), Options(True, True, 60.0))

def refused():
    gpu.driver.launcher(launch("fill", "fill", "FillArgs", 1, 512, y=0, count=0, value=0, accumulate=0), b"", COMPUTE)()

def illegal():
    start = gpu.starter([launch("fill", "fill", "FillArgs", 1, y=4096, count=100, value=0, accumulate=0)], {})
    start()
    gpu.driver.synchronize()

ways = {"refused": refused, "illegal": illegal}
for name in ("first", "refused", "second", "illegal", "third"):
    results.attempt(ways.get(name, lambda name=name: results.add(name=name, passed=True)), name=name)
"""


@needs_pycuda
def test_an_illegal_address_ends_the_process_and_a_refused_launch_does_not(tmp_path):
    rows = tmp_path / "rows.json"
    for expected in (
        {"first": True, "refused": False, "second": True, "illegal": False},
        {"first": True, "refused": False, "second": True, "illegal": False, "third": True},
    ):
        done = on_fake_driver.run(BROKEN, str(rows), streams="random")
        found = list(read_rows(rows).values())
        assert {row["name"]: row["passed"] for row in found} == expected
        assert (done.returncode == 0) == ("third" in expected), done.stderr
    says = {row["name"]: row.get("says", "") for row in found}
    assert "invalid argument" in says["refused"] and "illegal memory access" in says["illegal"]


SMI = """#!/bin/sh
while true; do echo "1755, 312.5, 41"; echo "[N/A], 1, 1"; sleep 0.02; done
"""


def test_a_row_has_the_clock_and_the_power_of_the_gpu(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    results = Results(tmp_path / "rows.json", Options(small=True, brief=True, seconds=1e9))
    deadline = time.monotonic() + 20
    while "W" not in (results.rows[-1] if results.rows else {}) and time.monotonic() < deadline:
        time.sleep(0.1)
        results.add(what="x")
    assert results.rows[-1] == {"what": "x", "SM MHz": 1755, "W": 312.5, "C": 41}


# ---- tiles, timeline, counters ---------------------------------------------------------------------------------------


def test_splits_are_of_images_and_of_pieces_and_parts_those_that_cut_sums_in_runs_of_four():
    problem = ConvProblem(64, 256, 256, Window(14, 3, 1, 1), Window(14, 3, 1, 1))
    splits = tiles.splits(problem)
    assert {split.pieces for split in splits} == {1, 2} and len(splits) >= 8
    inner = ConvProblem(64, 4096, 4096, inner_parts.PIXEL, inner_parts.PIXEL)
    assert tiles.inner_counts(inner, "fprop")[:3] == [2, 4, 8]
    assert not tiles.inner_counts(replace(inner, n=1024), "fprop")


def test_kernels_that_a_shape_has_beside_the_tiles_are_candidates_once_by_their_names():
    """The first layer of ResNet-50: patches, single elements, and weight gradients of few channels."""
    problem = ConvProblem(8, 3, 64, Window(56, 7, 2, 3), Window(56, 7, 2, 3))
    found = [each for each, _ in tiles.timed([ENGINES["tf32"]], problem, tiles.NOWHERE, lambda each: {"ms": 1.0})]
    assert len(found) == len({each.key for each in found})
    assert {each.tile for each in found if each.op == "fprop"} == {
        "patch 128x64",
        *(f"single {name}" for name in ("128x128", "128x64", "64x64", "128x32")),
    }
    assert {each.tile for each in found if each.op == "wgrad"} == {"few 64x64", "few 64x32"}
    assert {each.op for each in found} == {"fprop", "wgrad"}  # data have no gradient
    assert tiles.chosen(problem, "fprop", "tf32", "90") == ("convolution_tf32.conv_fprop_patch_128x64_v1", 1)
    function, parts = tiles.chosen(problem, "wgrad", "tf32", "90")
    assert (function, parts) in {(each.function, each.parts) for each in found if each.op == "wgrad"}


def test_tiles_of_warpgroups_and_of_blobs_in_16_bits_are_candidates():
    problem = ConvProblem(2, 64, 128, Window(14, 3, 1, 1), Window(14, 3, 1, 1))
    (engine,) = tiles.by_warpgroups("tf32", problem, "90")

    def found(engine):
        made = [each for op in tiles.OPS for each in tiles.candidates(engine, problem, tiles.NOWHERE, op)]
        return {(each.op, each.tile, each.launches[0].module) for each in made}

    assert found(engine) == {
        (op, f"warpgroups {tile.name}", "convolution_tf32_sm90a")
        for op in ("fprop", "dgrad", "wgrad")
        for tile in WARPGROUP_TILES
    }
    assert not [*tiles.by_warpgroups("tf32", problem, "80")] and not [*tiles.by_warpgroups("fp32", problem, "90")]
    packed = found(PACKED_BF16)
    assert {module for _, _, module in packed} == {"convolution_bf16_on_bf16"}
    assert {name for _, name, _ in packed} == {tile.name for tile in PACKED_BF16.tiles}
    assert tiles.takes("bf16 on bf16", problem)
    assert not tiles.takes("bf16 on bf16", replace(problem, c=3))


def test_the_time_of_a_copy_that_no_op_hides_is_exposed():
    spans = [Span("compute", "a", 0, 4), Span("compute", "b", 5, 8), Span("d2h", "x", 3, 6), Span("h2d", "y", 8, 10)]
    row = summary(spans)
    assert (row["step ms"], row["compute ms"], row["d2h ms"], row["exposed copies ms"]) == (10, 7, 3, 1 + 2)
    assert (row["gaps"], row["gaps ms"], row["largest gap ms"], row["behind the largest"]) == (1, 1, 1, "a")
    assert trace(spans, "net")[2] == {"ph": "X", "pid": "net", "tid": "d2h", "name": "x", "ts": 3000, "dur": 3000}


STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


NCU = f"""==PROF== Connected to process 1
"ID","Kernel Name","gpu__time_duration.sum","lts__t_bytes.sum","{STALLED.format("barrier")}","{STALLED.format("wait")}"
"","","us","Mbyte","",""
"0","conv_fprop","1,412.5","812.5","0.25","1.5"
==PROF== Disconnected
"""


def test_counters_are_read_from_what_ncu_prints():
    (row,) = ncu.rows_of(ncu.table_of(NCU))
    assert row["kernel"] == "conv_fprop" and row["time, us"] == 1412.5 and row["L2 bytes, Mbyte"] == 812.5
    assert row["stalls"] == "wait 1.5, barrier 0.25"
    assert not list(ncu.rows_of(ncu.table_of("==ERROR== ERR_NVGPUCTRPERM")))


@pytest.mark.whole
@needs_pycuda
def test_ncu_is_run_over_a_score_of_kernels(tmp_path, monkeypatch):
    """A program named ncu runs its arguments and prints the text above."""
    (tmp_path / "table").write_text(NCU)
    script = f'while [ "$1" != "{sys.executable}" ]; do shift; done; "$@" && cat {tmp_path}/table'
    (tmp_path / "ncu").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done, rows = step_on_fake_driver(tmp_path, "ncu")
    assert done.returncode == 0, done.stderr
    assert [row["kernel"] for row in rows] == ["conv_fprop"]
    assert b"conv_fprop" in Call(tmp_path / "results.json").detail("ncu.csv")
