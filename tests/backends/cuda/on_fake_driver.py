"""Runs programs on the fake driver, with the kernels of cuda/ built for the host."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

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


@functools.cache
def trainer() -> tuple[subprocess.Popen[str], IO[str]]:
    """programs/train.py, waiting for jobs, and the file of what it writes to stderr."""
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "train.py"), "--serve"],
        env=fake_driver.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
        cwd=builder.ROOT,
    )  # fmt: skip
    atexit.register(process.communicate)  # it ends where its input does
    return process, said


def trained(jobs: Sequence[Mapping[str, Any]], **settings: object) -> list[dict[str, Any]]:
    """The answers of programs/train.py to these jobs; `settings` are the fake driver's."""
    process, said = trainer()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as cache:
        environment = environment_of(cache, **settings)
        print(json.dumps({"jobs": list(jobs), "environment": environment}), file=process.stdin, flush=True)
        lines = [process.stdout.readline()]
        while lines[-1].startswith("["):  # behind the answers is the exit status
            lines.append(process.stdout.readline())
    if lines[-1] != "0\n":
        said.seek(0)
        raise AssertionError(f"training ended with {lines[-1] or 'its process'}: {said.read()}")
    return json.loads(lines[0])


def run(program: str | Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """As fake_driver.run, with the kernels at hand, and a cache of its own unless LAYERMEM_CACHE names one."""
    script = [str(program)] if isinstance(program, Path) else ["-c", program]
    command = [sys.executable, *script, *arguments]
    with tempfile.TemporaryDirectory() as cache:
        environment = environment_of(cache, **settings)
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=builder.ROOT)


def environment_of(cache: str, **settings: object) -> dict[str, str]:
    """fake_driver.environment, with the kernels at hand, and `cache` unless LAYERMEM_CACHE names another."""
    given = fake_driver.environment(**settings)
    return {"LAYERMEM_CACHE": cache, **given, "LAYERMEM_KERNELS": str(kernels())}


def layermem(*words: object, **settings: object) -> subprocess.CompletedProcess[str]:
    """The command, on the fake driver."""
    return run("from layermem.cli import main; raise SystemExit(main())", *map(str, words), **settings)
