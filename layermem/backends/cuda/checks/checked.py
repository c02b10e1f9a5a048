"""Records of GPUs whose kernels were checked, and the fallbacks of a step if some kernels are wrong.

    <cache>/checked/<GPU>-<driver>-<digest of the kernels>.json    {"convolution_tf32": "", "pooling": ""}

A record has a text for each family and module (recorded.keys_of): the error of its kernels, or "".  Kernels of a step
without a record are checked before its plan is made.  selftest.py checks them in a separate process, because a kernel
that fails or hangs ends its process; the next process continues with the kernel after that one.  Ranks of one machine
share a record: the first one to lock it checks, the others read the result.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from layermem.backends.base import Device
from layermem.backends.cuda.checks.recorded import family_of_key, keys_of_step, module_of_key
from layermem.backends.cuda.driver.context import Gpu, driver_version
from layermem.backends.cuda.kernel_images import ahead, build
from layermem.backends.cuda.kernel_images.sources import SOURCES
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.backends.cuda.support.families import FAMILIES, families_off, remedy_of, switch_off
from layermem.errors import DeviceError
from layermem.graph.ops import Graph
from layermem.ops import FP32, NARROW
from layermem.planning.gpus import TENSOR_CORES
from layermem.planning.kept_costs import keep, kept_folder

SWITCH = "LAYERMEM_CHECK"  # "off" disables all checks
LAUNCH_SECONDS = 5.0  # time limit of an op
START_SECONDS = 600.0  # time limit of other work between two lines, such as compiling a module
MODULE = "layermem.backends.cuda.checks.selftest"
Results = Mapping[str, str]  # key of recorded.keys_of -> error


@dataclass(frozen=True)
class CheckedGpu:
    """A GPU, and the precision of products and storage of activations of the checked kernels."""

    gpu: Gpu
    precision: str
    storage: str

    @cached_property
    def driver(self) -> str:
        return driver_version()

    @cached_property
    def path(self) -> Path:
        words = "-".join(re.findall(r"[A-Za-z0-9.]+", f"{self.gpu.name}-{self.driver}"))
        return kept_folder("checked") / f"{words}-{digest()}.json"

    @property
    def title(self) -> str:
        return f"{self.gpu.name}, driver {self.driver}"

    def read(self) -> dict[str, str]:
        """The record; empty if there is none, or if it cannot be read."""
        with suppress(OSError, ValueError, AttributeError):
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            return {str(key): str(text) for key, text in saved.items()}
        return {}

    def write(self, results: Results) -> None:
        """Add to the record, which is replaced as a whole; without a cache the next run checks again."""
        keep(self.path, json.dumps({**self.read(), **results}, indent=1).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the record against other processes of this machine, if the cache is writable."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self.path.with_suffix(".lock").open("w")
        except OSError:
            yield
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def digest() -> str:
    """A hash of the kernels: of their sources, or of the files that are loaded instead."""
    hashed = hashlib.blake2b(repr(build.FLAGS).encode())
    for path in sorted(SOURCES.glob("*.cu*")):
        hashed.update(path.name.encode() + path.read_bytes())
    for folder in build.prebuilt_folders():
        for path in sorted(folder.glob("*.fatbin")):
            hashed.update(path.name.encode() + path.read_bytes())
    return hashed.hexdigest()[:12]


def is_switched_off() -> bool:
    return os.environ.get(SWITCH) == "off"


# -- before a plan -----------------------------------------------------------------------------------------------------


def check_step(checked: CheckedGpu, device: Device, graphs: Sequence[Graph], say: Callable[[str], None]) -> bool:
    """Check the kernels of the step that no record covers; return whether this turned families off, so that the graphs
    must be made again.  DeviceError if wrong kernels have no fallback."""
    needed = keys_of_step(device, graphs, checked.gpu)
    results = checked.read()
    if needed - results.keys():
        with checked.lock():
            results = checked.read()
            missing = needed - results.keys()
            if missing:
                modules = set(map(module_of_key, needed))
                ahead.compile_missing(modules, checked.gpu.capability)  # which reports it, and needs all cores
                results |= _check(checked, needed, sorted(missing), results, say)
    wrong = {key: results[key] for key in needed if results.get(key)}
    for key, text in wrong.items():
        if family_of_key(key) not in FAMILIES:
            remedy = remedy_of(key)
            raise DeviceError(
                f"{checked.title}: kernels of {key} are wrong ({text}): {remedy}. Please report {checked.path}"
            )
    before = families_off()
    switch_off(map(family_of_key, wrong))
    return families_off() != before


def _check(
    checked: CheckedGpu, needed: Collection[str], missing: Sequence[str], known: Results, say: Callable[[str], None]
) -> Results:
    """Check the `missing` keys and save the results; none if no other process can use the GPU now."""
    began = time.perf_counter()
    try:
        found = self_test(checked, missing, known)
    except DeviceError as error:
        say(str(error))
        return {}
    checked.write(found)
    report = summary({key: text for key, text in {**known, **found}.items() if key in needed}, checked.path)
    say(f"{checked.title}: kernels checked ({time.perf_counter() - began:.1f} s){report}")
    return found


def summary(results: Results, path: Path) -> str:
    """The wrong families, after a sentence about the check; "" if all are right."""
    wrong = {family_of_key(key) for key, text in results.items() if text}
    if not wrong:
        return ""
    parts = [f"{each.title} are wrong (instead: {each.fallback})" for each in FAMILIES.values() if each.name in wrong]
    parts += [f"kernels of {name} are wrong ({remedy_of(name)})" for name in sorted(wrong.difference(FAMILIES))]
    return f"; {'; '.join(parts)}. Please report {path}"


def check_all(gpu: Gpu) -> tuple[CheckedGpu, dict[str, str]]:
    """Check all kernels of the self-test that the GPU can run, whatever its record states."""
    ahead.compile_missing(ahead.modules_of(gpu.capability, is_all=True), gpu.capability)
    checked, results = CheckedGpu(gpu, "fp32", FP32), dict[str, str]()
    for precision in ENGINES if int(gpu.capability) >= TENSOR_CORES else ("fp32",):
        for storage in (FP32, *NARROW):
            results |= self_test(replace(checked, precision=precision, storage=storage), None, results)
    checked.write(results)
    return checked, results


# -- the processes -----------------------------------------------------------------------------------------------------


def self_test(checked: CheckedGpu, keys: Sequence[str] | None, known: Results) -> dict[str, str]:
    """The errors of `keys`, or of all kernels that the GPU can run; `known` has the results of other keys."""
    results: dict[str, str] = {}
    while True:
        done = {**known, **results}
        request = {
            "index": checked.gpu.number,
            "precision": checked.precision,
            "storage": checked.storage,
            "keys": None if keys is None else [key for key in keys if key not in results],
            "skip": sorted(done),
            "wrong": sorted(key for key, text in done.items() if text),
        }
        found, unfinished = _run(request)
        results |= found
        if unfinished is None:
            return results
        if not unfinished.key or unfinished.key in results:
            raise DeviceError(
                f"the kernels of {checked.title} cannot be checked: {unfinished.text}; let other processes use the GPU "
                f"(nvidia-smi --compute-mode=DEFAULT), or leave the check out ({SWITCH}=off)"
            )
        results[unfinished.key] = unfinished.text


@dataclass(frozen=True)
class Unfinished:
    """The key that a process was checking when it ended, "" before the first launch; and a description of the end."""

    key: str
    text: str


def _run(request: Mapping[str, Any]) -> tuple[dict[str, str], Unfinished | None]:
    """The results of one process, and how it ended, unless it completed."""
    command = [sys.executable, "-m", MODULE, json.dumps(request)]
    results: dict[str, str] = {}
    begun: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            for line in _lines(process.stdout):
                begun = line if "begin" in line else {}
                if "key" in line:
                    results[line["key"]] = line["result"]
        except TimeoutError:
            process.kill()
            return results, Unfinished(begun.get("of", ""), f"{begun.get('begin', 'the check')} does not end")
        error = process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    if process.returncode == 0:
        return results, None
    what = f"{begun['begin']} fails: {error}" if begun else error
    return results, Unfinished(begun.get("of", ""), what or f"exit status {process.returncode}")


def _lines(stream: IO[bytes]) -> Iterator[dict[str, str]]:
    """Yield JSON objects, one per line; TimeoutError if the next one takes too long."""
    kept, limit = b"", START_SECONDS
    while select.select([stream], [], [], limit)[0]:
        read = os.read(stream.fileno(), 1 << 16)
        if not read:
            return
        *lines, kept = (kept + read).split(b"\n")
        for line in map(json.loads, lines):
            limit = LAUNCH_SECONDS if "begin" in line else START_SECONDS
            yield line
    raise TimeoutError
