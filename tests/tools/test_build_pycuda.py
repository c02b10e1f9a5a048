"""PyCUDA's build finds its headers and a library to link with, without CUDA; the build itself runs in `make test`."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tools import build_pycuda


@pytest.fixture
def toolkit(tmp_path) -> Path:
    include = tmp_path / "toolkit" / "include"
    include.mkdir(parents=True)
    (include / "cuda.h").write_text(
        "int cuInit(unsigned flags);\n#define cuMemAlloc cuMemAlloc_v2\nint cuMemAlloc(void **p);\n"
    )
    (include / "cudaProfiler.h").write_text("int cuProfilerStart (void);\n")
    return include.parent


def test_the_stub_has_every_function_that_the_headers_declare(toolkit, tmp_path):
    build_pycuda.make_stub(toolkit / "include", tmp_path)
    stub = ctypes.CDLL(str(tmp_path / "libcuda.so"))
    no_device = 100
    assert stub.cuInit(0) == stub.cuMemAlloc_v2(None) == stub.cuProfilerStart() == no_device


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"])
def test_a_toolkit_named_by_the_environment_is_taken(toolkit, tmp_path, monkeypatch, name):
    for other in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, str(toolkit))
    assert build_pycuda.header_folder(tmp_path, None) == toolkit / "include"


def test_other_headers_make_another_wheel(toolkit):
    before = build_pycuda.digest(toolkit / "include")
    (toolkit / "include" / "cuda.h").write_text("int cuInit(unsigned flags);\n")
    assert build_pycuda.digest(toolkit / "include") != before


def test_a_toolkit_without_headers_is_one_sentence(tmp_path):
    command = [sys.executable, build_pycuda.__file__, "--toolkit", str(tmp_path), "--cache", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"build_pycuda: {tmp_path}/include has no cuda.h and cudaProfiler.h\n"
