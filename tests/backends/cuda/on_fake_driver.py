"""Runs programs on the fake driver, with the kernels of cuda/ built for the host."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layermem.backends.cuda.kernel_images.sources import modules
from tests.emulator import build as builder
from tests.emulator import fake_driver

PROGRAMS = Path(__file__).resolve().parent / "programs"


@functools.cache
def kernels() -> Path:
    """A folder with <module>.fatbin for every module, each a library for this machine."""
    sources = [f"cuda/{module}.cu" for module in modules()]
    builder.build_many((source, "plain") for source in sources)
    built = [builder.build(source) for source in sources]
    folder = builder.CACHE / "fatbins"
    folder.mkdir(parents=True, exist_ok=True)
    for module, library in zip(modules(), built):
        target, partial = folder / f"{module}.fatbin", folder / f".{module}.{os.getpid()}"
        shutil.copyfile(library, partial)
        partial.rename(target)
    return folder


def trained(jobs: Sequence[Mapping[str, Any]], **settings: object) -> list[dict[str, Any]]:
    """The answers of programs/train.py to these jobs; `settings` are the fake driver's."""
    done = run(PROGRAMS / "train.py", json.dumps(list(jobs)), **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(program: str | Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """As fake_driver.run, with the kernels at hand, and a cache of its own unless LAYERMEM_CACHE names one."""
    script = [str(program)] if isinstance(program, Path) else ["-c", program]
    command = [sys.executable, *script, *arguments]
    with tempfile.TemporaryDirectory() as cache:
        given = fake_driver.environment(**settings)
        environment = {"LAYERMEM_CACHE": cache, **given, "LAYERMEM_KERNELS": str(kernels())}
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=builder.ROOT)


def layermem(*words: object, **settings: object) -> subprocess.CompletedProcess[str]:
    """The command, on the fake driver."""
    return run("from layermem.cli import main; raise SystemExit(main())", *map(str, words), **settings)
