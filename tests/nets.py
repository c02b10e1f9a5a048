"""Tiny nets and solvers as prototxt, for tests of whole runs.

NETS            name -> net; each has DummyData, a loss, and in TEST the same data from another seed
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
    layer {{ name: "even" type: "MVN" bottom: "drawn" top: "even" }}
    layer {{ name: "pyramid" type: "SPP" bottom: "even" top: "pyramid" spp_param {{ pyramid_height: 2 }} }}
    {LOSS % "pyramid"}
"""
NETS = {
    "chain": CHAIN, "residual": RESIDUAL, "inception": INCEPTION, "dropout": DROPOUT, "shared": SHARED,
    "others": OTHERS,
}  # fmt: skip

SETTINGS = {
    "base_lr": 0.05, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.01, "max_iter": 6, "random_seed": 5,
    "test_iter": 2, "test_interval": 3, "snapshot_after_train": False,
}  # fmt: skip


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
