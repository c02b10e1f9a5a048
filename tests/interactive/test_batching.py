"""Items in batches."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.interactive.batching import batches_of, joined


def test_the_last_batch_is_filled_up_with_zeros():
    items = np.arange(5.0)
    parts = [(batch["x"].tolist(), count) for batch, count in batches_of({"x": items}, {"x": 2})]
    assert parts == [([0, 1], 2), ([2, 3], 2), ([4, 0], 1)]
    assert joined([np.ones((2, 3)), np.zeros((1, 3))]).shape == (3, 3)


def test_inputs_that_do_not_go_together_are_refused():
    with pytest.raises(InputError, match="there are 3 of 'a' in batches of 2, 4 of 'b' in batches of 2"):
        list(batches_of({"a": np.ones(3), "b": np.ones(4)}, {"a": 2, "b": 2}))
