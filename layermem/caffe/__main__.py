"""`python -m layermem.caffe script.py ...` runs a script for pycaffe; `import caffe` gives it layermem.caffe."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from traceback import walk_tb

from layermem.caffe.modes import configure
from layermem.errors import LayermemError
from layermem.python_layers.answering import install
from layermem.utils.text import wrap

DESCRIPTION = "Run a script written for pycaffe: `import caffe` gives it layermem's nets and solvers."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return the exit code."""
    arguments = _parser().parse_args(argv)
    script = arguments.script
    if not os.path.isfile(script):
        _report([f"there is no script '{script}'; give the path of a Python file"])
        return 2
    configure(
        budget=arguments.budget,
        strategy=arguments.strategy,
        device=arguments.device,
        allow_python=arguments.allow_python or None,
    )
    install()
    sys.argv = [script, *arguments.arguments]
    path = os.path.abspath(script)  # __file__ is absolute in a script that Python runs
    sys.path[0] = os.path.dirname(path)
    try:
        runpy.run_path(path, run_name="__main__")
    except LayermemError as error:
        _report([*error.lines, *_place(error, path)])
        return error.exit_code
    return 0


def _place(error: BaseException, script: str) -> list[str]:
    """The last line of the script in the traceback of the error."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == script]
    return [f"  in  {script}:{lines[-1]}"] if lines else []


def _report(lines: Sequence[str]) -> None:
    sentence, *details = lines
    print("\n".join(map(wrap, (f"layermem: {sentence}", *details))), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m layermem.caffe", description=DESCRIPTION)
    parser.add_argument("--budget", metavar="B", help='of each net and solver: "1GiB", "50%%", ...; default: no limit')
    parser.add_argument("--strategy", metavar="S", help="as for `layermem plan`")
    parser.add_argument(
        "--device", metavar="D", help="in place of what the script sets by set_mode_cpu or set_mode_gpu"
    )
    parser.add_argument("--allow-python", action="store_true", help="import and run the classes of Python layers")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    return parser


if __name__ == "__main__":
    sys.exit(main())
