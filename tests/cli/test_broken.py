"""Prototxts that are wrong: each is one clear sentence with its place, and exit code 2."""

from pathlib import Path

import pytest

DATA = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'
CONV = 'layer { name: "conv" type: "Convolution" bottom: "x" top: "y" convolution_param { %s } }\n'
IP = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }\n'
SHARED = IP.replace("inner", 'param { name: "w" } inner')

NETS = {
    "unknown type": (
        DATA + 'layer { name: "a" type: "Convolutoin" bottom: "x" top: "y" }',
        ":2: layer 'a' has type 'Convolutoin'",
    ),
    "wrong bottom": (DATA + IP.replace('"x"', '"z"'), ":2: layer 'ip' reads blob 'z', which no earlier layer writes"),
    "duplicate top": (DATA + IP + IP.replace('"ip"', '"b"'), ":3: layer 'b' writes blob 'y', which an earlier layer"),
    "cycle": (
        DATA + 'layer { name: "a" type: "ReLU" bottom: "q" top: "p" }\n'
        'layer { name: "b" type: "ReLU" bottom: "p" top: "q" }',
        "layer 'a' reads blob 'q', which no earlier layer writes",
    ),
    "own top": (DATA + 'layer { name: "a" type: "ReLU" bottom: "a" top: "a" }', "layer 'a' reads blob 'a'"),
    "unknown field": (DATA + CONV % "num_output: 2 kernel: 3", "kernel"),
    "unknown layer field": (DATA + 'layer { nmae: "a" }', "nmae"),
    "word for a number": (DATA + CONV % "num_output: two", "two"),
    "unknown enum": (
        DATA + 'layer { name: "p" type: "Pooling" bottom: "x" top: "y" pooling_param { pool: MEAN kernel_size: 2 } }',
        "MEAN",
    ),
    "unclosed brace": ('layer { name: "in"', ""),
    "extra brace": (DATA + "}", ""),
    "unclosed string": ('layer { name: "in }', ""),
    "empty file": ("", "is empty"),
    "only a comment": ("# nothing here\n", "has no layers"),
    "no layers in the phase": (
        DATA.replace("input_param", "include { phase: TEST } input_param"),
        "has no layer in phase TRAIN; use the other phase",
    ),
    "zero outputs": (DATA + CONV % "num_output: 0 kernel_size: 3", "layer 'conv'"),
    "no outputs named": (DATA + CONV % "kernel_size: 3", "layer 'conv'"),
    "no kernel": (DATA + CONV % "num_output: 4", "layer 'conv'"),
    "kernel too large": (DATA + CONV % "num_output: 4 kernel_size: 9", "layer 'conv'"),
    "zero stride": (DATA + CONV % "num_output: 4 kernel_size: 3 stride: 0", "layer 'conv'"),
    "negative pad": (DATA + CONV % "num_output: 4 kernel_size: 3 pad: -1", "-1"),
    "odd groups": (DATA + CONV % "num_output: 4 kernel_size: 3 group: 2", "layer 'conv'"),
    "huge outputs": (DATA + CONV % "num_output: 4000000000 kernel_size: 3", "layer 'conv'"),
    "number out of range": (DATA + CONV % "num_output: 99999999999 kernel_size: 3", "99999999999"),
    "negative dimension": (DATA.replace("dim: 3", "dim: -3"), "layer 'in' asks for shape 2 x -3 x 8 x 8"),
    "huge dimension": (DATA.replace("dim: 3", "dim: 3000000000"), "a blob holds at most 2147483647"),
    "huge batch": (DATA.replace("dim: 2", "dim: 9000000000000000000"), "a blob holds at most 2147483647"),
    "huge pad": (DATA + CONV % "num_output: 4 kernel_size: 3 pad: 1000000000", "more than 2^31-1"),
    "huge stride of outputs": (
        DATA + (CONV % "num_output: 4 kernel_size: 3 stride: 1000000000").replace("Convolution", "Deconvolution"),
        "more than 2^31-1",
    ),
    "huge kernel": (DATA + CONV % "num_output: 4 kernel_size: 4294967295", "use a smaller kernel"),
    "huge table": (
        DATA + 'layer { name: "e" type: "Embed" bottom: "x" top: "y" embed_param { input_dim: 2000000000 '
        "num_output: 2000000000 } }",
        "layer 'e' has a parameter of shape 2000000000x2000000000",
    ),
    "huge number of tiles": (
        DATA + 'layer { name: "t" type: "Tile" bottom: "x" top: "y" tile_param { tiles: 2000000000 } }',
        "more than 2^31-1",
    ),
    "bad axis": (
        DATA + 'layer { name: "c" type: "Concat" bottom: "x" bottom: "x" top: "y" concat_param { axis: 7 } }',
        "names axis 7",
    ),
    "bad reshape": (
        DATA + 'layer { name: "r" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 7 dim: -1 } } }',
        "layer 'r'",
    ),
    "unequal sum": (DATA + IP + 'layer { name: "e" type: "Eltwise" bottom: "x" bottom: "y" top: "z" }', "layer 'e'"),
    "label shape": (
        DATA + IP + 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "x" top: "l" }',
        "layer 'l' compares 'y' of shape 2x2 and 'x' of shape 2x3x8x8",
    ),
    "too few bottoms": (DATA + 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "x" top: "l" }', "takes 2"),
    "too many tops": (DATA + IP.replace('top: "y"', 'top: "y" top: "z"'), "has 2 tops"),
    "in place with another shape": (DATA + IP.replace('top: "y"', 'top: "x"'), "changes its shape"),
    "too many param blocks": (DATA + IP.replace("inner", "param {} param {} param {} inner"), "3 'param' blocks"),
    "shares of two shapes": (
        DATA + SHARED + SHARED.replace('"ip"', '"b"').replace('"y"', '"z"').replace("2 }", "3 }"),
        "make the shapes equal",
    ),
    "missing data set": (
        'layer { name: "d" type: "Data" top: "x" data_param { source: "nowhere_lmdb" batch_size: 4 } }',
        "nowhere_lmdb",
    ),
    "no batch size": ('layer { name: "d" type: "Data" top: "x" data_param { source: "." } }', "layer 'd'"),
    "include and exclude": (DATA.replace("input_param", "include {} exclude {} input_param"), "layer 'in'"),
    "unknown filler": (DATA + CONV % 'num_output: 2 kernel_size: 1 weight_filler { type: "magic" }', "magic"),
    "deep nesting": ("layer { " * 5000, ""),
}


def is_one_sentence(ended, path) -> bool:
    return ended.code == 2 and ended.sentence.startswith(f"layermem: {path}") and len(ended.sentence) < 900


@pytest.mark.parametrize("name", NETS)
def test_a_broken_net_is_one_sentence_and_exit_code_2(layermem, prototxt, name):
    text, says = NETS[name]
    path = prototxt(text)
    for verb in ("show", "plan"):
        ended = layermem(verb, "--net", path)
        assert is_one_sentence(ended, path), ended
        assert ended.out == "" and says in ended.sentence


@pytest.mark.parametrize(
    "junk", [bytes(range(256)), b"\x00" * 64, b"\xff\xfe\x00l\x00a", b"\x89PNG\r\n", b"\xf0\x9f\x92"]
)
def test_binary_junk_is_one_sentence(layermem, tmp_path, junk):
    path = tmp_path / "net.prototxt"
    path.write_bytes(junk)
    for verb, option in (("show", "--net"), ("plan", "--net"), ("plan", "--solver"), ("train", "--solver")):
        assert is_one_sentence(layermem(verb, option, path), path)


def test_a_file_that_is_not_there_or_is_a_folder_is_one_sentence(layermem, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.prototxt"):
        for verb, option in (("show", "--net"), ("plan", "--net"), ("plan", "--solver"), ("train", "--solver")):
            assert is_one_sentence(layermem(verb, option, path), path)


GOOD = {"base_lr": "0.1", "lr_policy": '"fixed"', "max_iter": "5"}
TRAINABLE = (
    DATA
    + IP
    + (
        'layer { name: "t" type: "Input" top: "t" input_param { shape { dim: 2 } } }\n'
        'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" }\n'
    )
)
SOLVERS = {
    "no net": ({}, "has no train net"),
    "two nets": ({"net": '"net.prototxt"', "train_net": '"net.prototxt"'}, "has 2 train nets"),
    "missing net": ({"net": '"nowhere.prototxt"'}, "nowhere.prototxt"),
    "unknown policy": ({"net": '"net.prototxt"', "lr_policy": '"sometimes"'}, "sometimes"),
    "step without a size": ({"net": '"net.prototxt"', "lr_policy": '"step"', "gamma": "0.1"}, "stepsize"),
    "unknown type": ({"net": '"net.prototxt"', "type": '"Magic"'}, "Magic"),
    "no test interval": ({"net": '"net.prototxt"', "test_iter": "1"}, "test_interval"),
    "no iterations": ({"net": '"net.prototxt"', "max_iter": None}, "max_iter"),
    "negative iter_size": ({"net": '"net.prototxt"', "iter_size": "-2"}, "iter_size"),
    "unknown field": ({"net": '"net.prototxt"', "bas_lr": "1"}, "bas_lr"),
    "broken net inside": ({"net_param": '{ layer { name: "a" type: "ReLU" bottom: "q" top: "q" } }'}, "blob 'q'"),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_broken_solver_is_one_sentence_and_exit_code_2(layermem, prototxt, tmp_path, name):
    prototxt(TRAINABLE)
    fields, says = SOLVERS[name]
    lines = [
        f"{k}: {v}" if not v.startswith("{") else f"{k} {v}" for k, v in {**GOOD, **fields}.items() if v is not None
    ]
    path = prototxt("\n".join([*lines, f'snapshot_prefix: "{tmp_path}/run"']), "solver.prototxt")
    ended = layermem("train", "--solver", path)
    assert ended.code == 2 and says in ended.sentence and ended.out == ""
    assert ended.sentence.startswith(f"layermem: {tmp_path}")


def test_the_same_files_unbroken_are_planned(layermem, prototxt):
    path = prototxt(TRAINABLE)
    assert layermem("plan", "--net", path).code == 0
    solver = prototxt("\n".join(f"{k}: {v}" for k, v in {**GOOD, "net": f'"{path}"'}.items()), "solver.prototxt")
    assert layermem("plan", "--solver", solver).code == 0


FED = """
    layer { name: "in" type: "Data" top: "x" top: "t"
            transform_param { crop_size: 8 force_gray: true } data_param { source: "%s" batch_size: 2 backend: LMDB } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: %d } }
    layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" }
"""
DIGITS = Path(__file__).resolve().parents[2] / "prototxt/digits/digits_train_lmdb"


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("source", "classes", "where", "says"),
    [
        ("nowhere_lmdb", 10, "net.prototxt:2: layer 'in'", "cannot read its data: there is no 'nowhere_lmdb'"),
        (DIGITS, 2, "net.prototxt:5: layer 'l'", "has scores for 2 classes: 0 to 1; fix the data, or set ignore_label"),
    ],
)
def test_data_that_stop_a_run_are_reported_by_net_line_and_layer(
    layermem, prototxt, tmp_path, device, source, classes, where, says
):
    prototxt(FED % (source, classes))
    lines = [f"{k}: {v}" for k, v in {**GOOD, "net": '"net.prototxt"', "snapshot_after_train": "false"}.items()]
    ended = layermem("train", "--solver", prototxt("\n".join(lines), "solver.prototxt"), "--device", device)
    assert ended.code == 2
    assert ended.sentence.startswith(f"layermem: {tmp_path}/{where}") and says in ended.sentence


def test_a_net_that_takes_arrays_cannot_be_trained_by_the_command(layermem, prototxt, tmp_path):
    prototxt(TRAINABLE)
    lines = [f"{k}: {v}" for k, v in {**GOOD, "net": '"net.prototxt"', "snapshot_after_train": "false"}.items()]
    ended = layermem("train", "--solver", prototxt("\n".join(lines), "solver.prototxt"))
    assert ended.code == 2 and ended.out == ""
    assert ended.sentence.startswith(
        f"layermem: {tmp_path}/net.prototxt: has layers whose data a program gives (in, t)"
    )
    ended = layermem("train", "--solver", tmp_path / "solver.prototxt", "--data", "noise", "--iterations", "1")
    assert ended.code == 0, ended.err
