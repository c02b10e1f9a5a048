"""Pooling kernels of the cpu device against loops over windows."""

import numpy as np
import pytest

from layermem.backends.cpu.pooling import native
from layermem.backends.cpu.support.launch import launch
from layermem.backends.reference.support.philox import words
from tests.cases import select
from tests.native.numbers import at, close, normal

CASES = {
    case.name.partition(": ")[2]: case.layer("edges").record
    for case in select("edges")
    if case.name.startswith("Pooling MAX: ")
}


def windows(op):
    """(oh, ow, rows, columns, area): the pixels of each window inside the image, and Caffe's divisor."""
    _, _, h, w = op.x.shape
    (kh, kw), (sh, sw), (ph, pw) = ([getattr(each, of) for each in op.windows] for of in ("kernel", "stride", "pad"))
    for oh, ow in np.ndindex(*op.y.shape[2:]):
        h0, w0 = oh * sh - ph, ow * sw - pw
        area = (min(h0 + kh, h + ph) - h0) * (min(w0 + kw, w + pw) - w0)
        rows = [(r, h0 + r) for r in range(kh) if 0 <= h0 + r < h]
        columns = [(s, w0 + s) for s in range(kw) if 0 <= w0 + s < w]
        yield oh, ow, rows, columns, area


@pytest.mark.parametrize("op", CASES.values(), ids=CASES)
def test_max_pooling_takes_the_first_largest_and_sends_the_gradient_there(op, isa, every_way):
    g = native(op)
    x = np.round(normal(1, *op.x.stored) * 2)  # with ties
    dy, before = normal(2, *op.y.stored), normal(3, *x.shape)
    index = np.uint8 if op.taps <= 256 else np.int32

    def make(memory):
        X, DY, y, plain = memory.put(x), memory.put(dy), memory.empty(*dy.shape), memory.empty(*dy.shape)
        where, dx, added = memory.empty(*dy.shape, dtype=index), memory.empty(*x.shape), memory.put(before)
        mask = memory.empty(*dy.shape)
        launch("max_pool_forward", g, y=at(y), x=at(X), argmax=at(where))()
        launch("max_pool_forward", g, y=at(plain), x=at(X))()
        launch("max_pool_mask", g, mask=at(mask), argmax=at(where))()
        launch("max_pool_backward", g, dx=at(dx), dy=at(DY), argmax=at(where))()
        launch("max_pool_backward", g, dx=at(added), dy=at(DY), argmax=at(where), accumulate=True)()
        return y, plain, where, mask, dx, added

    y, plain, where, mask, dx, added = every_way(make)
    want_y, want_where, want_dx = np.empty_like(dy), np.empty(dy.shape, index), np.zeros(x.shape)
    want_mask = np.empty_like(dy)
    for oh, ow, rows, columns, _ in windows(op):
        taps = [r * op.columns.kernel + s for r, _ in rows for s, _ in columns]
        pixels = [(h, w) for _, h in rows for _, w in columns]
        values = np.stack([x[:, h, w] for h, w in pixels])
        best = values.argmax(axis=0)  # the first of equals
        want_y[:, oh, ow] = values.max(axis=0)
        want_where[:, oh, ow] = np.array(taps)[best]
        want_mask[:, oh, ow] = np.array([h * op.columns.size + w for h, w in pixels])[best]
        for i, (h, w) in enumerate(pixels):
            want_dx[:, h, w] += np.where(best == i, dy[:, oh, ow], 0)
    assert (y == want_y).all() and (plain == want_y).all() and (where == want_where).all()
    assert (mask == want_mask).all()
    close(dx, want_dx)
    close(added, want_dx + before)


@pytest.mark.parametrize("op", CASES.values(), ids=CASES)
def test_average_pooling_divides_by_the_window_clipped_to_the_padded_image(op, isa, every_way):
    g = native(op)
    x, dy = normal(1, *op.x.stored), normal(2, *op.y.stored)
    before = normal(3, *x.shape)

    def make(memory):
        X, DY, y = memory.put(x), memory.put(dy), memory.empty(*dy.shape)
        dx, added = memory.empty(*x.shape), memory.put(before)
        launch("average_pool_forward", g, y=at(y), x=at(X))()
        launch("average_pool_backward", g, dx=at(dx), dy=at(DY))()
        launch("average_pool_backward", g, dx=at(added), dy=at(DY), accumulate=True)()
        return y, dx, added

    y, dx, added = every_way(make)
    want_y, want_dx = np.zeros(dy.shape), np.zeros(x.shape)
    for oh, ow, rows, columns, area in windows(op):
        for _, h in rows:
            for _, w in columns:
                want_y[:, oh, ow] += x[:, h, w].astype(np.float64) / area
                want_dx[:, h, w] += dy[:, oh, ow].astype(np.float64) / area
    close(y, want_y)
    close(dx, want_dx)
    close(added, want_dx + before)


@pytest.mark.parametrize("op", CASES.values(), ids=CASES)
def test_stochastic_pooling_takes_the_element_at_which_the_sum_passes_a_random_part(op, isa, every_way):
    g, x = native(op), np.abs(normal(1, *op.x.stored))
    shape = op.y.stored
    index = np.uint8 if op.taps <= 256 else np.int32

    def make(memory):
        X, y, where, mean = memory.put(x), memory.empty(*shape), memory.empty(*shape, dtype=index), memory.empty(*shape)
        launch("stochastic_pool_forward", g, y=at(y), x=at(X), argmax=at(where), seed=3, stream=9)(2**33 + 5)
        launch("stochastic_pool_average", g, y=at(mean), x=at(X))()
        return y, where, mean

    y, where, mean = every_way(make)
    drawn = words(y.size, 3, 9, 2**33 + 5).astype(np.float32).reshape(shape) * np.float32(2.0**-32)
    for oh, ow, rows, columns, _ in windows(op):
        values = np.stack([x[:, h, w] for _, h in rows for _, w in columns])
        sums = np.cumsum(values, axis=0, dtype=np.float32)
        enough = sums >= drawn[:, oh, ow] * sums[-1]
        enough[-1] = True
        first = enough.argmax(axis=0)
        taps = np.array([r * op.columns.kernel + s for r, _ in rows for s, _ in columns])
        assert (where[:, oh, ow] == taps[first]).all()
        assert (y[:, oh, ow] == np.take_along_axis(values, first[None], 0)[0]).all()
        close(mean[:, oh, ow], (values**2).sum(axis=0) / values.sum(axis=0))


def test_a_pool_whose_last_window_misses_the_image_is_refused():
    with pytest.raises(ValueError, match="last window lies outside"):
        launch("average_pool_forward", (1, 1, 4, 4, 4, 2, 2, 2, 2, 2, 0, 0), y=0, x=0)
