"""Which kernel sources NVRTC compiles, for a test to judge without compiling all of them.

    python tools/nvrtc_report.py             brings docs/benchmarks/nvrtc.tsv up to date: modules whose source changed
    python tools/nvrtc_report.py --all       compiles all of them again (some minutes: 30 s for one of convolutions)
    python tools/nvrtc_report.py A B         modules A and B

It needs NVRTC (the wheel nvidia-cuda-nvrtc), and no GPU.  NVRTC reads sources by other rules than nvcc, and is what a
GPU without prebuilt kernels gets them from; this goes as far as PTX, for NVRTC and nvcc share what comes behind.  A row
is written as soon as its module is compiled; one that NVRTC refuses has none, and ends the program with exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from layermem.backends.cuda.kernel_images import sources  # noqa: E402
from layermem.backends.cuda.kernel_images.build import FLAGS, whole_source  # noqa: E402
from layermem.backends.cuda.kernel_images.nvrtc import OPTIONS, Nvrtc  # noqa: E402
from layermem.errors import DeviceError  # noqa: E402
from layermem.utils.files import write_atomically  # noqa: E402

REPORT = ROOT / "docs/benchmarks/nvrtc.tsv"
CAPABILITY = "90"  # the sources have code for its instructions beside that for older ones


def digest_of(module: str) -> str:
    """Stands for all that NVRTC's answer depends on, but for its version: the source without its comments."""
    lines = (re.sub(r"//.*", "", line).rstrip() for line in whole_source(module).splitlines())
    return hashlib.sha256(repr((list(filter(None, lines)), FLAGS, OPTIONS, CAPABILITY)).encode()).hexdigest()[:16]


def kernels_of(module: str) -> int:
    """How many kernels NVRTC makes of a module; DeviceError with its words if it refuses the source."""
    nvrtc = Nvrtc.find()
    if nvrtc is None:
        raise SystemExit("NVRTC is not here: pip install nvidia-cuda-nvrtc")
    ptx = nvrtc.ptx(whole_source(module), f"compute_{sources.architecture(module, CAPABILITY)}", FLAGS)
    return len(re.findall(rb"\.entry ", ptx))


def answer(module: str) -> tuple[str, int, str]:
    """The module, its kernels, and NVRTC's words if there are none."""
    try:
        return module, kernels_of(module), ""
    except DeviceError as error:
        return module, 0, str(error)


# -- the table ---------------------------------------------------------------------------------------------------------


def read_report(path: Path = REPORT) -> dict[str, tuple[str, int]]:
    """Digest and kernels of each module that NVRTC compiled."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if not line.startswith(("#", "module\t")):
            module, digest, kernels = line.split("\t")
            rows[module] = digest, int(kernels)
    return rows


def written(rows: dict[str, tuple[str, int]]) -> str:
    head = ["# modules that NVRTC compiles to PTX, made by tools/nvrtc_report.py", "module\tsource\tkernels"]
    return "\n".join([*head, *(f"{module}\t{digest}\t{n}" for module, (digest, n) in sorted(rows.items()))]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="these modules (default: those whose source changed)")
    parser.add_argument("--all", action="store_true", help="compile every module again")
    options = parser.parse_args()
    fresh = {module: digest_of(module) for module in sources.modules()}
    rows = {module: row for module, row in read_report().items() if module in fresh}
    stale = [m for m, digest in fresh.items() if options.all or rows.get(m, ("", 0))[0] != digest]
    chosen, refused = options.modules or stale, []
    # NVRTC parses one source at a time in a process, whatever the number of threads
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(answer, module) for module in chosen]):
            module, kernels, words = done.result()
            if words:
                refused.append(module)
                rows.pop(module, None)
                print(words, file=sys.stderr)
            else:
                rows[module] = fresh[module], kernels
            write_atomically(REPORT, written(rows).encode())
    print(f"{len(chosen)} modules, {len(refused)} refused: {REPORT}")
    if refused:
        raise SystemExit(f"NVRTC refuses {' '.join(refused)}")


if __name__ == "__main__":
    main()
