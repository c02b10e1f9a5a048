"""GPUs by name, with the rates that NVIDIA publishes: to plan for any of them, and to recognize the one in use.

find_gpu("rtx 4090").bf16             165.2e12
recognize_gpu("NVIDIA GeForce RTX 4090").name      "RTX 4090"
find_gpu("8GiB,448GB/s,20TFLOPs").memory          448e9

The table is gpus.tsv in this folder.  The share of these rates that a step reaches is modelled (costs.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from layermem.errors import InputError
from layermem.utils.units import format_bytes, parse_bytes

TABLE = Path(__file__).with_name("gpus.tsv")
OLDEST_CAPABILITY = 75  # oldest one that the kernels are compiled for
WITHOUT = " without "  # separates the unused families of kernels in the title of a device
TENSOR_CORES = 80  # compute capability of the first GPUs with tf32 and bf16
LANE_RATE = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9}  # bytes per second of a PCI Express lane, each way, by generation
LANES = 16  # of a GPU whose number of lanes is not known
# Modelled for absent GPUs: share of memory for error correction, and bytes for CUDA and the code of kernels.
ERROR_CORRECTION, CONTEXT_BYTES = 1 / 16, 512 << 20
GRANULARITY_BYTES = 2 << 20  # of allocations on a GPU
BY_DRIVER = "as its driver and architecture say"  # source of rates that are not in the table
BY_NUMBERS = "as given"  # source of rates that a user states
LIKE_NUMBERS = "RTX 3090"  # provides the values that a user does not state
NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z/]+)\s*", re.IGNORECASE)
BYTES_A_SECOND = {"gb/s": 1e9, "tb/s": 1e12}
FLOPS_A_SECOND = {f"{letter}flop{end}": rate for letter, rate in (("g", 1e9), ("t", 1e12)) for end in ("", "s", "/s")}
MAKERS = ("nvidia", "geforce", "tesla")  # words that names are compared without


@dataclass(frozen=True)
class GpuSpec:
    """A row of the table: bytes, clock in Hz, FLOPs and bytes per second; 0 FLOPs without such tensor cores.

    pcie, lanes   generation and number of lanes of PCI Express; link  its bytes per second, each way
    capability    90 for sm_90
    shared_bytes  shared memory that a block may use at most
    """

    name: str
    memory_bytes: int
    multiprocessors: int
    clock: float
    memory: float
    fp32: float
    tf32: float
    bf16: float
    pcie: int
    lanes: int
    capability: int
    shared_bytes: int
    driver_name: str
    source: str

    @property
    def link(self) -> float:
        return self.lanes * LANE_RATE[self.pcie]

    @property
    def free_bytes(self) -> int:
        """The modelled bytes that an arena may take on this GPU."""
        usable = int(self.memory_bytes * (1 - ERROR_CORRECTION)) - CONTEXT_BYTES
        return usable // GRANULARITY_BYTES * GRANULARITY_BYTES

    @property
    def capability_text(self) -> str:
        return f"{self.capability // 10}.{self.capability % 10}"

    @property
    def stated(self) -> str:
        """The origin of its rates, in words."""
        return self.source if self.source in (BY_DRIVER, BY_NUMBERS) else "published"

    def peak(self, precision: str) -> float:
        """FLOPs per second of matrix products; fp32x3 adds products of tf32.  InputError without such tensor cores."""
        rate = {"fp32": self.fp32, "bf16": self.bf16}.get(precision, self.tf32)
        if not rate:
            raise InputError(
                f"{self.name} has compute capability {self.capability_text}; --precision {precision} needs "
                f"{TENSOR_CORES // 10}.0 or later: use fp32"
            )
        return rate

    def __str__(self) -> str:
        tensor = f", tf32 {self.tf32 / 1e12:g}, bf16 {self.bf16 / 1e12:g}" if self.tf32 else ""
        return (
            f"{self.name}: {format_bytes(self.memory_bytes)}, fp32 {self.fp32 / 1e12:g}{tensor} TFLOP/s, "
            f"{self.memory / 1e9:,.0f} GB/s, PCIe {self.pcie} x{self.lanes}"
        )


@dataclass(frozen=True)
class TargetGpu:
    """The GPU that a plan is for, by its name, or by the driver's name if the table lacks it; then `spec` is None if
    the driver does not state its clocks either."""

    name: str
    spec: GpuSpec | None


@cache
def gpus() -> Mapping[str, GpuSpec]:
    """The table, by name, in the order of its rows, which is that of compute capability."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    headings, *rows = (line.split("\t") for line in lines)
    return {row[0]: _spec(dict(zip(headings, row, strict=True))) for row in rows}


def _spec(row: Mapping[str, str]) -> GpuSpec:
    tera = {name: 0.0 if row[name] == "-" else round(float(row[name]) * 1e12) for name in ("fp32", "tf32", "bf16")}
    return GpuSpec(
        row["name"],
        int(row["memory_gib"]) << 30,
        int(row["multiprocessors"]),
        1e6 * float(row["boost_mhz"]),
        1e9 * float(row["memory_gb_s"]),
        **tera,
        pcie=int(row["pcie"]),
        lanes=int(row["lanes"]),
        capability=int(row["capability"].replace(".", "")),
        shared_bytes=int(row["shared_kib"]) << 10,
        driver_name=row["driver_name"],
        source=row["source"],
    )


def find_gpu(name: str) -> GpuSpec:
    """The GPU of that name, ignoring case and blanks, or of these numbers; InputError, with similar names, if there
    is none."""
    if "," in name or NUMBER.fullmatch(name):
        return gpu_of_numbers(name)
    known = recognize_gpu(name)
    if known is None:
        near = _near(name)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise InputError(
            f"unknown GPU '{name}' ({meant}give one that `layermem devices --gpus` lists, or numbers such as "
            "8GiB,448GB/s,20TFLOPs)"
        )
    return known


def gpu_of_numbers(text: str) -> GpuSpec:
    """A GPU with this memory, bandwidth and FLOPs in fp32, in any order; other values, such as the ratio of tensor
    cores to these FLOPs, are those of LIKE_NUMBERS.  InputError for missing, repeated or unknown numbers."""
    found: dict[str, float] = {}
    for part in text.split(","):
        match = NUMBER.fullmatch(part)
        unit = match[2].lower() if match else ""
        factor = {**BYTES_A_SECOND, **FLOPS_A_SECOND}.get(unit)
        what = "memory a second" if unit in BYTES_A_SECOND else "FLOPs" if unit in FLOPS_A_SECOND else "memory"
        try:
            value = float(match[1]) * factor if match and factor else float(parse_bytes(part))
        except InputError:
            raise _wrong_numbers(text, f"'{part.strip()}' is none of these") from None
        if what in found:
            raise _wrong_numbers(text, f"two of them say the {what}")
        if not value > 0:
            raise _wrong_numbers(text, f"'{part.strip()}' is 0")
        found[what] = value
    missing = [what for what in ("memory", "memory a second", "FLOPs") if what not in found]
    if missing:
        raise _wrong_numbers(text, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    like, fp32 = gpus()[LIKE_NUMBERS], found["FLOPs"]
    ratio = fp32 / like.fp32
    return replace(
        like,
        name=",".join(part.strip() for part in text.split(",")),
        memory_bytes=int(found["memory"]),
        multiprocessors=max(1, round(like.multiprocessors * ratio)),
        memory=found["memory a second"],
        fp32=fp32,
        tf32=like.tf32 * ratio,
        bf16=like.bf16 * ratio,
        driver_name=text,
        source=BY_NUMBERS,
    )


def _wrong_numbers(text: str, what: str) -> InputError:
    return InputError(f"GPU '{text}': {what}; give its memory, bandwidth and FLOPs, such as 8GiB,448GB/s,20TFLOPs")


def recognize_gpu(name: str) -> GpuSpec | None:
    """The row of a GPU by its name or by the driver's name for it; None if there is none."""
    return _by_key().get(_key(name))


def spec_by_driver(
    name: str, capability: int, memory_bytes: int, multiprocessors: int, clock: float, memory: float, shared_bytes: int
) -> GpuSpec | None:
    """Estimate the rates of a GPU that is not in the table from its driver's values: per cycle, its multiprocessors
    count as much as those of its architecture in the table, or of the latest older one (median).  None if the driver
    states no clocks, as new ones do not."""
    if not clock or not memory:
        return None
    before = max((spec.capability for spec in gpus().values() if spec.capability <= capability), default=0)
    same = [spec for spec in gpus().values() if spec.capability == before]
    if not same:
        return None
    same.sort(key=lambda spec: spec.tf32 / (spec.multiprocessors * spec.clock))
    like = same[(len(same) - 1) // 2]
    ratio = multiprocessors * clock / (like.multiprocessors * like.clock)
    return replace(
        like,
        name=name,
        memory_bytes=memory_bytes,
        multiprocessors=multiprocessors,
        clock=clock,
        memory=memory,
        fp32=like.fp32 * ratio,
        tf32=like.tf32 * ratio,
        bf16=like.bf16 * ratio,
        lanes=LANES,
        capability=capability,
        shared_bytes=shared_bytes,
        driver_name=name,
        source=BY_DRIVER,
    )


@cache
def _by_key() -> Mapping[str, GpuSpec]:
    return {_key(name): spec for spec in gpus().values() for name in (spec.name, spec.driver_name)}


def _key(name: str) -> str:
    """ "NVIDIA GeForce RTX 4090" and "rtx-4090" have one key."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in MAKERS)


def _near(name: str) -> list[str]:
    keys = {_key(each): each for each in gpus()}
    begun = [each for key, each in keys.items() if _key(name) and _key(name) in key]
    return begun or [keys[key] for key in get_close_matches(_key(name), list(keys), n=3)]
