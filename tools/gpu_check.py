"""Everything that only a card can tell, in one call and ten minutes: is it right, how fast is it, beside what.

    python tools/gpu_check.py                          on a machine with an NVIDIA card; results in out/gpu/
    python tools/gpu_check.py --wheels wheels          a bare, offline one: installs them into out/gpu/site first
    python tools/gpu_check.py --dry-run [--brief]      no card: the same steps, tiny, on the stand-in driver

The machine needs Python 3.10 or later and NVIDIA's driver; NumPy, protobuf and PyCUDA as packages or in --wheels; a C++
compiler and pybind11 where layermem._native is not built; NVRTC (PyTorch brings one) or nvcc where the kernels are not
prebuilt; PyTorch and compute-sanitizer for the comparisons and checks that name them.  PyCUDA's wheel is made elsewhere
by tools/build_pycuda.py, the others by `pip download -d wheels protobuf pybind11 setuptools`.

Every step is a process with a time limit of its own.  After each one results.json and results.md are written anew, so
that nothing is lost when a later step fails.  Exit code 1: some result is wrong; 2: the steps could not be run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.gpu.report import failures, markdown  # noqa: E402
from tools.gpu.results import Options, Results, Row  # noqa: E402

NETS = ["resnet50:128", "vgg16:64", "alexnet:256"]
SMALL_NETS = ["digits:4"]


class Step(NamedTuple):
    name: str
    seconds: float  # after which it ends its work, and, half as long later, is killed


STEPS = (  # in the order of what is worth most; together under ten minutes
    Step("environment", 60),
    Step("correctness", 80),
    Step("training", 40),
    Step("ceilings", 20),
    Step("layers", 80),
    Step("nets", 170),
    Step("sanitizer", 60),
)
WHOLE = 590.0  # seconds of all steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny steps on the stand-in driver of tests/emulator")
    parser.add_argument("--brief", action="store_true", help="a few rows of each kind")
    parser.add_argument("--only", metavar="A,B", help="these steps")
    parser.add_argument("--net", action="append", metavar="NAME:BATCH", help=f"of prototxt/ ({' '.join(NETS)})")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install first")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="where results go (%(default)s)")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1e9, help=argparse.SUPPRESS)
    options = parser.parse_args()
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
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        environment = prepared(options)
    except subprocess.CalledProcessError as error:
        print(f"gpu_check: '{' '.join(map(str, error.cmd))}' failed:\n{error.stderr}", file=sys.stderr)
        return 2
    chosen = [step for step in STEPS if not options.only or step.name in options.only.split(",")]
    found: dict[str, dict] = {}
    began = time.monotonic()
    for step in chosen:
        left = WHOLE - (time.monotonic() - began)
        seconds = min(step.seconds, left / 1.5)
        print(f"{step.name} ..", end=" ", flush=True)
        found[step.name] = one_step(step.name, seconds, options, environment)
        print(f"{found[step.name]['seconds']:.0f} s, {found[step.name]['ended']}", flush=True)
        (options.out / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
        (options.out / "results.md").write_text(markdown(found), encoding="utf-8")
    wrong = failures(found)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{options.out / 'results.md'}: {len(wrong)} failures")
    return 1 if wrong else 0


def one_step(name: str, seconds: float, options: argparse.Namespace, environment: dict[str, str]) -> dict:
    """Rows of a step, and how it ended."""
    into = options.out / f"{name}.json"
    into.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--step", name, "--into", str(into), "--seconds", f"{seconds:.0f}"]
    command += ["--dry-run"] * options.dry_run + ["--brief"] * options.brief
    command += [word for net in options.net or () for word in ("--net", net)]
    began, ended = time.monotonic(), "done"
    try:
        with open(options.out / f"{name}.log", "w", encoding="utf-8") as log:
            done = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, timeout=1.5 * seconds + 5
            )
        if done.returncode:
            ended = f"failed with {done.returncode}: {last_line(options.out / f'{name}.log')}"
    except subprocess.TimeoutExpired:
        ended = "killed: its time was up"
    rows: list[Row] = json.loads(into.read_text(encoding="utf-8")) if into.exists() else []
    return {"seconds": time.monotonic() - began, "ended": ended, "rows": rows}


def last_line(log: Path) -> str:
    return (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["without a word"])[-1]


def prepared(options: argparse.Namespace) -> dict[str, str]:
    """The environment of all steps: wheels on the path, layermem._native built, the stand-in driver on a dry run."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if options.wheels is not None:
        site = options.out / "site"
        install = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--upgrade", "--target", str(site)]
        wheels = sorted(map(str, options.wheels.glob("*.whl")))
        subprocess.run([sys.executable, *install, *wheels], check=True, capture_output=True, text=True)
        environment["PYTHONPATH"] += os.pathsep + str(site)
    native = [sys.executable, "-c", "import layermem._native"]
    if subprocess.run(native, env=environment, cwd=ROOT, capture_output=True).returncode:
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        environment["LAYERMEM_BUILD_JOBS"] = str(os.cpu_count())
        subprocess.run(build, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    if options.dry_run:
        from tests.cuda.on_standin import kernels
        from tests.emulator import standin

        environment |= standin.environment(streams="random") | {"LAYERMEM_KERNELS": str(kernels())}
    return environment


if __name__ == "__main__":
    sys.exit(main())
