"""Builds a PyCUDA wheel for this Python, even on a machine without CUDA, and installs it.

PyCUDA compiles against two headers of the CUDA toolkit and links with the driver's library.  The headers come from the
toolkit that the user names, that CUDA_HOME or CUDA_PATH names or whose nvcc is on the PATH, or from two of NVIDIA's
Python wheels.  They must not be newer than the driver, which would lack functions; so these wheels, and the wheel of
the kernel compiler, belong to the driver's major version of CUDA (PACKAGES).  The library is a generated stub with
every function that the headers declare; the real one, or the fake driver of tests/emulator/, replaces it when PyCUDA is
imported.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from layermem.backends.cuda.kernel_images.build import find_compiler
from layermem.backends.cuda.kernel_images.cuda_version import CudaVersion, driver_version
from layermem.errors import CudaUnavailable, InputError
from layermem.utils.text import printable

VERSION = "2026.1"
HEADERS = ("cuda.h", "cudaProfiler.h")
CONFIGURATION = ("CUDA_ENABLE_CURAND = False", "CUDA_ENABLE_GL = False")
HEADERS_PLATFORM = "manylinux2014_x86_64"  # the platform with the oldest wheels; headers are the same on all
Say = Callable[[str], None]


class Packages(NamedTuple):
    """NVIDIA's Python packages for drivers of CUDA `cuda` and later: all drivers of a major version load machine code
    of its compilers, and have the functions of its oldest headers."""

    cuda: CudaVersion
    branch: int  # driver branch of the first of these drivers
    nvrtc: str
    headers: tuple[str, str]  # packages with one header each


PACKAGES = (
    Packages(
        CudaVersion(13, 0),
        580,
        "nvidia-cuda-nvrtc==13.0.88",
        ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-profiler-api==13.0.85"),
    ),
    Packages(
        CudaVersion(12, 0),
        525,
        "nvidia-cuda-nvrtc-cu12==12.9.86",
        ("nvidia-cuda-runtime-cu12==12.0.146", "nvidia-cuda-profiler-api-cu12==12.0.140"),
    ),
)


def packages_for(driver: CudaVersion | None) -> Packages:
    """The packages that suit the driver; the newest without a driver.  CudaUnavailable if it is too old."""
    suitable = (each for each in PACKAGES if driver is None or each.cuda <= driver)
    found = next(suitable, None)
    if found is None:
        oldest = PACKAGES[-1]
        raise CudaUnavailable(
            f"the driver supports CUDA {driver}, and PyCUDA and the kernels need {oldest.cuda}: update the driver to "
            f"branch {oldest.branch} or later"
        )
    return found


def described(driver: CudaVersion | None) -> str:
    """A sentence about the selected packages and the reason."""
    packages = packages_for(driver)
    why = f"the driver supports CUDA {driver}" if driver is not None else "there is no driver here"
    return f"{why}: packages of CUDA {packages.cuda.major} are taken, for drivers of branch {packages.branch} and later"


def installed() -> str | None:
    """The version of PyCUDA in this Python; None without one."""
    if importlib.util.find_spec("pycuda") is None:
        return None
    try:
        return importlib.metadata.version("pycuda")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def suits_driver() -> bool:
    """Whether the driver has all functions that the installed PyCUDA was built for; true without a driver."""
    done = subprocess.run([sys.executable, "-c", "import pycuda.driver"], capture_output=True, text=True)
    return "undefined symbol" not in done.stderr


def compiles_kernels() -> bool:
    """Whether there is an NVRTC or nvcc whose code the driver loads, to compile kernels at first use."""
    try:
        find_compiler()
    except CudaUnavailable:
        return False
    return True


def install(package: str) -> None:
    """Install a wheel, or a package of the index, with its dependencies into this Python.  A wheel replaces an
    installed one of the same version, which may have been built with other headers."""
    step = f"installing {Path(package).name}"
    _run(*_pip(), "install", "-q", package, step=step)
    if package.endswith(".whl"):
        _run(*_pip(), "install", "-q", "--force-reinstall", "--no-deps", package, step=step)
    importlib.invalidate_caches()
    find_compiler.cache_clear()


def default_cache() -> Path:
    """The default folder of headers and wheels."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "layermem" / "pycuda"


def cached_wheel(cache: Path, toolkit: Path | None, say: Say = lambda step: None) -> Path:
    """The wheel for this Python and these headers, built unless it is in the cache; one builder at a time.

    `say` is called with each step that takes time, before it starts.  InputError if something is missing or fails.
    """
    cache = Path(os.path.realpath(cache))
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = open(cache / "lock", "w")  # noqa: SIM115 - closed below, with the lock
    except OSError as error:
        raise InputError(
            f"cannot write to '{cache}' ({error.strerror}); name another folder with --cache DIR"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        include = header_folder(cache, toolkit, say)
        folder = cache / f"{sys.implementation.cache_tag}-{digest(include)}"
        wheels = list(folder.glob("pycuda-*.whl"))
        if not wheels:
            compiler("CXX", "g++", "c++")  # fail before minutes of work
            say(f"compiling PyCUDA {VERSION} against {include}: one or two minutes")
            folder.mkdir(exist_ok=True)
            build(include, folder)
            wheels = list(folder.glob("pycuda-*.whl"))
        return wheels[0]


def header_folder(cache: Path, toolkit: Path | None, say: Say = lambda step: None) -> Path:
    """A folder with the driver's headers, from a toolkit or from NVIDIA's wheels."""
    if toolkit is not None and not has_headers(toolkit / "include"):
        raise InputError(
            f"{toolkit}/include has no {' and '.join(HEADERS)}; name the folder of a CUDA toolkit, or leave out "
            "--toolkit to use NVIDIA's wheels"
        )
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT") if os.environ.get(name)]
    for root in [toolkit] if toolkit is not None else [*named, *toolkit_of_nvcc()]:
        if has_headers(root / "include") and (toolkit is not None or not is_too_new(root / "include", say)):
            return root / "include"
    return headers_from_wheels(cache, say)


def is_too_new(include: Path, say: Say) -> bool:
    """Whether the headers have functions that the driver lacks; not checked for a toolkit that the user names."""
    driver = driver_version()
    written = re.search(
        r"^#define CUDA_VERSION (\d+)$", (include / HEADERS[0]).read_text(errors="replace"), re.MULTILINE
    )
    if driver is None or written is None or CudaVersion.of_number(int(written[1])) <= driver:
        return False
    say(f"the headers of {include} are newer than the driver, which supports CUDA {driver}: they are not taken")
    return True


def has_headers(folder: Path) -> bool:
    return all((folder / name).exists() for name in HEADERS)


def toolkit_of_nvcc() -> list[Path]:
    """The toolkit that nvcc itself reports: the nvcc on the PATH may be a script elsewhere."""
    if shutil.which("nvcc") is None:
        return []
    report = subprocess.run(["nvcc", "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True).stderr
    return [Path(root).resolve() for root in re.findall(r"^#\$ TOP=(.+)$", report, re.MULTILINE)]


def headers_from_wheels(cache: Path, say: Say) -> Path:
    driver = driver_version()
    wheels = packages_for(driver).headers
    folder = cache / " ".join(wheels).replace("==", "-").replace(" ", "+")
    say(described(driver))
    if not has_headers(folder):
        say(f"downloading {' and '.join(wheels)}, for their headers")
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            wanted = ["--no-deps", "--only-binary=:all:", "--platform", HEADERS_PLATFORM, "-d", temporary, *wheels]
            _run(*_pip(), "download", "-q", *wanted, step="downloading NVIDIA's headers")
            for wheel in Path(temporary).glob("*.whl"):
                unpack_headers(wheel, folder)
    if not has_headers(folder):
        raise InputError(
            f"{' and '.join(wheels)} do not hold {' and '.join(HEADERS)}; name a CUDA toolkit with --toolkit DIR"
        )
    return folder


def unpack_headers(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.rpartition("/")[2] in HEADERS:
                (folder / name.rpartition("/")[2]).write_bytes(archive.read(name))


def digest(include: Path) -> str:
    hashed = hashlib.sha256(" ".join((VERSION, *CONFIGURATION, *extra_flags())).encode())
    for name in HEADERS:
        hashed.update((include / name).read_bytes())
    return hashed.hexdigest()[:12]


def extra_flags() -> list[str]:
    """CXXFLAGS of the environment, as for every C++ extension."""
    return os.environ.get("CXXFLAGS", "").split()


def build(include: Path, folder: Path) -> None:
    """Build the wheel in `folder`.

    PyCUDA's setup.py reads its configuration from a file in $HOME, so it runs with a temporary $HOME; pip keeps the
    user's configuration.  Its flags follow Python's own flags in every command; the position of flags in the
    environment depends on the version of setuptools.
    """
    with tempfile.TemporaryDirectory() as temporary:
        user_folder = Path(temporary)
        make_stub(include, user_folder)
        lines = [f"CUDA_INC_DIR = [{str(include)!r}]", f"CUDADRV_LIB_DIR = [{temporary!r}]", *CONFIGURATION]
        lines.append(f"CXXFLAGS = {['-g0', '-w', *extra_flags()]}")
        (user_folder / ".aksetup-defaults.py").write_text("\n".join(lines) + "\n")
        user = Path.home()
        environment = {
            **os.environ,
            "HOME": temporary,
            "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(user / ".config")),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(user / ".cache")),
        }
        source = unpacked_source(user_folder, environment)
        join_boost(source)
        command = [*_pip(), "wheel", "-q", "-w", str(folder), *_build_options(), str(source)]
        _run(*command, environment=environment, step="compiling PyCUDA")


def unpacked_source(folder: Path, environment: dict[str, str]) -> Path:
    """The folder with PyCUDA's source, which is downloaded into `folder`."""
    wanted = [*_build_options(), "--no-binary", "pycuda", "-d", str(folder), f"pycuda=={VERSION}"]
    _run(*_pip(), "download", "-q", *wanted, environment=environment, step="downloading PyCUDA")
    (archive,) = folder.glob("pycuda-*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def join_boost(source: Path) -> None:
    """Include all Boost sources of PyCUDA from one file: they are 34 small files, whose headers take nearly all the
    time.

    PyCUDA's setup.py compiles every .cpp below libs/, but only the POSIX files of Boost.Thread.
    """
    libraries = source / "bpl-subset" / "bpl_subset" / "libs"
    lines = []
    for path in sorted(libraries.rglob("*.cpp")):
        if path.is_relative_to(libraries / "thread") and (path.parent.name != "pthread" or path.stem == "once_atomic"):
            continue
        part = path.rename(path.with_suffix(".ipp"))
        lines.append(f'#include "../{part.relative_to(libraries)}"\n')
    (libraries / "python" / "joined.cpp").write_text("".join(lines))


def _build_options() -> list[str]:
    """Options to build PyCUDA alone, with the installed build packages if all exist; else pip downloads them."""
    present = all(importlib.util.find_spec(name) for name in ("setuptools", "wheel", "numpy"))
    return ["--no-deps", "--no-cache-dir", *(["--no-build-isolation"] if present else [])]


def make_stub(include: Path, folder: Path) -> None:
    """Make a libcuda.so whose functions all return the error for a missing device."""
    headers = "".join(f"#include <{name}>\n" for name in HEADERS)
    command = [compiler("CC", "gcc", "cc"), "-E", f"-I{include}", "-x", "c", "-"]
    declared = _run(*command, given=headers, step="reading CUDA's headers")
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", declared)))
    source = folder / "stub.c"
    source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
    flags = ("-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1")
    out = str(folder / "libcuda.so")
    _run(compiler("CC", "gcc", "cc"), *flags, str(source), "-o", out, step="compiling a stub of the driver")


def compiler(variable: str, *names: str) -> str:
    """The compiler that the environment names in `variable`, or the first existing one of `names`."""
    for name in filter(None, (os.environ.get(variable), *names)):
        if shutil.which(name):
            return name
    raise InputError("PyCUDA is compiled, which needs a C and a C++ compiler; install gcc and g++")


def _pip() -> list[str]:
    if PathFinder.find_spec("pip") is None:  # avoids the hook of setuptools, which warns if distutils is imported
        raise InputError(f"{sys.executable} has no pip; install it with `{sys.executable} -m ensurepip`")
    return [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def _run(*command: str, step: str, given: str | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        said = next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), "no output")
        shown = " ".join(command)
        raise InputError(f"{step} failed ({printable(said.strip())}); for the whole output run `{shown}`")
    return done.stdout
