"""Gives unique names to layers without a name or with a repeated name, which Caffe allows.

no name      the layer's type; applied to the whole file, so that a layer has one name in both phases
name twice   the later layer gets a number, "accuracy(2)"; applied per phase, so that a name given once in each
             phase stays

Binary weight files hold the names of the prototxt, as in Caffe: `NamesInFile` maps unique names to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from layermem.proto.schema import Message

NamesInFile = dict[str, str]  # unique name -> the name in the file, where they differ


class FreeNames:
    """Names that are not in `taken`, each given once: a name itself, or the name followed by a number."""

    def __init__(self, taken: Iterable[str]):
        self.taken = set(taken)
        self._numbers: dict[str, int] = {}  # the last number used with a name

    def take(self, name: str) -> str:
        free, number = name, self._numbers.get(name, 1)
        while free in self.taken:
            number += 1
            free = f"{name}({number})"
        self._numbers[name] = number
        self.taken.add(free)
        return free


def name_nameless(net: Message) -> NamesInFile:
    """Give every layer of a NetParameter without a name a unique one; return these names."""
    names, given = FreeNames(layer.name for layer in net.layer), {}
    for layer in net.layer:
        if not layer.name and layer.type:
            layer.name = names.take(layer.type)
            given[layer.name] = ""
    return given


def number_repeated(net: Message) -> NamesInFile:
    """Give a number to every layer of a NetParameter whose name an earlier layer has; return these names."""
    names, changed = FreeNames(layer.name for layer in net.layer), {}
    given: set[str] = set()
    for layer in net.layer:
        if layer.name in given:
            original, layer.name = layer.name, names.take(layer.name)
            changed[layer.name] = original
        given.add(layer.name)
    return changed
