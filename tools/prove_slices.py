"""Nets of prototxt/ in slices of the batch, bit by bit against the same nets without slices.

    python tools/prove_slices.py [NET ..] [--device reference cpu emulated] [--table FILE]

Each net without BatchNorm is trained for two iterations on noise: once without slices, then with the whole step and
with its first layers in 2, 4 and as many slices as it has items.  Batch and pixels are small (NETS says how small); the
layers are those of the file, of the nets called narrow with a share of its channels.  `emulated` is the cuda device on
the fake driver of tests/emulator.

equal     losses, gradients and, after the second iteration, weights and momentum.  The learning rate is a power of two
          and weights do not decay, so after one iteration the momentum has the bits of the gradient, scaled
peak      bytes of the arena: predicted, and read back from the memory after the steps
refused   the sentence, where layers cannot be sliced

Exit status 1 where bits or a peak differ.  --table appends rows in Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.planning.job import NO_SLICES
from layermem.proto.read import SolverFile, net_of_message, read_net, read_solver, resolve_path
from layermem.proto.schema import NetParameter
from layermem.solver.solver import Solver
from layermem.utils.units import aligned

ROOT = Path(__file__).resolve().parents[1]
RATE = 2.0**-10
ITERATIONS = 2
EMULATED = "emulated"
WIDE = 64  # heads of detectors have no multiple of it


@dataclass(frozen=True)
class Small:
    """A net made small.

    items   of a batch
    inputs  shapes by name of tops without the axis of the items, where the file's are too large; the tops of labels
            that have no axis but that one are not named
    last    layer at which the first layers that are sliced end
    narrow  what channels are divided by where they are a multiple of WIDE
    """

    file: str
    items: int
    last: str
    inputs: Mapping[str, tuple[int, ...]]
    narrow: int = 1

    def solver(self) -> SolverFile:
        file = read_solver(str(ROOT / self.file))
        if self.narrow == 1:
            return file
        net = read_net(resolve_path(file.message.net, file.path))
        message = NetParameter()
        message.CopyFrom(net.message)
        for layer in message.layer:
            outputs = layer.convolution_param.num_output
            if outputs and outputs % WIDE == 0:
                layer.convolution_param.num_output = outputs // self.narrow
        file.message.ClearField("net")
        file.message.net_param.CopyFrom(message)
        return replace(file, nets={"net_param": (net_of_message(message, net.path),)})


def small(
    name: str, items: int, last: str, file: str = "solver_dummy", narrow: int = 1, **inputs: tuple[int, ...]
) -> Small:
    return Small(f"prototxt/{name}/{file}.prototxt", items, last, inputs, narrow)


NETS = {
    "alexnet": small("alexnet", 8, "pool2", data=(3, 67, 67), label=()),
    "autoencoder": small("autoencoder", 8, "encode2neuron", data=(1, 28, 28)),
    "caffenet": small("caffenet", 8, "pool2", data=(3, 67, 67), label=()),
    "cifar10_full": small("cifar10", 8, "pool2", "full_solver_dummy", data=(3, 32, 32), label=()),
    "cifar10_quick": small("cifar10", 8, "pool2", "quick_solver_dummy", data=(3, 32, 32), label=()),
    "digits": small("digits", 8, "pool1", "solver", data=(1, 8, 8), label=()),
    "googlenet": small("googlenet", 4, "pool2/3x3_s2", data=(3, 224, 224), label=()),
    "googlenet_narrow": small("googlenet", 4, "pool2/3x3_s2", data=(3, 224, 224), label=(), narrow=4),
    "lstm_lm": small("lstm_lm", 8, "embed"),
    "mnist": small("mnist", 8, "pool1", data=(1, 28, 28), label=()),
    "siamese": small("siamese", 8, "pool1_p", pair_data=(2, 28, 28), sim=()),
    "squeezenet10": small("squeezenet10", 4, "pool4", data=(3, 67, 67), label=()),
    "ssd300": small("ssd300", 2, "pool2", data=(3, 300, 300)),
    "ssd300_narrow": small("ssd300", 4, "pool2", data=(3, 300, 300), narrow=4),
    "unet": small("unet", 2, "pool_d1c-2a", data=(1, 188, 188), label=(1, 4, 4)),
    "unet_narrow": small("unet", 4, "pool_d1c-2a", data=(1, 188, 188), label=(1, 4, 4), narrow=4),
    "vgg16": small("vgg16", 4, "pool3", data=(3, 32, 32), label=()),
    "vgg19": small("vgg19", 4, "pool3", data=(3, 32, 32), label=()),
}


@dataclass(frozen=True)
class Trained:
    """What two iterations came to: hashes by name of a result, bytes of the arena, and seconds."""

    bits: dict[str, str]
    predicted: int
    measured: int
    seconds: float


def train(net: Small, device: str, slices: str) -> Trained:
    file = net.solver()
    message = file.message
    message.base_lr, message.momentum, message.weight_decay = RATE, 0.9, 0
    del message.test_iter[:]
    message.ClearField("test_interval")
    shapes = {top: (net.items, *shape) for top, shape in net.inputs.items()}
    began, bits = time.perf_counter(), {}
    with Solver(
        file,
        device=get_device(device),
        strategy="liveness",
        slices=slices,
        data="noise:3",
        inputs=shapes or None,
        batch=net.items,
    ) as solver:
        for iteration in range(1, ITERATIONS + 1):
            solver.step(1)
            bits[f"loss {iteration}"] = float(solver.loss).hex()
            for name in solver.runner.persistent:
                bits[f"{name} {iteration}"] = sha256(solver.runner.read(name).tobytes()).hexdigest()
        measured = solver.runner.measured_peak_bytes
        predicted = aligned(solver.program.arena_bytes)
    return Trained(bits, predicted, measured, time.perf_counter() - began)


@dataclass(frozen=True)
class Proof:
    """One net on one device in one cut; `sentence`: why it is refused, or the results that differ."""

    net: str
    items: int
    device: str
    cut: str
    results: int = 0
    predicted: int = 0
    measured: int = 0
    sentence: str = ""
    refused: bool = False
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return self.refused or (not self.sentence and self.predicted == self.measured)

    def row(self) -> str:
        cells = [f"{self.net} x{self.items}", self.device, self.cut]
        if self.refused:
            return f"| {' | '.join([*cells, 'refused', '', self.sentence])} |"
        equal = f"all {self.results}" if not self.sentence else "DIFFERENT"
        peak = f"{self.measured / 2**20:,.1f}" + ("" if self.measured == self.predicted else f" of {self.predicted:,}")
        return f"| {' | '.join([*cells, equal, peak, self.sentence])} |"


def cuts(net: Small) -> list[str]:
    counts = sorted({count for count in (2, 4, net.items) if net.items % count == 0})
    return [f"{layers}/{count}" for layers in ("whole", f"..{net.last}") for count in counts]


def prove(name: str, device: str) -> Iterator[Proof]:
    """The proofs of one net on one device, each as soon as it is there."""
    net = NETS[name]
    whole = train(net, device, NO_SLICES)
    yield Proof(
        name, net.items, device, "none", len(whole.bits), whole.predicted, whole.measured, "", False, whole.seconds
    )
    for cut in cuts(net):
        try:
            sliced = train(net, device, cut)
        except InputError as error:
            sentence = f"layer '{error.layer}' {error.what}" if error.layer else error.what
            yield Proof(name, net.items, device, cut, sentence=sentence, refused=True)
            continue
        different = [result for result, bits in whole.bits.items() if sliced.bits.get(result) != bits]
        sentence = ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
        yield Proof(
            name,
            net.items,
            device,
            cut,
            len(whole.bits),
            sliced.predicted,
            sliced.measured,
            sentence,
            False,
            sliced.seconds,
        )


def emulated(name: str) -> Iterator[Proof]:
    """The same on the fake driver, in a process of its own."""
    from tests.backends.cuda.on_fake_driver import kernels
    from tests.emulator import fake_driver

    environment = {**fake_driver.environment(), "LAYERMEM_KERNELS": str(kernels())}
    command = [sys.executable, __file__, name, "--device", "cuda", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Proof(**{**json.loads(line), "device": EMULATED})
    if process.returncode not in (0, 1):
        raise SystemExit(f"{name} on {EMULATED}: exit status {process.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)} (all)")
    parser.add_argument(
        "--device", nargs="+", default=["reference", "cpu", EMULATED], help="reference, cpu, cuda, emulated"
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="append a Markdown row for each net, device and cut")
    parser.add_argument("--json", action="store_true", help="print each proof as JSON")
    options = parser.parse_args()
    holds = True
    for device in options.device:
        for name in options.nets or NETS:
            for proof in emulated(name) if device == EMULATED else prove(name, device):
                holds = holds and proof.holds
                show(proof, options)
    return 0 if holds else 1


def show(proof: Proof, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(vars(proof)), flush=True)
        return
    print(f"{proof.row()} {proof.seconds:.1f} s{'' if proof.holds else '   WRONG'}", flush=True)
    if options.table is not None:
        with options.table.open("a") as table:
            table.write(proof.row() + "\n")


if __name__ == "__main__":
    sys.exit(main())
