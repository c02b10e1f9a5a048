"""Every check that needs a GPU, in one call and ten minutes: results, speed, and the speed of other libraries.

    python tools/gpu_check.py --part 1                 on a machine with an NVIDIA GPU; results in out/gpu/
    python tools/gpu_check.py --part 1 --wheels wheels --carried carried
                                                       a bare, offline one, with what was made for it elsewhere
    python tools/gpu_check.py --dry-run [--brief]      no GPU: the same steps, tiny, on the fake driver

Four calls of ten minutes, each of use without the others: 1 does every kernel load, launch and compute, which tiles
are best, what can the GPU do; 2 ops, whole nets under budgets and their streams, beside PyTorch; 3 counters of a
dozen kernels, sanitizer, training; 4 layers and nets once more, after what the others led to.  Without --part or
--only: all, shorter.

The machine needs Python 3.10 or later and NVIDIA's driver; PyCUDA and what layermem depends on (but lmdb), as
packages or in --wheels; a C++ compiler and pybind11 where layermem._native is not built; NVRTC (PyTorch brings one)
or nvcc where the kernels are not prebuilt; PyTorch and compute-sanitizer for the comparisons and checks that name
them. PyCUDA's wheel is made elsewhere by `layermem setup-cuda --wheel-only`, others by `pip download -d wheels NAME
..`; those for another Python do no harm.  --carried names a folder of `python -m tools.gpu.carry`: machine code of
the kernels and layermem._native, which is used if it fits the GPU, the Python and the sources.  What is missing is a
row of the results, and costs the steps that need it.

Kernels that are not prebuilt are compiled before the first step, by a process for each core, in four minutes or half of
--minutes at most: NVRTC reads a module of convolutions for half a minute, and the steps lack that time.  --carried is
best wherever it can be prepared: nothing is compiled then.

Every step is a process with a time limit of its own, and one that fails is begun again behind the row that it failed
at.  After each one results.json and results.md are written anew: nothing is lost when a later step fails, or when the
whole is stopped.  The rows of a step come into rows/STEP.jsonl of --out one by one, and are gone from there when
results.json has them.  In --out are at the end, beside these, log.txt and details.zip: tile_times.json and
tile_table.json, costs-NET.csv, timeline.json and ncu.csv, each of the step that makes it; all that is built or
installed is in --work.  `nets` and `timeline` plan with the costs that --out has from an earlier call.  Fewer steps
(--only) have more time each, and --minutes bounds a call that has less than ten.  Exit code 1: some result is wrong or
missing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.gpu.prepare import Preparation  # noqa: E402
from tools.gpu.process import last_lines, run  # noqa: E402
from tools.gpu.report import failures, markdown  # noqa: E402
from tools.gpu.results import Options, Results, read_rows  # noqa: E402

WORK = ROOT / "build" / "gpu_check"
NETS = ["resnet50:128", "vgg16:64", "alexnet:256"]
MORE_NETS = ["resnet50:128:bf16", "resnet50:32", "vgg16:64:bf16", "resnet50:128:fp32"]  # where there is time left
SMALL_NETS = ["mnist:8"]


class Step(NamedTuple):
    name: str
    seconds: float  # after which it begins nothing new, if all steps are run; half as long later it is killed


STEPS = (  # in the order of what is worth most
    Step("environment", 45),
    Step("smoke", 30),
    Step("correctness", 110),
    Step("tiles", 150),
    Step("ceilings", 40),
    Step("training", 60),
    Step("ops", 110),
    Step("nets", 300),
    Step("timeline", 60),
    Step("layers", 120),
    Step("ncu", 120),
    Step("sanitizer", 100),
)
PARTS = {
    "1": ("environment", "smoke", "correctness", "tiles", "ceilings"),
    "2": ("environment", "ops", "nets", "timeline"),
    "3": ("environment", "smoke", "training", "tiles", "ncu", "sanitizer"),
    "4": ("environment", "smoke", "layers", "nets"),
}
WHOLE = 575.0  # seconds from the first call to the last result, if --minutes does not say otherwise
DETAILS = ("tile_times.json", "tile_table.json", "costs-*.csv", "timeline.json", "ncu.csv")  # in the archive at the end
ARCHIVE = "details.zip"
MOST_AGAIN = 12  # times that a step is begun again
MOST_LOG = 1 << 20  # bytes of a step's log, from its end, that are kept beside the results
SAID = 30  # lines of a step's log that are kept where it did not end well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny steps on the fake driver of tests/emulator")
    parser.add_argument("--brief", action="store_true", help="a few rows of each kind")
    parser.add_argument("--part", choices=sorted(PARTS), help="the steps of one call of ten minutes")
    parser.add_argument("--only", metavar="A,B", help=f"these steps of {' '.join(step.name for step in STEPS)}")
    parser.add_argument("--net", action="append", metavar="NAME:BATCH[:PRECISION]", help="of prototxt/")
    parser.add_argument(
        "--minutes", type=float, default=WHOLE / 60, help="for all, preparation and all (%(default).1f)"
    )
    parser.add_argument("--wheels", type=Path, help="folder of wheels to use")
    parser.add_argument("--carried", type=Path, metavar="DIR", help="folder of tools/gpu/carry.py")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="where results go (%(default)s)")
    parser.add_argument("--work", type=Path, default=WORK, help="where everything else goes (%(default)s)")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1e9, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in ("work", "out", "wheels", "carried"):
        setattr(options, name, getattr(options, name) and getattr(options, name).resolve())
    if options.step:
        run_step(options)
        return 0
    return run_all(options)


def run_step(options: argparse.Namespace) -> None:
    nets = options.net or (SMALL_NETS if options.dry_run else NETS + MORE_NETS)
    how = Options(options.dry_run, options.brief, options.seconds, nets, options.out)
    module = importlib.import_module(f"tools.gpu.{options.step}")
    module.run(Results(options.into, how), how)


def run_all(options: argparse.Namespace) -> int:
    began = time.monotonic()
    chosen = chosen_steps(options.part, options.only)
    shutil.rmtree(options.out / "rows", ignore_errors=True)
    (options.out / "log.txt").unlink(missing_ok=True)
    for folder in (options.work, options.out / "rows"):
        folder.mkdir(parents=True, exist_ok=True)
    unpack(options.out)
    try:
        wrong = failures(all_steps(options, chosen, began))
    finally:
        pack(options.out)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{options.out / 'results.md'}: {len(wrong)} failures")
    return 1 if wrong else 0


def all_steps(options: argparse.Namespace, chosen: Sequence[Step], began: float) -> dict[str, dict]:
    """What the preparation and each step found."""
    print("preparation ..", end=" ", flush=True)
    ready = Preparation(options, options.work)
    found: dict[str, dict] = {"preparation": step_result(time.monotonic() - began, "done", ready.rows)}
    save(options.out, found)
    for index, step in enumerate(chosen):
        left = 60 * options.minutes - (time.monotonic() - began)
        seconds = left * step.seconds / sum(later.seconds for later in chosen[index:])
        print(f"{step.name} ..", end=" ", flush=True)
        if without_a_gpu(found):
            found[step.name] = step_result(0.0, "not begun: the GPU cannot be used", [])
        else:
            found[step.name] = one_step(step.name, seconds, min(1.5 * seconds, left), options, ready.environment)
        save(options.out, found)
        rows_file(options.out, step.name).unlink(missing_ok=True)
    shutil.rmtree(options.out / "rows")
    return found


def rows_file(out: Path, step: str) -> Path:
    return out / "rows" / f"{step}.jsonl"


def pack(out: Path) -> None:
    """Put the files of single steps into one archive: some ways to bring results back take few files."""
    details = [path for pattern in DETAILS for path in sorted(out.glob(pattern))]
    if details:
        with zipfile.ZipFile(out / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in details:
                archive.write(path, path.name)
        for path in details:
            path.unlink()


def unpack(out: Path) -> None:
    """What an earlier call packed, for the steps to use; a file that lies beside the archive is the newer one."""
    if (out / ARCHIVE).exists():
        with zipfile.ZipFile(out / ARCHIVE) as archive:
            archive.extractall(out, [name for name in archive.namelist() if not (out / name).exists()])


def chosen_steps(part: str | None, only: str | None) -> list[Step]:
    """Those of the part, of `only`, or all; in their order."""
    names = only.split(",") if only else PARTS[part] if part else [step.name for step in STEPS]
    return [step for step in STEPS if step.name in names]


def without_a_gpu(found: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the step on the environment could not open one."""
    rows = found["environment"]["rows"] if "environment" in found else []
    return any(row.get("part") == "gpu" and row.get("passed") is False for row in rows)


def step_result(seconds: float, ended: str, rows: list, **more: Any) -> dict[str, Any]:
    print(f"{seconds:.0f} s, {ended}", flush=True)
    return {"seconds": seconds, "ended": ended, "rows": rows, **more}


def save(out: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    (out / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (out / "results.md").write_text(markdown(found), encoding="utf-8")


def keep(log: Path, all_logs: Path) -> None:
    """Add what a step said to the one file of them all."""
    said = log.read_bytes()[-MOST_LOG:] if log.exists() else b""
    with open(all_logs, "ab") as file:
        file.write(b"==== " + log.stem.encode() + b"\n" + said)


def one_step(
    name: str, seconds: float, most: float, options: argparse.Namespace, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Rows of a step that has `seconds` to begin what it does and ends after `most`, and how it ended.  It is begun
    again, some times, as long as there are more rows than before."""
    into, log = rows_file(options.out, name), options.work / f"{name}.log"
    log.unlink(missing_ok=True)
    began, rows, again = time.monotonic(), [], -1
    while True:
        spent = time.monotonic() - began
        command = [sys.executable, __file__, "--step", name, "--into", str(into), "--out", str(options.out)]
        command += ["--seconds", f"{seconds - spent:.1f}"]
        command += ["--dry-run"] * options.dry_run + ["--brief"] * options.brief
        command += [word for net in options.net or () for word in ("--net", net)]
        code, before, again = run(command, log, most - spent, environment), len(rows), again + 1
        rows = list(read_rows(into).values())
        if not code or len(rows) == before or again == MOST_AGAIN:
            break
    keep(log, options.out / "log.txt")
    ended = {0: "done", None: "killed: its time was up"}.get(code, f"failed with {code}: {last_lines(log)}")
    if again:
        ended += f"; begun again {again} times"
    more = {} if code == 0 and not again else {"log": last_lines(log, SAID)}
    return step_result(time.monotonic() - began, ended, rows, **more)


if __name__ == "__main__":
    sys.exit(main())
