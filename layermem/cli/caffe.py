"""caffe: the programs of Caffe with their flags, logs and exit codes.  setup-caffe: a tree of them (setup_caffe.py)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from layermem.cli.parser import INSTEAD_OF_DASH, Verbs, add_verb
from layermem.cli.verbosity import apply_verbosity
from layermem.errors import InputError, LayermemError
from layermem.utils.system_faults import system_fault
from layermem.utils.text import printable

if TYPE_CHECKING:
    from layermem.cli.caffe_tools.gflags import Flag
    from layermem.cli.caffe_tools.program import CaffeProgram

EXAMPLE = """\
  layermem examples digits
  layermem caffe train -solver digits/solver.prototxt
  layermem caffe test -model digits/train_val.prototxt -iterations 6 \\
                      -weights out/digits_iter_700.caffemodel
  layermem caffe compute_image_mean digits/digits_train_lmdb mean.binaryproto
"""
ACTIONS = ("train", "test", "time", "device_query")
TOOLS = (
    "convert_imageset",
    "compute_image_mean",
    "extract_features",
    "upgrade_net_proto_text",
    "upgrade_net_proto_binary",
    "upgrade_solver_proto_text",
)
CONVERTERS = {  # by name, the folder of Caffe's examples where it stands
    "convert_mnist_data": "mnist",
    "convert_mnist_siamese_data": "siamese",
    "convert_cifar_data": "cifar10",
}
HELP_FLAGS = ("help", "helpfull", "helpshort", "helppackage", "helpxml", "helpon", "helpmatch")
OF_A_FILE = ("helpon", "helpmatch")  # help flags whose values name files
VERSION = "1.0.0"  # of Caffe with these programs


def add_verbs(verbs: Verbs) -> None:
    description = f"run a program of Caffe with its own flags: {', '.join(ACTIONS)}, or one of those below"
    parser = add_verb(verbs, "caffe", description, EXAMPLE, more=_programs_text, has_parts=True)
    parser.takes_words = True
    parser.usage = "layermem caffe COMMAND [-FLAG VALUE ...]"
    parser.set_defaults(run=run_caffe)


def _programs_text() -> str:
    return "programs:\n" + "".join(f"  {name}\n" for name in (*ACTIONS, *TOOLS, *CONVERTERS))


def run_caffe(arguments: argparse.Namespace) -> int:
    """Run the program that the words name, or else `caffe` itself, and return its exit code."""
    from layermem.cli.caffe_tools.gflags import parse_flags
    from layermem.cli.caffe_tools.glog import Glog, flags_of, into_log
    from layermem.cli.caffe_tools.program import ABORTED, USAGE, Call

    name, words = "caffe", arguments.caffe_words
    if words and words[0] in (*TOOLS, *CONVERTERS):
        name, *words = words
    program = _program(name)
    glog_flags = flags_of(os.environ, on_terminal=program.on_terminal)
    flags = [*program.flags, *glog_flags, *_help_flags()]
    values, others, errors = parse_flags(words if program.has_flags else ["--", *words], flags, name)
    if any(values[each] for each in HELP_FLAGS):
        print(_usage(name, program, program.flags if values["helpshort"] else (*program.flags, *glog_flags)))
        return USAGE
    if values["version"]:
        print(f"{name} version {VERSION}")
        return 0
    if errors:
        print(*(f"ERROR: {printable(text)}" for text in errors), sep="\n", file=sys.stderr)
        return USAGE
    if len(others) not in program.counts and program.has_flags:
        print(_usage(name, program, program.flags))
        return program.usage_code
    arguments.verbose = int(values["v"]) > 0 and arguments.group.is_first
    if not arguments.group.is_first:
        values["minloglevel"] = len(ACTIONS)
    log = Glog(name, values)
    if len(others) not in program.counts:
        log.write(f"Usage: {name} {program.usage}", program.place, "E")
        return program.usage_code
    try:
        if "-" in others:
            raise InputError(f"a file cannot be '-'; {INSTEAD_OF_DASH}")
        with into_log(log, program.place), apply_verbosity(arguments):
            return program.run(Call(values, others, log, arguments))
    except (LayermemError, OSError, MemoryError, RuntimeError) as error:
        fault = error if isinstance(error, LayermemError) else system_fault(error)
        if fault is None:
            raise
        if not fault.is_reported:
            log.write("\n".join(fault.lines), program.place, "F")
        fault.exit_code, fault.is_reported = ABORTED, True
        raise fault from None
    finally:
        log.close()


def _program(name: str) -> CaffeProgram:
    """Return a program by its name; only its module is imported."""
    programs: Mapping[str, CaffeProgram]
    if name == "caffe":
        from layermem.cli.caffe_tools.brew import CAFFE

        return CAFFE
    if name == "extract_features":
        from layermem.cli.caffe_tools.features import PROGRAMS as programs
    elif name.startswith("upgrade"):
        from layermem.cli.caffe_tools.upgrades import PROGRAMS as programs
    else:
        from layermem.cli.caffe_tools.databases import PROGRAMS as programs
    return programs[name]


def _help_flags() -> list[Flag]:
    from layermem.cli.caffe_tools.gflags import Flag

    helps = [Flag(name, "" if name in OF_A_FILE else False, "this help") for name in HELP_FLAGS]
    return [*helps, Flag("version", False, "the version of Caffe")]


def _usage(name: str, program: CaffeProgram, flags: tuple[Flag, ...]) -> str:
    lines = [f"usage: {name} [FLAGS] {program.usage}", "", "flags:"]
    return "\n".join([*lines, *(f"  -{flag.name:<22} {flag.help}" for flag in flags)])
