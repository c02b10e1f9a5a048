"""Builds a graph/net.py Net from a path, a NetParameter, a NetSpec, or text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from google.protobuf import text_format

from layermem.data import probe
from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
from layermem.layers import LAYERS
from layermem.proto.filter import filter_net
from layermem.proto.read import NetFile, read_net, read_net_text
from layermem.proto.schema import PHASES, Message, NetParameter
from layermem.spec import NetSpec, net_file
from layermem.utils.files import PathName, check_path


@runtime_checkable
class Spec(Protocol):
    """An object that can be written as a NetParameter, such as a NetSpec."""

    def to_proto(self) -> Message: ...


Source = PathName | Message | Spec | NetFile


def read_source(source: Source) -> NetFile:
    """The net that `source` names."""
    if isinstance(source, NetFile):
        return source
    if isinstance(source, NetSpec):
        return net_file(source)
    if isinstance(source, Spec):
        source = source.to_proto()
    if isinstance(source, NetParameter):
        return read_net_text(text_format.MessageToString(source), "<NetParameter>")
    check_path(source, "prototxt net")
    return read_net(source)


def phase_of(file: NetFile, phase: str | None, level: int = 0, stages: Iterable[str] = ()) -> int:
    """Return the number of a phase; without a name, TRAIN for a net that has a loss in it, else TEST."""
    if phase is None:
        layers = filter_net(file, PHASES["TRAIN"], level=level, stages=tuple(stages)).message.layer
        has_loss = any(
            any(layer.loss_weight) or (layer.type in LAYERS and LAYERS[layer.type].is_loss) for layer in layers
        )
        return PHASES["TRAIN" if has_loss else "TEST"]
    if phase not in PHASES:
        raise InputError(f"unknown phase '{phase}' (choose from {', '.join(PHASES)})")
    return PHASES[phase]


def built_net(source: Source, phase: str | None, options: NetOptions, earlier: Net | None = None) -> Net:
    """Build the layers of a net in one phase, with every shape known; Python layers go on from those of `earlier`."""
    file = read_source(source)
    return Net(file, phase_of(file, phase, options.level, options.stages), options, probe=probe, earlier=earlier)


def build_net(
    source: Source,
    phase: str | None = None,
    *,
    batch: int | None = None,
    inputs: Mapping[str, Iterable[int]] | None = None,
    level: int = 0,
    stages: Iterable[str] = (),
    allow_python: bool = False,
) -> Net:
    """Build the layers of a net in one phase, with every shape known; the arguments are those of layermem.Net."""
    return built_net(source, phase, NetOptions.of(batch, inputs, level, stages, allow_python))
