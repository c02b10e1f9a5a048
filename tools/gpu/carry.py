"""Compiles in advance for a machine with a GPU: python -m tools.gpu.carry --into carried [--python 3.12]

    carried/kernels/MODULE.fatbin      machine code of every kernel for one architecture, and of tools/gpu/ceilings.cu
    carried/kernels/digests.json       digests of sources, flags and architecture; kernels of other sources are compiled
                                       there
    carried/native/_native*.so.carried layermem._native of --python, an interpreter that can import pybind11; the ending
                                       keeps git, which ignores *.so, from leaving it out

It needs NVRTC or nvcc for the kernels, but no GPU.  Kernels take some minutes; a second call compiles only changes.
Without the interpreter, only the native part is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from layermem.backends.cuda.driver.context import gpus
from layermem.backends.cuda.kernel_images import build, sources
from layermem.backends.cuda.kernel_images.ahead import longest_first
from layermem.backends.cuda.kernel_images.sources import modules
from layermem.utils.files import write_atomically
from layermem.utils.processes import on_all_cores
from tools.gpu import own_kernels
from tools.gpu.prepare import CARRIED
from tools.gpu.process import ROOT

DIGESTS = "digests.json"
OWN_SOURCES = {path.stem: path for path in own_kernels.OWN_SOURCES}  # sources of these tools, by module


def module_names() -> list[str]:
    return [*modules(), *OWN_SOURCES]


def source_of(module: str) -> str:
    """The source of a module with its headers inlined."""
    return own_kernels.whole_text(OWN_SOURCES[module]) if module in OWN_SOURCES else build.whole_source(module)


def digest_of(module: str, architecture: str) -> str:
    """A digest of everything that determines the machine code of a module."""
    return hashlib.sha256(repr((source_of(module), build.FLAGS, architecture)).encode()).hexdigest()


def _kept(folder: Path, architecture: str, module: str) -> int:
    """Compile a module into the folder; return its bytes."""
    target = f"{build.CODE}{sources.architecture(module, architecture)}"
    image = build.find_compiler().cubin(source_of(module), target, build.FLAGS)
    (folder / f"{module}.fatbin").write_bytes(image)
    return len(image)


def kernels(folder: Path, architecture: str) -> int:
    """Compile every module that the folder lacks, on all cores; return the bytes of all."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = {"architecture": architecture} | {module: digest_of(module, architecture) for module in module_names()}
    kept = read_digests(folder)
    if kept.get("architecture") != architecture:
        kept = {"architecture": architecture}
    missing = longest_first([module for module in module_names() if kept.get(module) != digests[module]])
    for module, _ in on_all_cores(partial(_kept, folder, architecture), missing):
        kept[module] = digests[module]
        write_atomically(folder / DIGESTS, json.dumps(kept, indent=1).encode())
    return sum((folder / f"{module}.fatbin").stat().st_size for module in module_names())


def read_digests(folder: Path) -> dict[str, str]:
    """The digests by module, and the architecture; empty if there are none."""
    path = folder / DIGESTS
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def misfit(folder: Path, architecture: str) -> str:
    """The reason why the machine code of a folder does not belong to these sources and this GPU; "" if it does."""
    digests = read_digests(folder)
    if not digests:
        return f"there is no {folder / DIGESTS}"
    if (there := digests.pop("architecture")) != architecture:
        return f"what was brought is for sm_{there}, and this GPU is sm_{architecture}"
    changed = [module for module in module_names() if digests.get(module) != digest_of(module, architecture)]
    return f"the sources of {' '.join(changed)} are others than those of what was brought" if changed else ""


def native(folder: Path, python: str) -> str:
    """Build layermem._native with another interpreter, outside of this tree; return the name of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as built:
        command = [python, "setup.py", "-q", "build_ext", "--build-lib", built, "--build-temp", f"{built}/temp"]
        subprocess.run(command, cwd=ROOT, check=True)
        (library,) = Path(built).rglob("_native.*.so")
        target = folder / f"{library.name}{CARRIED}"
        shutil.copy(library, target)
    return target.name


def interpreter(wanted: str) -> str | None:
    """Return a path, or the interpreter of a version such as 3.12."""
    return shutil.which(wanted) or shutil.which(f"python{wanted}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder")
    parser.add_argument("--architecture", default="90", help="compute capability (%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the other machine (this one)")
    parser.add_argument("--check", action="store_true", help="say whether the folder fits this machine's GPU")
    options = parser.parse_args()
    if options.check:
        (gpu, *_) = gpus()
        why = misfit(options.into / "kernels", gpu.capability)
        print(why or f"machine code for sm_{gpu.capability} was brought")
        raise SystemExit(1 if why else 0)
    print(f"kernels for sm_{options.architecture}: {kernels(options.into / 'kernels', options.architecture):,} bytes")
    found = interpreter(options.python)
    if found is None:
        raise SystemExit(f"there is no Python {options.python} here: layermem._native would be compiled there")
    print(native(options.into / "native", found))


if __name__ == "__main__":
    from tools.gpu import carry  # under this name other processes can import its functions

    carry.main()
