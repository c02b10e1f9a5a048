"""The nets that steps run whole: NAME:BATCH or NAME:BATCH:PRECISION, built without a data set."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from layermem.api import build_net, job_of
from layermem.backends.cuda import CudaDevice
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.planning.job import Job
from layermem.solver.benchmark import Benchmark
from tools.gpu.gpu import WARM_SECONDS
from tools.gpu.process import ROOT
from tools.gpu.results import Options

WITH_DATA = ("digits",)  # nets whose data come with the repository


class Wanted(NamedTuple):
    name: str
    batch: int
    precision: str

    @property
    def title(self) -> str:
        return f"{self.name}:{self.batch}"

    def build(self) -> Net:
        stages = [] if self.name in WITH_DATA else ["dummy"]
        return build_net(ROOT / "prototxt" / self.name / "train_val.prototxt", batch=self.batch, stages=stages)

    @property
    def costs_name(self) -> str:
        """The name of the file with the measured times of its ops."""
        return f"costs-{self.name}-{self.batch}-{self.precision}.csv"

    def job(self, net: Net, device: CudaDevice, options: Options) -> Job | None:
        """The job with measured costs, if there are some for these kernels."""
        content = options.last_detail(self.costs_name)
        if content is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.costs_name
            path.write_bytes(content)
            with suppress(InputError):  # the costs were measured with other families of kernels
                return job_of(net, device=device, costs=path)
        return None


def warm_up(bench: Benchmark, options: Options) -> None:
    """Run steps until an idle GPU runs at its clock."""
    bench.step()
    bench.warm_up(0.0 if options.small else WARM_SECONDS)


MOST = 4  # nets whose ops are timed, and that run first


def wanted(options: Options) -> list[Wanted]:
    """The nets of a step, in tf32 unless a net states otherwise; an emulated GPU runs fp32."""
    found = []
    for what in options.nets:
        name, batch, *precision = what.split(":")
        found.append(Wanted(name, int(batch), precision[0] if precision else "fp32" if options.small else "tf32"))
    return found
