"""Splits any number of items into batches of the net's size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import ArgumentError, InputError
from layermem.interactive.blob import Array
from layermem.interactive.inputs import as_numbers, check_names
from layermem.interactive.views import NetViews
from layermem.utils.arguments import checked
from layermem.utils.exclusive import exclusive
from layermem.utils.text import shape_text


class BatchedNet(NetViews):
    """A net that takes any number of items, by passes over batches: _forward_batch, _set_diffs and backward."""

    @exclusive
    @checked
    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **arrays: Any
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Run forward and backward for any number of items; return blobs, and gradients of inputs and `diffs`, by name.

        arrays   arrays for every input, and for outputs whose gradient is given; zeros fill up the last batch
        """
        inputs = {name: value for name, value in arrays.items() if name in self.inputs}
        tops = {name: value for name, value in arrays.items() if name not in self.inputs}
        self._check_inputs(inputs)
        self._check_items(arrays)
        outs: dict[str, list[Array]] = {}
        gradients: dict[str, list[Array]] = {}
        size = next(iter(self._batch_sizes().values()))
        sizes = {**self._batch_sizes(), **dict.fromkeys(tops, size)}
        for batch, items in batches_of(arrays, sizes):
            for name, values in self._forward_batch(blobs, {name: batch[name] for name in inputs}).items():
                outs.setdefault(name, []).append(self._rows(name, values, items))
            self._set_diffs({name: batch[name] for name in tops}, dict.fromkeys(self.outputs, ""))
            for name, values in self.backward(diffs).items():
                gradients.setdefault(name, []).append(self._rows(name, values, items))
        return tuple({name: joined(parts) for name, parts in each.items()} for each in (outs, gradients))  # type: ignore[return-value]

    @exclusive
    @checked
    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> dict[str, Array]:
        """Run forward for any number of items, in batches of the net's size, of which zeros fill up the last."""
        self._check_inputs(inputs)
        self._check_items(inputs)
        outputs: dict[str, list[Array]] = {}
        for batch, items in batches_of(inputs, self._batch_sizes()):
            for name, values in self._forward_batch(blobs, batch).items():
                outputs.setdefault(name, []).append(self._rows(name, values, items))
        return {name: joined(parts) for name, parts in outputs.items()}

    @exclusive
    def predict(self, x: npt.ArrayLike, blob: str | None = None) -> Array:
        """Return the output of the net, or its blob `blob`, for any number of items: one row per item, in order.

        x      items along the first axis, each in the shape of the input without its batch axis (CHW); one item
               without the first axis is a batch of one
        """
        self._check_takes_items()
        if len(self.inputs) != 1:
            raise InputError(
                f"predict needs a net with one input, and '{self.name}' has {len(self.inputs)}; use forward_all, or "
                "its deploy net"
            )
        (name,) = self.inputs
        if blob is None and len(self.outputs) != 1:
            raise InputError(f"the net has {len(self.outputs)} outputs; name one: blob={self.outputs[:1]}")
        wanted = self.outputs[0] if blob is None else blob
        self.blobs[wanted]
        items = as_numbers(name, x)
        if items.ndim == len(self.blobs[name].shape) - 1:
            items = items[np.newaxis]
        return self.forward_all([] if blob is None else [blob], **{name: items})[wanted]

    def _batch_sizes(self) -> dict[str, int]:
        return {name: self.blobs[name].shape[0] for name in self.inputs}

    def _check_takes_items(self) -> None:
        """InputError for a net that no items can be given to."""
        if not self.inputs:
            raise InputError(
                f"net '{self.name}' has no Input layer to give items to, since its data layers read their own; call "
                "net.forward() for each batch, or use its deploy net, layermem.deploy"
            )
        for name in self.inputs:
            if not self.blobs[name].shape:
                raise InputError(f"input '{name}' is a scalar, which has no items; use net.forward({name}=...)")

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """InputError unless the arrays are for all inputs, which take items."""
        self._check_takes_items()
        check_names(inputs, self.inputs, "input")

    def _check_items(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """InputError for arrays whose items do not have the shape of their blob's items."""
        for name, value in arrays.items():
            given, item = as_numbers(name, value).shape, self.blobs[name].shape[1:]
            if given[:1] == (0,):
                raise ArgumentError(f"'{name}' has no items; give at least one")
            if given[1:] == item and given:
                continue
            what = f"'{name}' takes any number of items of {shape_text(item)}, and was given {shape_text(given)}"
            if given == item:
                raise ArgumentError(f"{what}, one item; give {name}={name}[np.newaxis]")
            raise ArgumentError(f"{what}; give an array of N x {shape_text(item)}, or reshape the net")

    def _rows(self, name: str, values: Array, items: int) -> Array:
        """The rows of the first `items` items of a batch; InputError for a blob that has none."""
        batch = next(iter(self._batch_sizes().values()))
        if not values.ndim or len(values) != batch:
            raise InputError(
                f"blob '{name}' has the shape {shape_text(values.shape)}, which has no row for each of {batch} items; "
                "use net.forward, batch by batch"
            )
        return values[:items]

    def _forward_batch(self, blobs: Sequence[str] | None, batch: Mapping[str, Array]) -> dict[str, Array]:
        raise NotImplementedError

    def _set_diffs(self, diffs: Mapping[str, Any], leaves: Mapping[str, str]) -> None:
        raise NotImplementedError

    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **top_diffs: Any
    ) -> dict[str, Array]:
        raise NotImplementedError


def batches_of(items: Mapping[str, npt.ArrayLike], sizes: Mapping[str, int]) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield batches of `sizes` items by name, each with its number of items; zeros fill up the last one.

    InputError unless all names have the same number of items and of batches."""
    arrays = {name: np.asarray(each) for name, each in items.items()}
    counts = {name: len(each) if each.ndim else 0 for name, each in arrays.items()}
    if len(set(counts.values())) > 1 or len({sizes[name] for name in arrays}) > 1:
        given = ", ".join(f"{count} of '{name}' in batches of {sizes[name]}" for name, count in counts.items())
        raise InputError(f"items go in batches together, and there are {given}; make both numbers equal")
    total, size = next(iter(counts.values())), next(iter(sizes.values()))
    for begin in range(0, total, size):
        here = min(size, total - begin)
        yield {name: _filled(each[begin : begin + size], size) for name, each in arrays.items()}, here


def joined(parts: Sequence[Array]) -> Array:
    """Join the rows of all batches in one array."""
    return np.concatenate(parts)


def _filled(rows: Array, size: int) -> Array:
    """Append rows of zeros to `rows`, `size` rows in all."""
    if len(rows) == size:
        return rows
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])
