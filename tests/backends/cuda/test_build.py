"""Kernel images: their sources in order, the cache, and the errors where there is none."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import stat
import struct
import sys
from fnmatch import fnmatchcase

import pytest
from setuptools import Distribution

from layermem.backends.cuda.driver import context as driver
from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.cuda_version import CudaVersion
from layermem.backends.cuda.kernel_images.nvrtc import Nvrtc
from layermem.backends.cuda.kernel_images.sources import SOURCES, closure, modules
from layermem.backends.cuda.kernel_images.toolkit import program
from layermem.errors import CudaUnavailable, DeviceError
from tests.emulator import fake_driver

FIND_COMPILER = build.find_compiler


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """A cache of one's own, and no prebuilt kernels."""
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LAYERMEM_KERNELS", raising=False)
    FIND_COMPILER.cache_clear()
    yield
    FIND_COMPILER.cache_clear()


class Fake:
    """A compiler that answers with what it was asked."""

    version = "fake 1"

    def __init__(self, capabilities=(), refuses="", cuda=(13, 0)):
        self.asked, self.capabilities, self.refuses, self.cuda = 0, capabilities, refuses, CudaVersion(*cuda)

    def cubin(self, source, architecture, flags):
        self.asked += 1
        if self.refuses:
            raise DeviceError(self.refuses)
        return f"{architecture} {' '.join(flags)} {len(source)}".encode()

    ptx = cubin


@pytest.fixture
def fake(monkeypatch):
    compiler = Fake()
    monkeypatch.setattr(build, "find_compiler", lambda: compiler)
    return compiler


def test_an_image_is_compiled_once_for_each_gpu_and_source(fake):
    first = build.image("dropout", "90")
    assert first.startswith(b"sm_90 --std=c++17 --fmad=false ")
    assert build.image("dropout", "90") == first and fake.asked == 1
    assert build.image("dropout", "80") != first and fake.asked == 2
    fake.version = "fake 2"
    build.image("dropout", "90")
    assert fake.asked == 3


def test_what_the_first_compiler_refuses_the_second_compiles():
    refuses, compiles = Fake(refuses="of the first"), Fake()
    assert build.WithFallback(refuses, compiles).cubin("int x;", "sm_90", ()) == b"sm_90  6"
    assert build.WithFallback(refuses, compiles).ptx("int x;", "compute_90", ()) == b"compute_90  6"
    assert build.WithFallback(Fake(), compiles).cubin("int x;", "sm_90", ()) and compiles.asked == 2
    for make in ("cubin", "ptx"):
        with pytest.raises(DeviceError, match="of the first"):
            getattr(build.WithFallback(refuses, Fake(refuses="of the second")), make)("int x;", "sm_90", ())


def test_a_gpu_newer_than_the_compiler_gets_ptx_of_the_newest_architecture_before_it(fake):
    fake.capabilities = (80, 90, 100, 120)
    assert build.image("dropout", "90").startswith(b"sm_90 ")
    assert build.image("dropout", "110").startswith(b"compute_100 ")
    assert build.image("dropout", "130").startswith(b"compute_120 ")
    with pytest.raises(CudaUnavailable, match="left out compute capability 75"):
        build.image("dropout", "75")


def test_a_cache_that_cannot_be_written_costs_time_only(fake, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "file" / "cache"))
    assert build.image("dropout", "90") == build.image("dropout", "90")
    assert fake.asked == 2


def test_prebuilt_kernels_come_first(fake, monkeypatch, tmp_path):
    (tmp_path / "dropout.fatbin").write_bytes(b"made before")
    monkeypatch.setenv("LAYERMEM_KERNELS", str(tmp_path))
    assert build.image("dropout", "90") == b"made before" and fake.asked == 0
    assert build.image("pooling", "90").startswith(b"sm_90") and fake.asked == 1


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    has_compilers(monkeypatch)
    with pytest.raises(CudaUnavailable, match="`layermem setup-cuda` installs NVRTC, or put nvcc on the PATH"):
        build.image("dropout", "90")


def has_compilers(monkeypatch, *, nvrtc=(), nvcc=(), driver=None):
    """This machine has compilers of these versions of CUDA, and a driver."""

    def found(cudas):
        compilers = [Fake(cuda=each) for each in cudas]
        return classmethod(
            lambda cls, suits=lambda cuda: True: next((each for each in compilers if suits(each.cuda)), None)
        )

    monkeypatch.setattr(build.Nvrtc, "find", found(nvrtc))
    monkeypatch.setattr(build.Nvcc, "find", found(nvcc))
    monkeypatch.setattr(build, "driver_version", lambda: driver and CudaVersion(*driver))


@pytest.mark.parametrize(
    "nvrtc, nvcc, driver, expected",
    [
        ([(13, 0)], [], None, (13, 0)),
        ([(13, 0)], [], (13, 0), (13, 0)),
        ([(13, 2)], [], (13, 0), (13, 2)),  # machine code of a minor version is taken by all drivers of the major one
        ([(13, 0), (12, 9)], [], (12, 0), (12, 9)),
        ([(12, 9), (13, 0)], [], (13, 0), (12, 9)),  # the first one that suits
        ([(13, 0)], [(12, 4)], (12, 8), (12, 4)),
        ([(12, 4)], [(13, 0)], (12, 8), (12, 4)),
    ],
)
def test_a_compiler_is_chosen_whose_code_the_driver_loads(monkeypatch, nvrtc, nvcc, driver, expected):
    has_compilers(monkeypatch, nvrtc=nvrtc, nvcc=nvcc, driver=driver)
    assert build.find_compiler().cuda == expected


@pytest.mark.parametrize("newer", [{"nvrtc": [(13, 0)]}, {"nvcc": [(13, 0)]}])
def test_a_compiler_that_is_too_new_is_an_error_with_both_versions(monkeypatch, newer):
    has_compilers(monkeypatch, **newer, driver=(12, 4))
    says = "compiler of CUDA 13.0 makes kernels for drivers of CUDA 13.0 or later, .* 12.4: `layermem setup-cuda`"
    with pytest.raises(CudaUnavailable, match=says):
        build.image("dropout", "90")


def test_ptx_is_made_only_for_a_driver_that_takes_it(fake, monkeypatch):
    fake.capabilities, fake.cuda = (80, 90), CudaVersion(12, 9)
    monkeypatch.setattr(build, "driver_version", lambda: CudaVersion(12, 4))
    assert build.image("dropout", "90").startswith(b"sm_90 ")
    with pytest.raises(CudaUnavailable, match=r"its PTX is for drivers of CUDA 12.9 or later; this one supports 12.4"):
        build.image("dropout", "100")


def test_the_version_of_the_driver_needs_no_context():
    script = "from layermem.backends.cuda.kernel_images.cuda_version import driver_version; print(driver_version())"
    for number, version in ((12040, "12.4"), (13000, "13.0"), (0, "None")):
        assert fake_driver.run(script, version=number).stdout.strip() == version


def test_a_gpu_that_is_too_old_is_refused(fake):
    with pytest.raises(CudaUnavailable, match="compute capability 70"):
        build.image("dropout", "70")


@pytest.mark.skipif(build.Nvcc.find() is None, reason="nvcc is not here: pip install nvidia-cuda-nvcc")
def test_nvcc_compiles_a_module_and_says_what_is_wrong_with_another():
    nvcc = build.Nvcc.find()
    assert nvcc is not None and nvcc.cubin(build.whole_source("dropout"), "sm_90", build.FLAGS)[:4] == b"\x7fELF"
    with pytest.raises(DeviceError, match="expected"):
        nvcc.cubin("int x", "sm_90", ())


# What nvcc takes as it is and NVRTC only with its options: a generic lambda, called by a device function.
LAMBDAS = """
template <class F>
__device__ float both(F f) { return f(1.0f) + f(2); }
extern "C" __global__ void kernel(float* y) {
    float sum = 0.0f;
    auto term = [&](auto x) { sum += x; return sum; };
    *y = both(term);
}
"""


@pytest.mark.skipif(Nvrtc.find() is None, reason="NVRTC is not installed")
def test_nvrtc_compiles_modules_and_says_what_is_wrong_with_another():
    nvrtc = Nvrtc.find()
    assert nvrtc is not None
    for module in ("dropout", "shape"):
        assert nvrtc.cubin(build.whole_source(module), "sm_90", build.FLAGS)[:4] == b"\x7fELF"
    ptx = nvrtc.ptx(LAMBDAS, "compute_90", build.FLAGS)
    assert ptx.count(b".entry") == 1 and ptx.endswith(b"\0") and {75, 90} <= set(nvrtc.capabilities)
    with pytest.raises(DeviceError, match="expected"):
        nvrtc.cubin("int x", "sm_90", ())


def test_a_whole_source_needs_no_other_file():
    for module in modules():
        text = build.whole_source(module)
        assert "#include" not in text and "#pragma once" not in text
        assert text.count("namespace lm {") >= 1 and f'#line 1 "{module}.cu"' in text


def test_every_module_has_its_head_comment():
    for path in sorted(SOURCES.glob("*.cu*")):
        assert path.read_text(encoding="utf-8").startswith("// "), path.name


DEFINES_KERNELS = ("element.cuh", "primitives.cuh")  # by macros, without one of their own
WITH_KERNELS = [
    path
    for path in sorted(SOURCES.glob("*.cu*"))
    if path.name not in DEFINES_KERNELS and re.search(r"LM_KERNEL(_\w+)?\(", path.read_text(encoding="utf-8"))
]


KERNEL = re.compile(r"LM_(?:KERNEL|KERNEL_OF_ELEMENTS|DIRECT)\((\w[\w#]*)")
LAUNCH = re.compile(r"launch\b.*?(\bgrid\b.*\bblock\b|pointwise\.cuh|\bas \w+_\w+)", re.DOTALL)


def kernels_in(source: str) -> set[str]:
    """Names of the kernels of a file, without what access and element type add; what macros insert is a *."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("//", "#define LM_DIRECT"))]
    names = {name for name in KERNEL.findall("\n".join(lines)) if name != "name" and not name.startswith("name##_bf")}
    names -= {"name##_fp16"}
    return {re.sub(r"(_v(\d+|\*)|_bf16|_fp16)+$", "", re.sub(r"#*\b(name|tile|V)\b#*|##", "*", name)) for name in names}


def without_head(source: str) -> list[str]:
    """The kernels that no comment with a launch and a shape names."""
    comments = re.findall(r"(?:^ *//.*\n)+", source, re.MULTILINE)
    heads = [each for each in comments if LAUNCH.search(each) and re.search(r"\[.+\]|no blob", each)]
    words = {word for head in heads for word in re.findall(r"[\w*]{4,}", head) if word.strip("*")}
    return sorted(name for name in kernels_in(source) if not any(fnmatchcase(name, word) for word in words))


@pytest.mark.parametrize("path", WITH_KERNELS, ids=lambda path: path.name)
def test_a_comment_states_the_shapes_and_the_launch_of_each_kernel(path):
    assert not without_head(path.read_text(encoding="utf-8"))


def test_a_kernel_without_such_a_comment_is_found():
    head = "// fill: y [count] written     launch   grid ceil(count / 256), block 256\n"
    kernels = "LM_KERNEL(fill, Args, p, 256) {}\nLM_KERNEL_OF_ELEMENTS(fill_all_v4, Args, 256, of)\n"
    assert without_head(head + kernels) == ["fill_all"] and without_head(kernels) == ["fill", "fill_all"]
    assert without_head(head.replace("[count] ", "") + kernels) == ["fill", "fill_all"]  # no shape


@pytest.mark.parametrize("path", WITH_KERNELS, ids=lambda path: path.name)
def test_comments_state_launch_traffic_assumptions_and_source_of_the_kernels(path):
    text = path.read_text(encoding="utf-8")
    missing = [word for word in ("launch", "traffic", "assumes", "source") if not re.search(rf"//\s+{word}\s", text)]
    assert not missing


def test_without_pycuda_the_error_says_how_to_get_it(monkeypatch):
    driver.pycuda.cache_clear()
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(CudaUnavailable, match="`layermem setup-cuda` builds and installs it"):
        driver.pycuda()


def test_the_toolkit_s_programs_are_found_on_the_path_in_a_named_toolkit_and_in_packages(monkeypatch, tmp_path):
    def put(folder: str) -> str:
        path = tmp_path / folder / "lm-nvcc"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    package, named, on_path = put("site/nvidia/cu13/bin"), put("toolkit/bin"), put("bin")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert program("lm-nvcc") is None
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert program("lm-nvcc") == package
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert program("lm-nvcc") == named
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert program("lm-nvcc") == on_path


@pytest.mark.parametrize(
    "driver_module, words",
    [
        ("import pycuda._driver", r"built for another Python than \d+\.\d+"),
        ("raise ImportError('x.so: undefined symbol: cuCtxCreate_v4')", "newer CUDA than this driver"),
        (  # PyCUDA itself warns of this one
            "import warnings\nwarnings.warn('the version does not match')\n"
            "raise ImportError('x.so: undefined symbol: cuArrayCreate_v2')",
            "newer CUDA than this driver",
        ),
        ("raise ImportError('libcuda.so.1: cannot open shared object file')", "NVIDIA's driver is not .*--device cpu"),
    ],
)
def test_a_pycuda_that_cannot_be_used_says_why(monkeypatch, tmp_path, driver_module, words):
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").write_text("")
    (tmp_path / "pycuda" / "driver.py").write_text(driver_module)
    monkeypatch.syspath_prepend(tmp_path)
    modules_before = dict(sys.modules)
    for name in [name for name in sys.modules if name.split(".")[0] == "pycuda"]:
        del sys.modules[name]
    driver.pycuda.cache_clear()
    try:
        with pytest.raises(CudaUnavailable, match=words):
            driver.pycuda()
    finally:
        sys.modules.clear()
        sys.modules.update(modules_before)


@pytest.mark.whole
@pytest.mark.skipif(build.Nvcc.find() is None, reason="nvcc is not here: pip install nvidia-cuda-nvcc")
def test_setup_prebuilds_a_module_for_every_architecture_and_as_ptx_for_later_ones(monkeypatch, tmp_path):
    monkeypatch.setattr("setuptools.setup", lambda **settings: None)
    monkeypatch.chdir(SOURCES.parent)
    setup = runpy.run_path("setup.py")
    for path in closure("dropout"):
        shutil.copy(path, tmp_path)
    setup["fatbin"](build.Nvcc.find().path, tmp_path / "dropout.cu")
    parts = parts_of_fatbin((tmp_path / "dropout.fatbin").read_bytes())
    assert parts == {*(("code", int(a)) for a in setup["ARCHITECTURES"]), ("PTX", 100), ("PTX", 120)}
    (tmp_path / "dropout.cu").write_text("int x")
    setup["fatbin"](build.Nvcc.find().path, tmp_path / "dropout.cu")  # says so, and leaves nothing that would be loaded
    assert not (tmp_path / "dropout.fatbin").exists()


@pytest.mark.parametrize(("wanted", "made"), [(None, False), ("0", False), ("1", True)])
def test_setup_prebuilds_modules_only_where_asked_to(monkeypatch, tmp_path, wanted, made):
    monkeypatch.setattr("setuptools.setup", lambda **settings: None)
    monkeypatch.setattr("setuptools.command.build_py.build_py.run", lambda command: None)
    monkeypatch.chdir(SOURCES.parent)
    monkeypatch.delenv("LAYERMEM_FATBINS", raising=False)
    if wanted is not None:
        monkeypatch.setenv("LAYERMEM_FATBINS", wanted)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\nfor last; do :; done\ntouch "$last"\n')  # the last word is the file to write
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    command = runpy.run_path("setup.py")["build_data"](Distribution())
    command.build_lib = str(tmp_path / "lib")
    command.run()
    kernels = tmp_path / "lib" / "layermem" / "cuda_kernels"
    assert len([*kernels.glob("*.cu")]) > 20
    assert bool([*kernels.glob("*.fatbin")]) is made
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    if made:
        with pytest.raises(SystemExit, match="LAYERMEM_FATBINS needs nvcc on the PATH"):
            command.run()


def parts_of_fatbin(data: bytes) -> set[tuple[str, int]]:
    """Kind and architecture of each part, from the headers that the driver reads."""
    magic, _, header, size = struct.unpack_from("<IHHQ", data)
    assert magic == 0xBA55ED50 and header + size == len(data)
    at, found = header, set()
    while at < len(data):
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        (architecture,) = struct.unpack_from("<I", data, at + 28)
        found.add(({1: "PTX", 2: "code"}[kind], architecture))
        at += header + size
    return found


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no modes of folders")
def test_a_cache_that_others_can_write_to_is_ignored(fake, tmp_path):
    first = build.image("dropout", "90")
    (cached,) = (tmp_path / "cache").iterdir()
    assert stat.S_IMODE(cached.parent.stat().st_mode) == 0o700
    cached.write_bytes(b"foreign kernels")
    for mode, expected, asked in ((0o700, b"foreign kernels", 1), (0o720, first, 2), (0o702, first, 3)):
        cached.parent.chmod(mode)
        assert build.image("dropout", "90") == expected and fake.asked == asked
    assert cached.read_bytes() == b"foreign kernels"
