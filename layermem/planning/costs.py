"""What ops and copies cost: seconds from a model of the device, or as measured on the user's own.

The model: an op takes the longer of its arithmetic and its memory traffic, plus a launch; a copy its bytes over the
link.  `costs.csv` (layermem time) has a line per op, `op,seconds`, and two for the link, `link.d2h` and `link.h2d`, in
bytes per second; what it does not name is modelled.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from layermem.errors import InputError
from layermem.graph.ops import Op


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
    """Costs from a `costs.csv`; the device's model stands in for ops that the file does not name."""
    rates, measured = dict(vars(MODELS[device])), {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                try:
                    name, value = row["op"], float(row["seconds"])
                except (KeyError, TypeError, ValueError):
                    what = "is not 'op,seconds' with a number; make the file with `layermem time --out`"
                    raise InputError(what, path=str(path), line=line) from None
                if value < 0:
                    raise InputError(f"gives '{name}' a negative time", path=str(path), line=line)
                if name.startswith("link."):
                    rate = name.removeprefix("link.")
                    if rate not in ("d2h", "h2d") or value == 0:
                        raise InputError("should give link.d2h or link.h2d, above 0", path=str(path), line=line)
                    rates[rate] = value
                else:
                    measured[name] = value
    except FileNotFoundError:
        raise InputError("no such file; make it with `layermem time`", path=str(path)) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read as costs ({error}); make it with `layermem time`", path=str(path)) from error
    return Costs(Rates(**rates), measured)


def write_costs(seconds: Mapping[str, float], *, d2h: float, h2d: float) -> str:
    """The text of a `costs.csv`: seconds of ops, and the link in bytes per second."""
    text = io.StringIO()
    rows = {"link.d2h": d2h, "link.h2d": h2d, **seconds}
    csv.writer(text, lineterminator="\n").writerows(
        [("op", "seconds"), *((name, f"{value:.9g}") for name, value in rows.items())]
    )
    return text.getvalue()
