"""Tiny nets and solvers as prototxt, for tests of whole runs.

NETS            name -> net; each has DummyData, a loss, and in TEST the same data from another seed
absent_net()    a net over one of the sources ABSENT, whose files do not exist; SHAPES are the shapes of its data
solver_file()   a solver over one of them, as read from a file in a folder
"""

from __future__ import annotations

from pathlib import Path

from layermem.proto.read import SolverFile, read_solver_text

DATA = """
    layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
        shape { dim: 4 dim: 3 dim: 6 dim: 5 } shape { dim: 4 }
        data_filler { type: "gaussian" std: 1 } data_filler { type: "uniform" min: 0 max: 5 } } }
"""
LOSS = """
    layer { name: "score" type: "InnerProduct" bottom: "%s" top: "score"
            inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
    layer { name: "accuracy" type: "Accuracy" bottom: "score" bottom: "label" top: "accuracy" include { phase: TEST } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
"""


def conv(name: str, bottom: str, outputs: int, kernel: int, more: str = "") -> str:
    return f"""
    layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {more}
            convolution_param {{ num_output: {outputs} kernel_size: {kernel} pad: {kernel // 2}
                                weight_filler {{ type: "msra" }} bias_filler {{ type: "constant" value: 0.1 }} }} }}
    """


def relu(blob: str) -> str:
    return f'layer {{ name: "{blob}_relu" type: "ReLU" bottom: "{blob}" top: "{blob}" }}'


def norm(blob: str) -> str:
    """BatchNorm and Scale, both in place."""
    return f"""
    layer {{ name: "{blob}_bn" type: "BatchNorm" bottom: "{blob}" top: "{blob}" }}
    layer {{ name: "{blob}_scale" type: "Scale" bottom: "{blob}" top: "{blob}" scale_param {{ bias_term: true }} }}
    """


CHAIN = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {relu("conv1")}
    layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {conv("conv2", "pool1", 6, 3, "param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }")} {relu("conv2")}
    {LOSS % "conv2"}
"""
RESIDUAL = f"""
    {DATA} {conv("stem", "data", 4, 3)} {norm("stem")} {relu("stem")}
    {conv("a", "stem", 4, 1)} {norm("a")} {relu("a")} {conv("b", "a", 4, 3)} {norm("b")}
    layer {{ name: "sum" type: "Eltwise" bottom: "stem" bottom: "b" top: "sum" }} {relu("sum")}
    layer {{ name: "pool" type: "Pooling" bottom: "sum" top: "pool"
            pooling_param {{ pool: AVE global_pooling: true }} }}
    {LOSS % "pool"}
"""
INCEPTION = f"""
    {DATA} {conv("stem", "data", 4, 1)} {relu("stem")}
    {conv("one", "stem", 2, 1)} {relu("one")} {conv("three", "stem", 3, 3)} {relu("three")}
    layer {{ name: "pool" type: "Pooling" bottom: "stem" top: "pool"
            pooling_param {{ kernel_size: 3 stride: 1 pad: 1 }} }}
    layer {{ name: "both" type: "Concat" bottom: "one" bottom: "three" bottom: "pool" top: "both" }}
    layer {{ name: "lrn" type: "LRN" bottom: "both" top: "lrn" lrn_param {{ local_size: 3 alpha: 0.1 }} }}
    {LOSS % "lrn"}
"""
DROPOUT = f"""
    {DATA}
    layer {{ name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
            inner_product_param {{ num_output: 16 weight_filler {{ type: "xavier" }} }} }}
    {relu("fc")}
    layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0.4 }} }}
    layer {{ name: "act" type: "TanH" bottom: "fc" top: "act" }}
    layer {{ name: "drop2" type: "Dropout" bottom: "act" top: "drop2" }}
    {LOSS % "drop2"}
"""
SHARED = f"""
    {DATA} {conv("left", "data", 3, 3, 'param { name: "w" } param { name: "b" }')} {relu("left")}
    {conv("right", "left", 3, 3, 'param { name: "w" } param { name: "b" }')}
    layer {{ name: "twice" type: "Eltwise" bottom: "left" bottom: "right" top: "twice"
            eltwise_param {{ operation: MAX }} }}
    {LOSS % "twice"}
"""
SSD = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {relu("conv1")}
    layer {{ name: "unit" type: "Normalize" bottom: "conv1" top: "unit"
            norm_param {{ across_spatial: false channel_shared: false scale_filler {{ value: 4 }} }} }}
    {conv("conf", "unit", 6, 3)}
    layer {{ name: "back" type: "Permute" bottom: "conf" top: "back"
            permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
    layer {{ name: "prior" type: "PriorBox" bottom: "conf" bottom: "data" top: "prior"
            prior_box_param {{ min_size: 2 aspect_ratio: 2 }} }}
    layer {{ name: "boxes" type: "Reshape" bottom: "prior" top: "boxes"
            reshape_param {{ shape {{ dim: 1 dim: -1 }} }} }}
    layer {{ name: "of_each" type: "Tile" bottom: "boxes" top: "of_each" tile_param {{ axis: 0 tiles: 4 }} }}
    layer {{ name: "flat" type: "Flatten" bottom: "back" top: "rows" }}
    layer {{ name: "join" type: "Concat" bottom: "rows" bottom: "of_each" top: "flat" }}
    {LOSS % "flat"}
"""
_COLUMNS = ("item", "label", "instance", "left", "top", "right", "bottom", "difficult")  # of a row of true boxes
_RANGES = ((0, 3.9), (1, 2.9), (0, 0), (0, 0.4), (0, 0.4), (0.5, 1), (0.5, 1), (0, 0))
MULTIBOX = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {relu("conv1")} {conv("loc", "conv1", 12, 3)} {conv("conf", "conv1", 9, 3)}
    layer {{ name: "prior" type: "PriorBox" bottom: "conf" bottom: "data" top: "prior"
            prior_box_param {{ min_size: 2 aspect_ratio: 2 variance: [0.1, 0.1, 0.2, 0.2] }} }}
    layer {{ name: "columns" type: "DummyData" {" ".join(f'top: "of_{name}"' for name in _COLUMNS)} dummy_data_param {{
            shape {{ dim: [1, 1, 5, 1] }}
            {" ".join(f'data_filler {{ type: "uniform" min: {a} max: {b} }}' for a, b in _RANGES)} }} }}
    layer {{ name: "truth" type: "Concat" {" ".join(f'bottom: "of_{name}"' for name in _COLUMNS)} top: "truth"
            concat_param {{ axis: 3 }} }}
    layer {{ name: "locs" type: "Permute" bottom: "loc" top: "locs" permute_param {{ order: [0, 2, 3, 1] }} }}
    layer {{ name: "flat_locs" type: "Flatten" bottom: "locs" top: "flat_locs" }}
    layer {{ name: "confs" type: "Permute" bottom: "conf" top: "confs" permute_param {{ order: [0, 2, 3, 1] }} }}
    layer {{ name: "flat_confs" type: "Flatten" bottom: "confs" top: "flat_confs" }}
    layer {{ name: "boxes" type: "MultiBoxLoss" bottom: "flat_locs" bottom: "flat_confs" bottom: "prior"
            bottom: "truth" top: "boxes" propagate_down: [true, true, false, false]
            multibox_loss_param {{ num_classes: 3 code_type: CENTER_SIZE overlap_threshold: 0.3 }} }}
    {LOSS % "conv1"}
"""
RCNN = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {relu("conv1")}
    layer {{ name: "rois" type: "DummyData" top: "rois" top: "target" top: "inside" top: "votes_target"
        dummy_data_param {{ shape {{ dim: 4 dim: 5 }} shape {{ dim: 4 dim: 8 }} shape {{ dim: 4 dim: 8 }}
        shape {{ dim: 4 dim: 2 dim: 2 dim: 2 }}
        data_filler {{ type: "uniform" min: 0 max: 4 }} data_filler {{ type: "gaussian" std: 1 }}
        data_filler {{ type: "uniform" min: 0 max: 1 }} data_filler {{ type: "gaussian" std: 1 }} }} }}
    layer {{ name: "pool" type: "ROIPooling" bottom: "conv1" bottom: "rois" top: "pool"
            roi_pooling_param {{ pooled_h: 2 pooled_w: 2 }} }}
    layer {{ name: "shuffle" type: "ShuffleChannel" bottom: "pool" top: "shuffle"
            shuffle_channel_param {{ group: 2 }} }}
    layer {{ name: "depth" type: "ConvolutionDepthwise" bottom: "shuffle" top: "depth"
            convolution_param {{ num_output: 4 kernel_size: 1 weight_filler {{ type: "msra" }} }} }}
    layer {{ name: "six" type: "ReLU6" bottom: "depth" top: "depth" }}
    layer {{ name: "box" type: "InnerProduct" bottom: "depth" top: "box"
            inner_product_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}
    {conv("maps", "conv1", 8, 1)}
    layer {{ name: "votes" type: "PSROIPooling" bottom: "maps" bottom: "rois" top: "votes"
            psroi_pooling_param {{ output_dim: 2 group_size: 2 spatial_scale: 1 }} }}
    layer {{ name: "of_votes" type: "SmoothL1Loss" bottom: "votes" bottom: "votes_target" top: "of_votes" }}
    layer {{ name: "box_loss" type: "SmoothL1Loss" bottom: "box" bottom: "target" bottom: "inside" bottom: "inside"
            top: "box_loss" loss_weight: 0.5 }}
    {LOSS % "depth"}
"""
BN = f"""
    {DATA} {conv("conv1", "data", 4, 3)}
    layer {{ name: "one" type: "BN" bottom: "conv1" top: "conv1" bn_param {{ slope_filler {{ value: 1 }} }} }}
    {relu("conv1")} {conv("conv2", "conv1", 4, 3)}
    layer {{ name: "two" type: "BN" bottom: "conv2" top: "two" bn_param {{ scale_filler {{ value: 1 }} }} }}
    {conv("conv3", "two", 4, 1)}
    layer {{ name: "three" type: "BN" bottom: "conv3" top: "three"
            bn_param {{ scale_filler {{ value: 1 }} moving_average: true }} }}
    layer {{ name: "four" type: "BN" bottom: "three" top: "four"
            bn_param {{ slope_filler {{ value: 2 }} frozen: true }} }}
    {LOSS % "four"}
"""
YOLO = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {relu("conv1")}
    layer {{ name: "squeeze" type: "Pooling" bottom: "conv1" top: "squeeze"
            pooling_param {{ pool: AVE global_pooling: true }} }}
    {conv("gate", "squeeze", 4, 1)}
    layer {{ name: "axpy" type: "Axpy" bottom: "gate" bottom: "conv1" bottom: "conv1" top: "axpy" }}
    layer {{ name: "half" type: "Pooling" bottom: "axpy" top: "half"
            pooling_param {{ kernel_size: 2 stride: 2 ceil_mode: false }} }}
    layer {{ name: "large" type: "Upsample" bottom: "half" top: "large" upsample_param {{ scale: 2 }} }}
    {conv("conv2", "large", 8, 3)}
    layer {{ name: "reorg" type: "Reorg" bottom: "conv2" top: "reorg" reorg_param {{ stride: 2 }} }}
    {LOSS % "reorg"}
"""
UNREACHED = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {norm("conv1")} {relu("conv1")}
    {conv("stopped", "conv1", 4, 3)}
    layer {{ name: "mixed" type: "Eltwise" bottom: "conv1" bottom: "stopped" top: "mixed" propagate_down: true
            propagate_down: false }}
    {conv("silent", "mixed", 3, 1)} layer {{ name: "silence" type: "Silence" bottom: "silent" }}
    layer {{ name: "judge" type: "InnerProduct" bottom: "mixed" top: "judge"
            inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "watched" type: "SoftmaxWithLoss" bottom: "judge" bottom: "label" top: "watched" loss_weight: 0 }}
    {LOSS % "mixed"}
"""
OTHERS = f"""
    {DATA} {conv("stem", "data", 4, 3)} {relu("stem")}
    layer {{ name: "order" type: "DummyData" top: "order" dummy_data_param {{
        shape {{ dim: 4 }} data_filler {{ type: "uniform" min: 0 max: 4 }} }} }}
    layer {{ name: "chosen" type: "BatchReindex" bottom: "stem" bottom: "order" top: "chosen" }}
    layer {{ name: "word" type: "Embed" bottom: "order" top: "word"
            embed_param {{ input_dim: 4 num_output: 4 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "worded" type: "Scale" bottom: "chosen" bottom: "word" top: "worded" scale_param {{ axis: 0 }} }}
    layer {{ name: "offset" type: "Parameter" top: "offset" parameter_param {{ shape {{ dim: 4 }} }} }}
    layer {{ name: "moved" type: "Bias" bottom: "worded" bottom: "offset" top: "moved" }}
    layer {{ name: "windows" type: "Im2col" bottom: "moved" top: "windows" convolution_param {{ kernel_size: 2 }} }}
    layer {{ name: "positive" type: "ReLU" bottom: "windows" top: "positive" }}
    layer {{ name: "drawn" type: "Pooling" bottom: "positive" top: "drawn"
            pooling_param {{ pool: STOCHASTIC kernel_size: 2 }} }}
    layer {{ name: "even" type: "MVN" bottom: "drawn" top: "even" mvn_param {{ normalize_variance: false }} }}
    layer {{ name: "pyramid" type: "SPP" bottom: "even" top: "pyramid" spp_param {{ pyramid_height: 2 }} }}
    {LOSS % "pyramid"}
"""
CLIP = f"""
    {DATA}
    layer {{ name: "clip" type: "Reshape" bottom: "data" top: "clip"
            reshape_param {{ shape {{ dim: 0 dim: 3 dim: 3 dim: 2 dim: 5 }} }} }}
    {conv("conv1", "clip", 4, 3)} {relu("conv1")}
    {conv("conv2", "conv1", 4, 3, "param { lr_mult: 1 } param { lr_mult: 2 }")} {relu("conv2")}
    layer {{ name: "half" type: "Convolution" bottom: "conv1" top: "half" convolution_param {{ num_output: 4 group: 2
            kernel_size: 2 stride: 2 stride: 1 stride: 2 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "twice" type: "Deconvolution" bottom: "half" top: "twice" convolution_param {{ num_output: 3
            kernel_size: 2 stride: 2 weight_filler {{ type: "msra" }} bias_term: false }} }}
    layer {{ name: "rows" type: "Reshape" bottom: "twice" top: "rows"
            reshape_param {{ shape {{ dim: 0 dim: 3 dim: -1 }} }} }}
    {conv("signal", "rows", 4, 3)} {relu("signal")}
    {LOSS % "signal"}
"""
RECURRENT = f"""
    {DATA}
    layer {{ name: "steps" type: "Reshape" bottom: "data" top: "steps"
            reshape_param {{ shape {{ dim: 4 dim: 3 dim: 30 }} }} }}
    layer {{ name: "others" type: "DummyData" top: "cont" top: "static" dummy_data_param {{
        shape {{ dim: 4 dim: 3 }} shape {{ dim: 3 dim: 2 }}
        data_filler {{ type: "uniform" min: 0 max: 1 }} data_filler {{ type: "gaussian" std: 1 }} }} }}
    layer {{ name: "lstm" type: "LSTM" bottom: "steps" bottom: "cont" bottom: "static" top: "lstm"
            recurrent_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "rnn" type: "RNN" bottom: "lstm" bottom: "cont" top: "rnn"
            recurrent_param {{ num_output: 6 weight_filler {{ type: "xavier" }} }} }}
    {LOSS % "rnn"}
"""
SEGNET = f"""
    {DATA} {conv("conv1", "data", 4, 3)}
    layer {{ name: "pool" type: "Pooling" bottom: "conv1" top: "pool" top: "mask"
            pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {conv("conv2", "pool", 4, 3)}
    layer {{ name: "bn" type: "BN" bottom: "conv2" top: "conv2" top: "mean" top: "variance"
            bn_param {{ bn_mode: LEARN scale_filler {{ value: 1 }} }} }} {relu("conv2")}
    layer {{ name: "up" type: "Upsample" bottom: "conv2" bottom: "mask" top: "up"
            upsample_param {{ pad_out_w: true }} }}
    {LOSS % "up"}
"""
WIDE = f"""
    {DATA} {conv("stem", "data", 4, 3)} {relu("stem")}
    layer {{ name: "wide" type: "InnerProduct" bottom: "stem" top: "wide" param {{ lr_mult: 2 decay_mult: 0.5 }}
            param {{ lr_mult: 1 }} inner_product_param {{ num_output: 100 weight_filler {{ type: "xavier" }}
            bias_filler {{ type: "constant" value: 0.1 }} }} }}
    {relu("wide")}
    layer {{ name: "drop" type: "Dropout" bottom: "wide" top: "wide" }}
    layer {{ name: "flat" type: "InnerProduct" bottom: "wide" top: "flat" inner_product_param {{ num_output: 70
            bias_term: false weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "flat_tanh" type: "TanH" bottom: "flat" top: "flat" }} {LOSS % "flat"}
"""
NETS = {
    "clip": CLIP,
    "recurrent": RECURRENT,
    "yolo": YOLO,
    "segnet": SEGNET,
    "bn": BN,
    "ssd": SSD,
    "multibox": MULTIBOX,
    "rcnn": RCNN,
    "chain": CHAIN,
    "residual": RESIDUAL,
    "inception": INCEPTION,
    "dropout": DROPOUT,
    "shared": SHARED,
    "unreached": UNREACHED,
    "others": OTHERS,
    "wide": WIDE,
}
NOT_ON_CUDA = {"multibox", "segnet"}  # has layers that the device refuses

SETTINGS = {
    "base_lr": 0.05,
    "lr_policy": "fixed",
    "momentum": 0.9,
    "weight_decay": 0.01,
    "max_iter": 6,
    "random_seed": 5,
    "test_iter": 2,
    "test_interval": 3,
    "snapshot_after_train": False,
}


def solver_text(**fields: object) -> str:
    """SETTINGS with `fields` in their place; None leaves a field out, a list repeats it."""
    lines = []
    for name, value in {**SETTINGS, **fields}.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                lines.append(f"{name}: {_shown(each)}")
    return "\n".join(lines) + "\n"


def solver_file(net: str, folder: Path, **fields: object) -> SolverFile:
    """A solver over the text `net` (or one of NETS), whose snapshots go to `folder`."""
    fields.setdefault("snapshot_prefix", str(folder / "run"))
    if fields.get("type") in ("AdaGrad", "RMSProp"):
        fields.setdefault("momentum", None)
    text = solver_text(**fields) + f"net_param {{ name: 'tiny' {NETS.get(net, net)} }}\n"
    return read_solver_text(text, str(folder / "solver.prototxt"))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    words = ("BINARYPROTO", "HDF5", "nan", "inf", "-inf")
    return f'"{value}"' if isinstance(value, str) and value not in words else str(value)


INNER = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 5 } }'
SOFTMAX = 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" }'
ABSENT = {  # sources whose files are absent
    "LMDB": 'type: "Data" data_param { source: "no" batch_size: 4 backend: LMDB }',
    "LevelDB": 'type: "Data" data_param { source: "." batch_size: 4 }',
    "HDF5": 'type: "HDF5Data" hdf5_data_param { source: "no" batch_size: 4 }',
    "image list": 'type: "ImageData" image_data_param { source: "no" batch_size: 4 }',
    "pair list": 'type: "DenseImageData" dense_image_data_param { source: "no" batch_size: 4 }',
    "memory": 'type: "MemoryData" memory_data_param { batch_size: 4 channels: 1 height: 6 width: 6 }',
    "input": 'type: "Input"',
    "windows": 'type: "WindowData" window_data_param { source: "no" batch_size: 4 }',
    "Python": 'type: "Python" python_param { module: "m" layer: "L" }',
}
SHAPES = {"x": (4, 1, 6, 6), "t": (4,)}


def absent_net(source: str) -> str:
    return f'layer {{ name: "src" top: "x" top: "t" {source} }} {INNER} {SOFTMAX}'
