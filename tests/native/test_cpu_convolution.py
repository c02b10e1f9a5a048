"""Convolution kernels of the cpu device against sums over taps in float64."""

from dataclasses import replace

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.cpu.convolution import conv_problem, native
from layermem.backends.cpu.support.launch import launch, query
from tests.cases.convolution import CHUNKED, CPU_EDGES, FEW_TILES, edge_problem
from tests.cases.fused import problem_of
from tests.cases.net_layers import net_layer
from tests.native.numbers import at, close, normal

CASES = {name: edge_problem(edge) for name, edge in CPU_EDGES.items()}


def conv64(case, x, w):
    """y and the functions that send dy back, by one loop over taps.  x NHWC, w [K][kh][kw][C/g], float64."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw), g = case.kernel, case.stride, case.pad, case.dilation, case.groups
    n, h, wide, c = x.shape
    k = w.shape[0]
    ho, wo = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (wide + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    xp = np.zeros((n, h + 2 * ph, wide + 2 * pw, c))
    xp[:, ph : ph + h, pw : pw + wide] = x
    wg = w.reshape(g, k // g, kh, kw, c // g)

    def view(r, s):
        return (slice(None), slice(r * dh, r * dh + sh * ho - sh + 1, sh), slice(s * dw, s * dw + sw * wo - sw + 1, sw))

    y = np.zeros((n, ho, wo, k))
    for r in range(kh):
        for s in range(kw):
            part = xp[view(r, s)].reshape(n, ho, wo, g, c // g)
            y += np.einsum("nhwgc,gkc->nhwgk", part, wg[:, :, r, s]).reshape(y.shape)

    def backward(dy):
        dxp, dwg, dyg = np.zeros_like(xp), np.zeros_like(wg), dy.reshape(n, ho, wo, g, k // g)
        for r in range(kh):
            for s in range(kw):
                part = xp[view(r, s)].reshape(n, ho, wo, g, c // g)
                dwg[:, :, r, s] = np.einsum("nhwgk,nhwgc->gkc", dyg, part)
                dxp[view(r, s)] += np.einsum("nhwgk,gkc->nhwgc", dyg, wg[:, :, r, s]).reshape(n, ho, wo, c)
        return dxp[:, ph : ph + h, pw : pw + wide], dwg.reshape(w.shape)

    return y, backward


def tensors(case):
    x, w, dy = (normal(seed, *each.stored) for seed, each in ((1, case.image), (2, case.filter), (4, case.maps)))
    return native(case), x, w, normal(3, case.k), dy


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_convolution_forward_is_the_sum_over_taps(case, isa, every_way):
    g, x, w, bias, dy = tensors(case)

    def make(memory):
        X, W, B = memory.put(x), memory.put(w), memory.put(bias)
        y, plain, added = memory.empty(*dy.shape), memory.empty(*dy.shape), memory.put(dy)
        workspace = memory.workspace(query("conv_fprop_workspace_bytes", g))
        launch("conv_fprop", g, y=at(y), x=at(X), w=at(W), bias=at(B), workspace=workspace)()
        launch("conv_fprop", g, y=at(plain), x=at(X), w=at(W), workspace=workspace)()
        launch("conv_fprop", g, y=at(added), x=at(X), w=at(W), accumulate=True, workspace=workspace)()
        return y, plain, added

    y, plain, added = every_way(make)
    want, _ = conv64(case, x.astype(np.float64), w.astype(np.float64))
    close(plain, want)
    close(y, want + bias)
    close(added, want + dy)


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_relu_in_the_epilogue_is_the_convolution_and_its_relu(case, isa, every_way):
    g, x, w, bias, dy = tensors(case)

    def make(memory):
        X, W, B = memory.put(x), memory.put(w), memory.put(bias)
        y, fused = memory.empty(*dy.shape), memory.empty(*dy.shape)
        mask = memory.empty(-(-dy.size // 8), dtype=np.uint8)
        workspace = memory.workspace(query("conv_fprop_workspace_bytes", g))
        launch("conv_fprop", g, y=at(y), x=at(X), w=at(W), bias=at(B), workspace=workspace)()
        launch(
            "conv_fprop", g, y=at(fused), x=at(X), w=at(W), bias=at(B), relu=True, bits=at(mask), workspace=workspace
        )()
        return y, fused, mask

    y, fused, mask = every_way(make)
    assert (fused == np.maximum(y, 0)).all()
    assert (mask == np.packbits(y.reshape(-1) > 0, bitorder="little")).all()


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_dgrad_is_the_transpose_of_fprop(case, isa, every_way):
    g, x, w, _, dy = tensors(case)
    bias, before = normal(5, case.c), normal(6, *x.shape)

    def make(memory):
        DY, W, B = memory.put(dy), memory.put(w), memory.put(bias)
        dx, biased, added = memory.empty(*x.shape), memory.empty(*x.shape), memory.put(before)
        workspace = memory.workspace(query("conv_dgrad_workspace_bytes", g))
        launch("conv_dgrad", g, dx=at(dx), dy=at(DY), w=at(W), workspace=workspace)()
        launch("conv_dgrad", g, dx=at(biased), dy=at(DY), w=at(W), bias=at(B), workspace=workspace)()
        launch("conv_dgrad", g, dx=at(added), dy=at(DY), w=at(W), accumulate=True, workspace=workspace)()
        return dx, biased, added

    dx, biased, added = every_way(make)
    _, backward = conv64(case, x.astype(np.float64), w.astype(np.float64))
    want, _ = backward(dy.astype(np.float64))
    close(dx, want)
    close(biased, want + bias)
    close(added, want + before)


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_wgrad_sums_over_pixels(case, isa, every_way):
    g, x, w, _, dy = tensors(case)
    before = normal(6, *w.shape)

    def make(memory):
        X, DY, dw, added = memory.put(x), memory.put(dy), memory.empty(*w.shape), memory.put(before)
        workspace = memory.workspace(query("conv_wgrad_workspace_bytes", g))
        launch("conv_wgrad", g, dw=at(dw), x=at(X), dy=at(DY), workspace=workspace)()
        launch("conv_wgrad", g, dw=at(added), x=at(X), dy=at(DY), accumulate=True, workspace=workspace)()
        return dw, added

    dw, added = every_way(make)
    _, backward = conv64(case, x.astype(np.float64), w.astype(np.float64))
    _, want = backward(dy.astype(np.float64))
    close(dw, want, 1e-5)
    close(added, want + before, 1e-5)


def test_a_geometry_that_cannot_be_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="divisible by groups"):
        query("conv_fprop_workspace_bytes", conv_problem(n=1, c=3, h=5, w=5, k=4, kernel=(3, 3), groups=2))
    with pytest.raises(ValueError, match="larger than the padded image"):
        query("conv_fprop_workspace_bytes", conv_problem(n=1, c=3, h=5, w=5, k=4, kernel=(7, 7)))
    with pytest.raises(ValueError, match="unknown ISA 'mmx'"):
        cpu.set_isa("mmx")


STEPS = ("fprop", "dgrad", "wgrad")


def run_step(step, case, memory, x, w, dy):
    """The result of one kernel of the cpu device."""
    g = native(case)
    workspace = memory.workspace(query(f"conv_{step}_workspace_bytes", g))
    x, w, dy = memory.put(x), memory.put(w), memory.put(dy)
    result = memory.empty(*{"fprop": dy, "dgrad": x, "wgrad": w}[step].shape)
    if step == "fprop":
        launch("conv_fprop", g, y=at(result), x=at(x), w=at(w), workspace=workspace)()
    elif step == "dgrad":
        launch("conv_dgrad", g, dx=at(result), dy=at(dy), w=at(w), workspace=workspace)()
    else:
        launch("conv_wgrad", g, dw=at(result), x=at(x), dy=at(dy), workspace=workspace)()
    return result


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("images", "size", "others"), CHUNKED)
def test_chunks_of_channels_have_the_bits_of_a_layer_with_these_channels_alone(step, images, size, others, every_way):
    """700 x 200 pairs of channels take 19.2 MiB when transformed: output channels come in two chunks, tiles in two
    batches or more.  Four images of 14 x 14 pixels are one batch, with chunks of 64 channels."""
    c, k = (200, others) if step == "dgrad" else (others, 200)
    whole = problem_of(images, c, k, size)
    _, x, w, _, dy = tensors(whole)
    for begin, end in ((0, 96), (96, 200)):
        if step == "dgrad":
            part, rest = replace(whole, c=end - begin), (x[..., begin:end], w[..., begin:end], dy)
        else:
            part, rest = replace(whole, k=end - begin), (x, w[begin:end], dy[..., begin:end])
        operands = [np.ascontiguousarray(each) for each in rest]

        def make(memory, part=part, operands=operands):
            return run_step(step, whole, memory, x, w, dy), run_step(step, part, memory, *operands)

        result, alone = every_way(make)
        index = np.s_[begin:end] if step == "wgrad" else np.s_[..., begin:end]
        assert (result[index] == alone).all()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("c", "k", "most"), [(160, 320, 11), (256, 512, 24), (512, 512, 24), (1024, 512, 26), (1024, 1024, 30)]
)
def test_transformed_weights_of_a_large_layer_are_not_all_in_the_workspace(step, c, k, most):
    large = problem_of(8, c, k, 56)
    assert query(f"conv_{step}_workspace_bytes", native(large)) <= most * 2**20


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("layer", "most"), [("4d", 6), ("5b", 3), ("4e", 7)])
def test_chunks_of_a_slice_of_few_images_stay_in_cache(step, layer, most):
    its = net_layer(f"GoogLeNet inception_{layer}/3x3", 4)
    slice_of_32 = conv_problem(n=4, c=its.c, h=its.h, w=its.w, k=its.k, kernel=(3, 3), pad=(1, 1), first=4, items=32)
    assert query(f"conv_{step}_workspace_bytes", slice_of_32) <= most * 2**20


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("images", [2, 4, 8])
@pytest.mark.parametrize(("c", "k"), FEW_TILES)
def test_a_slice_of_few_tiles_has_the_bits_of_the_batch(images, c, k, isa, every_way):
    """Slices of 8, 16 and 32 tiles (dgrad: 8) have few output channels in each task; the batch of 64 tiles packs all
    weights."""
    batch = problem_of(16, c, k, 7)
    _, x, w, bias, dy = tensors(batch)

    def make(memory):
        X, W, B, DY = memory.put(x), memory.put(w), memory.put(bias), memory.put(dy)
        results = []
        for count in (batch.n, images):
            y, dx = memory.put(dy), memory.put(x)  # to which each kernel adds, or writes
            plain = memory.empty(*dy.shape)
            for first in range(0, batch.n, count):
                g = conv_problem(n=count, c=c, h=7, w=7, k=k, kernel=(3, 3), pad=(1, 1), first=first, items=batch.n)
                here = slice(first, first + count)
                fprop = memory.workspace(query("conv_fprop_workspace_bytes", g))
                dgrad = memory.workspace(query("conv_dgrad_workspace_bytes", g))
                launch(
                    "conv_fprop", g, y=at(plain[here]), x=at(X[here]), w=at(W), bias=at(B), relu=True, workspace=fprop
                )()
                launch("conv_fprop", g, y=at(y[here]), x=at(X[here]), w=at(W), accumulate=True, workspace=fprop)()
                launch("conv_dgrad", g, dx=at(dx[here]), dy=at(DY[here]), w=at(W), accumulate=True, workspace=dgrad)()
            results += [plain, y, dx]
        return results

    results = every_way(make)
    for whole, sliced in zip(results[:3], results[3:]):
        assert (whole == sliced).all()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", range(4, 60, 4))
def test_tiles_that_serve_all_chunks_are_few(step, size):
    deep = problem_of(2, 1024, 512, size)
    assert query(f"conv_{step}_workspace_bytes", native(deep)) <= 40 * 2**20
