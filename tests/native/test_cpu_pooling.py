"""Pooling kernels of the cpu device against loops over windows."""

from dataclasses import dataclass

import numpy as np
import pytest

from layermem.backends.cpu.launch import launch
from layermem.backends.reference.philox import words
from tests.native.numbers import at, close, normal


@dataclass(frozen=True)
class Case:
    n: int
    c: int
    hw: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)

    @property
    def out(self):
        """Caffe's sizes: rounded up, without windows that begin behind the image and its padding."""
        sizes = []
        for size, k, s, p in zip(self.hw, self.kernel, self.stride, self.pad):
            out = -(-(size + 2 * p - k) // s) + 1
            sizes.append(out - 1 if p and (out - 1) * s >= size + p else out)
        return tuple(sizes)

    def geometry(self):
        (h, w), kernel, stride, pad = self.hw, self.kernel, self.stride, self.pad
        return (self.n, self.c, h, w, *self.out, *kernel, *stride, *pad)

    def windows(self):
        """(oh, ow, rows, columns, area): the pixels of each window inside the image, and Caffe's divisor."""
        (h, w), (kh, kw), (sh, sw), (ph, pw) = self.hw, self.kernel, self.stride, self.pad
        for oh in range(self.out[0]):
            for ow in range(self.out[1]):
                h0, w0 = oh * sh - ph, ow * sw - pw
                area = (min(h0 + kh, h + ph) - h0) * (min(w0 + kw, w + pw) - w0)
                rows = [(r, h0 + r) for r in range(kh) if 0 <= h0 + r < h]
                columns = [(s, w0 + s) for s in range(kw) if 0 <= w0 + s < w]
                yield oh, ow, rows, columns, area


CASES = {
    "halves": Case(2, 20, (8, 12), (2, 2), (2, 2)),
    "overlapping, rounded up": Case(2, 36, (13, 7), (3, 3), (2, 2)),
    "padded": Case(1, 72, (7, 13), (3, 3), (1, 1), (1, 1)),
    "padded and clipped": Case(2, 3, (13, 13), (3, 3), (3, 2), (1, 2)),
    "global": Case(3, 36, (7, 7), (7, 7)),
    "one channel": Case(2, 1, (7, 9), (3, 2), (2, 1)),
    "gaps between windows": Case(1, 4, (13, 13), (2, 2), (3, 3)),
    "more than 256 taps": Case(1, 20, (19, 18), (17, 16), (2, 2), (3, 3)),
    "width one": Case(2, 5, (9, 1), (3, 1), (2, 1)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_max_pooling_takes_the_first_largest_and_sends_the_gradient_there(case, isa, every_way):
    g = case.geometry()
    x = np.round(normal(1, case.n, *case.hw, case.c) * 2)  # with ties
    dy, before = normal(2, case.n, *case.out, case.c), normal(3, *x.shape)
    index = np.uint8 if case.kernel[0] * case.kernel[1] <= 256 else np.int32

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
    for oh, ow, rows, columns, _ in case.windows():
        taps = [r * case.kernel[1] + s for r, _ in rows for s, _ in columns]
        pixels = [(h, w) for _, h in rows for _, w in columns]
        values = np.stack([x[:, h, w] for h, w in pixels])
        best = values.argmax(axis=0)  # the first of equals
        want_y[:, oh, ow] = values.max(axis=0)
        want_where[:, oh, ow] = np.array(taps)[best]
        want_mask[:, oh, ow] = np.array([h * case.hw[1] + w for h, w in pixels])[best]
        for i, (h, w) in enumerate(pixels):
            want_dx[:, h, w] += np.where(best == i, dy[:, oh, ow], 0)
    assert (y == want_y).all() and (plain == want_y).all() and (where == want_where).all()
    assert (mask == want_mask).all()
    close(dx, want_dx)
    close(added, want_dx + before)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_average_pooling_divides_by_the_window_clipped_to_the_padded_image(case, isa, every_way):
    g = case.geometry()
    x, dy = normal(1, case.n, *case.hw, case.c), normal(2, case.n, *case.out, case.c)
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
    for oh, ow, rows, columns, area in case.windows():
        for _, h in rows:
            for _, w in columns:
                want_y[:, oh, ow] += x[:, h, w].astype(np.float64) / area
                want_dx[:, h, w] += dy[:, oh, ow].astype(np.float64) / area
    close(y, want_y)
    close(dx, want_dx)
    close(added, want_dx + before)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_stochastic_pooling_takes_the_element_at_which_the_sum_passes_a_random_part(case, isa, every_way):
    g, x = case.geometry(), np.abs(normal(1, case.n, *case.hw, case.c))
    shape = (case.n, *case.out, case.c)
    index = np.uint8 if case.kernel[0] * case.kernel[1] <= 256 else np.int32

    def make(memory):
        X, y, where, mean = memory.put(x), memory.empty(*shape), memory.empty(*shape, dtype=index), memory.empty(*shape)
        launch("stochastic_pool_forward", g, y=at(y), x=at(X), argmax=at(where), seed=3, stream=9)(2**33 + 5)
        launch("stochastic_pool_average", g, y=at(mean), x=at(X))()
        return y, where, mean

    y, where, mean = every_way(make)
    drawn = words(y.size, 3, 9, 2**33 + 5).astype(np.float32).reshape(shape) * np.float32(2.0**-32)
    for oh, ow, rows, columns, _ in case.windows():
        values = np.stack([x[:, h, w] for _, h in rows for _, w in columns])
        sums = np.cumsum(values, axis=0, dtype=np.float32)
        enough = sums >= drawn[:, oh, ow] * sums[-1]
        enough[-1] = True
        first = enough.argmax(axis=0)
        taps = np.array([r * case.kernel[1] + s for r, _ in rows for s, _ in columns])
        assert (where[:, oh, ow] == taps[first]).all()
        assert (y[:, oh, ow] == np.take_along_axis(values, first[None], 0)[0]).all()
        close(mean[:, oh, ow], (values**2).sum(axis=0) / values.sum(axis=0))


def test_a_pool_whose_last_window_misses_the_image_is_refused():
    with pytest.raises(ValueError, match="last window lies outside"):
        launch("average_pool_forward", (1, 1, 4, 4, 4, 2, 2, 2, 2, 2, 0, 0), y=0, x=0)
