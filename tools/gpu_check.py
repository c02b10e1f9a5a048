"""Runs every check that needs a GPU: results, speed, and the speed of other libraries.

    python tools/gpu_check.py --part A                 on a machine with an NVIDIA GPU; results in out/gpu/
    python tools/gpu_check.py --part A --wheels wheels --carried carried
                                                       a bare, offline one, with files made for it elsewhere
    python tools/gpu_check.py --part B --earlier DIR   with ceilings and costs of earlier calls in DIR
    python tools/gpu_check.py --dry-run [--brief]      no GPU: the same steps, tiny, on the fake driver

Each part takes five and a half minutes.  A: every kernel loads, launches and computes correctly, best rates of the GPU,
best tiles; B: whole nets, their ops and layers, compared with PyTorch; C: training, counters of some kernels,
sanitizer. Each is useful without the others.
Without --part or --only: all steps, shorter.

The machine needs Python 3.10 or later and NVIDIA's driver; PyCUDA and what layermem depends on (but lmdb), as
packages or in --wheels; a C++ compiler and pybind11 where layermem._native is not built; NVRTC (PyTorch brings one)
or nvcc where the kernels are not prebuilt; PyTorch and compute-sanitizer for the comparisons and checks that name
them.  PyCUDA's wheel is made elsewhere by `layermem setup-cuda --wheel-only`, others by `pip download -d wheels NAME
..`; wheels for another Python do no harm.  --carried names a folder of `python -m tools.gpu.carry`: machine code of the
kernels and layermem._native, used if they fit the GPU, the Python and the sources.  A missing requirement is a row of
the results, and the steps that need it fail.

Code that is neither prebuilt nor brought is compiled before the first step, in at most half of --minutes.  This takes
two minutes or more for layermem._native, and as long for the kernels, with a process per core; so prepare --carried if
possible.

Every step is a process with its own time limit; one that fails is restarted after the row at which it failed.  A kernel
that hangs or ends the GPU's context becomes a row and is in quarantine from then on (tools/gpu/quarantine.py): later
items and steps, and later calls that have the rows in --out or --earlier and the same kernel sources, avoid it and
similar kernels, and whole nets avoid its family (LAYERMEM_WITHOUT).  A call leaves results-NAME.json and
results-NAME.md (NAME is its part or its steps), log-NAME.txt, and details-NAME.zip with tile_times.jsonl,
costs-NET.csv, timeline.json and ncu.csv of its steps.  All are written during the steps (tools/gpu/kept.py), so that
nothing is lost if a step or the call is killed; steps end with the call.  Files of earlier calls are not changed: a
second call of a part gets another name. Everything that is built or installed is in --work.  `ops` uses ceilings of
this or earlier calls, in --out or --earlier; `nets` and `timeline` plan with the costs there.  Fewer steps (--only)
have more time each, and --minutes limits the call. Exit code 1: some result is wrong or missing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from layermem.utils.files import write_atomically  # noqa: E402
from tools.gpu.kept import BEGUN, Call, new_call, read_rows, rows_of_same_sources  # noqa: E402
from tools.gpu.prepare import Preparation  # noqa: E402
from tools.gpu.process import last_lines, run  # noqa: E402
from tools.gpu.quarantine import RUNNING, WITHOUT, settled, without  # noqa: E402
from tools.gpu.report import failures, markdown  # noqa: E402
from tools.gpu.results import Options, Results, append  # noqa: E402

WORK = ROOT / "build" / "gpu_check"
NETS = ["resnet50:128", "vgg16:64", "alexnet:256"]
MORE_NETS = ["resnet50:128:bf16", "resnet50:32", "vgg16:64:bf16", "resnet50:128:fp32"]  # if time is left
SMALL_NETS = ["digits:2"]


class Step(NamedTuple):
    name: str
    seconds: float  # limit after which it begins nothing new, if all steps run; after 1.5 times the limit it is killed


class Part(NamedTuple):
    minutes: float  # from the first call to the last result, by default
    steps: Sequence[Step]


STEPS = (  # most important first
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
WHOLE = 575 / 60  # minutes
PARTS = {
    "A": Part(5.5, (Step("environment", 20), Step("smoke", 70), Step("correctness", 85), Step("ceilings", 35),
                    Step("tiles", 95), Step("sanitizer", 25))),
    "B": Part(5.5, (Step("environment", 30), Step("nets", 155), Step("ops", 70), Step("layers", 50),
                    Step("timeline", 25))),
    "C": Part(5.5, (Step("environment", 30), Step("training", 100), Step("ncu", 110), Step("sanitizer", 90))),
}  # fmt: skip
CHOOSING = ("training", "ops", "nets", "timeline", "layers", "ncu")  # steps that run chosen kernels
MAX_LOG = 1 << 20  # bytes kept of a step's output, from its end
SAID = 30  # lines of output kept with the results of a failed step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny steps on the fake driver of tests/emulator")
    parser.add_argument("--brief", action="store_true", help="a few rows of each kind")
    parser.add_argument("--part", choices=PARTS, help="the steps of one call")
    parser.add_argument("--only", metavar="A,B", help=f"these steps of {' '.join(step.name for step in STEPS)}")
    parser.add_argument("--net", action="append", metavar="NAME:BATCH[:PRECISION]", help="of prototxt/")
    parser.add_argument("--minutes", type=float, help=f"for all, preparation and all (5.5 for a part, {WHOLE:.1f})")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to use")
    parser.add_argument("--carried", type=Path, metavar="DIR", help="folder of tools/gpu/carry.py")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="where results go (%(default)s)")
    parser.add_argument(
        "--earlier",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="folder of results of earlier calls, beside --out; may be repeated",
    )
    parser.add_argument(
        "--patience",
        type=float,
        metavar="FACTOR",
        help="of the time limits of launches and items (1; a dry run has none)",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="where everything else goes (%(default)s)")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1e9, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in ("work", "out", "wheels", "carried"):
        setattr(options, name, getattr(options, name) and getattr(options, name).resolve())
    options.earlier = [folder.resolve() for folder in options.earlier]
    if options.step:
        run_step(options)
        return 0
    return run_all(options)


def run_step(options: argparse.Namespace) -> None:
    from tools.gpu.watched import refusing  # needs packages that the preparation may have installed

    how, module = options_of(options), importlib.import_module(f"tools.gpu.{options.step}")
    results = Results(options.into, how)
    with refusing(results):
        module.run(results, how)


def options_of(options: argparse.Namespace) -> Options:
    """The Options of a step."""
    nets = options.net or (SMALL_NETS if options.dry_run else NETS + MORE_NETS)
    call = Call(options.results or options.out / "results.json")
    patience = options.patience or (math.inf if options.dry_run else 1.0)
    return Options(options.dry_run, options.brief, options.seconds, nets, call, options.earlier, patience)


def run_all(options: argparse.Namespace) -> int:
    began = time.monotonic()
    part = chosen_part(options.part, options.only)
    options.minutes = options.minutes or part.minutes
    call = new_call(options.out, options.part or (options.only or "all").replace(",", "-"))
    for folder in (options.work, call.folder):
        folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, stop)
    wrong = failures(all_steps(options, part.steps, call, began))
    call.end()
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{call.markdown}: {len(wrong)} failures")
    return 1 if wrong else 0


def stop(number: int, frame: object) -> None:
    """Handle a signal: kill the running step and save its results."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def all_steps(options: argparse.Namespace, chosen: Sequence[Step], call: Call, began: float) -> dict[str, dict]:
    """Run the preparation and the chosen steps; return their results."""
    date = datetime.now(timezone.utc).isoformat()
    more = {"date": date, "sources": digest_of_kernels(options.dry_run)}
    found: dict[str, dict] = {"preparation": {"seconds": 0.0, "ended": BEGUN, "rows": [], **more}}
    save(call, found)
    print("preparation ..", end=" ", flush=True)
    ready = Preparation(options, options.work)
    found["preparation"] = step_result(time.monotonic() - began, "done", ready.rows, **more)
    for index, step in enumerate(chosen):
        left = 60 * options.minutes - (time.monotonic() - began)
        seconds = left * step.seconds / sum(later.seconds for later in chosen[index:])
        found[step.name] = {"seconds": 0.0, "ended": BEGUN, "rows": []}
        save(call, found)
        print(f"{step.name} ..", end=" ", flush=True)
        try:
            if without_a_gpu(found):
                found[step.name] = step_result(0.0, "not begun: the GPU cannot be used", [])
            else:
                most = min(1.5 * seconds, left)
                found[step.name] = one_step(step.name, seconds, most, options, ready.environment, call)
        except (SystemExit, KeyboardInterrupt):
            rows = list(read_rows(call.rows_file(step.name)).values())
            found[step.name] = {"seconds": 0.0, "ended": "stopped with the whole call", "rows": rows}
            raise
        finally:
            save(call, found)
            call.close(step.name)
    return found


def digest_of_kernels(emulated: bool) -> str:
    """A digest of the sources of all kernels and of how they run."""
    content = [path.name.encode() + path.read_bytes() for path in sorted((ROOT / "cuda").glob("*.cu*"))]
    return hashlib.sha256(repr((emulated, content)).encode()).hexdigest()


def chosen_part(part: str | None, only: str | None) -> Part:
    """The part; with `only`, some of its steps, or of all; in their order."""
    whole = PARTS[part] if part else Part(WHOLE, STEPS)
    if only is None:
        return whole
    unknown = set(only.split(",")) - {step.name for step in whole.steps}
    if unknown:
        raise SystemExit(f"there is no step {' '.join(sorted(unknown))} among {' '.join(s.name for s in whole.steps)}")
    return whole._replace(steps=tuple(step for step in whole.steps if step.name in only.split(",")))


def without_a_gpu(found: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the step on the environment could not open a GPU; if only its time was up, other steps may."""
    step = found.get("environment", {"ended": "", "rows": []})
    rows = step["rows"] if step["ended"].startswith("done") else []
    return any(row.get("part") == "gpu" and row.get("passed") is False for row in rows)


def step_result(seconds: float, ended: str, rows: list, **more: Any) -> dict[str, Any]:
    print(f"{seconds:.0f} s, {ended}", flush=True)
    return {"seconds": seconds, "ended": ended, "rows": rows, **more}


def save(call: Call, found: Mapping[str, Mapping[str, Any]]) -> None:
    write_atomically(call.results, json.dumps(found, indent=1).encode())
    write_atomically(call.markdown, markdown(found).encode())


def one_step(
    name: str, seconds: float, most: float, options: argparse.Namespace, environment: Mapping[str, str], call: Call
) -> dict[str, Any]:
    """Run a step that has `seconds` to begin its work and ends after `most`; return its rows and how it ended.  It is
    restarted as long as its rows increase."""
    into = call.rows_file(name)
    with open(call.log, "ab") as file:
        file.write(b"==== " + name.encode() + b"\n")
        begin = file.tell()
    began, rows, again = time.monotonic(), [], -1
    while True:
        spent = time.monotonic() - began
        command = [sys.executable, __file__, "--step", name, "--into", str(into), "--out", str(options.out)]
        command += ["--results", str(call.results), "--seconds", f"{seconds - spent:.1f}"]
        command += [word for folder in options.earlier for word in ("--earlier", str(folder))]
        command += ["--dry-run"] * options.dry_run + ["--brief"] * options.brief
        command += ["--patience", str(options.patience)] if options.patience else []
        command += [word for net in options.net or () for word in ("--net", net)]
        code = run(command, call.log, most - spent, {**environment, **unused_families(name, options, call)})
        before, again = len(rows), again + 1
        for number, row in read_rows(into).items():
            if RUNNING in row:
                append(into, number, settled(row, code))
        rows = list(read_rows(into).values())
        if not code or len(rows) == before:
            break
    said = last_lines(call.log, SAID, begin)
    shorten(call.log, begin)
    ended = {0: "done", None: "killed: its time was up"}.get(code, f"failed with {code}: {said.splitlines()[-1]}")
    if again:
        ended += f"; begun again {again} times"
    more = {} if code == 0 and not again else {"log": said}
    return step_result(time.monotonic() - began, ended, rows, **more)


def unused_families(step: str, options: argparse.Namespace, call: Call) -> dict[str, str]:
    """The environment variable that keeps a step from choosing kernels of failed families."""
    if step not in CHOOSING:
        return {}
    families = without(rows_of_same_sources(call, [call.results.parent, *options.earlier]))
    return {WITHOUT: families} if families else {}


def shorten(log: Path, begin: int) -> None:
    """Keep the end of a step's output, from byte `begin` on."""
    if os.path.getsize(log) - begin > MAX_LOG:
        content = log.read_bytes()
        write_atomically(log, content[:begin] + content[-MAX_LOG:])


if __name__ == "__main__":
    sys.exit(main())
