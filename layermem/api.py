"""What `import layermem` offers: nets and plans from files, in one call each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike

from layermem.data import probe
from layermem.graph import net as graph_net
from layermem.proto.read import read_net
from layermem.proto.schema import PHASES

Path = str | PathLike[str]


class Net(graph_net.Net):
    """The net in a prototxt file, in one phase, with every shape known.

    batch    replaces the batch size of every input layer
    inputs   shapes (NCHW) by name of the tops of input layers; a data set whose shapes are given is not opened
    stages, level   as the NetStateRules of the file ask for them
    """

    def __init__(
        self,
        path: Path,
        phase: str = "TRAIN",
        *,
        batch: int | None = None,
        inputs: Mapping[str, Iterable[int]] | None = None,
        level: int = 0,
        stages: Iterable[str] = (),
    ):
        shapes = {name: tuple(shape) for name, shape in (inputs or {}).items()}
        super().__init__(
            read_net(path), PHASES[phase], batch=batch, inputs=shapes, probe=probe, level=level, stages=stages
        )
