"""Seconds of ops and copies, from a model of the device or measured on the user's own.

The model: an op takes the longer of its arithmetic and its memory traffic, plus its launches; a copy takes its bytes
over the link.  A convolution in Winograd's form has less arithmetic, but transforms weights first (winograd.py).  Rates
are typical of a device; for a GPU with known published rates (gpus.py), they are the share of these that the model
assumes for MODELLED_GPU.  `costs.csv` (layermem time) has a line per op, `op,seconds`, and two for the link, `link.d2h`
and `link.h2d`, in bytes per second; anything that it does not name is modelled.  Comments at its head name the net, the
device with its precision, the GPU and the fingerprint of the measured step.  The file is refused for any other step,
device, precision or GPU, since an op of the same name would take another time.  A file without a fingerprint, for
example one written by hand, is accepted with a warning.  If the link was measured with a spill file, a comment names
its file system and the two rates are ignored: rates of spill files are stored separately (kept_costs.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from layermem.errors import InputError
from layermem.graph.ops import Graph, Op
from layermem.ops import Communication, ReduceScatter
from layermem.planning.gpus import OLDEST_CAPABILITY, WITHOUT, GpuSpec, TargetGpu, find_gpu, recognize_gpu
from layermem.planning.spill import Spill
from layermem.planning.winograd import winograd_work
from layermem.utils.input_files import read_lines

LINK = {"link.d2h": "d2h", "link.h2d": "h2d", "link.net": "net"}
COPIES = ("link.d2h", "link.h2d")
LATENCY = "net.latency"  # seconds
SPILL = "spill"  # comment with the file system, if the link was measured with a spill file
MIN_SECONDS, MAX_SECONDS = 1e-12, 1e9  # of an op; shorter times are raised, so that sums and quotients are finite
WHAT = "cost file (make it with `layermem time`)"
MEASURE_AGAIN = "measure this one with `layermem time --out`, or give --measure"
DIGITS = ".9g"  # format of times and rates in a file
MIN_RATE, MAX_RATE = 1.0, 1e18  # limits of the link


@dataclass(frozen=True)
class Rates:
    """The rates of a device: FLOPs, bytes of its memory and bytes of the link each way per second; seconds per launch.

    winograd  FLOPs per second of convolutions in Winograd's form (winograd.py), including their transforms; 0 if the
              device has no such kernels
    net       bytes per second that a rank sends to others, while it receives as many
    latency   seconds of a message between ranks;  gap  seconds of each further message sent at the same time
    """

    flops: float
    memory: float
    d2h: float
    h2d: float
    launch: float
    net: float = 1.25e9
    latency: float = 3e-5
    gap: float = 2e-6
    winograd: float = 0.0


# Typical rates, for plans made without measuring: a two-core server CPU on Ethernet of 10 Gb/s, and a data-centre GPU,
# MODELLED_GPU, on a network of 100 Gb/s.
MODELS = {
    "reference": Rates(flops=2e10, memory=4e9, d2h=2e9, h2d=2e9, launch=2e-5),
    "cpu": Rates(flops=2e11, memory=1.5e10, d2h=2e9, h2d=2e9, launch=2e-6, winograd=1.4e11),
    "cuda": Rates(flops=4e13, memory=3e12, d2h=4.5e10, h2d=4.5e10, launch=4e-6, net=1.2e10, latency=2e-5),
}
TENSOR_CORES = {"fp32x3": 6.5e13, "tf32": 1.9e14, "bf16": 3.3e14}  # FLOPs of cuda by precision
MODELLED_GPU = "H200"
# Share of the tensor cores' published rate that products reach if nothing else limits them: measured steps of VGG on an
# RTX 3090, whose tensor cores are slow for its multiprocessors, reach three quarters of it over all layers
# (`layermem docs benchmarks/published`).
MAX_OF_PEAK = 0.9
PRODUCTS_OF_TF32 = {"fp32x3": 3}  # tf32 products per product, by precision
MODELS |= {f"cuda {name}": replace(MODELS["cuda"], flops=flops) for name, flops in TENSOR_CORES.items()}


@dataclass(frozen=True)
class Costs:
    """Seconds of ops, measured or by `rates` for ops that are not in `measured`, and rates of copies."""

    rates: Rates
    measured: Mapping[str, float] = field(default_factory=dict)  # op name -> seconds
    path: str | None = None  # their file; fingerprint and net: the step that it measured
    fingerprint: str | None = None
    net: str | None = None
    gpu: TargetGpu | None = None  # the GPU that they hold for, if known
    is_kept: bool = False  # whether the file is in the cache of kept_costs.py
    spill: Spill | None = None  # the file of the host arena, whose rates replace the link's

    def with_spill(self, spill: Spill | None) -> Costs:
        """The same costs with the host arena in a spill file."""
        if spill is None:
            return self
        return replace(self, rates=replace(self.rates, d2h=spill.write, h2d=spill.read), spill=spill)

    def check(self, graph: Graph, title: str) -> None:
        """Raise InputError if the times were measured with another step than `graph` of the job `title`."""
        if self.fingerprint is None or self.fingerprint == graph.fingerprint:
            return
        what = f"was measured with {self.net or 'another net'}, and this is {title}"
        if self.net == " ".join(title.split()):
            what = f"was measured with another step of {title}: its layers, shapes, updates or kernels differ"
        raise InputError(
            f"{what} (fingerprint {self.fingerprint}, here {graph.fingerprint}); {MEASURE_AGAIN}", path=self.path
        )

    def warnings(self, graph: Graph) -> list[str]:
        """The reasons why the times may not apply to `graph`."""
        spec = self.gpu.spec if self.gpu is not None else None
        if spec is not None and spec.capability < OLDEST_CAPABILITY:
            needed = f"{OLDEST_CAPABILITY // 10}.{OLDEST_CAPABILITY % 10}"
            what = f"{spec.name} has compute capability {spec.capability_text}, and the kernels need {needed} or later"
            return [f"{what}: this step cannot run there", *self._origin_warnings(graph)]
        return [*self._origin_warnings(graph), *(self.spill.warnings if self.spill is not None else ())]

    def source(self, device: str) -> str | None:
        """The text in which a plan's output names the origin of its times; None for a device that is no GPU, and for a
        file that the user names."""
        if self.is_kept:
            return f"measured on {self.gpu.name if self.gpu else device}, kept in {self.path}"
        if self.measured or not device.startswith("cuda"):
            return None
        if self.gpu is None:
            return f"modelled with the rates of {MODELLED_GPU}; name another GPU with --card"
        if self.gpu.spec is None:
            what = "is not in the table of GPUs, and its driver does not state its clocks"
            return f"{self.gpu.name} {what}: modelled as a typical data-centre GPU"
        spec, precision = self.gpu.spec, precision_of(device)
        peaks = (spec.peak(precision), spec.memory, spec.link)
        rates = (self.rates.flops, self.rates.memory, self.rates.d2h)
        shares = ", ".join(f"{100 * rate / peak:.0f}" for rate, peak in zip(rates, peaks))
        published = f"{peaks[0] / 1e12:.3g} TFLOP/s, {peaks[1] / 1e9:,.0f} GB/s, link {peaks[2] / 1e9:.3g} GB/s"
        return f"{spec.name}: {published} {spec.stated}; modelled at {shares} % of these"

    def _origin_warnings(self, graph: Graph) -> list[str]:
        if self.path is None or self.fingerprint is not None:
            return []
        names = [op.name for op in graph.ops]
        share = f"{sum(name in self.measured for name in names)} of {len(names)} ops take their time from it"
        return [f"{self.path} does not say which step it was measured with; {share}; {MEASURE_AGAIN}"]

    def op(self, op: Op, *, joined: bool = False) -> float:
        """Seconds of `op`; a slice or band without a measurement takes its share of the measured whole, and a slice at
        least the time of its traffic, because each slice reads the weights.  `joined`: it shares its launch with
        another op, as in the measurement."""
        if isinstance(op.record, Communication):
            return self.communication(op.record)
        if op.name in self.measured:
            return self.measured[op.name]
        if op.covers and all(name in self.measured for name in op.covers):
            return sum(self.measured[name] for name in op.covers)
        batch_slice, launch = op.record.batch_slice, self.rates.launch
        name, share = (
            (op.name, 1.0)
            if batch_slice is None
            else (op.name.rpartition("@")[0], batch_slice.count / batch_slice.items)
        )
        if name not in self.measured and op.share_of is not None:
            name, share = op.share_of[0], share * op.share_of[1]
        arithmetic, traffic, transform = self._parts(op)
        if name in self.measured:
            whole = max(0.0, self.measured[name] - launch)
            own = whole * share if batch_slice is None else max(whole * share + transform * (1 - share), traffic)
            return min(launch, self.measured[name]) + min(whole, own)
        return max(arithmetic, traffic) + transform + launch * (op.launches - joined)

    def _parts(self, op: Op) -> tuple[float, float, float]:
        """Modelled seconds of arithmetic, memory traffic, and the transforms of weights."""
        work = winograd_work(op) if self.rates.winograd else None
        traffic = op.nbytes / self.rates.memory
        if work is None:
            return op.flops / self.rates.flops, traffic, 0.0
        return work[0] / self.rates.winograd, traffic, work[1] / self.rates.memory

    def communication(self, record: Communication) -> float:
        """Seconds of communication: the bytes that each rank sends, and its additions to them.

        source  Alexandrov et al., "LogGP", 1995, whose L, g and 1 / G are latency, gap and net
        """
        rates = self.rates
        added = record.network_bytes if isinstance(record, ReduceScatter) else 0
        waits = rates.latency + rates.gap * max(0, record.messages - 1)
        return waits + record.network_bytes / rates.net + added / rates.memory

    def offload(self, nbytes: int) -> float:
        return nbytes / self.rates.d2h + self.rates.launch

    def prefetch(self, nbytes: int) -> float:
        return nbytes / self.rates.h2d + self.rates.launch


def model_costs(device: str, gpu: TargetGpu | None = None) -> Costs:
    """Costs of a device by its title, and of a GPU by its published rates if they are known."""
    rates = MODELS[_model_of(device)] if gpu is None or gpu.spec is None else gpu_rates(device, gpu.spec)
    return Costs(rates, gpu=gpu)


def gpu_rates(device: str, spec: GpuSpec) -> Rates:
    """The model's rates for MODELLED_GPU, scaled by the ratio of the published rates of both GPUs."""
    base, of, precision = MODELS[_model_of(device)], find_gpu(MODELLED_GPU), precision_of(device)
    link = spec.link / of.link
    return replace(
        base,
        flops=base.flops * (_flop_seconds(of, precision, base) / _flop_seconds(spec, precision, base)),
        memory=base.memory * (spec.memory / of.memory),
        d2h=base.d2h * link,
        h2d=base.h2d * link,
    )


def _flop_seconds(spec: GpuSpec, precision: str, base: Rates) -> float:
    """Seconds of a FLOP of matrix products; `base` are the rates of MODELLED_GPU.

    On tensor cores they are the sum of the arithmetic at MAX_OF_PEAK and of the loads of operands: on MODELLED_GPU the
    rest of 1 / base.flops, on others scaled by multiprocessors and clock.  So tensor cores that are slow compared with
    their multiprocessors reach a larger share of their peak than fast ones.
    """
    if precision == "fp32":
        return 1 / spec.peak(precision)
    of, products = find_gpu(MODELLED_GPU), PRODUCTS_OF_TF32.get(precision, 1)
    arithmetic, of_modelled = (products / (MAX_OF_PEAK * each.peak(precision)) for each in (spec, of))
    operands = 1 / base.flops - of_modelled
    return arithmetic + operands * (of.multiprocessors * of.clock) / (spec.multiprocessors * spec.clock)


def precision_of(device: str) -> str:
    """The precision of matrix products in a title such as "cuda tf32"."""
    return _model_of(device).partition(" ")[2] or "fp32"


def _model_of(device: str) -> str:
    """The title without the unused families of kernels, which no model considers."""
    return device.partition(WITHOUT)[0]


def read_costs(path: str | Path, device: str, gpu: TargetGpu | None = None) -> Costs:
    """Read the costs of a `costs.csv`; ops that the file does not name are modelled.  InputError if it was measured on
    another device or GPU, or in another precision."""
    lines = read_lines(path, what=WHAT)
    origin = origin_of(lines)
    measured_on = origin.get("gpu")
    if gpu is not None and measured_on is not None and measured_on != gpu.name:
        what = f"was measured on {measured_on}, and the GPU is {gpu.name}"
        raise InputError(f"{what}; {MEASURE_AGAIN}", path=str(path))
    if origin.get("device", device) != device:
        raise InputError(f"{_other_device(origin['device'], device)}; {MEASURE_AGAIN}", path=str(path))
    rates, measured = dict(vars(model_costs(device, gpu).rates)), {}
    for name, value in _costs(lines, str(path)):
        if name in COPIES and SPILL in origin:
            continue
        if name in LINK:
            rates[LINK[name]] = value
        elif name == LATENCY:
            rates["latency"] = value
        else:
            measured[name] = value
    known = gpu if gpu is not None or measured_on is None else TargetGpu(measured_on, recognize_gpu(measured_on))
    return Costs(Rates(**rates), measured, str(path), origin.get("fingerprint"), origin.get("net"), known)


def read_copy_rates(lines: list[str], path: str) -> tuple[float, float] | None:
    """Bytes per second to the host and back in the lines of a file; None unless it has both."""
    values = dict(_costs(lines, path))
    d2h, h2d = (values.get(name) for name in COPIES)
    return None if d2h is None or h2d is None else (d2h, h2d)


def _costs(lines: list[str], path: str) -> Iterator[tuple[str, float]]:
    """Name and value of each row of a file."""
    headings: list[str] | None = None
    try:
        for line, row in enumerate(csv.reader(lines), start=1):
            if not row or row[0].startswith("#"):
                continue
            if headings is None:
                headings = row
                continue
            yield _cost(dict(zip(headings, row)), path, line)
        if headings is None:
            raise InputError("has no costs; make it with `layermem time`", path=path)
    except csv.Error as error:
        raise InputError(f"cannot be read as costs ({error}); make it with `layermem time`", path=path) from None


def _other_device(measured: str, device: str) -> str:
    """The sentence on how the titles of two devices differ: in their names, or in the precision of cuda."""
    words = precision_of(measured), precision_of(device)
    if measured.split()[0] != device.split()[0] or words[0] == words[1]:
        return f"was measured on device {measured}, and the device is {device}"
    return "was measured in precision {}, and the precision is {}".format(*words)


def origin_of(lines: list[str]) -> dict[str, str]:
    """The entries of the comments at the head of a file: name, device and fingerprint of the measured net."""
    origin = {}
    for line in lines:
        if not line.startswith("#"):
            break
        word, _, value = line.removeprefix("#").strip().partition(" ")
        if value.strip():
            origin[word] = value.strip()
    return origin


def _cost(row: dict[str, str], path: str, line: int) -> tuple[str, float]:
    """Name and value of a row; InputError for an impossible value."""
    try:
        name, value = row["op"], float(row["seconds"])
    except (KeyError, ValueError):
        what = "is not 'op,seconds' with a number; make the file with `layermem time --out`"
        raise InputError(what, path=path, line=line) from None
    if name.startswith("link."):
        if name not in LINK or not MIN_RATE <= value <= MAX_RATE:
            what = f"should give link.d2h, link.h2d or link.net, from {MIN_RATE:g} to {MAX_RATE:g} bytes per second"
            raise InputError(what, path=path, line=line)
        return name, value
    if not 0 <= value <= MAX_SECONDS:
        what = f"gives '{name}' {value:g} seconds; give a time from 0 to {MAX_SECONDS:g}"
        raise InputError(what, path=path, line=line)
    return name, max(value, MIN_SECONDS)


def as_written(value: float) -> float:
    """A time or a rate rounded as in a file, so that plans are the same before and after it is written."""
    return float(f"{value:{DIGITS}}")


def write_costs(
    seconds: Mapping[str, float],
    *,
    d2h: float,
    h2d: float,
    net: str = "",
    graph: Graph | None = None,
    network: tuple[float, float] | None = None,
    gpu: TargetGpu | None = None,
    spill: str | None = None,
) -> str:
    """The text of a `costs.csv`: seconds of ops, and the link in bytes per second, measured with the step `graph` of
    the job titled `net`, on `gpu`.  `network`: bytes per second between ranks, and seconds of a message; `spill`: the
    file system, if the link was measured with a spill file."""
    text = io.StringIO()
    origin: dict[str, str] = {}
    if graph is not None:
        origin = {"net": " ".join(net.split()), "device": graph.device, "fingerprint": graph.fingerprint}
        if gpu is not None:
            origin["gpu"] = " ".join(gpu.name.split())
    if spill is not None:
        origin[SPILL] = spill
    text.writelines(f"# {word} {value}\n" for word, value in origin.items())
    rows = dict(zip(COPIES, (d2h, h2d)))
    if network is not None:
        rows |= {"link.net": network[0], LATENCY: network[1]}
    rows |= seconds
    csv.writer(text, lineterminator="\n").writerows(
        [("op", "seconds"), *((name, f"{value:{DIGITS}}") for name, value in rows.items())]
    )
    return text.getvalue()
