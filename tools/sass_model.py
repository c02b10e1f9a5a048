"""Judges a change to the convolution engine's main loops without a GPU: a pipeline model of their machine code.

python tools/sass_model.py                                       all tiles in all precisions
python tools/sass_model.py --precision tf32 --kernel 128x128     one tile of one precision
python tools/sass_model.py --tsv before.tsv                      .. and after the change:
python tools/sass_model.py --baseline before.tsv                 modelled TFLOP/s beside those of the file
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from layermem.backends.cuda.implicit_gemm import ENGINES  # noqa: E402
from tools.sass.engine import engine_kernels, row_of  # noqa: E402
from tools.sass.gpus import GPUS  # noqa: E402
from tools.sass.table import read_rows, table, written  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=GPUS, default="90", help="compute capability (%(default)s)")
    parser.add_argument("--clock", type=float, metavar="GHZ", help="of the multiprocessors")
    parser.add_argument("--kernel", metavar="PATTERN", default="_v4$", help="of names (%(default)s; '' for all)")
    parser.add_argument("--precision", action="append", choices=ENGINES, help="may be repeated; all by default")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="a table of --tsv to compare with")
    parser.add_argument("--tsv", type=Path, metavar="FILE", help="where the table is written to")
    options = parser.parse_args()
    gpu = GPUS[options.arch]
    if options.clock:
        gpu = gpu._replace(clock=1e9 * options.clock)
    rows = [
        row_of(precision, name, gpu)
        for precision in options.precision or ENGINES
        for name in engine_kernels(options.kernel)
    ]
    before = read_rows(options.baseline) if options.baseline else {}
    print(f"{gpu.name}, sm_{gpu.architecture}, {gpu.clock / 1e9:.3f} GHz; modelled, not measured")
    print("\n".join(table(rows, before)))
    if options.tsv:
        options.tsv.write_text(written(rows, gpu), encoding="utf-8")


if __name__ == "__main__":
    main()
