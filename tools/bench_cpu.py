"""Compares training steps of whole nets on the cpu device with PyTorch, BVLC Caffe and nntrainer: seconds, and
peak resident bytes.

    python tools/bench_cpu.py                                    # AlexNet x64, GoogLeNet x32, ResNet-50 x16, VGG-16 x8
    python tools/bench_cpu.py --net vgg16:8 --only 'layermem*' --rounds 2 --steps 6
    python tools/bench_cpu.py --net resnet50:8 --only layermem --only 'PyTorch NCHW*' --out cpu.md
    python tools/bench_cpu.py --net googlenet:32 --only 'layermem*' --ours "" --ours "--slices whole/4"

Each contestant runs as its users run it, alone on the machine.  A turn is a fresh process that runs --steps training
steps in a row, the first two of which are not counted; the contestants alternate over --rounds turns, so that a change
in the machine's speed affects all of them.  No other contestant is alive during a turn.  The table gives the median and
the minimum of all counted steps, the median of layermem over that of each (below 1: layermem is faster), and the peak
resident set of the process (VmHWM, with interpreter and libraries), the largest of its turns.  All train on one batch
of noise in memory, with momentum (nntrainer has none) and a learning rate of 0, so that no run diverges.  A contestant
that fails has a row with its error.

    layermem      strategy liveness without a budget, and strategy auto in 40 % of strategy caffe with slices of the
                  batch; or with the options of `layermem plan` in each --ours (--strategy, --budget, --slices,
                  --split-weights, --storage).  Nothing is offloaded.  Plans use costs that are measured before the
                  turns, as by `plan --measure`, except with --storage
    PyTorch       torch_peer.py, by a Python that has PyTorch (--torch-python; without one these rows are omitted):
                  in layouts NCHW and channels_last, and in channels_last with checkpointing
      compiled    a layout under torch.compile; a run that is not counted fills the compile cache for all turns
      jemalloc, tcmalloc
                  a layout, compiled or not, with the allocator preloaded, where installed or named by --preload;
                  jemalloc with the settings of PyTorch's tuning guide, or those of MALLOC_CONF
    BVLC Caffe    `caffe time`, if a `caffe` binary is on the path (caffe_peer.py)
    nntrainer     nntrainer_peer.py, if pkg-config finds it: with its memory planning, and without
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.api import build_net, job_of
from layermem.backends.cpu import CpuDevice
from layermem.graph.net import Net
from layermem.graph.step_slicer import title_of_slices
from layermem.planning.hints import Hints
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver.benchmark import Benchmark
from layermem.solver.measure import costs_text, measure_step
from layermem.utils.units import format_bytes
from tools.cpu.contestants import Contestant, Setting, find_allocators, list_contestants
from tools.cpu.description import describe
from tools.cpu.turns import HEAD, LEFT_OUT, comparison, race, table_rows
from tools.nntrainer_peer import is_installed as has_nntrainer

ROOT = Path(__file__).resolve().parents[1]
PLANS = ("", "--budget 40% --slices auto")
NETS = ["alexnet:64", "googlenet:32", "resnet50:16", "vgg16:8"]


def net_of(what: str) -> Net:
    name, batch = what.split(":")
    return build_net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=["dummy"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


# -- layermem: the process of a turn -----------------------------------------------------------------------------------


def report_of(net: Net, options: str, device: CpuDevice, costs: Path | None = None) -> PlanReport:
    """Plan `net` with options of `layermem plan`, without offloading."""
    words = shlex.split(options)
    wanted = dict(zip(words[::2], words[1::2], strict=True))
    job = job_of(net, device=device, costs=costs, hints=Hints(host_budget_bytes=0))
    job = job.with_slices(wanted.get("--slices"), wanted.get("--split-weights"))
    return evaluate(job, wanted.get("--strategy"), wanted.get("--budget"))


def device_of(options: str, threads: int) -> CpuDevice:
    _, _, storage = options.partition("--storage ")
    return CpuDevice(threads, storage=storage.split()[0]) if storage else CpuDevice(threads)


def measure_costs(net: Net, threads: int, path: Path) -> None:
    """Measure the costs of the step of `net` and write them to `path`, like `plan --measure --costs`."""
    job = measure_step(job_of(net, device="cpu"), CpuDevice(threads)).job_with_costs()
    path.write_text(costs_text(job), encoding="utf-8")


def serve(what: str, options: str, costs: Path, steps: int, threads: int) -> None:
    """Run `steps` steps in a row and print a line of JSON, as in tools/cpu/contestants.py."""
    net, device = net_of(what), device_of(options, threads)
    report = report_of(net, options, device, None if "--storage" in options else costs)
    bench = Benchmark(net, report.feasible_program(), device)
    seconds = [bench.step(number) for number in range(steps)]
    line = {"seconds": seconds, "bytes": peak_bytes(), "parameters": net.parameter_count}
    print(json.dumps({**line, "is": device.describe(), "note": memory_note(report)}))


def memory_note(report: PlanReport) -> str:
    share = report.peak_bytes / report.job.baseline_bytes
    slices = report.job.graphs[0].slices
    note = f"arena {format_bytes(report.peak_bytes)}, {100 * share:.0f} % of `caffe`; predicted {report.seconds:.3f} s"
    return f"{note}; {title_of_slices(slices)}" if slices else note


def peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


# -- all contestants ---------------------------------------------------------------------------------------------------


def measure(what: str, contestants: Sequence[Contestant], options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """The section of one net: its table, and the comparison with the fastest peer."""
    net = net_of(what)
    costs = folder / "costs.csv"
    if not all(each.is_peer for each in contestants):
        measure_costs(net, options.threads, costs)
    setting = Setting(
        net=what,
        description=folder / "net.json",
        model=folder / "net.prototxt",
        costs=costs,
        compile_cache=folder / "inductor",
        steps=options.steps,
        threads=options.threads,
        torch_python=options.torch_python or "",
    )
    setting.description.write_text(json.dumps(describe(net)), encoding="utf-8")
    setting.model.write_text(str(net.message), encoding="utf-8")
    results = race(contestants, setting, options.rounds, net.parameter_count)
    yield f"## {what.replace(':', ' x')}\n"
    yield from table(HEAD, table_rows(results))
    if sentence := comparison(results):
        yield f"{sentence}\n"


def cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="ascii") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{models[0]}, {len(models)} cores" if models else platform.processor()


def python_with_torch() -> str | None:
    return sys.executable if importlib.util.find_spec("torch") else None


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", help="NAME:BATCH of prototxt/ (may be repeated)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--steps", type=int, default=10, help=f"steps of a turn; the first {LEFT_OUT} do not count (10)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant (3)")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="only this contestant, by its name in the table or a pattern such as 'PyTorch*' (may be repeated)",
    )
    parser.add_argument("--ours", action="append", metavar="OPTIONS", help="options of layermem (may be repeated)")
    parser.add_argument("--torch-python", default=python_with_torch(), help="a Python that has PyTorch (this one)")
    parser.add_argument(
        "--preload",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="an allocator to run PyTorch with, beside those installed (may be repeated)",
    )
    parser.add_argument("--out", type=Path, help="also write the tables to a file")
    parser.add_argument("--serve", nargs=3, metavar=("NET", "OPTIONS", "COSTS"), help=argparse.SUPPRESS)
    return parser


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse options that no turn could run with; make `--torch-python` an absolute path."""
    if options.steps <= LEFT_OUT or options.rounds < 1:
        parser.error(
            f"a turn needs more than {LEFT_OUT} steps, of which the first {LEFT_OUT} do not count, and --rounds 1"
        )
    if options.torch_python:
        found = shutil.which(options.torch_python)
        if found is None:
            parser.error(f"--torch-python: there is no program '{options.torch_python}'")
        options.torch_python = os.path.abspath(found)
    for library in options.preload:
        if not library.is_file():
            parser.error(f"--preload: there is no file '{library}'")


def select(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Contestant]:
    """The contestants that `--only` names; all of them without it."""
    installed = {
        "torch": bool(options.torch_python),
        "caffe": shutil.which("caffe") is not None,
        "nntrainer": has_nntrainer(),
    }
    contestants = list_contestants(options.ours or PLANS, find_allocators(options.preload), **installed)
    names = [each.name for each in contestants]
    for pattern in options.only or []:
        if not any(fnmatchcase(name, pattern) for name in names):
            parser.error(f"--only '{pattern}': there is no such contestant, but {', '.join(names)}")
    return [each for each in contestants if any(fnmatchcase(each.name, only) for only in options.only or ["*"])]


def main() -> None:
    parser = make_parser()
    options = parser.parse_args()
    if options.serve:
        net, words, costs = options.serve
        return serve(net, words, Path(costs), options.steps, options.threads)
    nets = options.net or NETS
    check(options, parser)
    contestants = select(options, parser)
    began = time.perf_counter()
    lines = [f"{cpu_name()}; {options.threads} threads; {datetime.date.today()}; {platform.system()}", ""]
    with tempfile.TemporaryDirectory() as folder:
        for what in nets:
            section = list(measure(what, contestants, options, Path(folder)))
            print("\n".join(section), flush=True)
            lines += section
    print(f"{time.perf_counter() - began:.0f} s in all", file=sys.stderr)
    if options.out:
        options.out.write_text("\n".join(lines), encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
