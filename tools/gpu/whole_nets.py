"""The nets that steps run whole: NAME:BATCH or NAME:BATCH:PRECISION, built without a data set."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from layermem.api import build_net
from layermem.graph.net import Net
from tools.gpu.process import ROOT
from tools.gpu.results import Options

WITH_DATA = ("digits",)  # which come with the repository


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

    def costs_file(self, options: Options) -> Path:
        """Where the measured times of its ops are kept."""
        return options.out / f"costs-{self.name}-{self.batch}-{self.precision}.csv"


MOST = 4  # nets that are looked at op by op


def wanted(options: Options) -> list[Wanted]:
    """tf32 unless a net says otherwise; an emulated GPU runs fp32."""
    found = []
    for what in options.nets:
        name, batch, *precision = what.split(":")
        found.append(Wanted(name, int(batch), precision[0] if precision else "fp32" if options.small else "tf32"))
    return found
