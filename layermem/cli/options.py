"""Options that several verbs share, and how their words become values."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from layermem.errors import InputError

if TYPE_CHECKING:
    from layermem.api import Net

Verbs = Any  # what argparse's add_subparsers returns: its class is private


def add_verb(verbs: Verbs, name: str, says: str, example: str) -> argparse.ArgumentParser:
    """A parser for one verb; `example` is shown below its options as it stands."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=says,
        description=says[0].upper() + says[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_net(parser: argparse.ArgumentParser, *, phase: bool = True) -> None:
    """--net and all that decides its shapes."""
    parser.add_argument("--net", metavar="F", required=True, help="the net, a prototxt file")
    if phase:
        parser.add_argument("--phase", choices=("TRAIN", "TEST"), type=str.upper, default="TRAIN", help="(TRAIN)")
    add_shapes(parser)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", metavar="N", type=int, help="batch size in place of what the net says")
    parser.add_argument(
        "--input",
        metavar="NAME=N,C,H,W",
        action="append",
        default=[],
        help="shape of an input blob; a data set whose shapes are given need not exist (may be given again)",
    )
    parser.add_argument(
        "--net-stage",
        metavar="S",
        action="append",
        default=[],
        help="turn on a stage of the net's include rules, as dummy",
    )
    parser.add_argument("--net-level", metavar="N", type=int, default=0, help="level of the net's include rules (0)")


def add_json(parser: argparse.ArgumentParser) -> None:
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


def print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1, allow_nan=False))
