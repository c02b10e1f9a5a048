"""BatchNorm in two passes over slices of the batch, on the reference device."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pytest

from layermem.backends.reference.base import REGISTRY, ReferenceCall, axes_of_caffe
from layermem.ops import BatchNorm, BatchNormScale
from tests import batch_norm_slices


def run(
    record: BatchNorm | BatchNormScale, step: str, arrays: Mapping[str, np.ndarray], accumulates: Collection[str]
) -> None:
    """Run a step like the device: roles that accumulate are computed separately and added."""
    views = {role: axes_of_caffe(array) for role, array in arrays.items()}
    aside = {role: axes_of_caffe(np.empty_like(arrays[role])) for role in accumulates}
    REGISTRY.bind(record, step, ReferenceCall({**views, **aside}))
    for role, value in aside.items():
        views[role] += value


@pytest.mark.parametrize("form", ["alone", "scaled", "relu", "residual"])
@pytest.mark.parametrize("name", ["quads", "channels before pixels", "rows"])
def test_a_batch_norm_in_two_passes_is_that_of_the_whole_batch(name, form):
    batch_norm_slices.check_form(name, form, run, REGISTRY.carry_bytes)


def test_the_statistics_are_those_of_all_items():
    record = batch_norm_slices.norm_of((6, 3, 9, 7))
    made = batch_norm_slices.whole(record, run, False)
    x = batch_norm_slices.operands(record)["x0"].astype(float)
    np.testing.assert_allclose(made["mean"], x.mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(made["inv_std"], 1 / np.sqrt(x.var((0, 1, 2)) + record.eps), rtol=1e-6)
