"""Options that several verbs share, and how their words become values."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from layermem.errors import InputError
from layermem.utils.units import parse_bytes

if TYPE_CHECKING:
    from layermem.api import Net
    from layermem.backends.base import Device
    from layermem.planning.base import Hints
    from layermem.report.plan_report import Job

Verbs = Any  # what argparse's add_subparsers returns: its class is private
MOST_THREADS = 1024  # they wait for each other in each op: far more of them than cores never end
Options = Any  # a parser, or a group of its options


class VerbParser(argparse.ArgumentParser):
    """A parser whose help may end in text that takes a moment to find."""

    more: Callable[[], str] | None = None

    def format_help(self) -> str:
        text = super().format_help()
        return f"{text}\n{self.more()}" if self.more else text


def add_verb(
    verbs: Verbs, name: str, says: str, example: str, more: Callable[[], str] | None = None
) -> argparse.ArgumentParser:
    """A parser for one verb; `example` is shown below its options as it stands, then what `more` says."""
    parser: VerbParser = verbs.add_parser(
        name,
        help=says,
        description=says[0].upper() + says[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.more = more
    return parser


def strategies_text() -> str:
    """The strategies, a line each, with what they say of themselves."""
    from layermem.planning.strategies import STRATEGIES

    width = max(map(len, STRATEGIES))
    return "strategies:\n" + "".join(f"  {each.name:<{width}}  {each.description}\n" for each in STRATEGIES.values())


def add_net(parser: Options) -> None:
    """--net and --phase, and all that decides shapes."""
    parser.add_argument("--net", metavar="F", required=True, help="the net, a prototxt file")
    _add_phase(parser)
    _add_shapes(parser)


def add_net_or_solver(parser: Options) -> Options:
    """--net or --solver, and all that decides shapes and costs; the group that both exclude each other in."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--net", metavar="F", help="a net, planned with an SGD-momentum update")
    which.add_argument("--solver", metavar="F", help="a solver, planned with its own update and its test nets")
    _add_phase(parser)
    _add_shapes(parser)
    add_device(parser)
    parser.add_argument("--costs", metavar="costs.csv", help="measured times, from `layermem time` (a model)")
    return which


def add_device(parser: Options) -> None:
    """--device, and what changes the numbers or bytes of one."""
    parser.add_argument("--device", metavar="D", help="reference, cpu or cuda (cpu)")
    parser.add_argument(
        "--precision", metavar="P", help="of matrix products on cuda: fp32, fp32x3, tf32 or bf16 (fp32)"
    )


def _add_phase(parser: Options) -> None:
    parser.add_argument(
        "--phase", choices=("TRAIN", "TEST"), type=str.upper, default="TRAIN", help="of the net (TRAIN)"
    )


def _add_shapes(parser: Options) -> None:
    parser.add_argument("--batch", metavar="N", type=int, help="batch size in place of what the net says")
    parser.add_argument(
        "--input",
        metavar="NAME=N,C,H,W",
        action="append",
        default=[],
        help="shape of an input blob; a data set whose shapes are given need not exist (may be given again)",
    )
    parser.add_argument(
        "--net-stage", metavar="S", action="append", default=[], help="turn on a stage of the net's include rules"
    )
    parser.add_argument("--net-level", metavar="N", type=int, default=0, help="level of the net's include rules (0)")


def add_budget(parser: Options) -> None:
    """--budget and what else a user may tell a strategy."""
    parser.add_argument(
        "-b", "--budget", metavar="B",
        help="bytes of device memory: 2GiB, 512KiB, 50%% of what strategy `caffe` takes, or `free` (what a card has)",
    )  # fmt: skip
    parser.add_argument("--host-budget", metavar="B", help="bytes that may be offloaded to the host (no limit)")
    parser.add_argument(
        "--hints", metavar="F", help="a file of lines `stage|keep|recompute GLOBS` (NET.hints, if it is there)"
    )
    for name, says in (
        ("stage", "layers at whose outputs a recomputed segment may end (anywhere), as 'res*'"),
        ("keep", "layers whose outputs are kept, never recomputed"),
        ("recompute", "layers whose outputs are recomputed, never kept"),
    ):
        parser.add_argument(f"--{name}", metavar="GLOBS", action="append", default=[], help=f"{says}; commas between")


def add_json(parser: Options) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def read_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """{"data": (64, 3, 224, 224)} from ["data=64,3,224,224"]."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        try:
            shape = tuple(int(number) for number in numbers.replace("x", ",").split(",") if numbers)
        except ValueError:
            shape = ()
        if not (name and equals and shape):
            raise InputError(f"--input '{text}' names no shape; write it as data=64,3,224,224")
        if name in shapes:
            raise InputError(f"--input gives '{name}' two shapes; give one")
        shapes[name] = shape
    return shapes


def net_of(arguments: argparse.Namespace, phase: str | None = None) -> Net:
    """The net that --net, --batch, --input, --net-stage and --net-level describe."""
    from layermem.api import Net

    return Net(
        arguments.net,
        phase or arguments.phase,
        batch=arguments.batch,
        inputs=read_shapes(arguments.input),
        level=arguments.net_level,
        stages=arguments.net_stage,
    )


def hints_of(arguments: argparse.Namespace) -> Hints:
    """The hints of the options and of --hints; those beside the net come when it is read."""
    from layermem.planning.base import Hints
    from layermem.planning.hints import joined, read_hints

    given = Hints(
        segment_ends=_globs(arguments.stage),
        keep=_globs(arguments.keep),
        recompute=_globs(arguments.recompute),
        host_budget=None if arguments.host_budget is None else parse_bytes(arguments.host_budget),
    )
    return joined(given, read_hints(arguments.hints)) if arguments.hints else given


def _globs(texts: list[str]) -> tuple[str, ...]:
    return tuple(glob for text in texts for glob in text.replace(",", " ").split())


def device_of(arguments: argparse.Namespace) -> Device:
    """The device of --device, with what the verb's other options say of it."""
    from layermem.api import default_device
    from layermem.backends.base import get_device

    name = arguments.device or default_device()
    told: dict[str, Any] = {}
    for option, owner in (("threads", "cpu"), ("precision", "cuda"), ("graph", "cuda")):
        value = getattr(arguments, option, None)
        if value is None or value is False:
            continue
        if name != owner:
            raise InputError(f"--{option} goes with --device {owner}, not with {name}")
        if option == "threads" and value > MOST_THREADS:
            raise InputError(f"--threads {value} would spend its time on switching; give at most {MOST_THREADS:,}")
        told[option] = value
    return get_device(name, **told)


def job_of(arguments: argparse.Namespace) -> Job:
    """What --net or --solver, --device, --costs and the hints make to be planned."""
    from layermem import api

    if arguments.solver:
        if arguments.input:
            raise InputError("--input goes with --net; a solver's nets state their own shapes")
        return api.job_of(
            None, solver=arguments.solver, device=device_of(arguments), costs=arguments.costs, batch=arguments.batch,
            hints=hints_of(arguments), level=arguments.net_level, stages=arguments.net_stage,
        )  # fmt: skip
    return api.job_of(net_of(arguments), device=device_of(arguments), costs=arguments.costs, hints=hints_of(arguments))


def print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1, allow_nan=False))
