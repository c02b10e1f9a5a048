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


@functools.cache
def server() -> subprocess.Popen[str]:
    """programs/serve.py, waiting for programs to run."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "serve.py")],
        env=fake_driver.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=builder.ROOT,
    )
    atexit.register(process.communicate)  # it ends where its input does
    return process


def run(program: str | Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """As fake_driver.run, with the kernels at hand, and a cache of its own unless LAYERMEM_CACHE names one."""
    text, path = (program.read_text(encoding="utf-8"), str(program)) if isinstance(program, Path) else (program, None)
    process = server()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / "stdout", Path(folder) / "stderr"]
        for file in said:
            file.touch()
        cache = Path(folder) / "cache"
        cache.mkdir()
        request = {
            "program": text,
            "path": path,
            "arguments": arguments,
            "said": list(map(str, said)),
            "environment": environment_of(str(cache), **settings),
        }
        print(json.dumps(request), file=process.stdin, flush=True)
        status = int(process.stdout.readline())
        return subprocess.CompletedProcess([path or "-c", *arguments], status, *(file.read_text() for file in said))


def trained(jobs: Sequence[Mapping[str, Any]], **settings: object) -> list[dict[str, Any]]:
    """The answers of programs/train.py to these jobs; `settings` are the fake driver's."""
    done = run(PROGRAMS / "train.py", json.dumps(list(jobs)), **settings)
    assert done.returncode == 0, f"training ended with {done.returncode}: {done.stderr}"
    return json.loads(done.stdout)


def environment_of(cache: str, **settings: object) -> dict[str, str]:
    """fake_driver.environment, with the kernels at hand, and `cache` unless LAYERMEM_CACHE names another."""
    given = fake_driver.environment(**settings)
    return {"LAYERMEM_CACHE": cache, **given, "LAYERMEM_KERNELS": str(kernels())}


def layermem(*words: object, **settings: object) -> subprocess.CompletedProcess[str]:
    """The command, on the fake driver."""
    return run("from layermem.cli import main; raise SystemExit(main())", *map(str, words), **settings)
