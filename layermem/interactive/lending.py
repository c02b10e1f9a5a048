"""Parameters that several nets share: a layer of one net has those of the layer of its name in another net."""

from __future__ import annotations

from collections.abc import Mapping

from layermem.errors import InputError
from layermem.interactive.inputs import shapes_text
from layermem.interactive.views import NetViews
from layermem.proto.blobs import Blob as Values
from layermem.utils.arguments import checked
from layermem.utils.exclusive import Lock


class LendingNet(NetViews):
    """A net whose layers may have the parameters of other nets, which it copies before each pass."""

    _lock: Lock
    _lenders: dict[str, LendingNet]  # layer -> the net that it got its parameters from

    @checked
    def share_with(self, other: LendingNet) -> None:
        """Use the parameters of `other` in layers of the same names; other layers keep theirs.

        The nets wait for each other from then on, as calls of one net do."""
        for layer, blobs in self._params.items():
            if layer not in other._params:
                continue
            mine, theirs = ([blob.shape for blob in each] for each in (blobs, other._params[layer]))
            if mine != theirs:
                raise InputError(
                    f"has parameters of {shapes_text(mine)} here, and of {shapes_text(theirs)} in the other net; make "
                    "them equal, or rename one of the layers",
                    layer=layer,
                )
        self._lock.join(other._lock)
        with self._lock.mutex:
            for layer in self._params:
                if layer in other._params:
                    owner = other._owner(layer)
                    self._lenders.pop(layer, None)
                    if owner is not self:
                        self._lenders[layer] = owner

    def _owner(self, layer: str) -> LendingNet:
        """The net whose parameters a layer has."""
        return self._lenders[layer]._owner(layer) if layer in self._lenders else self

    def _write_shared(self, values: Mapping[str, Values]) -> None:
        """Set parameters in the nets that have them."""
        lent = {
            mine: (owner, theirs)
            for layer, owner in ((layer, self._owner(layer)) for layer in self._lenders)
            for mine, theirs in zip(self._names_of(layer), owner._names_of(layer))
        }
        by_owner: dict[LendingNet, dict[str, Values]] = {}
        for name, value in values.items():
            owner, own = lent.get(name, (self, name))
            by_owner.setdefault(owner, {})[own] = value
        for owner, own_values in by_owner.items():
            owner._write(own_values)

    def _write(self, values: Mapping[str, Values]) -> None:
        """Set parameters of the net's own."""
        raise NotImplementedError

    def _names_of(self, layer: str) -> list[str]:
        """The names of a layer's parameters in the arena."""
        return [name for name, _ in self._definition.layers[self._index(layer)].params]
