"""Random valid nets: layers of every family over blobs whose shapes are known.

    text = random_net(rng)     a net in prototxt: DummyData, 3 to 20 layers, up to three losses, an accuracy

A production proposes a layer for existing blobs; building it shows whether it is valid and which shapes it has.  A
proposal that raises InputError is dropped.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from layermem.layers import LAYERS
from layermem.layers.activation import Activation
from tools.campaign.net_writer import NetWriter, Shape

Production = Callable[[NetWriter], None]
PRODUCTIONS: list[Production] = []


def production(weight: int) -> Callable[[Production], Production]:
    def register(function: Production) -> Production:
        PRODUCTIONS.extend([function] * weight)
        return function

    return register


# -- layers --------------------------------------------------------------------------------------------------------


@production(8)
def convolution(w: NetWriter) -> None:
    rng, x = w.rng, w.pick(4)
    _, channels, height, width = w.blobs[x]
    kind = "Deconvolution" if w.chance(0.2) else "Convolution"
    group = rng.choice([g for g in range(1, channels + 1) if channels % g == 0]) if w.chance(0.3) else 1
    outputs = group * rng.randint(1, max(1, 12 // group))
    kernel = rng.choice((1, 1, 2, 3, 3, 5))
    pad, stride, bias = rng.randint(0, kernel // 2), rng.choice((1, 1, 1, 2, 3)), w.chance(0.7)
    size = f"kernel_size: {kernel}"
    if w.chance(0.2):
        size = f"kernel_h: {rng.randint(1, min(4, height))} kernel_w: {rng.randint(1, min(4, width))}"
    dilation = "dilation: 2" if w.chance(0.1) else ""
    bottoms = [x, *w.like(x)[:1]] if w.chance(0.1) else [x]
    key = (kind, channels, outputs, group, size, bias)
    settings = (
        f"{w.params(key, 1 + bias)} convolution_param {{ num_output: {outputs} {size} pad: {pad} stride: {stride} "
        f"group: {group} {dilation} bias_term: {str(bias).lower()} {w.filler()} {w.filler('bias_filler')} }}"
    )
    tops = w.add(kind, bottoms, settings, tops=len(bottoms))
    if w.chance(0.6):
        w.maybe_in_place("ReLU", tops[0])


@production(3)
def convolution_of_rank(w: NetWriter) -> None:
    """Add a convolution of signals, clips, or channels in another axis; an image is reshaped first."""
    rng, x = w.rng, w.pick()
    shape, rank = w.blobs[x], len(w.blobs[x])
    if rank == 4 and w.chance(0.7):
        n, c, h, width = shape
        cut = rng.choice([d for d in range(1, h + 1) if h % d == 0])
        dims = rng.choice(((n, c, h * width), (n, c, cut, h // cut, width), (n, c, h, width, 1)))
        stated = (0 if w.item_by_item else n, *dims[1:])
        (x,) = w.add("Reshape", [x], f"reshape_param {{ shape {{ {' '.join(f'dim: {d}' for d in stated)} }} }}")
        shape, rank = dims, len(dims)
    axis = rng.randint(1, rank - 1) if w.chance(0.2) and rank > 1 else min(1, rank - 1)
    spatial = rank - axis - 1
    kernels = [rng.randint(1, min(3, size)) for size in shape[axis + 1 :]]
    size = " ".join(f"kernel_size: {kernel} pad: {rng.randint(0, kernel // 2)}" for kernel in kernels)
    steps = " ".join(f"stride: {rng.choice((1, 1, 2))}" for _ in range(spatial))
    channels, bias = shape[axis], w.chance(0.7)
    group = rng.choice([g for g in range(1, channels + 1) if channels % g == 0]) if w.chance(0.3) else 1
    if w.chance(0.15):
        w.add("Im2col", [x], f"convolution_param {{ axis: {axis} {size} {steps} }}")
        return
    kind, outputs = "Deconvolution" if w.chance(0.25) else "Convolution", group * rng.randint(1, max(1, 8 // group))
    settings = (
        f"{w.params((kind, axis, channels, outputs, group, *kernels, bias), 1 + bias)} convolution_param {{ "
        f"num_output: {outputs} axis: {axis} {size} {steps} group: {group} bias_term: {str(bias).lower()} "
        f"{w.filler()} {w.filler('bias_filler')} }}"
    )
    (top,) = w.add(kind, [x], settings)
    if w.chance(0.5):
        w.maybe_in_place("ReLU", top)


@production(3)
def inner_product(w: NetWriter) -> None:
    rng, x = w.rng, w.pick()
    axis = rng.randint(1, max(1, len(w.blobs[x]) - 1))
    outputs, bias, transpose = rng.randint(1, 16), w.chance(0.7), w.chance(0.2)
    key = ("ip", w.blobs[x][axis:], outputs, bias, transpose)
    (top,) = w.add(
        "InnerProduct",
        [x],
        f"{w.params(key, 1 + bias)} inner_product_param {{ num_output: {outputs} axis: {axis} "
        f"bias_term: {str(bias).lower()} transpose: {str(transpose).lower()} {w.filler()} }}",
    )
    if w.chance(0.4):
        w.maybe_in_place("ReLU", top)


@production(4)
def normalization(w: NetWriter) -> None:
    x = w.pick(2, 4)
    fields = w.rng.choice(("use_global_stats: true", "moving_average_fraction: 0.5")) if w.chance(0.3) else ""
    scaled = not fields and w.chance(0.15)  # as in NVCaffe
    settings = f"batch_norm_param {{ {'scale_bias: true' if scaled else fields} }}"
    params = w.params(("BatchNorm", w.blobs[x][1], fields), 3) if w.chance(0.4) and not scaled else ""
    (top,) = w.maybe_in_place("BatchNorm", x, f"{params} {settings}")
    if not scaled and w.chance(0.8):
        (top,) = w.maybe_in_place("Scale", top, "scale_param { bias_term: true }")
    if w.chance(0.3):
        others = [other for other in w.like(top) if other != top]
        if others:
            (top,) = w.add("Eltwise", [w.rng.choice(others), top])
    if w.chance(0.6):
        w.maybe_in_place("ReLU", top)


OF_FORKS = (  # forms of BN: averages that move, stay, or are absent; TEST may use statistics of the batch
    "",
    "momentum: 0.5",
    "frozen: true",
    "var_eps: 1e-5 decay: 0.1",
    "moving_average: true decay: 0.3",
    "bn_mode: LEARN",
    "bn_mode: INFERENCE",
)


@production(2)
def normalization_of_forks(w: NetWriter) -> None:
    x, form = w.pick(2, 4), w.rng.choice(OF_FORKS)
    params = w.params(("BN", len(w.blobs[x]), w.blobs[x][1], form), 2 if "bn_mode" in form else 4)
    (top,) = w.maybe_in_place("BN", x, f"{params if w.chance(0.5) else ''} bn_param {{ {form} }}")
    if w.chance(0.5):
        w.maybe_in_place("ReLU", top)


@production(2)
def broadcast(w: NetWriter) -> None:
    rng, x = w.rng, w.pick()
    rank, kind = len(w.blobs[x]), rng.choice(("Scale", "Bias"))
    axis = rng.randint(0, rank - 1)
    operand = [other for other, shape in w.blobs.items() if shape == w.blobs[x][axis : axis + len(shape)]]
    if operand and w.chance(0.3):
        w.add(kind, [x, rng.choice(operand)], f"{kind.lower()}_param {{ axis: {axis} }}")
        return
    bias = "bias_term: true" if kind == "Scale" and w.chance(0.5) else ""
    w.maybe_in_place(kind, x, f"{kind.lower()}_param {{ axis: {axis} num_axes: {rng.randint(0, rank - axis)} {bias} }}")


ACTIVATIONS = {
    "ReLU": ("", "relu_param { negative_slope: 0.1 }"),
    "PReLU": ("", "prelu_param { channel_shared: true }"),
    "ELU": ("", "elu_param { alpha: 0.5 }"),
    "Clip": ("clip_param { min: -0.5 max: 0.7 }",),
    "Power": ("power_param { scale: 0.5 shift: 0.3 }", "power_param { power: 2 scale: 0.3 }"),
    "Swish": ("", "swish_param { beta: 0.7 }"),
    "Dropout": ("", "dropout_param { dropout_ratio: 0.3 }"),
}
OTHERWISE = {*ACTIVATIONS, "Exp", "Log", "ReLU6"}  # bounded() adds Exp and Log; ReLU6 is a type of forks
ACTIVATIONS |= {kind: ("",) for kind, made in LAYERS.items() if issubclass(made, Activation) and kind not in OTHERWISE}


@production(5)
def activation(w: NetWriter) -> None:
    kind = w.rng.choice([*ACTIVATIONS])
    w.maybe_in_place(kind, w.pick(*((2, 4) if kind == "PReLU" else ())), w.rng.choice(ACTIVATIONS[kind]))


@production(1)
def bounded(w: NetWriter) -> None:
    """Add functions that overflow or are undefined somewhere, after one that keeps them in range."""
    (y,) = w.maybe_in_place("Sigmoid", w.pick())
    after = (
        ("Log", "log_param { scale: 0.5 shift: 1 }"),
        ("Log", "log_param { base: 2 shift: 1 }"),
        ("Exp", "exp_param { base: 2 scale: 0.5 }"),
        ("Exp", ""),
        ("Power", "power_param { power: 0.375 shift: 1 }"),
    )
    w.maybe_in_place(*(lambda kind, settings: (kind, y, settings))(*w.rng.choice(after)))


@production(4)
def pooling(w: NetWriter) -> None:
    rng, x = w.rng, w.pick(4)
    kind = rng.choice(("MAX", "AVE"))
    kernel = rng.randint(1, 4)
    size = f"kernel_size: {kernel} stride: {rng.randint(1, 3)} pad: {rng.randint(0, kernel - 1)}"
    if w.chance(0.1):
        (x,) = w.add("ReLU", [x])  # STOCHASTIC takes no negative numbers
        w.add("Pooling", [x], f"pooling_param {{ pool: STOCHASTIC kernel_size: {kernel} stride: {kernel} }}")
    elif w.chance(0.1):
        w.add("Pooling", [x], f"pooling_param {{ pool: MAX {size} }}", tops=2)
    elif w.chance(0.1):
        w.add("SPP", [x], f"spp_param {{ pool: {kind} pyramid_height: {rng.randint(1, 3)} }}")
    else:
        w.add("Pooling", [x], f"pooling_param {{ pool: {kind} {'global_pooling: true' if w.chance(0.15) else size} }}")


@production(2)
def lrn(w: NetWriter) -> None:
    region = "norm_region: WITHIN_CHANNEL" if w.chance(0.3) else ""
    w.maybe_in_place("LRN", w.pick(4), f"lrn_param {{ local_size: {w.rng.choice((1, 3, 5))} alpha: 0.2 {region} }}")


@production(4)
def eltwise(w: NetWriter) -> None:
    x = w.pick()
    bottoms = w.rng.choices(w.like(x), k=w.rng.choice((2, 2, 3, 4)))
    if len(set(bottoms)) < 2:
        raise LookupError
    operation = w.rng.choice(("SUM", "SUM", "PROD", "MAX"))
    coefficients = " ".join(f"coeff: {w.rng.choice(('1', '-1', '0.5'))}" for _ in bottoms)
    w.add(
        "Eltwise", bottoms, f"eltwise_param {{ operation: {operation} {coefficients if operation == 'SUM' else ''} }}"
    )


@production(3)
def concat(w: NetWriter) -> None:
    rng, x = w.rng, w.pick()
    shape = w.blobs[x]
    axis = rng.randrange(len(shape))
    fits = [
        b
        for b, s in w.blobs.items()
        if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
    ]
    w.add("Concat", [x, *rng.choices(fits, k=rng.randint(1, 3))], f"concat_param {{ axis: {axis} }}")


@production(2)
def slices(w: NetWriter) -> None:
    rng, x = w.rng, w.pick()
    axis = rng.randrange(len(w.blobs[x]))
    size = w.blobs[x][axis]
    points = sorted(rng.sample(range(1, size), min(size - 1, rng.randint(1, 2)))) if size > 1 else []
    fields = " ".join(f"slice_point: {point}" for point in points)
    w.add("Slice", [x], f"slice_param {{ axis: {axis} {fields} }}", tops=len(points) + 1)


@production(2)
def reshape(w: NetWriter) -> None:
    rng, x = w.rng, w.pick()
    shape = w.blobs[x]
    if w.chance(0.5) and len(shape) > 1:
        first = rng.randint(0, len(shape) - 1)
        w.add("Flatten", [x], f"flatten_param {{ axis: {first} end_axis: {rng.randint(first, len(shape) - 1)} }}")
        return
    dims = [*shape[:1], *rng.sample(shape[1:], len(shape) - 1)]
    if w.chance(0.3) and len(dims) < 5:
        dims.insert(rng.randint(1, len(dims)), 1)
    elif len(dims) > 1 and w.chance(0.5):
        dims[-1] = -1
    if w.item_by_item:
        dims[0] = 0  # copies the extent of the bottom
    w.add("Reshape", [x], "reshape_param { shape { " + " ".join(f"dim: {d}" for d in dims) + " } }")


@production(2)
def resize(w: NetWriter) -> None:
    rng, x = w.rng, w.pick(4)
    height, width = w.blobs[x][2:]
    kind = rng.choice(("Interp", "Tile", "Crop"))
    if kind == "Interp":
        w.add("Interp", [x], f"interp_param {{ height: {rng.randint(1, 9)} width: {rng.randint(1, 9)} }}")
    elif kind == "Tile":
        w.add("Tile", [x], f"tile_param {{ axis: {rng.randint(0, 3)} tiles: {rng.randint(1, 3)} }}")
    else:
        smaller = [b for b, s in w.blobs.items() if len(s) == 4 and s[2] <= height and s[3] <= width and b != x]
        offset = f"offset: {rng.randint(0, 1)}"
        w.add("Crop", [x, rng.choice(smaller or [x])], f"crop_param {{ axis: 2 {offset} }}")


@production(2)
def windows_and_means(w: NetWriter) -> None:
    x = w.pick(4)
    if w.chance(0.5):
        kernel = w.rng.randint(1, 3)
        size = f"kernel_size: {kernel} pad: {w.rng.randint(0, 1)} stride: {w.rng.randint(1, 2)}"
        w.add("Im2col", [x], f"convolution_param {{ {size} dilation: {w.rng.randint(1, 2)} }}")
    else:
        across, normalize = (str(w.chance(0.5)).lower() for _ in range(2))
        w.maybe_in_place(
            "MVN", x, f"mvn_param {{ across_channels: {across} normalize_variance: {normalize} eps: 0.01 }}"
        )


@production(3)
def rows_of_a_table(w: NetWriter) -> None:
    x = w.pick()
    shape = w.blobs[x]
    kind, count = w.rng.choice(("BatchReindex", "Embed", "Parameter")), w.rng.randint(1, 6)
    if kind == "Parameter":
        dims = " ".join(f"dim: {d}" for d in shape)
        (offset,) = w.add(kind, [], f"parameter_param {{ shape {{ {dims} }} }}")
        w.add("Eltwise", [x, offset])
    elif kind == "BatchReindex":
        w.add(kind, [x, classes(w, count, shape[0])])
    else:
        outputs, bias = w.rng.randint(1, 8), str(w.chance(0.5)).lower()
        sizes = f"input_dim: {count} num_output: {outputs} bias_term: {bias}"
        w.add(kind, [classes(w, shape[0], count)], f"embed_param {{ {sizes} {w.filler()} }}")


@production(3)
def over_time(w: NetWriter) -> None:
    x = w.pick(3, 4)
    steps, items = w.blobs[x][:2]
    kind, outputs = w.rng.choice(("LSTM", "LSTM", "RNN")), w.rng.randint(1, 6)
    bottoms = [x, binary(w, (steps, items))]
    fixed = [name for name, shape in w.blobs.items() if 1 < len(shape) < 4 and shape[0] == items]
    static = [w.rng.choice(fixed)] if fixed and w.chance(0.4) else []
    hidden = [dummy(w, (1, items, outputs))[0] for _ in range(2 if kind == "LSTM" else 1)] if w.chance(0.2) else []
    count = (3 if kind == "LSTM" else 5) + len(static)
    sizes = (kind, outputs, w.blobs[x][2:], *(w.blobs[each][1:] for each in static))
    settings = f"num_output: {outputs} expose_hidden: {str(bool(hidden)).lower()} {w.filler()}"
    w.add(
        kind,
        [*bottoms, *static, *hidden],
        f"recurrent_param {{ {settings} }} {w.params(sizes, count)}",
        1 + len(hidden),
    )


@production(1)
def split(w: NetWriter) -> None:
    w.add("Split", [w.pick()], tops=w.rng.randint(2, 3))


@production(1)
def scores(w: NetWriter) -> None:
    """Add layers whose tops are rarely read again."""
    x = w.pick()
    kind = w.rng.choice(("Softmax", "ArgMax", "Reduction", "Silence"))
    if kind == "Softmax":
        w.maybe_in_place(kind, x, f"softmax_param {{ axis: {w.rng.randrange(len(w.blobs[x]))} }}")
    elif kind == "ArgMax":
        w.add(kind, [x], "argmax_param { out_max_val: true }" if w.chance(0.3) else "")
    elif kind == "Reduction":
        operation = w.rng.choice(("SUM", "MEAN", "ASUM", "SUMSQ"))
        axis = w.rng.randrange(len(w.blobs[x]))
        w.add(kind, [x], f"reduction_param {{ operation: {operation} axis: {axis} coeff: 0.1 }}")
    else:
        w.add(kind, [x], tops=0)


# -- data and losses -----------------------------------------------------------------------------------------------


def dummy(w: NetWriter, *shapes: Shape) -> list[str]:
    filler = w.rng.choice(('type: "gaussian" std: 1', 'type: "uniform" min: -1 max: 1'))
    dims = " ".join("shape { " + " ".join(f"dim: {d}" for d in shape) + " }" for shape in shapes)
    return w.add("DummyData", [], f"dummy_data_param {{ {dims} data_filler {{ {filler} }} }}", tops=len(shapes))


def data(w: NetWriter) -> None:
    """Add one or two inputs of two to five axes, most of them images; one net in eight is larger."""
    rng, large = w.rng, w.chance(0.125)
    batch = rng.randint(6, 12) if large else rng.choice((2, 3, 4, 4, 6)) if w.item_by_item else rng.randint(1, 5)
    w.batch = batch
    top = (8, 16) if large else (5, 9)
    for _ in range(rng.choice((1, 1, 2))):
        rank = rng.choice((4, 4, 4, 4, 2, 3, 5))
        shape = (batch, rng.randint(1, top[0]), *(rng.randint(2, top[1]) for _ in range(rank - 2)))
        dummy(w, *[shape] * rng.choice((1, 1, 2)))


def binary(w: NetWriter, shape: Shape) -> str:
    """Add a blob of zeros and ones."""
    (values,) = dummy(w, shape)
    return w.add("Threshold", [values])[0]


def classes(w: NetWriter, batch: int, count: int) -> str:
    """Add a class for each item."""
    (values,) = dummy(w, (batch, count))
    (label,) = w.add("ArgMax", [values])
    return w.add(
        "Reshape", [label], f"reshape_param {{ shape {{ dim: {0 if w.item_by_item else batch} }} num_axes: 3 }}"
    )[0]


LOSSES = (
    "SoftmaxWithLoss",
    "SoftmaxWithLoss",
    "pixels",
    "HingeLoss",
    "MultinomialLogisticLoss",
    "EuclideanLoss",
    "SigmoidCrossEntropyLoss",
    "ContrastiveLoss",
    "Reduction",
    "InfogainLoss",
)


def loss(w: NetWriter) -> None:
    """Add a loss over a blob that depends on parameters."""
    rng = w.rng
    x = rng.choice([*(b for b in w.unread if trainable(w, b)), *[b for b in w.learned if trainable(w, b)][-3:]])
    shape = w.blobs[x]
    batch, weight = shape[0], rng.choice(("", "", "loss_weight: 0.3", "loss_weight: 2"))
    kind = rng.choice(LOSSES)
    if kind == "pixels" and len(shape) == 4 and shape[1] > 1:
        target = binary(w, (batch, 1, *shape[2:]))
        w.add("SoftmaxWithLoss", [x, target], weight + (" loss_param { ignore_label: 1 }" if w.chance(0.3) else ""))
    elif kind == "EuclideanLoss":
        w.add(kind, [x, dummy(w, shape)[0]], weight)
    elif kind == "SigmoidCrossEntropyLoss":
        w.add(kind, [x, binary(w, shape)], weight)
    elif kind == "Reduction":
        w.add(kind, [x], "reduction_param { operation: MEAN } loss_weight: 0.5")
    elif kind == "ContrastiveLoss":
        score = score_of(w, x, 4)
        legacy = "contrastive_loss_param { legacy_version: true }" if w.chance(0.3) else ""
        w.add(kind, [score, dummy(w, (batch, 4))[0], binary(w, (batch,))], f"{weight} {legacy}")
    else:
        count = rng.randint(2, 6)
        score, label = score_of(w, x, count), classes(w, batch, count)
        if w.chance(0.4):
            w.add("Accuracy", [score, label], "include { phase: TEST }" if w.chance(0.7) else "")
        if kind == "MultinomialLogisticLoss":
            (score,) = w.add("Softmax", [score])
        matrix = dummy(w, (1, 1, count, count)) if kind == "InfogainLoss" else []
        w.add("SoftmaxWithLoss" if kind == "pixels" else kind, [score, label, *matrix], weight)


def trainable(w: NetWriter, blob: str) -> bool:
    """Whether `blob` depends on parameters and has items that a loss can compare."""
    return blob in w.learned and len(w.blobs[blob]) >= 2


def score_of(w: NetWriter, x: str, outputs: int) -> str:
    return w.add("InnerProduct", [x], f"inner_product_param {{ num_output: {outputs} {w.filler()} }}")[0]


def attempt(step: Production, w: NetWriter) -> None:
    with contextlib.suppress(LookupError):
        step(w)


def random_net(rng: random.Random, item_by_item: bool = False) -> str:
    """Return a random net; with `item_by_item`, its layers keep the items of a batch separate, as half of the nets do
    otherwise."""
    w = NetWriter(rng, item_by_item)
    while not w.blobs:
        attempt(data, w)
    for _ in range(rng.randint(3, 18)):
        attempt(rng.choice(PRODUCTIONS), w)
    if not any(trainable(w, b) for b in w.learned):
        score_of(w, next(iter(w.blobs)), 5)
    before = len(w.layers)
    while len(w.layers) == before or ("Loss" not in w.text and "loss_weight" not in w.text):
        attempt(loss, w)
    for _ in range(rng.choice((0, 0, 1, 2))):
        attempt(loss, w)
    return w.text
