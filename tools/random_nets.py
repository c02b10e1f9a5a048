"""Trains random nets and solvers under random plans, each compared bit by bit with strategy `caffe`.

    python tools/random_nets.py [--seconds 60 | --count N] [--seed S] [--only N] [--sliced] [--net NAME:BATCH]

A net of tools/campaign/net_grammar.py gets a random solver, device, instruction set and storage.  Strategy `caffe`
trains it for two or three iterations with tests; then other strategies do, each under a budget (none, its minimum, or
one between), a host budget or a spill folder, a number of threads, with or without poison, in one run or resumed from a
snapshot; half of them run in slices of the batch: the whole step, layers from the input, or a range, if these can be
sliced.  With activations in 16 bits, each run has its own size of the parts of an op.  With --sliced, nets keep the
items of a batch separate, and all runs are in slices.  --net takes a net of prototxt/ instead
of random ones, on its dummy data.

findings   snapshots or losses whose bits differ from those of `caffe`; training that diverges in one run only
           a refusal of a budget that is not below the minimum, or none of one that is
           a measured peak above the predicted one, or below it
           a resident set that grows by more than the arenas and SLACK during training, or by LEAK at the end
           any exception other than a refused host budget; a run that takes more than a minute
"""

from __future__ import annotations

import argparse
import contextlib
import random
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tools.campaign.native_build  # noqa: F401  before layermem._native
from layermem._native import cpu
from layermem.backends.arena import WORD_BYTES
from layermem.backends.base import STORAGES, Device
from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.errors import BudgetError, DivergenceError, InputError
from layermem.graph.ops import FORWARD
from layermem.interactive.solver import Solver
from layermem.ops import NARROW, SCALED
from layermem.planning.job import OFF, Job
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import SolverFile, read_net, read_solver_text
from layermem.proto.schema import NetParameter
from layermem.report.events import Event, Stepped, Tested
from layermem.report.plan_report import evaluate
from layermem.schedule.ir import Schedule
from layermem.solver.build import build_nets
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.spill_rates import resolve_spill
from layermem.utils.units import aligned
from tools.campaign.net_grammar import random_net
from tools.campaign.session import Campaign, add_arguments, time_limit

ROOT = Path(__file__).resolve().parents[1]
SLICED = 0.5  # fraction of runs that are in slices, if possible
DRAWS = 4  # draws of layers to slice for one run, with --sliced
RUNS = 5  # runs of a net besides the one of strategy `caffe`
SLACK = 48 << 20  # bytes that training may add to the resident set besides the arenas
LEAK = 256 << 20  # bytes that all nets together may add to it
LIMIT = 300  # seconds for one run, on a machine that also does other work
EXACT_LAYERS = 12  # layers of a net for recompute-exact, whose time grows with the number of lower sets
PAGE = 256  # a budget this much below the minimum must be refused

RULES = {
    "SGD": "momentum: 0.9",
    "Nesterov": "momentum: 0.8",
    "AdaGrad": "",
    "RMSProp": "rms_decay: 0.9",
    "AdaDelta": "momentum: 0.95 delta: 1e-6",
    "Adam": "momentum: 0.9 momentum2: 0.99",
}
POLICIES = (
    'lr_policy: "fixed"',
    'lr_policy: "step" gamma: 0.5 stepsize: 1',
    'lr_policy: "exp" gamma: 0.9',
    'lr_policy: "inv" gamma: 0.1 power: 0.75',
    'lr_policy: "multistep" gamma: 0.1 stepvalue: 1 stepvalue: 2',
    'lr_policy: "poly" power: 2',
    'lr_policy: "sigmoid" gamma: -1 stepsize: 1',
)


@dataclass(frozen=True)
class Run:
    """Settings to train a net; `resumed_at` is the iteration whose snapshot another solver resumes, 0 for none."""

    strategy: str
    budget: str = "none"  # none, minimum, between
    share: float = 0.0  # position from the minimum upwards, for `between`
    host: str = "default"  # default, memory, little, spill
    threads: int = 1
    poison: bool = False
    resumed_at: int = 0
    part_bytes: int = Device.part_bytes  # size of a part of 16-bit operands in fp32: one part, or several
    slices: str = OFF

    @staticmethod
    def random(rng: random.Random, iterations: int, layers: int) -> Run:
        slow = {"recompute-exact"} if layers > EXACT_LAYERS else set()
        return Run(
            rng.choice(sorted(STRATEGIES.keys() - slow)),
            rng.choice(("none", "minimum", "minimum", "between")),
            rng.random(),
            rng.choice(("default", "memory", "memory", "little", "spill")),
            rng.randint(1, 4),
            rng.random() < 0.3,
            rng.choice((0, 0, 0, rng.randrange(1, iterations))),
            rng.choice((Device.part_bytes, 4096, 1)),
        )

    def sliced(self, rng: random.Random, job: Job) -> Run:
        """This run in slices, if the drawn layers can be sliced."""
        assert job.slicer is not None
        counts = [count for count in range(2, job.slicer.items + 1) if job.slicer.items % count == 0]
        layers = [op.layers[0] for op in job.whole.of_kind(FORWARD) if op.layers]
        if not counts or not layers:
            return self
        first, last = sorted(rng.choices(range(len(layers)), k=2))
        ranges = ("whole", f"..{layers[last]}", f"..{layers[last]}", f"{layers[first]}..{layers[last]}")
        cut = f"{rng.choice(ranges)}/{rng.choice(counts)}"
        try:
            job.with_slices(cut)
        except InputError:
            return self
        return replace(self, slices=cut)


BASELINE = Run("caffe")
DIVERGED = ("training diverged",)  # replaces the bits: every run of the net must report divergence
HOST_BUDGETS = {"default": None, "memory": 1 << 40, "little": 4096}


class Different(Exception):
    """A run differs from its prediction; the text is the difference."""


def random_solver(rng: random.Random, iterations: int) -> str:
    kind = rng.choice(sorted(RULES))
    fields = [
        f'type: "{kind}" {RULES[kind]}',
        rng.choice(POLICIES),
        f"base_lr: {rng.choice((0.1, 0.01, 0.001))}",
        f"max_iter: {iterations}",
        f"random_seed: {rng.randrange(2**31)}",
        "snapshot_after_train: false",
        rng.choice(("", "weight_decay: 0.01", 'weight_decay: 0.001 regularization_type: "L1"')),
        rng.choice(("", "", "clip_gradients: 0.5")),
        rng.choice(("", "", "iter_size: 2", "iter_size: 3")),
        rng.choice(("", "test_iter: 1 test_interval: 2")),
        rng.choice(("", "", "snapshot_format: HDF5")),
    ]
    return "\n".join(filter(None, fields)) + "\n"


def solver_text(rng: random.Random, iterations: int, item_by_item: bool = False, net: str = "") -> str:
    text = net or f'net_param {{ name: "random"\n{random_net(rng, item_by_item)}}}\n'
    return f"{random_solver(rng, iterations)}{text}"


def named_net(name: str, batch: int) -> str:
    """A net of prototxt/ as a part of a solver, in batches of `batch` items, with the data of stage "dummy"."""
    path = ROOT / "prototxt" / name / "train_val.prototxt"
    message = NetParameter()
    message.CopyFrom(read_net(path).message)
    kept = [layer for layer in message.layer if not any("dummy" in rule.not_stage for rule in layer.include)]
    del message.layer[:]
    for layer in kept:
        for rule in layer.include:
            rule.ClearField("stage")
        for shape in layer.dummy_data_param.shape:
            shape.dim[0] = batch
        if layer.HasField("data_param"):
            layer.data_param.batch_size = batch
            layer.data_param.source = str(path.parent / layer.data_param.source)
    message.layer.extend(kept)
    return f"net_param {{\n{message}}}\n"


def in_slices(runs: Sequence[Run], rng: random.Random, job: Job, always: bool) -> list[Run]:
    """A fraction of the runs, or all, in slices, if the drawn layers can be sliced."""
    results = []
    for run in runs:
        draws = DRAWS if always else int(rng.random() < SLICED)
        sliced = (run.sliced(rng, job) for _ in range(draws))
        results.append(next((each for each in sliced if each.slices != OFF), run))
    return results


# -- one run ---------------------------------------------------------------------------------------------------------


def loss_scale_for(text: str, device: Device) -> str | int | None:
    """The loss scale of all runs of a net in fp16: dynamic, or a number, the larger of which overflows."""
    return (None, 2**12, 2**24)[len(text) % 3] if device.storage in SCALED else None


def removed_snapshots(folder: Path, iterations: int) -> list[str]:
    """The files of the last snapshot, in hexadecimal; all are removed."""
    content = [path.read_bytes().hex() for path in sorted(folder.glob(f"run_iter_{iterations}.*"))]
    for path in folder.glob("run_iter_*"):
        path.unlink()
    if left := [path.name for path in folder.iterdir()]:
        raise Different(f"leaves {', '.join(left)} in the folder of its snapshots")
    return content


def train(text: str, run: Run, device: Device, iterations: int, folder: Path) -> tuple[str, ...]:
    """The bytes of the last snapshot and the losses in hexadecimal, or DIVERGED; Different for a wrong prediction."""
    file = read_solver_text(f'snapshot_prefix: "{folder}/run"\n{text}', str(folder / "solver.prototxt"))
    device.part_bytes = run.part_bytes
    if isinstance(device, CpuDevice):
        cpu.set_threads(run.threads)
    options = {"spill": folder} if run.host == "spill" else {"host_budget": HOST_BUDGETS[run.host]}
    budget = check_budgets(run, file, device, options)
    losses: list[float] = []
    tested = False

    def log(event: Event) -> None:
        nonlocal tested
        tested |= isinstance(event, Tested)
        if isinstance(event, Stepped):
            losses.append(event.loss)

    snapshot, diverged = None, False
    for end in sorted({run.resumed_at, iterations} - {0}):
        tested = False
        with Solver(
            file,
            device=device,
            strategy=run.strategy,
            budget=budget,
            poison=run.poison,
            snapshot=snapshot,
            iterations=end,
            log=log,
            slices=run.slices,
            loss_scale=loss_scale_for(text, device),
            **options,
        ) as solver:
            reset_peak()
            before = memory("VmRSS")
            try:
                solver.step(end - solver.iteration)
                check_memory(solver, budget, run, tested, memory("VmHWM") - before)
                snapshot = solver.snapshot()
            except DivergenceError:
                diverged = True
                break
    content = removed_snapshots(folder, iterations)
    # A snapshot for resuming detects values that are not finite one iteration before the next loss does.
    return DIVERGED if diverged else (struct.pack(f"{len(losses)}d", *losses).hex(), *content)


def check_budgets(run: Run, file: SolverFile, device: Device, options: dict[str, object]) -> int | None:
    """The budget of the run in bytes; Different if one below the minimum is not refused."""
    spill = resolve_spill(str(options["spill"]) if "spill" in options else None, device)
    job = solver_job(file, build_nets(file), StepOptions(device=device, spill=spill)).with_host_budget(
        options.get("host_budget")
    )
    job = job.with_slices(run.slices)
    report = evaluate(job, run.strategy)
    if run.budget == "none":
        return None
    if evaluate(job, run.strategy, report.minimum_bytes - PAGE).feasible:
        raise Different(f"fits {PAGE} bytes below its minimum of {report.minimum_bytes:,}")
    free = report.peak_bytes - report.minimum_bytes
    return report.minimum_bytes + (int(free * run.share) if run.budget == "between" else 0)


def check_memory(solver: Solver, budget: int | None, run: Run, tested: bool, grown: int) -> None:
    program, measured = solver.program, solver.runner.measured_peak_bytes
    predicted = program.arena_bytes
    if budget is not None and predicted > budget:
        raise Different(f"predicts {predicted:,} bytes above the budget of {budget:,}")
    train_schedules = len(program.schedules) - len(solver.nets.tests)
    least = written_bytes(program.schedules if tested else program.schedules[:train_schedules])
    if not least <= measured <= predicted:
        raise Different(f"measured {measured:,} bytes where {least:,} to {predicted:,} were predicted")
    bound = predicted + (0 if run.host == "spill" else program.host_bytes) + SLACK
    if grown > bound:
        raise Different(f"lets the resident set grow by {grown:,} bytes beside an arena of {predicted:,}")


def written_bytes(schedules: Sequence[Schedule]) -> int:
    """The end of the highest buffer that these write; an op need not write all of its workspace, or of the carry of
    slices, and a mask byte may equal the pattern of untouched memory."""
    return max(
        aligned(r.offset + r.nbytes)
        for schedule in schedules
        for r in schedule.residencies
        if not r.host and not r.buffer.endswith((".workspace", ".carry")) and r.nbytes >= WORD_BYTES
    )


def memory(field: str) -> int:
    """VmRSS, or VmHWM since reset_peak(), in bytes; 0 if the system does not report it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


# -- one net ---------------------------------------------------------------------------------------------------------


def random_device(rng: random.Random) -> Device:
    make = ReferenceDevice if rng.random() < 0.15 else CpuDevice
    device = make(storage=rng.choice(STORAGES))
    if isinstance(device, CpuDevice):
        cpu.set_isa(rng.choice(cpu.available_isas()))
    return device


def try_net(
    campaign: Campaign, index: int, rng: random.Random, folder: Path, sliced: bool = False, net: str = ""
) -> None:
    iterations = rng.randint(2, 3)
    text = solver_text(rng, iterations, sliced, net)
    device = random_device(rng)
    runs = [Run.random(rng, iterations, text.count("layer {")) for _ in range(RUNS)]
    campaign.count("nets")
    expected: tuple[str, ...] | None = None
    for number in range(RUNS + 1):
        run = runs[number - 1] if number else BASELINE
        try:
            with time_limit(LIMIT):
                bits = train(text, run, device, iterations, folder)
            if expected is None:
                expected = bits
                file = read_solver_text(text, "solver.prototxt")
                job = solver_job(file, build_nets(file), StepOptions(device=device))
                runs = in_slices(runs, rng, job, sliced)
                campaign.count("nets in slices", any(each.slices != OFF for each in runs))
            if bits != expected:
                raise Different("ends in other bits than strategy caffe")
            campaign.count("diverged runs" if bits == DIVERGED else "runs")
            campaign.count("runs in 16 bits", device.storage in NARROW)
            campaign.count("runs in slices", run.slices != OFF)
        except BudgetError as error:
            if error.host or run.host == "little":
                campaign.count("refused host budgets")
                continue
            campaign.report(index, f"{device.arithmetic}: {run} is refused: {error}", {"solver.prototxt": text})
        except InputError as error:
            campaign.count("refused nets")
            if expected is not None:
                campaign.report(index, f"{device.arithmetic}: {run}: {error}", {"solver.prototxt": text})
        except Exception as error:
            what = f"{device.arithmetic}: {run}: {type(error).__name__}: {error}"
            campaign.report(index, what, {"solver.prototxt": text})
        if expected is None:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--sliced", action="store_true", help="nets that can be sliced, in slices alone")
    parser.add_argument("--net", metavar="NAME:BATCH", help="a net of prototxt/ instead of random ones")
    options = parser.parse_args()
    campaign = Campaign.from_arguments("random_nets", options)
    campaign.words = " --sliced" * options.sliced + (f" --net {options.net}" if options.net else "")
    name, _, batch = (options.net or "").partition(":")
    net = named_net(name, int(batch)) if name else ""
    before = memory("VmRSS")
    for index, rng in campaign.inputs():
        campaign.note(index)
        with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
            try_net(campaign, index, rng, Path(folder), options.sliced, net)
    if (grown := memory("VmRSS") - before) > LEAK:
        campaign.report(index, f"{grown:,} bytes more are resident than before the first net", {})
    return campaign.finish()


if __name__ == "__main__":
    sys.exit(main())
