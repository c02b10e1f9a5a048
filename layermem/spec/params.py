"""P: the values of enums in layer parameters.

    P.Pooling.MAX, P.Pooling.AVE, P.Eltwise.SUM, P.Data.LMDB, P.Filler.FAN_IN

source  Caffe python/caffe/net_spec.py (Parameters)
"""

from __future__ import annotations

from typing import Any

from layermem.proto.schema import LayerParameter
from layermem.utils.similar import did_you_mean

SUFFIX = "Parameter"


def _enums(message: Any) -> dict[str, int]:
    """The names and values of all enums of a message."""
    return {value.name: value.number for enum in message.enum_types for value in enum.values}


_MESSAGES = LayerParameter.DESCRIPTOR.file.message_types_by_name
VALUES = {
    name.removesuffix(SUFFIX): _enums(message)
    for name, message in _MESSAGES.items()
    if name.endswith(SUFFIX) and message.enum_types
}


class Values:
    """The values of the enums of one parameter message: P.Pooling has MAX, AVE and STOCHASTIC."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> int:
        if name.startswith("__") or name not in VALUES[self._name]:
            raise AttributeError(_missing(f"P.{self._name}", name, VALUES[self._name]))
        return VALUES[self._name][name]

    def __dir__(self) -> list[str]:
        return list(VALUES[self._name])

    def __repr__(self) -> str:
        return f"<P.{self._name}: {' '.join(VALUES[self._name])}>"


class Parameters:
    """The class of `layermem.P`: P.Type.VALUE is a value of an enum of TypeParameter in Caffe's schema."""

    def __getattr__(self, name: str) -> Values:
        if name not in VALUES:
            raise AttributeError(_missing("P", name, VALUES))
        return Values(name)

    def __dir__(self) -> list[str]:
        return sorted(VALUES)

    def __repr__(self) -> str:
        return f"<layermem.P: {' '.join(sorted(VALUES))}>"


P = Parameters()


def _missing(owner: str, name: str, known: dict[str, Any]) -> str:
    return f"{owner} has no '{name}'; {did_you_mean(name, known) or f'it has {chr(32).join(sorted(known))}'}"
