"""Judges changes to the CUDA kernels without a GPU, by a pipeline model of their machine code.

    python tools/sass_model.py                                       all tiles in all precisions
    python tools/sass_model.py --precision tf32 --kernel 128x128     one tile of one precision
    python tools/sass_model.py --tsv before.tsv                      .. and after the change:
    python tools/sass_model.py --baseline before.tsv                 modelled TFLOP/s beside those of the file
    python tools/sass_model.py --tsv docs/benchmarks/sass.tsv        the file of the repository: four minutes of CPU
    python tools/sass_model.py --documents                           .. and the tables of docs/ that follow from it
    python tools/sass_model.py --net resnet50 --batch 128 --precision tf32     each op of a training step
    python tools/sass_model.py --totals                              four nets in tf32 and bf16, on fp32 and bfloat16
    python tools/sass_model.py --net vgg16 --precision "tf32, warpgroups"      .. as compute capability 9.0 runs it
    python tools/sass_model.py --warpgroups                          the kernels that only sm_90a has
    python tools/sass_model.py --calibrate out/gpu                   constants as tools/gpu_check.py has measured them

What is modelled, and how, is in docs/benchmarks/sass.md.  It needs nvcc or NVRTC, and nvdisasm: the wheels
nvidia-cuda-nvcc and nvidia-cuda-nvdisasm, or a toolkit.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from layermem.backends.cuda.warpgroup import CAPABILITY, PACKED_PRECISION, PRECISIONS  # noqa: E402
from layermem.utils.files import write_atomically  # noqa: E402
from tools.sass import warpgroup  # noqa: E402
from tools.sass.calibration import calibrated  # noqa: E402
from tools.sass.direct import GROUPS, MODULE, group_rows  # noqa: E402
from tools.sass.documents import DOCUMENTS, SAVED, with_tables  # noqa: E402
from tools.sass.engine import MODELLED, Row, compile_all, engine_kernels, row_of  # noqa: E402
from tools.sass.gpus import GPUS, Model  # noqa: E402
from tools.sass.net import WARPGROUPS, memory_times, net_times  # noqa: E402
from tools.sass.table import memory_table, ops_table, read_rows, table, totals_table, written  # noqa: E402
from tools.sass.warpgroup import all_rows, warpgroup_table  # noqa: E402

NETS = (("resnet50", 128), ("vgg16", 64), ("alexnet", 256), ("resnext50", 128))
OWN = [precision + WARPGROUPS for precision in (*PRECISIONS, PACKED_PRECISION)]
TOTALS = ("tf32", "bf16", PACKED_PRECISION, *OWN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=GPUS, default="90", help="compute capability (%(default)s)")
    parser.add_argument("--clock", type=float, metavar="GHZ", help="of the multiprocessors")
    parser.add_argument("--calibrate", type=Path, nargs="+", metavar="PATH",
                        help="results of tools/gpu_check.py, files or folders")  # fmt: skip
    parser.add_argument("--kernel", metavar="PATTERN", default="", help="of names; all by default")
    parser.add_argument("--precision", action="append", choices=[*MODELLED, *OWN, GROUPS],
                        help="may be repeated; all by default")  # fmt: skip
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="a table of --tsv to compare with")
    parser.add_argument("--tsv", type=Path, metavar="FILE", help="where the table is written to")
    parser.add_argument("--net", metavar="NAME", help="of prototxt/: times of its ops instead")
    parser.add_argument("--batch", type=int, default=64, help="images of the net's batch (%(default)s)")
    parser.add_argument("--totals", action="store_true", help="times of whole nets instead")
    parser.add_argument("--warpgroups", action="store_true", help="the kernels of sm_90a instead")
    parser.add_argument("--documents", action="store_true", help="write tables of docs/ from docs/benchmarks/sass.tsv")
    options = parser.parse_args()
    if options.documents:
        for path in DOCUMENTS:
            text = with_tables(path.read_text(encoding="utf-8"), read_rows(SAVED))
            write_atomically(path, text.encode())
        return
    gpu = GPUS[options.arch]
    if options.clock:
        gpu = gpu._replace(clock=1e9 * options.clock)
    model = calibrated(options.calibrate, gpu) if options.calibrate else Model(gpu)
    print(f"{gpu.name}, sm_{gpu.architecture}, {gpu.clock / 1e9:.3f} GHz; modelled, not measured")
    if options.warpgroups:
        print("\n".join(warpgroup_table(all_rows(model))))
    elif options.totals:
        print_totals(options.precision or TOTALS, model)
    elif options.net:
        for precision in options.precision or ("fp32",):
            print(f"\n{options.net} x{options.batch} {precision}")
            print("\n".join(ops_table(list(net_times(options.net, options.batch, precision, model)))))
            print("\n" + "\n".join(memory_table(memory_times(options.net, options.batch, precision, model))))
    else:
        print_kernels(options, model)


def print_kernels(options: argparse.Namespace, model: Model) -> None:
    precisions = options.precision or [*MODELLED, GROUPS, *(OWN if model.gpu.architecture == CAPABILITY else ())]
    compile_all([each for each in precisions if each in MODELLED], model.gpu.architecture)
    rows = [row for precision in precisions for row in rows_of(precision, options.kernel, model)]
    print("\n".join(table(rows, read_rows(options.baseline) if options.baseline else {})))
    if options.tsv:
        modules = {module_of(each) for each in precisions}
        write_atomically(options.tsv, written(rows, model.gpu, modules).encode())


def rows_of(precision: str, pattern: str, model: Model) -> Iterator[Row]:
    """Of the kernels whose names contain the pattern."""
    if precision == GROUPS:
        yield from (each for each in group_rows(model) if re.search(pattern, each.kernel))
        return
    if precision in OWN:
        for each in warpgroup.rows_of(precision.removesuffix(WARPGROUPS), model):
            if re.search(pattern, each.kernel):
                yield each.in_table(precision)
        return
    for name in engine_kernels(precision, model.gpu.architecture, pattern):
        yield row_of(precision, name, model)


def module_of(precision: str) -> str:
    if precision == GROUPS:
        return MODULE
    if precision in OWN:
        return warpgroup.module_of(precision.removesuffix(WARPGROUPS))
    return MODELLED[precision].module


def print_totals(precisions: list[str] | tuple[str, ...], model: Model) -> None:
    compile_all([*(each.removesuffix(WARPGROUPS) for each in precisions), "fp32"], model.gpu.architecture)
    found = {
        (f"{name} x{batch}", precision): list(net_times(name, batch, precision, model))
        for name, batch in NETS
        for precision in precisions
    }
    print("\n".join(totals_table(found)))


if __name__ == "__main__":
    main()
