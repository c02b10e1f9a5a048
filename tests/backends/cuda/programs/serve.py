"""Runs Python programs, each in a copy of this process, so that what they import is imported once.

A line {"program": text, "path": file or null, "arguments": [..], "environment": {..}, "said": [file, file]} is one: the
text of the file, or statements as behind `python -c`.  Its stdout and stderr go to the files of `said`; the exit status
follows on a line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pycuda.driver  # noqa: F401

import layermem.cli.train
import layermem.solver.training  # noqa: F401
import tests.nets  # noqa: F401
from layermem.backends.cuda.driver import context, graph, host_io  # noqa: F401


def become(request: dict[str, Any]) -> None:
    """This copy goes on as the program does, and ends as it does, the driver included."""
    os.environ.clear()
    os.environ.update(request["environment"])
    for descriptor, path in enumerate((os.devnull, *request["said"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    path, main = request["path"], ModuleType("__main__")
    sys.argv = [path or "-c", *request["arguments"]]
    sys.path[0] = str(Path(path).parent) if path else ""
    if path:
        main.__file__ = path
    sys.modules["__main__"] = main
    exec(compile(request["program"], path or "<string>", "exec"), main.__dict__)


def serve() -> None:
    for line in sys.stdin:
        copy = os.fork()
        if copy == 0:
            return become(json.loads(line))
        _, status = os.waitpid(copy, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


serve()
