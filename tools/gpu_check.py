"""Every check that needs a GPU, in one call and ten minutes: results, speed, and the speed of other libraries.

    python tools/gpu_check.py                          on a machine with an NVIDIA GPU; results in out/gpu/
    python tools/gpu_check.py --wheels wheels          a bare, offline one: installs them into out/gpu/site first
    python tools/gpu_check.py --dry-run [--brief]      no GPU: the same steps, tiny, on the fake driver

The machine needs Python 3.10 or later and NVIDIA's driver; PyCUDA and what layermem depends on (but lmdb), as packages
or in --wheels; a C++ compiler and pybind11 where layermem._native is not built; NVRTC (PyTorch brings one) or nvcc
where the kernels are not prebuilt; PyTorch and compute-sanitizer for the comparisons and checks that name them.
PyCUDA's wheel is made elsewhere by `layermem setup-cuda --wheel-only`, others by `pip download -d wheels NAME ..`;
those for another Python do no harm.  What is missing is a row of the results, and costs the steps that need it.

Every step is a process with a time limit of its own, and one that fails is begun again behind the row that it failed
at.  After each one results.json and results.md are written anew: nothing is lost when a later step fails, or when the
whole is stopped.  Nothing else is left in --out; logs, and all that is built or installed, are in --work.  Fewer steps
(--only) have more time each.  Exit code 1: some result is wrong or missing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.gpu.prepare import Preparation  # noqa: E402
from tools.gpu.process import last_lines, run  # noqa: E402
from tools.gpu.report import failures, markdown  # noqa: E402
from tools.gpu.results import Options, Results  # noqa: E402

WORK = ROOT / "build" / "gpu_check"
NETS = ["resnet50:128", "vgg16:64", "alexnet:256"]
SMALL_NETS = ["mnist:8"]


class Step(NamedTuple):
    name: str
    seconds: float  # after which it begins nothing new, if all steps are run; half as long later it is killed


STEPS = (  # in the order of what is worth most
    Step("environment", 45),
    Step("correctness", 85),
    Step("training", 45),
    Step("ceilings", 20),
    Step("layers", 90),
    Step("nets", 175),
    Step("sanitizer", 60),
)
WHOLE = 575.0  # seconds from the first call to the last result
MOST_AGAIN = 12  # times that a step is begun again
SAID = 30  # lines of a step's log that are kept where it did not end well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny steps on the fake driver of tests/emulator")
    parser.add_argument("--brief", action="store_true", help="a few rows of each kind")
    parser.add_argument("--only", metavar="A,B", help=f"these steps of {' '.join(step.name for step in STEPS)}")
    parser.add_argument("--net", action="append", metavar="NAME:BATCH", help=f"of prototxt/ ({' '.join(NETS)})")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to use")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="where results go (%(default)s)")
    parser.add_argument("--work", type=Path, default=WORK, help="where everything else goes (%(default)s)")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1e9, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work, options.wheels = options.work.resolve(), options.wheels and options.wheels.resolve()
    if options.step:
        run_step(options)
        return 0
    return run_all(options)


def run_step(options: argparse.Namespace) -> None:
    nets = options.net or (SMALL_NETS if options.dry_run else NETS)
    how = Options(options.dry_run, options.brief, options.seconds, nets)
    module = importlib.import_module(f"tools.gpu.{options.step}")
    module.run(Results(options.into, how), how)


def run_all(options: argparse.Namespace) -> int:
    began = time.monotonic()
    chosen = [step for step in STEPS if not options.only or step.name in options.only.split(",")]
    shutil.rmtree(options.work / "rows", ignore_errors=True)
    for folder in (options.out, options.work / "rows"):
        folder.mkdir(parents=True, exist_ok=True)
    print("preparation ..", end=" ", flush=True)
    ready = Preparation(options, options.work)
    found: dict[str, dict] = {"preparation": step_result(time.monotonic() - began, "done", ready.rows)}
    save(options.out, found)
    for index, step in enumerate(chosen):
        left = WHOLE - (time.monotonic() - began)
        seconds = left * step.seconds / sum(later.seconds for later in chosen[index:])
        print(f"{step.name} ..", end=" ", flush=True)
        if without_a_gpu(found):
            found[step.name] = step_result(0.0, "not begun: the GPU cannot be used", [])
        else:
            found[step.name] = one_step(step.name, seconds, min(1.5 * seconds, left), options, ready.environment)
        save(options.out, found)
    wrong = failures(found)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{options.out / 'results.md'}: {len(wrong)} failures")
    return 1 if wrong else 0


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


def one_step(
    name: str, seconds: float, most: float, options: argparse.Namespace, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Rows of a step that has `seconds` to begin what it does and ends after `most`, and how it ended.  It is begun
    again, some times, as long as there are more rows than before."""
    into, log = (options.work / "rows" / f"{name}.{ending}" for ending in ("json", "log"))
    began, rows, again = time.monotonic(), [], -1
    while True:
        spent = time.monotonic() - began
        command = [sys.executable, __file__, "--step", name, "--into", str(into), "--seconds", f"{seconds - spent:.1f}"]
        command += ["--dry-run"] * options.dry_run + ["--brief"] * options.brief
        command += [word for net in options.net or () for word in ("--net", net)]
        code, before, again = run(command, log, most - spent, environment), len(rows), again + 1
        rows = json.loads(into.read_text(encoding="utf-8")) if into.exists() else []
        if not code or len(rows) == before or again == MOST_AGAIN:
            break
    ended = {0: "done", None: "killed: its time was up"}.get(code, f"failed with {code}: {last_lines(log)}")
    if again:
        ended += f"; begun again {again} times"
    more = {} if code == 0 and not again else {"log": last_lines(log, SAID)}
    return step_result(time.monotonic() - began, ended, rows, **more)


if __name__ == "__main__":
    sys.exit(main())
