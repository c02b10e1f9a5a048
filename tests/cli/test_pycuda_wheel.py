"""PyCUDA's build finds its headers and a library to link with, without CUDA; the build itself runs in `make test`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from layermem.backends.cuda.kernel_images.cuda_version import CudaVersion
from layermem.cli import pycuda_wheel
from layermem.errors import InputError


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
    pycuda_wheel.make_stub(toolkit / "include", tmp_path)
    # in a process of its own: once loaded it is this one's libcuda.so.1, for every test behind this
    script = """
import ctypes, sys
stub = ctypes.CDLL(sys.argv[1])
print(stub.cuInit(0), stub.cuMemAlloc_v2(None), stub.cuProfilerStart())
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "libcuda.so"], capture_output=True, text=True)
    assert done.stdout.split() == ["100"] * 3, done.stderr  # no device


CHOSEN = """
from layermem.cli import pycuda_wheel
from layermem.errors import CudaUnavailable
driver = pycuda_wheel.driver_version()
try:
    packages = pycuda_wheel.packages_for(driver)
    print(pycuda_wheel.described(driver), packages.nvrtc, *packages.headers, sep="; ")
except CudaUnavailable as error:
    print(error)
"""
OF_12 = (
    "the driver supports CUDA {}: packages of CUDA 12 are taken, for drivers of branch 525 and later; "
    "nvidia-cuda-nvrtc-cu12==12.9.86; nvidia-cuda-runtime-cu12==12.0.146; nvidia-cuda-profiler-api-cu12==12.0.140"
)
OF_13 = (
    "{}: packages of CUDA 13 are taken, for drivers of branch 580 and later; "
    "nvidia-cuda-nvrtc==13.0.88; nvidia-cuda-runtime==13.0.96; nvidia-cuda-profiler-api==13.0.85"
)
TOO_OLD = (
    "the driver supports CUDA 11.8, and PyCUDA and the kernels need 12.0: update the driver to branch 525 or later"
)


def with_driver(folder: Path, number: int) -> dict[str, str]:
    """The environment of a process whose libcuda.so.1 supports this version of CUDA; 0: there is none."""
    (folder / "stub.c").write_text(f"int cuDriverGetVersion(int* version) {{ *version = {number}; return 0; }}")
    if number:
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1"]
        subprocess.run([*command, folder / "stub.c"], check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


@pytest.mark.samples(5)
@pytest.mark.parametrize(
    "number, said",
    [
        (12040, OF_12.format("12.4")),
        (12000, OF_12.format("12.0")),
        (11080, TOO_OLD),
        (13000, OF_13.format("the driver supports CUDA 13.0")),
        (0, OF_13.format("there is no driver here")),
    ],
)
def test_packages_are_those_of_the_driver(tmp_path, number, said):
    command = [sys.executable, "-c", CHOSEN]
    done = subprocess.run(command, env=with_driver(tmp_path, number), capture_output=True, text=True)
    assert done.stdout.strip() == said, done.stderr


@pytest.mark.parametrize("driver, expected", [((12, 4), "wheels"), ((13, 0), "toolkit"), (None, "toolkit")])
def test_a_toolkit_that_is_newer_than_the_driver_is_taken_only_where_it_is_named(
    toolkit, tmp_path, monkeypatch, driver, expected
):
    header = toolkit / "include" / "cuda.h"
    header.write_text(f"#define CUDA_VERSION 12060\n{header.read_text()}")
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    monkeypatch.setattr(pycuda_wheel, "driver_version", lambda: driver and CudaVersion(*driver))
    monkeypatch.setattr(pycuda_wheel, "toolkit_of_nvcc", list)
    monkeypatch.setattr(pycuda_wheel, "headers_from_wheels", lambda cache, say: Path("wheels"))
    said: list[str] = []
    found = pycuda_wheel.header_folder(tmp_path, None, said.append)
    assert found == (Path("wheels") if expected == "wheels" else toolkit / "include")
    assert ("supports CUDA 12.4: they are not taken" in " ".join(said)) == (expected == "wheels")
    assert pycuda_wheel.header_folder(tmp_path, toolkit) == toolkit / "include"


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"])
def test_a_toolkit_named_by_the_environment_is_taken(toolkit, tmp_path, monkeypatch, name):
    for other in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, str(toolkit))
    assert pycuda_wheel.header_folder(tmp_path, None) == toolkit / "include"


def test_other_headers_make_another_wheel(toolkit):
    before = pycuda_wheel.digest(toolkit / "include")
    (toolkit / "include" / "cuda.h").write_text("int cuInit(unsigned flags);\n")
    assert pycuda_wheel.digest(toolkit / "include") != before


def test_other_flags_of_the_compiler_make_another_wheel(toolkit, monkeypatch):
    monkeypatch.delenv("CXXFLAGS", raising=False)
    plain = pycuda_wheel.digest(toolkit / "include")
    monkeypatch.setenv("CXXFLAGS", " ")
    assert pycuda_wheel.digest(toolkit / "include") == plain
    monkeypatch.setenv("CXXFLAGS", "-O0")
    assert pycuda_wheel.digest(toolkit / "include") != plain


def test_flags_of_the_environment_follow_those_without_debug_information(toolkit, tmp_path, monkeypatch):
    read = []
    monkeypatch.setenv("CXXFLAGS", "-O0")
    monkeypatch.setattr(pycuda_wheel, "unpacked_source", lambda folder, environment: folder / "source")
    monkeypatch.setattr(pycuda_wheel, "join_boost", lambda source: None)
    monkeypatch.setattr(pycuda_wheel, "make_stub", lambda include, folder: None)
    monkeypatch.setattr(
        pycuda_wheel,
        "_run",
        lambda *command, step, environment: read.append(
            (Path(environment["HOME"]) / ".aksetup-defaults.py").read_text()
        ),
    )
    pycuda_wheel.build(toolkit / "include", tmp_path)
    assert "CXXFLAGS = ['-g0', '-w', '-O0']" in read[0].splitlines()


def test_one_file_includes_what_is_compiled_of_boost(tmp_path):
    libraries = tmp_path / "bpl-subset/bpl_subset/libs"
    compiled = ["python/src/object/class.cpp", "python/src/str.cpp", "thread/src/pthread/once.cpp"]
    left_out = ["thread/src/future.cpp", "thread/src/pthread/once_atomic.cpp", "thread/src/win32/thread.cpp"]
    for name in (*compiled, *left_out):
        (libraries / name).parent.mkdir(parents=True, exist_ok=True)
        (libraries / name).write_text("")
    pycuda_wheel.join_boost(tmp_path)
    joined = libraries / "python/joined.cpp"
    included = [line.split('"')[1] for line in joined.read_text().splitlines()]
    assert included == ["../" + name.replace(".cpp", ".ipp") for name in compiled]
    assert all((joined.parent / name).exists() for name in included)
    left = {path.relative_to(libraries).as_posix() for path in libraries.rglob("*.cpp")}
    assert left == {"python/joined.cpp", *left_out}


def test_a_toolkit_without_headers_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"include has no cuda.h and cudaProfiler.h; name .* or leave out --toolkit"):
        pycuda_wheel.cached_wheel(tmp_path / "cache", tmp_path)


def test_without_a_compiler_nothing_is_downloaded_and_the_remedy_is_named(toolkit, tmp_path, monkeypatch):
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"install gcc and g\+\+"):
        pycuda_wheel.cached_wheel(tmp_path / "cache", toolkit)
    assert not list((tmp_path / "cache").rglob("*.whl"))


def test_a_step_that_fails_is_one_sentence_with_the_command_to_repeat(toolkit, tmp_path, monkeypatch):
    (toolkit / "include" / "cuda.h").write_text("#error no such driver\n")
    with pytest.raises(InputError, match=r"reading CUDA's headers failed \(.*no such driver.*\); for .* run `gcc"):
        pycuda_wheel.make_stub(toolkit / "include", tmp_path)


def test_a_wheel_in_the_cache_is_not_built_again(toolkit, tmp_path, monkeypatch):
    built = []

    def build(include, folder):
        built.append(include)
        (folder / "pycuda-1-none-any.whl").touch()

    monkeypatch.setattr(pycuda_wheel, "build", build)
    first, again = (pycuda_wheel.cached_wheel(tmp_path, toolkit) for _ in range(2))
    assert first == again and built == [toolkit / "include"]
