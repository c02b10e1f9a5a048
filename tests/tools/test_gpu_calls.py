"""Calls of tools/gpu_check.py: steps that end early or are killed, files of a call, and what is prepared or brought."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from layermem.backends.cuda.kernel_images.sources import architecture, modules
from tests.emulator.build import ROOT
from tests.tools.gpu_calls import call_in, options
from tools import gpu_check
from tools.gpu import carry, own_kernels
from tools.gpu.kept import Call, new_call, read_rows
from tools.gpu.process import run
from tools.gpu.report import failures, markdown
from tools.gpu.results import Options, Results
from tools.gpu.sanitizer import verdict


def test_a_step_that_dies_is_reported_with_its_last_words(tmp_path):
    step = gpu_check.one_step("no_such_step", 60, 60, options(tmp_path), os.environ, call_in(tmp_path))
    assert step["ended"].startswith("failed with 1") and "no_such_step" in step["ended"] and step["rows"] == []
    assert "Traceback" in step["log"]


def test_a_step_whose_time_is_up_is_killed_with_all_that_it_started(tmp_path):
    assert gpu_check.one_step("environment", 60, 0, options(tmp_path), os.environ, call_in(tmp_path))[
        "ended"
    ].startswith("killed")
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
    script.write_text(FAILING.format(root=str(ROOT), rows=str(call_in(tmp_path).rows_file("x"))))
    monkeypatch.setattr(gpu_check, "__file__", str(script))
    step = gpu_check.one_step("x", 60, 60, options(tmp_path), os.environ, call_in(tmp_path))
    assert step["ended"] == "done; begun again 3 times" and "ValueError" in step["log"]  # after d, e and g, not b
    assert {row["name"]: row["passed"] for row in step["rows"]} == dict(zip("abcdefgh", [1, 0, 1, 0, 0, 1, 0, 1]))
    assert step["rows"][1]["says"] == "ValueError: an illegal address"
    assert step["rows"][4]["says"] == "its time limit ended it"
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
    found = Call(tmp_path / "out" / "results-all.json").found()
    assert found["nets"]["ended"] == "not begun: the GPU cannot be used"


def test_an_environment_whose_time_is_up_ends_nothing():
    row = {"part": "gpu", "passed": False}
    step = {"ended": "killed: its time was up", "seconds": 40.0, "rows": [row]}
    assert not gpu_check.without_a_gpu({"environment": step}) and not gpu_check.without_a_gpu({})
    assert gpu_check.without_a_gpu({"environment": {**step, "ended": "done; begun again 1 times"}})


def test_the_minutes_of_a_call_are_shared_out_among_its_steps(tmp_path, monkeypatch):
    given = {}

    def one_step(name, seconds, most, *others):
        given[name] = seconds
        return gpu_check.step_result(0.0, "done", [{"passed": True}])

    monkeypatch.setattr(gpu_check, "one_step", one_step)
    monkeypatch.setattr(gpu_check, "Preparation", lambda *given: argparse.Namespace(rows=[], environment={}))
    assert gpu_check.run_all(options(tmp_path, minutes=3, only="smoke,tiles")) == 0
    assert given["smoke"] == pytest.approx(180 * 30 / 180, abs=2) and given["tiles"] == pytest.approx(180, abs=2)


def test_a_call_changes_no_file_of_an_earlier_one_and_reads_the_last_that_has_what_it_needs(tmp_path):
    first, other = new_call(tmp_path, "A"), new_call(tmp_path, "B")
    for call, date, rows in ((first, "2026-01-02", [{"what": "old"}]), (other, "2026-01-01", [{"what": "older"}])):
        call.folder.mkdir()
        (call.folder / "tile_times.jsonl").write_text(date)
        call.rows_file("ceilings").write_text(json.dumps([0, rows[0]]))
        gpu_check.save(call, {"preparation": {"date": date, "seconds": 0.0, "ended": "done", "rows": []}})
        assert call.rows("ceilings") == rows  # of a call that was killed
        call.keep({"costs-a.csv": date.encode()})
        call.close("ceilings")
    second = new_call(tmp_path, "A")
    assert second.results.name == "results-A-2.json" and second.log.name == "log-A-2.txt"
    assert first.detail("tile_times.jsonl") == first.detail("costs-a.csv") == b"2026-01-02"
    assert other.detail("tile_times.jsonl") == b"2026-01-01" and other.detail("ncu.csv") is None
    gpu_check.save(first, first.found() | {"ceilings": {"seconds": 1.0, "ended": "done", "rows": [{"what": "new"}]}})
    how = Options(True, True, 1.0, call=second)
    assert how.last_rows("ceilings") == [{"what": "new"}] and how.last_detail("costs-a.csv") == b"2026-01-02"
    elsewhere = Options(True, True, 1.0, call=Call(tmp_path / "else" / "results-B.json"), earlier=[tmp_path])
    assert elsewhere.last_rows("ceilings") == [{"what": "new"}] and elsewhere.last_rows("nets") == []
    assert elsewhere.last_detail("tile_times.jsonl") == b"2026-01-02"


KILLED = r"""
import argparse, os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from tools import gpu_check
from tools.gpu.kept import Call
from tools.gpu.results import Options, Results

if "--step" in sys.argv:
    words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    results = Results(Path(words["--into"]), Options(True, True, 60.0, call=Call(Path(words["--results"]))))
    results.add(name=words["--step"], passed=True)
    print("said by", words["--step"], flush=True)
    results.options.call.keep({{"costs-" + words["--step"]: b"1"}})
    results.path.with_name("tile_times.jsonl").write_text("times")
    if words["--step"] == "nets":
        Path({out!r}, "..", "running").write_text("")
        time.sleep(60)
        Path({out!r}, "..", "survived").write_text("")
    sys.exit()
gpu_check.__file__ = {script!r}
gpu_check.Preparation = lambda *given: argparse.Namespace(rows=[], environment=dict(os.environ))
sys.argv[1:] = ["--only", "ops,nets,timeline", "--out", {out!r}, "--work", {out!r} + "/../work"]
sys.exit(gpu_check.main())
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_call_that_is_killed_leaves_what_it_had_found_and_no_process(tmp_path, ending):
    out, script = tmp_path / "out", tmp_path / "call.py"
    script.write_text(KILLED.format(root=str(ROOT), out=str(out), script=str(script)))
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    deadline = time.monotonic() + 60
    while not (tmp_path / "running").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    call = Call(out / "results-ops-nets-timeline.json")
    running = [path for path in out.rglob("*") if path.is_file()]
    process.send_signal(ending)
    _, said = process.communicate(timeout=20)
    assert process.returncode == (-signal.SIGKILL if ending == signal.SIGKILL else 128 + signal.SIGTERM), said
    assert len(running) == 6  # results twice, the log, the archive, rows and times: eight come back at most
    assert {step: found["ended"] for step, found in call.found().items()} == {
        "preparation": "done",
        "ops": "done",
        "nets": "begun" if ending == signal.SIGKILL else "stopped with the whole call",
    }
    assert call.rows("ops") == [{"name": "ops", "passed": True}] and call.rows("nets") == [
        {"name": "nets", "passed": True}
    ]
    assert call.log.read_text() == "==== ops\nsaid by ops\n==== nets\nsaid by nets\n"
    assert call.detail("costs-ops") == call.detail("costs-nets") == b"1" and call.detail("tile_times.jsonl") == b"times"
    assert "## Ops of whole nets" in call.markdown.read_text()
    deadline = time.monotonic() + 10
    while (left := processes_of(script)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def processes_of(script) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [command for command in found if str(script) in command]


def test_kernels_are_compiled_before_the_first_step_unless_they_were_brought(tmp_path, monkeypatch):
    import tools.gpu.prepare as prepare

    commands = []
    monkeypatch.delenv("LAYERMEM_KERNELS", raising=False)
    monkeypatch.setattr(prepare, "run", lambda command, *others: commands.append((command[-1], others[1])) or 0)
    prepare.Preparation(options(tmp_path, minutes=3), tmp_path)
    name, seconds = commands[-1]
    assert name == "tools.gpu.images" and seconds == pytest.approx(90, abs=5)
    commands.clear()
    prepare.Preparation(options(tmp_path, carried=tmp_path), tmp_path)
    assert "tools.gpu.images" not in dict(commands)


def test_the_preparation_takes_half_of_the_minutes_in_all(tmp_path, monkeypatch):
    """This holds on a bare machine, where layermem._native and the kernels are compiled."""
    import tools.gpu.prepare as prepare

    now, limits = [0.0], {}

    def slow(command, log, seconds, environment=None):
        limits[command[-1]] = seconds
        builds = command[-1] in ("--inplace", "tools.gpu.images")
        now[0] += min(seconds, 1000 if builds else 0.1)
        return None if builds else 1

    monkeypatch.delenv("LAYERMEM_KERNELS", raising=False)
    monkeypatch.setattr(prepare, "run", slow)
    monkeypatch.setattr(prepare, "time", argparse.Namespace(monotonic=lambda: now[0]))
    ready = prepare.Preparation(options(tmp_path, minutes=5.5), tmp_path)
    assert 150 < limits["--inplace"] <= 165 and limits["tools.gpu.images"] == 0
    assert now[0] < 165 + 3 and limits["import rich"] == prepare.LEAST_SECONDS
    assert "it takes more than" in next(row["says"] for row in ready.rows if row["what"] == "native")


def test_a_missing_package_is_a_row_and_ends_nothing(tmp_path, monkeypatch):
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
    assert ready.environment["LAYERMEM_CHECK"] == "off", "training would begin with a self-test of its own"
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


def test_errors_are_listed():
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


# ---- carried files ---------------------------------------------------------------------------------------------------


def test_machine_code_for_other_sources_or_another_gpu_is_not_used(tmp_path, monkeypatch):
    assert "there is no" in carry.misfit(tmp_path, "90")
    digests = {"architecture": "90"} | {module: carry.digest_of(module, "90") for module in carry.module_names()}
    (tmp_path / carry.DIGESTS).write_text(json.dumps(digests))
    assert carry.misfit(tmp_path, "90") == "" and "this GPU is sm_80" in carry.misfit(tmp_path, "80")
    (tmp_path / carry.DIGESTS).write_text(json.dumps(digests | {"pooling": "of another source"}))
    assert "the sources of pooling are others" in carry.misfit(tmp_path, "90")


def test_machine_code_of_every_module_is_compiled_for_one_architecture(tmp_path, monkeypatch):
    class Compiler:
        def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
            return architecture.encode()

    monkeypatch.setattr(carry.build, "find_compiler", Compiler)
    monkeypatch.setattr(carry, "on_all_cores", lambda make, modules: ((module, make(module)) for module in modules))
    names = [*modules(), "ceilings", "ceilings_sm90a"]
    assert carry.kernels(tmp_path, "90") == sum(len(f"sm_{architecture(module, '90')}") for module in names)
    assert carry.misfit(tmp_path, "90") == "" and (tmp_path / "pooling.fatbin").read_bytes() == b"sm_90"
    monkeypatch.setattr(Compiler, "cubin", None)  # a second call has nothing to compile
    assert carry.kernels(tmp_path, "90") > 0 and "this GPU is sm_80" in carry.misfit(tmp_path, "80")
    monkeypatch.setenv("LAYERMEM_KERNELS", str(tmp_path))
    monkeypatch.setattr(own_kernels, "compiled", None)  # which takes a compiler
    assert own_kernels.image(own_kernels.OF_WARPGROUPS, "90", emulated=False) == b"sm_90a"


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
    (tmp_path / "carried" / "native" / f"{name}{prepare.CARRIED}").write_text("")
    assert ready._carried_native() == f"{name} was brought" and (root / "layermem" / name).exists()
    monkeypatch.setattr(ready, "_python", lambda text: 1)
    assert "does not load here" in ready._carried_native() and not (root / "layermem" / name).exists()


def test_git_leaves_out_nothing_that_is_made_for_another_machine(tmp_path, monkeypatch):
    """A rented machine has the files of a checkout that git does not ignore."""

    def built(command: list[str], **options: object) -> None:
        (Path(command[command.index("--build-lib") + 1]) / "_native.cpython-312-x86_64-linux-gnu.so").write_text("")

    class Compiler:
        def cubin(self, *given: object) -> bytes:
            return b""

    monkeypatch.setattr(carry.subprocess, "run", built)
    name = carry.native(tmp_path / "native", "python3.12")
    monkeypatch.undo()
    monkeypatch.setattr(carry.build, "find_compiler", Compiler)
    monkeypatch.setattr(carry, "on_all_cores", lambda make, modules: ((module, make(module)) for module in modules))
    carry.kernels(tmp_path / "kernels", "90")
    assert (tmp_path / "native" / name).exists() and name.startswith("_native.cpython-312-x86_64-linux-gnu.so")
    made = [f"carried/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*") if path.is_file()]
    command = ["git", "check-ignore", *made, "carried/native/x.so"]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert len(made) > len(modules()) and ignored == ["carried/native/x.so"]
