"""Options that several verbs share, and the values that they stand for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from layermem.errors import InputError
from layermem.utils.files import WEIGHT_ENDINGS, check_name
from layermem.utils.free_memory import free_memory
from layermem.utils.numbers import parse_integer
from layermem.utils.steps import is_quiet
from layermem.utils.text import wrap
from layermem.utils.units import FREE, format_bytes, parse_bytes

if TYPE_CHECKING:
    from layermem.backends.base import Device
    from layermem.graph.net import Net, NetOptions
    from layermem.planning.hints import Hints
    from layermem.planning.job import Job
    from layermem.planning.spill import Spill
    from layermem.proto.read import NetFile, SolverFile
    from layermem.solver.jobs import StepOptions

MAX_THREADS = 1024  # each op waits for all threads: with far more threads than cores a step never ends
Options: TypeAlias = "argparse._ActionsContainer"  # a parser, or a group of its options
# Titles of groups of options.
NETS, DEVICE, TIMES, MEMORY = "nets and data", "device", "times of ops", "memory"
COSTS_HELP = "measured times of this very step, from `layermem time` (default: a model of the device)"
DEVICE_OPTIONS = (
    ("index", "-gpu", "index", "cuda"),
    ("threads", "--threads", "threads", "cpu"),
    ("precision", "--precision", "precision", "cuda"),
    ("cuda_graph", "--cuda-graph", "graph", "cuda"),
    ("transport", "--transport", "transport", "cuda"),
    ("gpu", "--card", "planned_gpu", "cuda"),
    ("storage", "--storage", "storage", ""),
)


def strategies_text() -> str:
    """Return the strategies with their descriptions, one per line."""
    from layermem.planning.strategies import STRATEGIES

    width = max(map(len, STRATEGIES))
    lines = (wrap(f"  {each.name:<{width}}  {each.description}") for each in STRATEGIES.values())
    return "strategies:\n" + "".join(f"{line}\n" for line in lines)


def titled(parser: Options, title: str) -> Options:
    """Return the group of options with this title, made at its first use; a group takes all options itself."""
    if isinstance(parser, argparse._ArgumentGroup):
        return parser
    known = (group for group in parser._action_groups if group.title == title)
    return next(known, None) or parser.add_argument_group(title)


def add_net_or_solver(parser: Options, *, required: bool = True) -> None:
    """Add --net and --solver, which exclude each other, and the options that determine shapes and costs."""
    add_nets(parser, required=required)
    add_device(parser)
    add_storage(parser)
    add_costs(parser)


def add_nets(parser: Options, *, required: bool = True) -> None:
    """Add --net and --solver, which exclude each other, and the options that determine shapes."""
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--net", metavar="F", help="a net prototxt, planned with SGD momentum updates")
    which.add_argument("--solver", metavar="F", help="a solver prototxt, planned with its own updates and test nets")
    _add_phase(parser)
    _add_shapes(parser)


def add_costs(parser: Options) -> None:
    titled(parser, TIMES).add_argument("--costs", metavar="costs.csv", help=COSTS_HELP)


def add_device(parser: Options) -> None:
    """Add --device and --precision."""
    parser = titled(parser, DEVICE)
    parser.add_argument("--device", metavar="D", help="reference, cpu or cuda (default: cpu)")
    parser.add_argument(
        "--precision", metavar="P", help="matrix products on cuda in fp32, fp32x3, tf32 or bf16 (default: fp32)"
    )


def add_storage(parser: Options) -> None:
    """Add --storage."""
    titled(parser, DEVICE).add_argument(
        "--storage",
        metavar="S",
        help="activations and their gradients are stored in fp32, or in the 16 bits of bf16 or fp16; parameters, sums "
        "and arithmetic stay in fp32 (default: fp32)",
    )


def add_gpu(parser: Options) -> None:
    """Add --card."""
    titled(parser, DEVICE).add_argument(
        "--card",
        metavar="NAME",
        dest="gpu",
        help="plan for a GPU that need not be here, such as 'RTX 4090', by its published rates, or by its memory, "
        "bandwidth and FLOPs, such as 8GiB,448GB/s,20TFLOPs; in all of its memory unless --budget is given "
        "(`layermem devices --gpus` lists names)",
    )


def budget_of(arguments: argparse.Namespace) -> str | None:
    """Return --budget; with --card the default is all memory of that GPU."""
    budget: str | None = arguments.budget
    return FREE if budget is None and arguments.gpu is not None else budget


def free_line(arguments: argparse.Namespace, budget_bytes: int | None) -> str:
    """A line that says where the budget `free` of a device in host memory comes from; empty for other budgets."""
    free = free_memory() if str(arguments.budget).endswith(FREE) and arguments.device != "cuda" else None
    if free is None or budget_bytes is None or getattr(arguments, "gpu", None) is not None:
        return ""
    text = f"budget          {format_bytes(budget_bytes)}: {free.whose}, less what the process takes beside it"
    return wrap(text) + "\n"


def _add_phase(parser: Options) -> None:
    titled(parser, NETS).add_argument(
        "--phase", choices=("TRAIN", "TEST"), type=str.upper, help="phase of --net (default: TRAIN)"
    )


def _add_shapes(parser: Options) -> None:
    titled(parser, NETS).add_argument("--batch", metavar="N", type=int, help="batch size, instead of the net's own")
    add_input(parser)
    add_net_state(parser)
    add_allow_python(parser)


def add_allow_python(parser: Options) -> None:
    titled(parser, NETS).add_argument(
        "--allow-python", action="store_true", help="import and run the classes of Python layers, with your permissions"
    )


def add_input(parser: Options) -> None:
    titled(parser, NETS).add_argument(
        "--input",
        metavar="NAME=N,C,H,W",
        action="append",
        default=[],
        help="shape of an input blob (repeatable); a data set with all shapes given need not exist",
    )


def add_data(parser: Options) -> None:
    titled(parser, NETS).add_argument(
        "--data",
        metavar="D",
        help="instead of the data that the nets of a solver name: noise, noise:SEED, or arrays by names of tops in an "
        ".npz file (`layermem docs arrays`)",
    )


def add_weights(parser: Options, what: str, *, required: bool = False) -> None:
    parser.add_argument(
        "--weights",
        metavar="F",
        action="append",
        required=required,
        help=f"{what}: .caffemodel, .h5, .safetensors or .npz (repeatable, or with commas)",
    )


def weight_files(arguments: argparse.Namespace) -> list[str]:
    """Return the values of --weights, in order; InputError for names of files that hold no weights."""
    files = [name.strip() for names in arguments.weights or () for name in names.split(",")]
    for name in files:
        check_name(name, (*WEIGHT_ENDINGS, ".onnx"), "a weight file")
    return files


def add_net_state(parser: Options) -> None:
    """Add --stage and --level, the rest of Caffe's NetState."""
    parser = titled(parser, NETS)
    parser.add_argument(
        "--stage", metavar="S", action="append", default=[], help="NetState stages to turn on; separate with commas"
    )
    parser.add_argument("--level", metavar="N", type=int, default=0, help="NetState level (default: 0)")


def add_threads(parser: Options) -> None:
    titled(parser, DEVICE).add_argument(
        "--threads", metavar="N", type=int, help="threads of the cpu device (default: all cores)"
    )


def add_budget(parser: Options) -> None:
    """Add --budget, --host-budget, --spill, --slices, --split-weights, and the hints for strategies."""
    parser = titled(parser, MEMORY)
    parser.add_argument(
        "-b",
        "--budget",
        metavar="B",
        help="device memory: 2GiB, 512KiB, 50%% (of strategy `caffe`), or `free` (what the device has left; 80%%free "
        "is a share of it)",
    )
    parser.add_argument(
        "--host-budget",
        metavar="B",
        help="host memory for offloading (default: no limit; on cpu and reference 0, since it is the same memory, or "
        "no limit with --spill)",
    )
    parser.add_argument(
        "--spill",
        metavar="DIR",
        help="keep offloaded bytes in a file in DIR instead of host memory; plans use the rates of its file system, "
        "which are measured once and stored; --measure repeats it",
    )
    _add_slices(parser)
    parser.add_argument(
        "--hints",
        metavar="F",
        help="hints file, with lines `segment-ends|keep|recompute GLOBS` (default: NET.hints, if it exists)",
    )
    for name, description in (
        ("segment-ends", "layers at which a recomputed segment may end, such as 'res*' (default: any)"),
        ("keep", "layers whose outputs are never recomputed"),
        ("recompute", "layers whose outputs are always recomputed"),
    ):
        parser.add_argument(f"--{name}", metavar="GLOBS", action="append", default=[], help=description)


def _add_slices(parser: Options) -> None:
    parser.add_argument(
        "--slices",
        metavar="RANGE/N",
        help="run layers in slices of the batch: conv1_1..pool2/4, the whole step as whole/4, or auto: those with the "
        "fastest plan, which may split weights too (default: off)",
    )
    parser.add_argument(
        "--split-weights",
        metavar="LAYER/N",
        help="split the weights of inner products into bands of rows: fc6/8,fc7/4, off, or auto: those with the "
        "fastest plan (default: auto with --slices auto, else off)",
    )


def add_iter_size(parser: Options) -> None:
    parser.add_argument(
        "--iter-size", metavar="M", type=int, help="micro-batches of an iteration, instead of the solver's iter_size"
    )


def add_ranks(parser: Options) -> None:
    """Add --iter-size and --ranks for verbs that plan."""
    add_iter_size(parser)
    parser.add_argument("--ranks", metavar="N", type=int, help="plan for the first of N ranks (`layermem docs ranks`)")


def add_strategy(parser: Options) -> None:
    titled(parser, MEMORY).add_argument(
        "--strategy", metavar="S", help="one of those below (default: auto under a budget, else liveness)"
    )


def add_strategies(parser: Options) -> None:
    titled(parser, MEMORY).add_argument(
        "--strategies", metavar="A,B", help="which of those below, or `all` (default: all but recompute-exact)"
    )


def add_points(parser: Options) -> None:
    parser.add_argument(
        "--points",
        metavar="N",
        type=int,
        help="budgets of each curve of time over memory (default: 12, or 4 for a step of more than 3,000 ops)",
    )


def add_json(parser: Options) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def read_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Parse ["data=64,3,224,224"] to {"data": (64, 3, 224, 224)}."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        try:
            shape = tuple(parse_integer(number) for number in numbers.replace("x", ",").split(",") if numbers)
        except ValueError:
            shape = ()
        if not (name and equals and shape):
            raise InputError(f"--input '{text}' is not NAME=SHAPE; write it as data=64,3,224,224")
        if name in shapes:
            raise InputError(f"--input gives '{name}' twice; give each blob one shape")
        shapes[name] = shape
    return shapes


def net_options(arguments: argparse.Namespace) -> NetOptions:
    """Return the options --batch, --input, --stage, --level and --allow-python."""
    from layermem.graph.net import NetOptions

    shapes = read_shapes(arguments.input)
    return NetOptions(arguments.batch, shapes, arguments.level, tuple(stages(arguments.stage)), arguments.allow_python)


def net_of(arguments: argparse.Namespace, phase: str | None = None) -> Net:
    """Return the net that --net, --batch, --input, --stage and --level describe."""
    from layermem.interactive.building import built_net

    return built_net(net_file(arguments), phase or arguments.phase or "TRAIN", net_options(arguments))


def hints_of(arguments: argparse.Namespace) -> Hints:
    """Return the hints of the options and of --hints; the hints file of a net is read with the net."""
    from layermem.planning.hints import Hints, merge_hints, read_hints

    given = Hints(
        segment_ends=_globs(arguments.segment_ends),
        keep=_globs(arguments.keep),
        recompute=_globs(arguments.recompute),
        host_budget_bytes=None if arguments.host_budget is None else parse_bytes(arguments.host_budget),
    )
    return merge_hints(given, read_hints(arguments.hints)) if arguments.hints else given


def _globs(texts: list[str]) -> tuple[str, ...]:
    return tuple(glob for text in texts for glob in text.replace(",", " ").split())


def device_of(arguments: argparse.Namespace) -> Device:
    """Return the device of --device with the options that it has for the verb."""
    from layermem.backends.base import get_device
    from layermem.interactive.jobs import default_device

    name = arguments.device or default_device()
    settings: dict[str, object] = {}
    for option, flag, setting, owner in DEVICE_OPTIONS:
        value = getattr(arguments, option, None)
        if value is None or value is False:
            continue
        if owner and name != owner:
            raise InputError(
                f"{flag} needs --device {owner}, and the device is {name}; give that device, or leave it out"
            )
        if option == "threads" and value > MAX_THREADS:
            raise InputError(f"--threads {value} is too many; give at most {MAX_THREADS:,}")
        settings[setting] = value
    return get_device(name, **settings)


def stages(names: Sequence[str]) -> list[str]:
    """Return the NetState stages of --stage."""
    return [name for text in names for name in text.replace(",", " ").split()]


def step_options(arguments: argparse.Namespace) -> StepOptions:
    """Return the step options that --device, --costs, --spill, --ranks and the hints state."""
    from layermem.solver.jobs import StepOptions

    device, ranks = device_of(arguments), getattr(arguments, "ranks", None)
    return StepOptions(
        device=device,
        spill=spill_of(arguments, device),
        costs=arguments.costs,
        hints=hints_of(arguments),
        ranks=1 if ranks is None else ranks,
        iter_size=getattr(arguments, "iter_size", None),
    )


def job_of(arguments: argparse.Namespace) -> Job:
    """Return the job that --net or --solver, --device, --costs and the hints describe."""
    slices, split_weights = (getattr(arguments, name, None) for name in ("slices", "split_weights"))
    step = replace(step_options(arguments), slices=slices, split_weights=split_weights)
    return make_job(arguments, net_options(arguments), step)


def make_job(arguments: argparse.Namespace, options: NetOptions, step: StepOptions) -> Job:
    """Return the job of --net or --solver with these options."""
    from layermem.interactive import jobs

    if arguments.solver:
        data = getattr(arguments, "data", None)
        return jobs.make_job(None, solver_file(arguments), options, step, data=data)
    return jobs.make_job(net_file(arguments), None, options, step, arguments.phase or "TRAIN")


def spill_of(arguments: argparse.Namespace, device: Device) -> Spill | None:
    """Return the spill file of --spill; its rates are measured unless they are kept, or with --measure."""
    from layermem.solver.spill_rates import resolve_spill

    return resolve_spill(arguments.spill, device, again=bool(getattr(arguments, "measure", False)))


def net_file(arguments: argparse.Namespace) -> NetFile:
    """Return the net of --net, which is read once."""
    from layermem.interactive.building import read_source

    if not hasattr(arguments, "net_file"):
        arguments.net_file = read_source(arguments.net)
    file: NetFile = arguments.net_file
    return file


def solver_file(arguments: argparse.Namespace) -> SolverFile:
    """Return the solver of --solver, which is read once."""
    from layermem.proto.read import read_solver

    if not hasattr(arguments, "solver_file"):
        arguments.solver_file = read_solver(arguments.solver, getattr(arguments, "set", None) or ())
    file: SolverFile = arguments.solver_file
    return file


def print_warnings(warnings: Iterable[str], *, of_loss: bool = False) -> None:
    """Print warnings on standard error, so that they do not mix with results; with --quiet only those of files that are
    damaged or lost."""
    for warning in () if is_quiet() and not of_loss else warnings:
        print(wrap(f"layermem: warning: {warning}"), file=sys.stderr)


def print_json(values: Mapping[str, object]) -> None:
    print(json.dumps(values, indent=1, allow_nan=False))
