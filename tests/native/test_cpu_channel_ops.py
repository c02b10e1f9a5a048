"""Scale, Bias, BatchNorm and PReLU kernels of the cpu device against formulas in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.normalization import CHANNEL_AXES
from tests.native.numbers import at, close, normal


def per_channel(values):
    """[channels] against [outer, channels, inner]."""
    return values[None, :, None]


@pytest.mark.parametrize("shape", CHANNEL_AXES)
def test_scale_and_bias_act_channel_by_channel(shape, isa, every_way):
    s, channels = shape, shape[1]
    x, dy, f, b = normal(1, *shape), normal(2, *shape), normal(3, channels), normal(4, channels)

    def make(memory):
        X, DY, F, B = memory.put(x), memory.put(dy), memory.put(f), memory.put(b)
        y, plain, moved = memory.empty(*shape), memory.empty(*shape), memory.put(x)
        dx, df, db, db2 = memory.put(x), memory.empty(channels), memory.put(b), memory.empty(channels)
        workspace = memory.workspace(query("scale_backward_workspace_bytes", s))
        launch("scale_forward", s, y=at(y), x=at(X), factor=at(F), bias=at(B))()
        launch("scale_forward", s, y=at(plain), x=at(X), factor=at(F))()
        launch("bias_forward", s, y=at(moved), x=at(moved), bias=at(B))()
        launch(
            "scale_backward",
            s,
            dx=at(dx),
            dfactor=at(df),
            dbias=at(db),
            x=at(dx),
            dy=at(DY),
            factor=at(F),
            accumulate_dbias=True,
            workspace=workspace,
        )()
        launch("scale_backward", s, dbias=at(db2), dy=at(DY), workspace=workspace)()
        return y, plain, moved, dx, df, db, db2

    y, plain, moved, dx, df, db, db2 = every_way(make)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    close(plain, x * per_channel(f))
    close(y, x * per_channel(f) + per_channel(b))
    close(moved, x + per_channel(b))
    close(dx, dy * per_channel(f))
    close(df, (x * dy).sum(axis=(0, 2)), 1e-5)
    close(db2, dy.sum(axis=(0, 2)), 1e-5)
    close(db, dy.sum(axis=(0, 2)) + b, 1e-5)


@pytest.mark.parametrize("shape", CHANNEL_AXES)
def test_batch_norm_normalizes_moves_its_averages_once_and_recomputes_the_same_bits(shape, isa, every_way):
    s, channels = shape, shape[1]
    x = normal(1, *shape) * 2 + per_channel(np.arange(channels, dtype=np.float32) * 10)
    averages, fraction, eps = [normal(2, channels), np.abs(normal(3, channels)), np.float32([1.5])], 0.9, 1e-5

    def make(memory):
        X, w = memory.put(x), [memory.put(a) for a in averages]
        y, again, own = memory.empty(*shape), memory.empty(*shape), memory.put(x)
        mean, inv_std = memory.empty(channels), memory.empty(channels)
        workspace = memory.workspace(query("batch_norm_forward_workspace_bytes", s))
        launch(
            "batch_norm_forward",
            s,
            y=at(y),
            x=at(X),
            mean=at(mean),
            inv_std=at(inv_std),
            w0=at(w[0]),
            w1=at(w[1]),
            w2=at(w[2]),
            fraction=fraction,
            eps=eps,
            workspace=workspace,
        )()
        launch("batch_norm_recompute", s, y=at(again), x=at(X), mean=at(mean), inv_std=at(inv_std))()
        launch(
            "batch_norm_forward",
            s,
            y=at(own),
            x=at(own),
            mean=at(mean),
            inv_std=at(inv_std),
            eps=eps,
            workspace=workspace,
        )()
        return y, again, own, mean, inv_std, *w

    y, again, own, mean, inv_std, *w = every_way(make)
    x = x.astype(np.float64)
    m, v = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    count = shape[0] * shape[2]
    close(mean, m)
    close(inv_std, 1 / np.sqrt(v + eps), 1e-5)
    if count > 1:
        assert np.abs(y - (x - per_channel(m)) / np.sqrt(per_channel(v) + eps)).max() < 5e-5 * np.sqrt(channels)
    assert (again == y).all() and (own == y).all()
    close(w[0], averages[0] * fraction + m)
    close(w[1], averages[1] * fraction + v * count / max(count - 1, 1), 1e-5)
    close(w[2], averages[2] * fraction + 1)


@pytest.mark.parametrize("shape", [s for s in CHANNEL_AXES if s[0] * s[2] > 5])
def test_batch_norm_backward_is_the_derivative_through_mean_and_variance(shape, isa, every_way):
    s, _channels = shape, shape[1]
    x, dy, before = normal(1, *shape) + 3, normal(2, *shape), normal(3, *shape)
    mean = x.astype(np.float64).mean(axis=(0, 2))
    inv_std = 1 / np.sqrt(x.astype(np.float64).var(axis=(0, 2)) + 1e-5)

    def make(memory):
        X, DY, M, S = memory.put(x), memory.put(dy), memory.put(mean), memory.put(inv_std)
        dx, over_x, over_dy, added = memory.empty(*shape), memory.put(x), memory.put(dy), memory.put(before)
        workspace = memory.workspace(query("batch_norm_backward_workspace_bytes", s))
        for out, xs, dys, add in (
            (dx, X, DY, False),
            (over_x, over_x, DY, False),
            (over_dy, X, over_dy, False),
            (added, X, DY, True),
        ):
            launch(
                "batch_norm_backward",
                s,
                dx=at(out),
                x=at(xs),
                dy=at(dys),
                mean=at(M),
                inv_std=at(S),
                accumulate=add,
                workspace=workspace,
            )()
        return dx, over_x, over_dy, added

    dx, over_x, over_dy, added = every_way(make)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    hat = (x - per_channel(mean)) * per_channel(inv_std)
    inner = dy - per_channel(dy.mean(axis=(0, 2))) - hat * per_channel((dy * hat).mean(axis=(0, 2)))
    close(dx, per_channel(inv_std) * inner, 5e-6)
    assert (over_x == dx).all() and (over_dy == dx).all() and (added == before + dx).all()


@pytest.mark.parametrize("shape", CHANNEL_AXES)
def test_batch_norm_with_moving_averages_is_linear_in_x(shape, isa, every_way):
    s, channels = shape, shape[1]
    x, dy, eps = normal(1, *shape), normal(2, *shape), 1e-3
    w = [normal(3, channels), np.abs(normal(4, channels)), np.float32([2.5])]

    def make(memory):
        X, DY, y, dx = memory.put(x), memory.put(dy), memory.empty(*shape), memory.empty(*shape)
        W = [memory.put(a) for a in w]
        workspace = memory.workspace(query("batch_norm_global_workspace_bytes", s))
        launch(
            "batch_norm_global_forward",
            s,
            y=at(y),
            x=at(X),
            w0=at(W[0]),
            w1=at(W[1]),
            w2=at(W[2]),
            eps=eps,
            workspace=workspace,
        )()
        launch(
            "batch_norm_global_backward",
            s,
            dx=at(dx),
            dy=at(DY),
            w1=at(W[1]),
            w2=at(W[2]),
            eps=eps,
            workspace=workspace,
        )()
        return y, dx

    y, dx = every_way(make)
    mean, var = w[0].astype(np.float64) / 2.5, w[1].astype(np.float64) / 2.5
    close(y, (x - per_channel(mean)) / np.sqrt(per_channel(var) + eps))
    close(dx, dy / np.sqrt(per_channel(var) + eps))


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", CHANNEL_AXES)
def test_norm_scale_and_relu_in_one_keep_nothing_but_x(shape, relu, isa, every_way):
    s, channels = shape, shape[1]
    x, dy, before = normal(1, *shape) + 3, normal(2, *shape), normal(3, channels)
    f, b, eps = normal(4, channels), normal(5, channels), 1e-2
    averages = [normal(6, channels), np.abs(normal(7, channels)), np.float32([1.5])]

    def make(memory):
        X, DY, F, B = memory.put(x), memory.put(dy), memory.put(f), memory.put(b)
        w = [memory.put(a) for a in averages]
        y, again, own, tested = memory.empty(*shape), memory.empty(*shape), memory.put(x), memory.empty(*shape)
        mean, inv_std = memory.empty(channels), memory.empty(channels)
        workspace = memory.workspace(query("batch_norm_fused_workspace_bytes", s))
        how = {"shape": s, "factor": at(F), "bias": at(B), "relu": relu, "workspace": workspace}
        stats = {**how, "mean": at(mean), "inv_std": at(inv_std)}
        W = {f"w{i}": at(a) for i, a in enumerate(w)}
        launch("batch_norm_fused_global_forward", y=at(tested), x=at(X), eps=eps, **W, **how)()
        launch("batch_norm_fused_forward", y=at(y), x=at(X), eps=eps, fraction=0.9, **W, **stats)()
        launch("batch_norm_fused_forward", y=at(again), x=at(X), recompute=True, **stats)()
        launch("batch_norm_fused_forward", y=at(own), x=at(own), eps=eps, **stats)()
        dx, over_x, over_dy = memory.empty(*shape), memory.put(x), memory.put(dy)
        df, db, added = memory.empty(channels), memory.empty(channels), memory.put(before)
        for out, xs, dys in ((dx, X, DY), (over_x, over_x, DY), (over_dy, X, over_dy)):
            launch(
                "batch_norm_fused_backward", dx=at(out), dfactor=at(df), dbias=at(db), x=at(xs), dy=at(dys), **stats
            )()
        launch("batch_norm_fused_backward", dfactor=at(added), x=at(X), dy=at(DY), accumulate_dfactor=True, **stats)()
        return y, again, own, tested, mean, inv_std, dx, over_x, over_dy, df, db, added, *w

    y, again, own, tested, mean, inv_std, dx, over_x, over_dy, df, db, added, *w = every_way(make)
    x64, count = x.astype(np.float64), shape[0] * shape[2]
    m, v = x64.mean(axis=(0, 2)), x64.var(axis=(0, 2))
    hat = (x64 - per_channel(mean)) * per_channel(inv_std)
    plain = hat * per_channel(f) + per_channel(b)
    assert np.abs(y - (np.maximum(plain, 0) if relu else plain)).max() < 1e-5
    close(mean, m)
    close(inv_std, 1 / np.sqrt(v + eps), 1e-5)
    close(w[1], averages[1] * 0.9 + v * count / max(count - 1, 1), 1e-5)
    assert (again == y).all() and (own == y).all()
    settled = (x64 - per_channel(averages[0] / 1.5)) / np.sqrt(per_channel(averages[1].astype(np.float64) / 1.5) + eps)
    settled = settled * per_channel(f) + per_channel(b)
    close(tested, np.maximum(settled, 0) if relu else settled)
    g = np.where(y > 0, dy, 0).astype(np.float64) if relu else dy.astype(np.float64)
    close(df, (g * hat).sum(axis=(0, 2)), 2e-5)
    close(db, g.sum(axis=(0, 2)), 1e-5)
    close(added, df.astype(np.float64) + before)
    if count > 5:
        inner = g - per_channel(g.mean(axis=(0, 2))) - hat * per_channel((g * hat).mean(axis=(0, 2)))
        close(dx, per_channel(inv_std.astype(np.float64) * f) * inner, 1e-5)
    assert (over_x == dx).all() and (over_dy == dx).all()


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", CHANNEL_AXES)
def test_a_residual_is_added_before_the_relu_and_its_mask(shape, relu, isa, every_way):
    s, channels = shape, shape[1]
    x, other, f, b = normal(1, *shape) + 3, normal(2, *shape), normal(4, channels), normal(5, channels)

    def make(memory):
        X, RESIDUAL, F, B = memory.put(x), memory.put(other), memory.put(f), memory.put(b)
        plain, y, again, over = memory.empty(*shape), memory.empty(*shape), memory.empty(*shape), memory.put(other)
        mask, bits = (memory.empty(-(-x.size // 8), dtype=np.uint8) for _ in range(2))
        mean, inv_std = memory.empty(channels), memory.empty(channels)
        workspace = memory.workspace(query("batch_norm_fused_workspace_bytes", s))
        how = {"shape": s, "factor": at(F), "bias": at(B), "workspace": workspace}
        stats = {**how, "mean": at(mean), "inv_std": at(inv_std)}
        launch("batch_norm_fused_forward", y=at(plain), x=at(X), relu=False, eps=1e-2, **stats)()
        summed = {**stats, "x": at(X), "relu": relu}
        launch("batch_norm_fused_forward", y=at(y), residual=at(RESIDUAL), bits=at(mask), eps=1e-2, **summed)()
        launch("batch_norm_fused_forward", y=at(again), residual=at(RESIDUAL), recompute=True, **summed)()
        launch("batch_norm_fused_forward", y=at(over), residual=at(over), bits=at(bits), recompute=True, **summed)()
        return plain, y, again, over, mask, bits

    plain, y, again, over, mask, bits = every_way(make)
    total = plain + other
    assert (y == (np.maximum(total, 0) if relu else total)).all()
    assert (again == y).all() and (over == y).all() and (bits == mask).all()
    assert (mask == np.packbits(total.ravel() > 0, bitorder="little")).all()


@pytest.mark.parametrize("shape", CHANNEL_AXES)
def test_prelu_has_a_slope_for_each_channel(shape, isa, every_way):
    s, channels = shape, shape[1]
    x, dy, slope, before = normal(1, *shape), normal(2, *shape), normal(3, channels), normal(4, channels)

    def make(memory):
        X, DY, S, y = memory.put(x), memory.put(dy), memory.put(slope), memory.empty(*shape)
        dx, dslope, added = memory.put(x), memory.empty(channels), memory.put(before)
        workspace = memory.workspace(query("prelu_backward_workspace_bytes", s))
        launch("prelu_forward", s, y=at(y), x=at(X), slope=at(S))()
        launch("prelu_backward", s, dslope=at(added), x=at(X), dy=at(DY), accumulate_dslope=True, workspace=workspace)()
        launch(
            "prelu_backward", s, dx=at(dx), dslope=at(dslope), x=at(dx), dy=at(DY), slope=at(S), workspace=workspace
        )()
        return y, dx, dslope, added

    y, dx, dslope, added = every_way(make)
    f = per_channel(slope)
    assert (y == np.where(x > 0, x, f * x)).all() and (dx == np.where(x > 0, dy, f * dy)).all()
    want = (np.minimum(x, 0).astype(np.float64) * dy).sum(axis=(0, 2))
    close(dslope, want, 1e-5)
    close(added, want + before, 1e-5)
