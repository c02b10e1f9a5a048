"""Images that a step needs are compiled side by side before it: what is said, locks between processes, interrupts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layermem.backends.cuda.kernel_images import ahead, build
from layermem.errors import DeviceError
from layermem.utils import processes
from tests.backends.cuda import on_fake_driver
from tests.backends.cuda.test_command import NET, SOLVER
from tests.emulator import fake_driver

SLOW = ("convolution", "normalization")
COMPILE = """
import sys
from layermem.backends.cuda.kernel_images import ahead, build
from layermem.errors import DeviceError
from layermem.utils import processes
ahead.compile_missing(sys.argv[1:], "90")
"""


def settings_of(folder: Path, **settings: object) -> dict[str, str]:
    """The environment of a process with a cache of its own and the fake NVRTC."""
    given = fake_driver.environment(nvrtc_log=folder / "log", **settings)
    given.pop("LAYERMEM_KERNELS", None)
    path = os.pathsep.join([str(fake_driver.nvrtc()), given["PYTHONPATH"]])
    return {**given, "LAYERMEM_CACHE": str(folder / "cache"), "PYTHONPATH": path, "COLUMNS": "200"}


@pytest.fixture
def here(monkeypatch, tmp_path):
    """This process, with a cache of its own and the fake NVRTC, on two cores."""

    def set_up(**settings: object) -> None:
        for name, value in settings_of(tmp_path, **settings).items():
            if name.startswith(("FAKE_NVRTC", "LAYERMEM", "COLUMNS")):
                monkeypatch.setenv(name, value)

    monkeypatch.delenv("LAYERMEM_KERNELS", raising=False)
    monkeypatch.setattr(sys, "path", [str(fake_driver.nvrtc()), *sys.path])
    for module in (ahead, processes):
        monkeypatch.setattr(module, "core_count", lambda: 2)
    build.find_compiler.cache_clear()
    yield set_up
    build.find_compiler.cache_clear()


def begun(folder: Path) -> list[str]:
    """Modules in the order in which they began, each as often as it was compiled."""
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[0] for line in lines if line.endswith("begin")]


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").iterdir())


def test_missing_images_are_compiled_once_at_the_same_time_and_one_line_says_so(here, tmp_path, capsys):
    here(nvrtc_meet=2)  # else they would not end
    ahead.compile_missing(SLOW, "90")
    assert capsys.readouterr() == ("", "compiling 2 kernel modules for sm_90, once: about 15 s\n")
    assert sorted(begun(tmp_path)) == sorted(SLOW)
    assert [build.image(module, "90") for module in SLOW] == [f"{module} sm_90".encode() for module in SLOW]
    ahead.compile_missing([*SLOW, "softmax"], "90")
    assert capsys.readouterr().err == "" and len(kept(tmp_path)) == len(begun(tmp_path)) == 2
    assert build.image("softmax", "90") == b"softmax sm_90"  # a small one, where it is loaded


def test_where_one_does_not_report_nothing_is_said(here, tmp_path, capsys):
    here()
    ahead.compile_missing(["activation"], "90", reports_progress=False)
    assert capsys.readouterr().err == "" and begun(tmp_path) == ["activation"]


def test_what_the_compiler_refuses_is_an_error(here, tmp_path, monkeypatch):
    here(nvrtc_refuses="normalization")
    monkeypatch.setattr(build.Nvcc, "find", classmethod(lambda cls, suits: None))
    monkeypatch.setattr(ahead, "on_all_cores", lambda make, modules: [(module, make(module)) for module in modules])
    with pytest.raises(DeviceError, match=r"NVRTC cannot compile .* for sm_90: normalization.cu\(1\): error: refused"):
        ahead.compile_missing(["normalization"], "90")
    assert not kept(tmp_path)


def test_without_a_cache_images_are_compiled_where_they_are_loaded(here, tmp_path, capsys):
    here()
    (tmp_path / "cache").write_text("no folder")
    ahead.compile_missing(SLOW, "90")
    assert not begun(tmp_path) and capsys.readouterr().err == ""
    assert build.image("convolution", "90") == b"convolution sm_90"


def test_a_process_waits_for_what_another_one_compiles_and_takes_its_image(here, tmp_path):
    here()
    path = ahead.missing_images(["convolution"], "90")["convolution"]
    with build.locked(path) as is_mine, build.locked(path, wait=False) as is_mine_again:
        assert is_mine and not is_mine_again
        script = [sys.executable, "-c", COMPILE, *SLOW]
        process = subprocess.Popen(script, env=settings_of(tmp_path), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        assert said[0] == "compiling 1 kernel module for sm_90, once: about 6 s\n"
        assert said[1] == "waiting for 1 kernel module that another process compiles\n"
        path.write_bytes(b"of this process")
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    assert begun(tmp_path) == ["normalization"] and build.image("convolution", "90") == b"of this process"
    assert len(kept(tmp_path)) == 2  # no lock


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_nothing_half_written_and_no_lock(here, tmp_path, kind):
    here()
    seconds = " ".join(f"{module}=20" for module in SLOW)  # after which processes end that are left
    environment, error = settings_of(tmp_path, nvrtc_seconds=seconds), tmp_path / "stderr"
    with error.open("w") as file:
        process = subprocess.Popen([sys.executable, "-c", COMPILE, *SLOW], env=environment, stderr=file)
    began = time.monotonic()
    while not begun(tmp_path):
        assert process.poll() is None and time.monotonic() - began < 300
        time.sleep(0.01)
    process.send_signal(kind)
    assert process.wait(timeout=60) and ("KeyboardInterrupt" in error.read_text()) == (kind == signal.SIGINT)
    assert all(name.endswith(".lock") for name in kept(tmp_path))
    path = ahead.missing_images(SLOW, "90")["convolution"]
    with build.locked(path, wait=False) as is_mine:
        assert is_mine


@pytest.mark.parametrize(
    "modules, cores, seconds",
    [(["pooling"], 2, 2), (["convolution_tf32", "pooling"], 2, 34), (["convolution_tf32", "convolution"], 1, 48)],
)
def test_the_expected_time_is_that_of_the_longest_module_or_of_the_share_of_a_core(modules, cores, seconds):
    assert ahead.expected_seconds(modules, cores) == seconds


@pytest.mark.whole
def test_a_first_training_says_once_how_long_its_kernels_take(tmp_path):
    """The compiler returns the kernels of the emulator."""
    (tmp_path / "net.prototxt").write_text(NET.format())
    (tmp_path / "solver.prototxt").write_text(SOLVER.replace("net.prototxt", str(tmp_path / "net.prototxt")))
    words = ["-m", "layermem", "train", "--solver", str(tmp_path / "solver.prototxt"), "--device", "cuda"]
    environment = settings_of(tmp_path, nvrtc_images=on_fake_driver.kernels())
    runs = [
        subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    modules = begun(tmp_path)
    assert len(modules) == len(set(modules)) and "convolution" in modules
    said = re.findall(r"compiling (\d+) kernel modules for sm_90, once: about \d+ s", runs[0].stderr)
    assert len(said) == 1 and 4 <= int(said[0]) <= len(modules)  # a small one may be loaded apart
    assert "compiling" not in runs[1].stderr
    losses = [re.findall("loss = [0-9.]+", run.stdout) for run in runs]
    assert losses[0] == losses[1] and losses[0]
