"""Evaluates weights on the TEST phase of a net, batch by batch, as `caffe test` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from layermem.backends.base import Device
from layermem.backends.registry import StepContext
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.weights import read_weights
from layermem.runtime.runner import Runner
from layermem.schedule.program import Program
from layermem.solver.average_precision import AveragePrecision
from layermem.solver.build import Reported, reported
from layermem.solver.confusion import Confusion
from layermem.solver.feeds import Feeds
from layermem.solver.parameters import Parameters
from layermem.solver.recording import Recording


class Scoring:
    """Runs `net` forward by `program` (graph/train.py, forward_graph) on batches of its data layers."""

    def __init__(self, net: Net, program: Program, device: Device, *, seed: int = 0):
        net.check_runnable(device.name, device.implements)
        self.net = net
        self.means: dict[str, np.ndarray] = {}
        self.context: StepContext = {"seed": seed, "step": 0}
        self.runner = Runner(program, device, self.context)
        self.parameters = Parameters((net,), self.runner, 0)
        self.parameters.fill(seed)
        self.recording = Recording(net)
        self.feeds = Feeds((net,), seed)
        self.confusion: Confusion | None = None

    def load(self, paths: Sequence[str]) -> list[str]:
        """Set parameters from weight files, by layer name; return the layers that no file has."""
        written: set[str] = set()
        for path in paths:
            layers = read_weights(path)
            try:
                values, _ = self.parameters.match_weights(layers)
            except InputError as error:
                raise error.at(path=str(path)) from None
            self.parameters.write(values)
            written |= set(values)
        return [layer.name for layer in self.net.layers if not written.issuperset(name for name, _ in layer.params)]

    def run(self, batches: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield the number and the outputs of each batch, by blob name; afterwards `means` holds their means.

        The top of a DetectionEvaluate is no output of a batch; its mean average precision is among the means.
        """
        sums: dict[str, np.ndarray] = {}
        precision = AveragePrecision(self.net)
        for batch in range(batches):
            self.context["step"] = batch
            self.context["batch"] = self.feeds.next(0)
            try:
                blobs = self.runner.run()
            except InputError as error:
                raise self.net.placed(error) from None
            self.recording.add(blobs)
            precision.add(blobs)
            if self.confusion is not None:
                self.confusion.add(blobs)
            outputs = [output for output in outputs_of(self.net) if output.version not in precision.tops]
            values = {output.name: blobs[output.version] for output in outputs}
            yield batch, values
            for name, value in values.items():
                sums[name] = sums.get(name, np.float64(0)) + value
            self.means = {name: np.asarray(total / (batch + 1)) for name, total in sums.items()}
        for output in outputs_of(self.net):
            if output.version in precision.tops:
                self.means[output.name] = np.asarray(precision.mean(output.version))
        self.recording.write()

    def close(self) -> None:
        self.feeds.close()

    def __enter__(self) -> Scoring:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def outputs_of(net: Net) -> list[Reported]:
    """The outputs of a net: blobs that no layer reads, and losses."""
    return [output for output in reported(net) if output.output]
