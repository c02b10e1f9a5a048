"""`layermem setup-cuda` builds and installs what is missing, and says each step; `make test` runs the build itself."""

from pathlib import Path

import pytest

from layermem.backends.cuda import pycuda_wheel
from layermem.backends.cuda.driver.context import PYCUDA_MISSING
from layermem.errors import InputError


@pytest.fixture
def machine(monkeypatch):
    """A machine without PyCUDA, NVRTC or nvcc; the list of what is installed on it."""
    done = []

    def build(cache, toolkit, say):
        say("compiling PyCUDA")
        return Path(cache) / "pycuda-2026.1-cp311.whl"

    monkeypatch.setattr(pycuda_wheel, "installed", lambda: "2026.1" if done else None)
    monkeypatch.setattr(pycuda_wheel, "compiles_kernels", lambda: pycuda_wheel.NVRTC in done)
    monkeypatch.setattr(pycuda_wheel, "cached_wheel", build)
    monkeypatch.setattr(pycuda_wheel, "install", done.append)
    return done


def test_what_is_missing_is_installed_once(layermem, machine, tmp_path):
    first = layermem("setup-cuda", "--cache", tmp_path)
    assert first.code == 0 and "compiling PyCUDA" in first.out and "PyCUDA 2026.1 is installed" in first.out
    assert machine == [str(tmp_path / "pycuda-2026.1-cp311.whl"), pycuda_wheel.NVRTC]
    again = layermem("setup-cuda", "--cache", tmp_path)
    assert again.code == 0 and again.out.startswith("PyCUDA 2026.1 is installed") and len(machine) == 2


def test_a_wheel_only_is_built_and_not_installed(layermem, machine, tmp_path):
    ended = layermem("setup-cuda", "--wheel-only", "--cache", tmp_path)
    assert ended.out.splitlines()[-1] == str(tmp_path / "pycuda-2026.1-cp311.whl") and not machine


def test_a_step_that_fails_is_one_sentence(layermem, machine, monkeypatch):
    def build(cache, toolkit, say):
        raise InputError("PyCUDA is compiled, which needs a C and a C++ compiler; install gcc and g++")

    monkeypatch.setattr(pycuda_wheel, "cached_wheel", build)
    ended = layermem("setup-cuda")
    assert ended.code == 2 and "install gcc and g++" in ended.sentence and not machine


def test_the_cuda_device_names_the_verb():
    assert "`layermem setup-cuda`" in PYCUDA_MISSING
