"""Implicit GEMM: conv_fprop, conv_dgrad and conv_wgrad over odd shapes, against sums in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.backends.arena import UNTOUCHED
from layermem.backends.cuda.products import gemm_tiles, wgrad
from layermem.backends.cuda.products.gemm_tiles import (
    DGRAD,
    ENGINES,
    FPROP,
    PACKED,
    PACKED_BF16,
    WGRAD,
    GemmEngine,
    by_time,
    cycles,
    vector_width_of,
)
from layermem.backends.cuda.products.implicit_gemm import conv_fprop
from layermem.backends.cuda.products.wgrad import Frames, SplitK, conv_wgrad, conv_wgrad_workspace_bytes, split_of
from layermem.ops import ConvProblem, Tensor, Window
from tests.backends.cuda.harness import Case, Memory, Way, layer_of
from tests.cases.convolution import CONV_EDGES, LONG_IMAGES, PRECISION_BOUNDS, TILED_CHANNELS, TILED_IMAGES, edge_case
from tests.emulator import emulate


def filled(rng: np.random.Generator, layer, *shapes):
    xs = [rng.standard_normal(shape) for shape in shapes]
    ws = [rng.standard_normal(param.tensor.shape) for param in layer.params]
    return xs, ws


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("name", CONV_EDGES)
def test_convolutions_agree_with_sums_in_double_precision(kind, name, rng):
    case = edge_case(name, kind, bias=True)
    layer = case.layer("small")
    xs, ws = case.inputs(layer, rng)
    Case(layer, xs, ws, bounds={"dw0": 1e-5, "dw1": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("channels, outputs", TILED_CHANNELS)
def test_no_tile_changes_a_bit(channels, outputs, rng, monkeypatch):
    shape = (3, channels, 9, 8)
    layer = layer_of(f'type: "Convolution" convolution_param {{ num_output: {outputs} kernel_size: 3 }}', shape)
    xs, ws = filled(rng, layer, shape)
    found = []
    for tile in ENGINES["fp32"].tiles:
        monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
        same = np.random.default_rng(3)
        got = Case(layer, xs, ws, bounds={"dw0": 1e-5, "dw1": 1e-5}, rng=same).check()
        found.append({role: got[role].tobytes() for role in ("y0", "dx0", "dw0")})
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("precision", ENGINES)
@pytest.mark.parametrize("channels, outputs", TILED_CHANNELS)
def test_frames_have_the_bits_of_images_in_order(channels, outputs, precision, rng, monkeypatch):
    """In every tile, with images two frames apart and maps one; splits end within items."""
    items, frames = 2, 3
    problem = ConvProblem(items * frames, channels, outputs, Window(5, 3, pad=1), Window(4, 3, pad=1))
    memory, split, engine = Memory(), SplitK(4, 2), ENGINES[precision]

    def stored(tensor: Tensor, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Values in the order of images, and by frame, with others between."""
        in_order = memory.stored(rng.standard_normal(tensor.shape), np.float32)
        by_frame = memory.bytes(step * in_order.nbytes).view(np.float32).reshape(step * frames, items, -1)
        by_frame[::step] = in_order.reshape(items, frames, -1).swapaxes(0, 1)
        return in_order, by_frame

    (maps, maps_by_frame), (image, image_by_frame) = stored(problem.maps, 1), stored(problem.image, 2)

    def gradient(maps: np.ndarray, image: np.ndarray, **frames: Frames) -> bytes:
        parts, dw = (np.full((n, problem.filter.count), np.nan, np.float32) for n in (split.parts, 1))
        dw_at, maps_at, image_at, parts_at = (array.ctypes.data for array in (dw, maps, image, parts))
        for each in conv_wgrad(engine, problem, dw_at, maps_at, image_at, False, parts_at, split=split, **frames):
            kernels = emulate.load(f"cuda/{each.module}.cu", "plain")
            buffers = [dw, parts, maps, image]
            kernels.launch(each.function, each.grid, each.block, each.args, each.shared, buffers=buffers)
        return dw.tobytes()

    found = []
    for tile in engine.tiles:
        monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
        found.append(gradient(maps, image))
        found.append(gradient(maps_by_frame, image_by_frame, frames=Frames(frames, 2 * items, items)))
    assert len({*found}) == 1 and not np.isnan(np.frombuffer(found[0], np.float32)).any()


@pytest.mark.samples(2)
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("shape", LONG_IMAGES)
def test_an_image_may_be_long(shape, precision, rng):
    """Below 2^14 pixels a side a place is a pair in one register; beyond, kernels that copy four bytes at once run."""
    window = f"kernel_h: {min(3, shape[2])} kernel_w: {min(3, shape[3])}"
    pad = f"pad_h: {int(shape[2] > 1)} pad_w: {int(shape[3] > 1)}"
    layer = layer_of(f'type: "Convolution" convolution_param {{ num_output: 4 {window} {pad} }}', shape)
    assert vector_width_of(layer.record.problem, 4) == (4 if max(shape) + 2 < 2**14 else 1)
    xs, ws = filled(rng, layer, shape)
    bounds = dict.fromkeys(("y0", "dx0", "dw0", "dw1"), PRECISION_BOUNDS.get(precision, (1e-5,))[0])
    Case(layer, xs, ws, Way(precision=precision), bounds, rng=rng).check_once()


def test_a_launch_takes_its_waves_of_blocks_or_its_reads_from_the_l2_cache():
    tf32 = ENGINES["tf32"]
    large = next(tile for tile in tf32.tiles if tile.name == "128x128")
    assert [each.name for each in tf32.tiles] == list(tf32.paces)
    ends, (alone, both) = 128 * 128 * 2 // 5, tf32.paces["128x128"]
    assert cycles(tf32, large, (128, 132 * 128, 1), 3200) == 100 * alone + ends
    assert cycles(tf32, large, (128, 133 * 128, 1), 3200) == 100 * both + ends  # one multiprocessor has two
    l2 = 264 * 100 * 256 * 128 // (24 * 132)
    assert cycles(tf32, large, (128, 264 * 128, 1), 3200) == l2 > 100 * both + ends
    assert cycles(tf32, large, (128, 300 * 128, 1), 3200) == 100 * (both + alone) + 2 * ends


def test_tiles_and_parts_are_those_of_least_time():
    tf32, bf16, fp32 = ENGINES["tf32"], ENGINES["bf16"], ENGINES["fp32"]
    vgg = ConvProblem(64, 256, 256, Window(56, 3, pad=1), Window(56, 3, pad=1))
    assert fastest(tf32, FPROP, (64 * 56 * 56, 256, 1), 2304) == "256x128"  # which reads least from the L2 cache
    assert fastest(tf32, FPROP, (64 * 56 * 56, 256, 1), 2304, 1) == "128x128"
    assert fastest(fp32, FPROP, (64 * 56 * 56, 256, 1), 2304) == "128x128"
    assert fastest(tf32, DGRAD, (64 * 56 * 56, 64, 1), 576) == "512x64"
    assert fastest(bf16, FPROP, (64 * 56 * 56, 256, 1), 2304) == "256x128"
    assert fastest(bf16, DGRAD, (64 * 56 * 56, 64, 1), 576) == "512x64"
    assert fastest(PACKED_BF16, DGRAD, (64 * 56 * 56, 64, 1), 576) == "128x64"
    assert fastest(tf32, FPROP, (100_000, 10, 1), 64) == fastest(fp32, FPROP, (100_000, 10, 1), 64) == "128x32"
    assert fastest(tf32, FPROP, (300, 300, 1), 512) == "64x64"
    assert fastest(tf32, FPROP, (300, 300, 1), 512, rows=128).startswith("128x")
    assert fastest(tf32, WGRAD, (64, 576, 44), 6400) == "64x192"  # three side by side, 2 x 132 times
    assert fastest(tf32, WGRAD, (128, 576, 44), 6400) == "128x192"
    assert fastest(tf32, WGRAD, (128, 1200, 26), 14580) == fastest(bf16, WGRAD, (128, 1200, 26), 14580) == "128x256"
    assert split_of(vgg).parts == 7  # 18 tiles of 256 x 128, 7 times, are a wave of 132 but for 6
    assert conv_wgrad_workspace_bytes(vgg) == 7 * 4 * 256 * 9 * 256


def fastest(engine: GemmEngine, product: str, matrices: tuple[int, int, int], depth: int, vector=PACKED, rows=1) -> str:
    return by_time(engine, product, matrices, depth, vector, rows)[0].name


def test_gpus_of_less_shared_memory_take_the_next_tile_by_time_that_needs_less():
    problem = ConvProblem(64, 64, 64, Window(56, 3, pad=1), Window(56, 3, pad=1))
    launch = conv_fprop(ENGINES["tf32"], problem, 256, 512, 768)
    each = [launch, *launch.alternatives]
    assert [one.function for one in each[:2]] == ["conv_fprop_512x64_v4", "conv_fprop_128x64_v4"]  # not 256x128
    sizes = [one.shared for one in each]
    assert sizes == sorted(set(sizes), reverse=True) and sizes[-1] == 3 * (64 + 64) * 128


def test_few_images_are_cut_in_pieces_of_whole_stages():
    lonely = ConvProblem(1, 64, 64, Window(56, 3, pad=1), Window(56, 3, pad=1))
    assert split_of(lonely) == SplitK(1, 7, 7)  # 11 take an eighth less time at most
    assert split_of(lonely).windows_each(lonely) == 448  # of 3136
    assert conv_wgrad_workspace_bytes(lonely) == 7 * 4 * 64 * 9 * 64
    first = ConvProblem(64, 3, 64, Window(224, 3, pad=1), Window(224, 3, pad=1))
    assert split_of(first) == SplitK(1, 6 * 64, 6)  # one tile of 64 x 64, 384 times
    small = ConvProblem(1, 64, 64, Window(16, 3, pad=1), Window(16, 3, pad=1))
    assert split_of(small) == SplitK(1, 1)
    depthwise = ConvProblem(64, 512, 512, Window(56, 3, pad=1), Window(56, 3, pad=1), groups=512)
    assert split_of(depthwise).pieces == 1


@pytest.mark.samples(2)
@pytest.mark.parametrize("precision", ENGINES)
def test_a_weight_gradient_of_few_channels_has_the_bits_of_single_copies(precision, monkeypatch):
    text = 'type: "Convolution" convolution_param { num_output: 72 kernel_size: 5 stride: 2 pad: 2 bias_term: false }'
    layer = layer_of(text, (3, 3, 21, 17))
    xs, ws = filled(np.random.default_rng(4), layer, (3, 3, 21, 17))
    dy = np.random.default_rng(5).standard_normal(layer.tops[0].shape)

    def gradient() -> bytes:
        return Case(layer, xs, ws, Way(precision=precision)).run_unchecked(dy)["dw0"].tobytes()

    found = set()
    for tile in ENGINES[precision].with_mixed_width.tiles:
        with monkeypatch.context() as patch:
            patch.setattr(gemm_tiles, "TILES", (tile,))
            found.add(gradient())
    monkeypatch.setattr(wgrad, "_takes_mixed_width", lambda *_: False)
    assert found == {gradient()}


SOME = [
    "one by one",
    "first layer",
    "stride three and two",
    "dilated by the stride",
    "two groups",
    "long sum",
    "parts of the weight gradient",
    "a tile of 128 outputs",
]


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("precision", PRECISION_BOUNDS)
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("name", SOME)
def test_products_on_tensor_cores_are_as_exact_as_their_precision(kind, name, precision, rng):
    edge = edge_case(name, kind)
    layer = edge.layer("small")
    xs, ws = edge.inputs(layer, rng)
    sums, long_sums, least = PRECISION_BOUNDS[precision]
    case = Case(layer, xs, ws, Way(precision=precision), {"y0": sums, "dx0": sums, "dw0": long_sums}, rng=rng)
    case.check()
    assert all(error >= least for error in case.errors.values()), case.errors


@pytest.mark.whole
@pytest.mark.exhaustive(24)
@pytest.mark.parametrize(
    "mode, precision", [("race", "fp32"), ("asan", "fp32"), *(("asan", each) for each in PRECISION_BOUNDS)]
)
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("name", CONV_EDGES)
def test_products_of_odd_shapes_stay_in_bounds_and_have_no_races(kind, name, precision, mode):
    edge = edge_case(name, kind)
    layer = edge.layer("small")
    sums, long_sums, _ = {"fp32": (2e-6, 1e-5, 0), **PRECISION_BOUNDS}[precision]
    rng = np.random.default_rng(23)
    xs, ws = edge.inputs(layer, rng)
    Case(
        layer, xs, ws, Way(mode, precision=precision), {"y0": sums, "dx0": sums, "dw0": long_sums}, rng=rng
    ).check_once()


@pytest.mark.samples(8)
@pytest.mark.parametrize("shape, precision", TILED_IMAGES)
def test_no_tile_changes_a_bit_on_tensor_cores(shape, precision, rng, monkeypatch):
    layer = layer_of('type: "Convolution" convolution_param { num_output: 72 kernel_size: 3 }', shape)
    xs, ws = filled(rng, layer, shape)
    bounds = dict.fromkeys(("y0", "dx0", "dw0", "dw1"), 1e-2)
    found = []
    for tile in ENGINES[precision].tiles:
        monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
        case = Case(layer, xs, ws, Way(precision=precision), bounds, rng=np.random.default_rng(3))
        got = case.check() if shape[1] == 4 else case.check_once()  # overlays are no matter of the size
        found.append({role: got[role].tobytes() for role in ("y0", "dx0", "dw0")})
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("precision", ["fp32", *PRECISION_BOUNDS])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFC00000, 0xFFFFFFFF, UNTOUCHED])
def test_a_nan_is_never_lost(precision, bits):
    """NaN as NumPy makes it, as a GPU does, as an x86 does; poisoned bytes; bytes of an arena that nothing wrote."""
    layer = layer_of('type: "InnerProduct" inner_product_param { num_output: 3 bias_term: false }', (2, 40))
    x = np.ones((2, 40), np.float32)
    x.view(np.uint32)[1, 37] = bits
    got = Case(layer, [x], [np.ones((3, 40))], Way(precision=precision)).run_unchecked()
    assert np.isfinite(got["y0"][0]).all() and np.isnan(got["y0"][1]).all()


@pytest.mark.parametrize("precision", ["fp32", *PRECISION_BOUNDS])
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("channels", [3, 4])
def test_a_nan_reaches_what_reads_it_and_nothing_else(channels, kind, precision):
    """Sums are rounded up to whole stages: what is loaded beyond their end must not count, not even times zero."""
    settings = "num_output: 5 kernel_size: 3 stride: 2 pad: 1 bias_term: false"
    layer = layer_of(f'type: "{kind}" convolution_param {{ {settings} }}', (2, channels, 9, 8))
    one, ws = np.zeros((2, channels, 9, 8)), [np.ones(param.tensor.shape) for param in layer.params]
    for place in ((0, 0, 0, 0), (0, channels - 1, 4, 3), (1, 1, 8, 7)):
        one[:] = 0
        one[place] = 1
        touched = Case(layer, [one], ws, Way(precision=precision)).run_unchecked()["y0"] != 0
        nan = np.where(one == 1, np.nan, 1.0)
        got = Case(layer, [nan], ws, Way(precision=precision)).run_unchecked()["y0"]
        np.testing.assert_array_equal(np.isnan(got), touched)
