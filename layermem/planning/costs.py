"""What ops and copies cost: seconds from a model of the device, or as measured on the user's own.

The model: an op takes the longer of its arithmetic and its memory traffic, plus a launch; a copy its bytes over the
link.  `costs.csv` (layermem time) has a line per op, `op,seconds`, and two for the link, `link.d2h` and `link.h2d`, in
bytes per second; what it does not name is modelled.  Comments at its head name the net, the device and the fingerprint
of the step that was measured: times of another step are used where names of ops agree, with a warning.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from layermem.errors import InputError
from layermem.graph.ops import Graph, Op
from layermem.utils.input_files import read_lines

LINK = {"link.d2h": "d2h", "link.h2d": "h2d"}
MIN_SECONDS, MAX_SECONDS = 1e-12, 1e9  # of an op; less counts as the least, so that sums and quotients stay finite
WHAT = "cost file (make it with `layermem time`)"
MIN_RATE, MAX_RATE = 1.0, 1e18  # of the link


@dataclass(frozen=True)
class Rates:
    """What a device does in a second: FLOPs, bytes of its memory, bytes of the link each way; seconds a launch."""

    flops: float
    memory: float
    d2h: float
    h2d: float
    launch: float


# Typical rates, for plans made without measuring: a two-core server CPU, and a data-centre GPU on PCIe 5.
MODELS = {
    "reference": Rates(flops=2e10, memory=4e9, d2h=2e9, h2d=2e9, launch=2e-5),
    "cpu": Rates(flops=2e11, memory=1.5e10, d2h=2e9, h2d=2e9, launch=2e-6),
    "cuda": Rates(flops=4e13, memory=3e12, d2h=4.5e10, h2d=4.5e10, launch=4e-6),
}
TENSOR_CORES = {"fp32x3": 6.5e13, "tf32": 1.9e14, "bf16": 3.3e14}  # FLOPs of cuda by precision
MODELS |= {f"cuda {name}": replace(MODELS["cuda"], flops=flops) for name, flops in TENSOR_CORES.items()}


@dataclass(frozen=True)
class Costs:
    rates: Rates
    measured: Mapping[str, float] = field(default_factory=dict)  # op name -> seconds
    path: str | None = None  # the file that they are from, and the fingerprint and title of the step that it measured
    fingerprint: str | None = None
    net: str | None = None

    def warnings(self, graph: Graph) -> list[str]:
        """Why the times may not be those of `graph`."""
        if self.path is None or self.fingerprint == graph.fingerprint:
            return []
        names = [op.name for op in graph.ops]
        share = f"{sum(name in self.measured for name in names)} of {len(names)} ops take their time from it"
        if self.fingerprint is None:
            what = f"does not say which net it was measured with; {share}"
        else:
            net = f" of {self.net}" if self.net else ""
            what = f"was measured with another step{net} ({self.fingerprint}, and this is {graph.fingerprint}); {share}"
        return [f"{self.path} {what}; measure this one with `layermem time`"]

    def op(self, op: Op) -> float:
        """Seconds that `op` takes."""
        if op.name in self.measured:
            return self.measured[op.name]
        if op.covers and all(name in self.measured for name in op.covers):
            return sum(self.measured[name] for name in op.covers)
        return max(op.flops / self.rates.flops, op.nbytes / self.rates.memory) + self.rates.launch

    def offload(self, nbytes: int) -> float:
        return nbytes / self.rates.d2h + self.rates.launch

    def prefetch(self, nbytes: int) -> float:
        return nbytes / self.rates.h2d + self.rates.launch


def model_costs(device: str) -> Costs:
    """Costs of a device by its title."""
    return Costs(MODELS[device])


def read_costs(path: str | Path, device: str) -> Costs:
    """Costs from a `costs.csv`; the device's model stands in for ops that the file does not name.  InputError if it was
    measured on another device."""
    lines = read_lines(path, what=WHAT)
    origin = _origin(lines)
    if "device" in origin and origin["device"] != device:
        what = f"was measured on device {origin['device']}, and the device is {device}; measure with `layermem time`"
        raise InputError(what, path=str(path))
    rates, measured = dict(vars(MODELS[device])), {}
    headings: list[str] | None = None
    try:
        for line, row in enumerate(csv.reader(lines), start=1):
            if not row or row[0].startswith("#"):
                continue
            if headings is None:
                headings = row
                continue
            name, value = _cost(dict(zip(headings, row)), str(path), line)
            if name in LINK:
                rates[LINK[name]] = value
            else:
                measured[name] = value
    except csv.Error as error:
        raise InputError(f"cannot be read as costs ({error}); make it with `layermem time`", path=str(path)) from None
    return Costs(Rates(**rates), measured, str(path), origin.get("fingerprint"), origin.get("net"))


def _origin(lines: list[str]) -> dict[str, str]:
    """What the comments at the head of a file say of the measured net: its name, device and fingerprint."""
    origin = {}
    for line in lines:
        if not line.startswith("#"):
            break
        word, _, value = line.removeprefix("#").strip().partition(" ")
        origin[word] = value.strip()
    return origin


def _cost(row: dict[str, str], path: str, line: int) -> tuple[str, float]:
    """Name and value of a row; InputError for one that no clock can have measured."""
    try:
        name, value = row["op"], float(row["seconds"])
    except (KeyError, ValueError):
        what = "is not 'op,seconds' with a number; make the file with `layermem time --out`"
        raise InputError(what, path=path, line=line) from None
    if name.startswith("link."):
        if name not in LINK or not MIN_RATE <= value <= MAX_RATE:
            what = f"should give link.d2h or link.h2d, from {MIN_RATE:g} to {MAX_RATE:g} bytes per second"
            raise InputError(what, path=path, line=line)
        return name, value
    if not 0 <= value <= MAX_SECONDS:
        what = f"gives '{name}' {value:g} seconds; give a time from 0 to {MAX_SECONDS:g}"
        raise InputError(what, path=path, line=line)
    return name, max(value, MIN_SECONDS)


def write_costs(
    seconds: Mapping[str, float], *, d2h: float, h2d: float, net: str = "", graph: Graph | None = None
) -> str:
    """The text of a `costs.csv`: seconds of ops, and the link in bytes per second, measured with the step `graph` of
    the job titled `net`."""
    text = io.StringIO()
    if graph is not None:
        origin = {"net": " ".join(net.split()), "device": graph.device, "fingerprint": graph.fingerprint}
        text.writelines(f"# {word} {value}\n" for word, value in origin.items())
    rows = {"link.d2h": d2h, "link.h2d": h2d, **seconds}
    csv.writer(text, lineterminator="\n").writerows(
        [("op", "seconds"), *((name, f"{value:.9g}") for name, value in rows.items())]
    )
    return text.getvalue()
