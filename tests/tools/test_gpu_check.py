"""tools/gpu_check.py without a GPU: all its steps on the fake driver, and what it does with steps that fail."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from dataclasses import replace
from itertools import product

import pytest

from layermem.backends.cuda.implicit_gemm import ENGINES, FPROP, L2_BYTES, PACKED, PACKED_BF16, cycles
from layermem.backends.cuda.kernel_images.sources import architecture, modules
from layermem.backends.cuda.warpgroup import PACKED_TILES, WARPGROUP_TILES
from layermem.ops import ConvProblem, Window
from tests.backends.cuda import on_fake_driver
from tests.emulator import fake_driver
from tests.emulator.build import ROOT
from tools import gpu_check
from tools.gpu import carry, correctness, fit_tiles, ncu, tiles
from tools.gpu.every_kernel import every_kernel
from tools.gpu.nets import ways
from tools.gpu.process import run
from tools.gpu.report import TITLES, failures, markdown
from tools.gpu.results import Options, Results, read_rows
from tools.gpu.sanitizer import verdict
from tools.gpu.timeline import Span, summary, trace
from tools.gpu.whole_nets import Wanted
from tools.ptxas_report import read_report

needs_pycuda = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)


@needs_pycuda
def test_a_dry_run_goes_through_every_step(tmp_path):
    command = [sys.executable, "tools/gpu_check.py", "--dry-run", "--brief", "--out", str(tmp_path / "out")]
    command += ["--work", str(tmp_path / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["details.zip", "log.txt", "results.json", "results.md"]
    gpu_check.unpack(tmp_path / "out")
    assert list(found) == ["preparation", *(step.name for step in gpu_check.STEPS)]
    assert all(step["ended"] == "done" and step["rows"] for step in found.values())
    kernels = found["correctness"]["rows"]
    assert {row["precision"] for row in kernels} == {"fp32", "fp32x3", "tf32", "bf16"}
    assert all(row["passed"] for row in kernels + found["training"]["rows"])
    assert any(row["captured"] for row in found["training"]["rows"])
    budgets = {"60%", "40%", "20%"}
    assert {row["how"] for row in found["nets"]["rows"]} == {
        "unlimited", "unlimited, captured", *budgets, *(f"{budget}, measured costs" for budget in budgets)
    }  # fmt: skip
    assert all(row["ms"] > 0 and row["bytes"] > 0 for row in found["nets"]["rows"])
    ceilings = {row["what"] for row in found["ceilings"]["rows"]}
    assert {"copy on the GPU", "reading L2 cache", "kernel of a graph"} <= ceilings
    assert {"ffma rate", "mma bf16 rate", "wgmma tf32 rate"} <= ceilings
    launched = {row["kernel"].partition(".")[0] for row in found["smoke"]["rows"]}
    assert {name for name in modules() if name.startswith("convolution")} <= launched
    assert all(row["blocks"] >= 1 for row in found["smoke"]["rows"])
    assert {row["op"] for row in found["tiles"]["rows"]} == {"fprop", "dgrad", "wgrad", "fit", "warpgroups"}
    assert {"conv2.dgrad", "ip1.w0.update"} <= {row["op"] for row in found["ops"]["rows"]}
    assert all(row["step ms"] > 0 for row in found["timeline"]["rows"])
    trace = json.loads((tmp_path / "out" / "timeline.json").read_text())
    assert {event["tid"] for event in trace} == {"compute", "d2h", "h2d"}
    text = (tmp_path / "out" / "results.md").read_text()
    assert "| VGG conv2_2 |" in text


class Recorder:
    """In the place of a GPU: notes which kernels are launched, and on which capability."""

    def __init__(self):
        self.launched = set()

    def placed(self, arrays):
        return {role: array.ctypes.data for role, array in arrays.items()}

    def launch(self, launch, context):
        self.launched.add(f"{launch.module}.{launch.function}")

    def bring_back(self):
        pass


def test_smoke_and_correctness_launch_every_kernel_that_the_sources_declare():
    """Those of one architecture where it is."""
    launched = {"80": Recorder(), "90": Recorder()}
    for check in every_kernel(brief=False):
        recorder = launched["80" if check.runs_on("80") else "90"]
        with check.tiles():
            check.make(check.way(recorder)).run_once()
    of_every_gpu, of_one = launched["80"].launched, launched["90"].launched
    declared = {f"{row.module}.{row.name}" for row in read_report()[1]}
    missing = declared - of_every_gpu - of_one
    assert not missing, "no check launches these: the head of tools/gpu/every_kernel.py says where to add one"
    assert of_every_gpu | of_one == declared
    assert of_every_gpu == {name for name in declared if not re.match(r"\w+_sm90a\.", name)}
    names = [(check.name, check.precision) for check in correctness.checks(brief=False)]
    assert {(check.name, check.precision) for check in every_kernel(brief=False)} <= {*names}
    assert len(names) == len({*names}), "of two checks with one name the second is taken for done"


def test_what_a_bare_machine_runs_needs_no_pytest():
    """It has what layermem depends on, and nothing else."""
    steps = ", ".join(f"tools.gpu.{step.name}" for step in gpu_check.STEPS if step.name != "ncu")
    text = f"import sys; import {steps}; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)


def test_nets_are_run_with_activations_in_16_bits_where_there_are_tensor_cores(tmp_path):
    options = Options(small=False, brief=False, seconds=1.0, out=tmp_path)
    for precision, expected in (("fp32", []), ("tf32", [None, "60%", "40%", "20%"])):
        each = Wanted("digits", 8, precision)
        found = [way for way in ways(each, each.build(), options) if way.how.endswith(", activations in bf16")]
        assert [way.budget for way in found] == expected
        assert all((way.device.storage, way.device.precision) == ("bf16", "bf16") for way in found)
        assert all(way.job.graphs[0].storage == "bf16" for way in found)


@pytest.mark.parametrize("part", gpu_check.PARTS)
def test_the_steps_of_a_part_end_within_ten_minutes(part):
    steps = gpu_check.chosen_steps(part, None)
    assert sum(step.seconds for step in steps) <= gpu_check.WHOLE < 600
    assert steps[0].name == "environment" and len(steps) == len(gpu_check.PARTS[part])


def test_every_step_is_in_a_part_and_has_a_title():
    names = {step.name for step in gpu_check.STEPS}
    assert set().union(*gpu_check.PARTS.values()) == names == set(TITLES) - {"preparation"}
    assert [step.name for step in gpu_check.chosen_steps(None, "nets,smoke")] == ["smoke", "nets"]
    assert len(gpu_check.chosen_steps(None, None)) == len(names)


def options(tmp_path, **more) -> argparse.Namespace:
    (tmp_path / "out" / "rows").mkdir(parents=True, exist_ok=True)
    usual = dict.fromkeys(("net", "wheels", "step", "carried", "part", "only")) | {
        "dry_run": False,
        "brief": True,
        "minutes": 9.0,
    }
    return argparse.Namespace(**usual | {"work": tmp_path, "out": tmp_path / "out"} | more)


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

ways = dict(b=broken, d=lambda: os._exit(9), e=lambda: time.sleep(60), g=broken)
usable = []
results = Results(Path({rows!r}), Options(False, True, 60.0), usable=lambda: "g" not in usable)
for name in "abcdefgh":
    usable.append(name)
    right = lambda: results.add(name=name, passed=True)
    results.attempt(ways.get(name, right), most=2, name=name)
"""


def test_a_step_that_fails_is_begun_again_behind_its_last_row(tmp_path, monkeypatch):
    script = tmp_path / "step.py"
    script.write_text(FAILING.format(root=str(ROOT), rows=str(tmp_path / "out" / "rows" / "x.jsonl")))
    monkeypatch.setattr(gpu_check, "__file__", str(script))
    step = gpu_check.one_step("x", 60, 60, options(tmp_path), os.environ)
    assert step["ended"] == "done; begun again 3 times" and "ValueError" in step["log"]  # after d, e and g, not b
    assert {row["name"]: row["passed"] for row in step["rows"]} == dict(zip("abcdefgh", [1, 0, 1, 0, 0, 1, 0, 1]))
    assert step["rows"][1]["says"] == "ValueError: an illegal address"
    assert step["rows"][4]["says"] == "the process ended in this, or was ended after 2 s"
    assert len(failures({"correctness": step})) == 4


def test_without_a_gpu_nothing_more_is_begun(tmp_path, monkeypatch):
    begun = []

    def one_step(name, *others):
        begun.append(name)
        return gpu_check.step_result(0.0, "done", [{"part": "gpu", "passed": False, "says": "there is none"}])

    monkeypatch.setattr(gpu_check, "one_step", one_step)
    monkeypatch.setattr(gpu_check, "Preparation", lambda *given: argparse.Namespace(rows=[], environment={}))
    assert gpu_check.run_all(options(tmp_path)) == 1
    assert begun == ["environment"]
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["nets"]["ended"] == "not begun: the GPU cannot be used"


def test_the_minutes_of_a_call_are_shared_out_among_its_steps(tmp_path, monkeypatch):
    given = {}

    def one_step(name, seconds, most, *others):
        given[name] = seconds
        return gpu_check.step_result(0.0, "done", [{"passed": True}])

    monkeypatch.setattr(gpu_check, "one_step", one_step)
    monkeypatch.setattr(gpu_check, "Preparation", lambda *given: argparse.Namespace(rows=[], environment={}))
    assert gpu_check.run_all(options(tmp_path, minutes=3, only="smoke,tiles")) == 0
    assert given["smoke"] == pytest.approx(180 * 30 / 180, abs=2) and given["tiles"] == pytest.approx(180, abs=2)


def test_files_of_single_steps_are_one_archive_and_come_back_for_the_next_call(tmp_path):
    for name in ("tile_times.json", "costs-a-1-fp32.csv", "costs-b-1-fp32.csv", "results.json"):
        (tmp_path / name).write_text(name)
    gpu_check.pack(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["details.zip", "results.json"]
    (tmp_path / "tile_times.json").write_text("newer")
    gpu_check.unpack(tmp_path)
    assert (tmp_path / "costs-b-1-fp32.csv").read_text() == "costs-b-1-fp32.csv"
    assert (tmp_path / "tile_times.json").read_text() == "newer"


def test_kernels_are_compiled_before_the_first_step_unless_they_were_brought(tmp_path, monkeypatch):
    import tools.gpu.prepare as prepare

    commands = []
    monkeypatch.delenv("LAYERMEM_KERNELS", raising=False)
    monkeypatch.setattr(prepare, "run", lambda command, *others: commands.append((command[-1], others[1])) or 0)
    prepare.Preparation(options(tmp_path, minutes=3), tmp_path)
    assert commands[-1] == ("tools.gpu.images", 90)
    commands.clear()
    prepare.Preparation(options(tmp_path, carried=tmp_path), tmp_path)
    assert "tools.gpu.images" not in dict(commands)


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
    empty = prepare.Preparation(options(tmp_path, wheels=tmp_path / "out"), tmp_path)
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
    assert list(read_rows(tmp_path / "rows.json").values()) == [{"a": 1}]
    with open(tmp_path / "rows.json", "a") as file:
        file.write('[1, {"a": ')  # of a process that was killed
    again = Results(tmp_path / "rows.json", Options(small=True, brief=True, seconds=1e9))
    again.attempt(lambda: again.add(a=2) and None, a=2)
    assert [row["a"] for row in read_rows(tmp_path / "rows.json").values()] == [1, 2]
    assert (tmp_path / "rows.json").read_text().count('{"a": 1}') == 1  # rows are appended, not written again
    assert not results.late and Results(tmp_path / "other.json", Options(True, True, seconds=-1)).late


# ---- what goes wrong on a GPU ----------------------------------------------------------------------------------------


def step_on_fake_driver(tmp_path, name: str, **settings: object) -> tuple[subprocess.CompletedProcess, list[dict]]:
    """One step, brief and small, and its rows."""
    into = tmp_path / f"{name}.json"
    words = ["--step", name, "--into", str(into), "--out", str(tmp_path), "--dry-run", "--brief"]
    done = on_fake_driver.run(ROOT / "tools/gpu_check.py", *words, **settings)
    return done, list(read_rows(into).values())


@needs_pycuda
def test_a_launch_that_is_refused_is_a_row_and_the_next_kernel_is_tried(tmp_path):
    """A kernel of more registers than there are: refused at its launch, and nothing else suffers."""
    text = fake_driver.RESOURCES.read_text()
    row = next(line for line in text.splitlines() if line.startswith("convolution\tconv_dgrad_128x32_v4"))
    table = tmp_path / "ptxas.tsv"
    table.write_text(text.replace(row, "\t".join([*row.split("\t")[:5], *["600"] * 7])))
    done, rows = step_on_fake_driver(tmp_path, "smoke", resources=table)
    assert done.returncode == 0, done.stderr
    wrong = [row for row in rows if row["passed"] is False]
    assert {row["kernel"] for row in wrong if "kernel" in row} == {"convolution.conv_dgrad_128x32_v4"}
    assert all("too many resources requested for launch" in row["says"] for row in wrong)
    assert sum(row["passed"] is True for row in rows) > 30


BROKEN = """
import struct, sys
from pathlib import Path
from layermem.backends.cuda.launch import launch
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


def tile_times(precision: str, factors: tuple[float, ...], l2_bytes: int) -> list[dict]:
    """Times on a GPU that is exactly as implicit_gemm.tile_for() supposes, with its paces scaled."""
    engine, lines = ENGINES[precision], []
    engine = engine._replace(paces=fit_tiles.scaled_paces(engine, factors))
    for m, n, repeat in product((100, 3000, 25088, 401408), (32, 64, 200, 512), (1, 4)):
        case = {"precision": precision, "shape": f"{m} {n} {repeat}", "op": "fprop", "count": 1}
        case |= {"m": m, "n_columns": n, "repeat": repeat, "depth": 576, "parts": 1}
        for tile in engine.own_tiles(FPROP, PACKED):
            spent = cycles(engine, tile, (m, n, repeat), 576, l2_bytes)
            lines.append({**case, "tile": tile.name, "ms": spent / 1e6})
    return lines


def test_a_fitted_table_chooses_the_best_tiles(monkeypatch):
    monkeypatch.setattr(fit_tiles, "FACTORS", (1.0, 0.7, 1.35))
    other = tile_times("tf32", (1.0, 1.35, 0.7, 1.0), 132 * 48)
    found = fit_tiles.fitted(other)["tf32"]
    assert found["least ms"] == found["ms"] < found["now ms"]
    same = fit_tiles.fitted([*other, *tile_times("fp32", (1.0,) * 4, L2_BYTES)])
    assert same["tf32"] == found and same["fp32"]["ms"] == same["fp32"]["now ms"] == same["fp32"]["least ms"]
    assert same["fp32"]["l2_bytes"] == L2_BYTES and same["fp32"]["paces"]["128x64"] == [4340, 7270, 9730]
    assert f"L2_BYTES = {L2_BYTES}; " in fit_tiles.text(same)
    assert fit_tiles.fitted([]) == {}


def test_products_go_to_warpgroups_from_fitted_columns_and_depths_on():
    """On a GPU where they are faster for 128 columns and more, of 512 elements along k and more."""
    lines = []
    for n, depth in product((64, 128, 256), (64, 512, 4096)):
        case = {"precision": "tf32", "shape": f"{n} {depth}", "op": "fprop", "count": 2, "parts": 1}
        case |= {"m": 1000, "n_columns": n, "repeat": 1, "depth": depth}
        faster = n >= 128 and depth >= 512
        lines += [{**case, "tile": "128x64", "ms": 3.0}, {**case, "tile": "128x128", "ms": 2.0}]
        lines += [{**case, "tile": "warpgroups 256x128", "ms": 1.0 if faster else 4.0}]
    assert fit_tiles.paying(lines) == {
        "tf32 fprop": {"columns": 128, "depth": 512, "ms": 28.0, "without ms": 36.0, "least ms": 28.0}
    }
    slower = [{**line, "ms": 9.0} if line["tile"].startswith("warpgroups") else line for line in lines]
    assert fit_tiles.paying(slower)["tf32 fprop"] == {"ms": 36.0, "without ms": 36.0, "least ms": 36.0}
    assert fit_tiles.paying([line for line in lines if not line["tile"].startswith("warpgroups")]) == {}
    assert fit_tiles.fitted(lines)["tf32"]["least ms"] == 36.0  # of the other tiles


def test_tiles_of_warpgroups_and_of_blobs_in_16_bits_are_candidates():
    problem = ConvProblem(2, 64, 128, Window(14, 3, 1, 1), Window(14, 3, 1, 1))
    places = dict.fromkeys(("maps", "image", "filter", "parts", "wide"), 4096)
    (engine,) = tiles.by_warpgroups("tf32", problem, "90")
    found = {(each.op, each.tile, each.launches[0].module) for each in tiles.candidates(engine, problem, places)}
    assert found == {
        (op, f"warpgroups {tile.name}", "convolution_tf32_sm90a")
        for op in ("fprop", "dgrad", "wgrad") for tile in WARPGROUP_TILES
    }  # fmt: skip
    assert not [*tiles.by_warpgroups("tf32", problem, "80")] and not [*tiles.by_warpgroups("fp32", problem, "90")]
    packed = [*tiles.candidates(PACKED_BF16, problem, places)]
    assert {each.launches[0].module for each in packed} == {"convolution_bf16_on_bf16"}
    assert {each.tile for each in packed} == {tile.name for tile in PACKED_BF16.tiles}
    (own,) = tiles.by_warpgroups("bf16 on bf16", problem, "90")
    assert {(f"conv_{each.op}", each.tile) for each in tiles.candidates(own, problem, places)} == {
        (op, f"warpgroups {tile.name}") for tile in PACKED_TILES for op in tile.products
    }
    assert tiles.takes("bf16 on bf16", problem)
    assert not tiles.takes("bf16 on bf16", replace(problem, c=3))


def test_what_no_op_hides_of_a_copy_is_exposed():
    spans = [
        Span("compute", "a", 0, 4), Span("compute", "b", 5, 8), Span("d2h", "x", 3, 6), Span("h2d", "y", 8, 10),
    ]  # fmt: skip
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


@needs_pycuda
def test_ncu_is_run_over_a_dozen_kernels(tmp_path, monkeypatch):
    """By a program of that name, which runs what it is given and prints what is above."""
    (tmp_path / "table").write_text(NCU)
    script = f'while [ "$1" != "{sys.executable}" ]; do shift; done; "$@" && cat {tmp_path}/table'
    (tmp_path / "ncu").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done, rows = step_on_fake_driver(tmp_path, "ncu")
    assert done.returncode == 0, done.stderr
    assert [row["kernel"] for row in rows] == ["conv_fprop"] and (tmp_path / "ncu.csv").exists()


# ---- what is brought along -------------------------------------------------------------------------------------------


def test_machine_code_for_other_sources_or_another_gpu_is_not_used(tmp_path, monkeypatch):
    assert "there is no" in carry.misfit(tmp_path, "90")
    digests = {"architecture": "90"} | {module: carry.digest_of(module, "90") for module in modules()}
    (tmp_path / carry.DIGESTS).write_text(json.dumps(digests))
    assert carry.misfit(tmp_path, "90") == "" and "this GPU is sm_80" in carry.misfit(tmp_path, "80")
    (tmp_path / carry.DIGESTS).write_text(json.dumps(digests | {"pooling": "of another source"}))
    assert "the sources of pooling are others" in carry.misfit(tmp_path, "90")


def test_machine_code_of_every_module_is_compiled_for_one_architecture(tmp_path, monkeypatch):
    class Compiler:
        def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
            return architecture.encode()

    monkeypatch.setattr(carry.build, "find_compiler", Compiler)
    monkeypatch.setattr(carry, "on_all_cores", lambda make: ((module, make(module)) for module in modules()))
    assert carry.kernels(tmp_path, "90") == sum(len(f"sm_{architecture(module, '90')}") for module in modules())
    assert carry.misfit(tmp_path, "90") == "" and (tmp_path / "pooling.fatbin").read_bytes() == b"sm_90"


def test_a_native_module_that_was_brought_is_used_where_none_is_built(tmp_path, monkeypatch):
    import tools.gpu.prepare as prepare

    ready = prepare.Preparation.__new__(prepare.Preparation)
    ready.options, ready.work = options(tmp_path, carried=tmp_path / "carried"), tmp_path
    root, name = tmp_path / "root", f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    (root / "layermem").mkdir(parents=True)
    (tmp_path / "carried" / "native").mkdir(parents=True)
    monkeypatch.setattr(prepare, "ROOT", root)
    monkeypatch.setattr(ready, "_python", lambda text: 0 if (root / "layermem" / name).exists() else 1)
    assert "it is built" in ready._carried_native()
    (tmp_path / "carried" / "native" / name).write_text("")
    assert ready._carried_native() == f"{name} was brought" and (root / "layermem" / name).exists()
    monkeypatch.setattr(ready, "_python", lambda text: 1)
    assert "does not load here" in ready._carried_native() and not (root / "layermem" / name).exists()
