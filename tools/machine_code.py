"""What the machine code of CUDA kernels consists of, for tests to judge without compiling all of it.

    python tools/machine_code.py             brings docs/benchmarks/machine_code.tsv up to date: what changed
    python tools/machine_code.py --all       compiles all of them again (two minutes of CPU time)

It needs nvcc and nvdisasm, of a toolkit or of the wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm, and no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from layermem.backends.cuda.kernel_images.build import Nvcc  # noqa: E402
from layermem.utils.files import write_atomically  # noqa: E402
from tools.sass import code, engine, record  # noqa: E402


def compiled(module: str) -> dict[str, record.Facts]:
    found = code.disassembled(engine.cubin_of(module, record.ARCHITECTURE))
    precision = next((name for name, each in engine.MODELLED.items() if each.module == module), None)
    modelled = set(engine.engine_kernels(precision, record.ARCHITECTURE)) if precision else set()
    return {
        name: record.facts_of(name, each, engine.issued_a_product(precision, name) if name in modelled else 0.0)
        for name, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="compile every module again")
    again, nvcc = parser.parse_args().all, Nvcc.find()
    if nvcc is None:
        raise SystemExit("nvcc is not here: pip install nvidia-cuda-nvcc, or put a toolkit on the PATH")
    before = record.Record("", {}, {}) if again else record.read_record()
    stale = [module for module in record.MODULES if before.digests.get(module) != record.digest_of(module)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda module: engine.cubin_of(module, record.ARCHITECTURE), stale))
    after = record.updated(before, nvcc.version, compiled)
    write_atomically(record.RECORD, record.written(after).encode())
    print(f"{len(stale)} modules, {sum(len(after.modules[module]) for module in stale)} kernels: {record.RECORD}")


if __name__ == "__main__":
    main()
