"""Builds a PyCUDA wheel, also on a machine without CUDA, and installs it.

    python tools/build_pycuda.py              builds for this Python (about a minute, once) and prints the wheel's path
    python tools/build_pycuda.py --install    installs it into this Python as well, unless PyCUDA is there already

PyCUDA compiles against two headers of the CUDA toolkit and links with the driver's library.  The headers come from the
toolkit of --toolkit, CUDA_HOME, CUDA_PATH or an nvcc on the PATH, or from two of NVIDIA's Python wheels.  The library
is a generated stub with every function that the headers declare; the real one, or the fake driver of tests/emulator/,
replaces it when PyCUDA is imported.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "2026.1"
HEADERS = ("cuda.h", "cudaProfiler.h")
HEADER_WHEELS = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-profiler-api==13.0.85")  # one header in each
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "pycuda"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the wheel, unless PyCUDA is there already")
    parser.add_argument("--toolkit", type=Path, help="folder with include/cuda.h")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where headers and wheels are kept (%(default)s)")
    options = parser.parse_args()
    if options.install and importlib.util.find_spec("pycuda") is not None:
        print("PyCUDA is installed already")
        return 0
    try:
        wheel = cached_wheel(options.cache.resolve(), options.toolkit)
        if options.install:
            run(sys.executable, "-m", "pip", "install", "-q", str(wheel))
    except BuildError as error:
        print(f"build_pycuda: {error}", file=sys.stderr)
        return 2
    print(wheel)
    return 0


class BuildError(Exception):
    """A requirement of the build is missing, or a step failed."""


def cached_wheel(cache: Path, toolkit: Path | None) -> Path:
    """The wheel for this Python and these headers, built unless it is in the cache; one builder at a time."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        include = header_folder(cache, toolkit)
        folder = cache / f"{sys.implementation.cache_tag}-{digest(include)}"
        wheels = list(folder.glob("pycuda-*.whl"))
        if not wheels:
            folder.mkdir(exist_ok=True)
            build(include, folder)
            wheels = list(folder.glob("pycuda-*.whl"))
        return wheels[0]


def header_folder(cache: Path, toolkit: Path | None) -> Path:
    """A folder with the driver's headers, of a toolkit or of NVIDIA's wheels."""
    if toolkit is not None and not has_headers(toolkit / "include"):
        raise BuildError(f"{toolkit}/include has no {' and '.join(HEADERS)}")
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT") if os.environ.get(name)]
    for root in [toolkit] if toolkit is not None else [*named, *toolkit_of_nvcc()]:
        if has_headers(root / "include"):
            return root / "include"
    return headers_from_wheels(cache)


def has_headers(folder: Path) -> bool:
    return all((folder / name).exists() for name in HEADERS)


def toolkit_of_nvcc() -> list[Path]:
    """The toolkit that nvcc itself reports: the nvcc on the PATH may be a script elsewhere."""
    if shutil.which("nvcc") is None:
        return []
    report = subprocess.run(["nvcc", "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True).stderr
    return [Path(root).resolve() for root in re.findall(r"^#\$ TOP=(.+)$", report, re.MULTILINE)]


def headers_from_wheels(cache: Path) -> Path:
    folder = cache / " ".join(HEADER_WHEELS).replace("==", "-").replace(" ", "+")
    if not has_headers(folder):
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            run(*PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "-d", temporary, *HEADER_WHEELS)
            for wheel in Path(temporary).glob("*.whl"):
                unpack_headers(wheel, folder)
    if not has_headers(folder):
        raise BuildError(f"{' and '.join(HEADER_WHEELS)} do not hold {' and '.join(HEADERS)}")
    return folder


def unpack_headers(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.rpartition("/")[2] in HEADERS:
                (folder / name.rpartition("/")[2]).write_bytes(archive.read(name))


def digest(include: Path) -> str:
    hashed = hashlib.sha256(f"{VERSION} {' '.join(CONFIGURATION)}".encode())
    for name in HEADERS:
        hashed.update((include / name).read_bytes())
    return hashed.hexdigest()[:12]


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
CONFIGURATION = ("CUDA_ENABLE_CURAND = False", "CUDA_ENABLE_GL = False")


def build(include: Path, folder: Path) -> None:
    """Build the wheel in `folder`.

    PyCUDA's setup.py takes its configuration from a file in $HOME, so it runs with a $HOME of its own; pip's
    configuration stays the user's.
    """
    with tempfile.TemporaryDirectory() as temporary:
        user_folder = Path(temporary)
        make_stub(include, user_folder)
        lines = [f"CUDA_INC_DIR = [{str(include)!r}]", f"CUDADRV_LIB_DIR = [{temporary!r}]", *CONFIGURATION]
        (user_folder / ".aksetup-defaults.py").write_text("\n".join(lines) + "\n")
        user = Path.home()
        environment = {
            **os.environ,
            "HOME": temporary,
            "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(user / ".config")),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(user / ".cache")),
            "CFLAGS": "-g0 -w",
        }
        wanted = ["--no-deps", "--no-binary", "pycuda", "--no-cache-dir", f"pycuda=={VERSION}"]
        run(*PIP, "wheel", "-q", "-w", str(folder), *wanted, environment=environment)


def make_stub(include: Path, folder: Path) -> None:
    """A libcuda.so whose functions all return the error for a missing device."""
    headers = "".join(f"#include <{name}>\n" for name in HEADERS)
    declared = run(compiler(), "-E", f"-I{include}", "-x", "c", "-", given=headers)
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", declared)))
    source = folder / "stub.c"
    source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
    flags = ("-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1")
    run(compiler(), *flags, str(source), "-o", str(folder / "libcuda.so"))


def compiler() -> str:
    for name in filter(None, (os.environ.get("CC"), "gcc", "cc")):
        if shutil.which(name):
            return name
    raise BuildError("a C and a C++ compiler are needed (gcc and g++)")


def run(*command: str, given: str | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"'{' '.join(command)}' failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
