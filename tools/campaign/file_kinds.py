"""The kinds of files for the fuzzer: valid files to start from, and functions that read them.

KINDS     name -> Kind
corpus()  writes a folder with one valid file of every kind and the files that they refer to
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import h5py
import lmdb
import numpy as np
from onnx import helper, numpy_helper
from PIL import Image

import layermem
from layermem.cli import main
from layermem.data.databases import write_database
from layermem.data.leveldb_database import LevelDbSource
from layermem.graph.net import Net, NetOptions
from layermem.integrations.onnx import export_model, load
from layermem.interactive.solver import Solver
from layermem.proto.blobs import read_blob
from layermem.proto.read import read_net, read_net_text, read_solver
from layermem.proto.schema import PHASES, BlobProto
from tools.campaign.net_grammar import random_net
from tools.lmdb_writer import datum, write_lmdb

PROTOTXT = Path(__file__).resolve().parents[2] / "prototxt"
NETS = ("digits", "mnist", "cifar10", "alexnet", "resnet20")
SHAPES: dict[str, tuple[int, ...]] = {"data": (2, 3, 67, 67), "label": (2,)}  # shapes of inputs
MAX_BYTES, MAX_SECONDS, MAX_BATCHES = 64 << 20, 1.0, 8  # limits of a solver that is run, not only planned
IMAGE = (3, 5, 4)
PICTURES = ("0.png", "1.bmp", "2.jpg")
SOURCES = {
    "Data": 'data_param { source: "%s" batch_size: 3 backend: LMDB }',
    "HDF5Data": 'hdf5_data_param { source: "%s" batch_size: 3 }',
    "ImageData": 'image_data_param { source: "%s" batch_size: 2 new_height: 5 new_width: 4 }',
    "WindowData": 'window_data_param { source: "%s" batch_size: 4 } transform_param { crop_size: 4 }',
}


@dataclass(frozen=True)
class Kind:
    """path     path in the corpus of the file that is mutated
    read     reads the file, given the folder of the corpus
    seeds    other valid contents
    text     whether its tokens are mutated too
    library  whether a library that may end the process maps the file
    """

    path: str
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]] = list
    text: bool = False
    library: bool = False


def data_net(kind: str, source: str) -> str:
    return (
        f'name: "small" layer {{ name: "data" type: "{kind}" top: "data" top: "label" {SOURCES[kind] % source} }}\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"\n'
        '  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }\n'
    )


SOLVER = 'base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 2 random_seed: 1 snapshot_prefix: "run"\n'
SMALL = f"{SOLVER}net_param {{ {data_net('Data', 'lmdb')} }}\n"
FORKS = """  # fields of forks that change nothing, two layers of one name, and one without
engine: "MKL" "DNN" default_forward_type: FLOAT16, compile_net_state { bn_scale_remove: true }
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "lmdb" batch_size: 3 shuffle: true;
  threads: [1] transform_param { crop_size: 4 mirror: true } prefetch: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "a" quantization_param < bw: { x: "}" } >
  inner_product_param { num_output: 4 engine: MKLDNN weight_filler { type: "xavier" } } forward_type: FLOAT }
layer { type: "ReLU" bottom: "a" top: "a" relu_param { engine: MKL2017 } }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 4 } debug: true }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }
"""
FORMATS = {"run": "", "h5run": "snapshot_format: HDF5\n"}


# -- the corpus ------------------------------------------------------------------------------------------------------


def corpus(folder: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (7, *IMAGE), np.uint8)
    write_lmdb(folder / "lmdb", [datum(picture, i % 4) for i, picture in enumerate(pictures)])
    with h5py.File(folder / "rows.h5", "w") as file:
        file["data"], file["label"] = rng.random((7, *IMAGE), np.float32), np.arange(7, dtype=np.float32) % 4
    (folder / "rows.txt").write_text("rows.h5\n")
    for name, picture in zip(PICTURES, pictures):
        Image.fromarray(picture.transpose(1, 2, 0)).save(folder / name)
    (folder / "images.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(PICTURES)))
    (folder / "labels.txt").write_text("".join(f"{name} {i} 0.5 -1e3\n" for i, name in enumerate(PICTURES)))
    windows = "3\n5\n4\n2\n1 0.9 0 1 2 4\n0 0.1 1 0 3 2\n"  # sizes and windows of each image
    (folder / "windows.txt").write_text("".join(f"# {i}\n{name}\n{windows}" for i, name in enumerate(PICTURES)))
    sources = {"Data": "lmdb", "HDF5Data": "rows.txt", "ImageData": "images.txt", "WindowData": "windows.txt"}
    for kind, source in sources.items():
        (folder / f"{kind}.prototxt").write_text(f"{SOLVER}net_param {{ {data_net(kind, source)} }}\n")
    if LevelDbSource.is_installed():
        leveldb_corpus(folder, pictures)
    os.chdir(folder)
    derived_corpus(folder)


def derived_corpus(folder: Path) -> None:
    """Files of the working folder `folder` that layermem writes from others."""
    net = data_net("Data", "lmdb")
    (folder / "net.prototxt").write_text(net)
    mean = BlobProto(num=1, channels=3, height=5, width=4, data=[0.5] * 60)
    (folder / "mean.binaryproto").write_bytes(mean.SerializeToString())
    (folder / "net.prototxt.hints").write_text("segment-ends ip\nkeep l*\n")
    for prefix, lines in FORMATS.items():
        Path(f"{prefix}.prototxt").write_text(SMALL.replace('"run"', f'"{prefix}"') + lines)
        with Solver(f"{prefix}.prototxt") as solver:
            solver.solve()
    for end in ("solverstate", "solverstate.h5"):  # without the JSON file, which holds a hash of the state
        prefix = "h5run" if end.endswith("h5") else "run"
        shutil.copy(f"{prefix}_iter_2.{end}", f"loose.{end}")
    for ending in ("npz", "safetensors"):
        run(["convert", "run_iter_2.caffemodel", f"named.{ending}"])
    (folder / "mapped.npz").write_bytes((folder / "named.npz").read_bytes())
    (folder / "mapped.npz.names").write_text("# ours theirs\nip/0 ip/0\n\nip/1\tip/1\nbn/0 =1\n")
    for words in (
        "plan --net net.prototxt --strategy recompute --save plan.json",
        "plan --net net.prototxt --export-graph graph.txt",
        "time --net net.prototxt --iterations 1 --out costs.csv",
    ):
        run(words.split())


def run(words: list[str]) -> None:
    """Run a command without its output; AssertionError for exit codes other than success and those of
    LayermemErrors."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    if code not in (0, 2, 3, 4):
        raise AssertionError(f"exit code {code}: {said.getvalue()}")


# -- readers: each is called in the folder of the corpus --------------------------------------------------------------


def net(folder: Path) -> None:
    named = b'"data"' in (folder / "fuzz.prototxt").read_bytes()
    Net(read_net(folder / "fuzz.prototxt"), PHASES["TEST"], NetOptions(inputs=SHAPES if named else {}))
    shapes = " --input data=2,3,67,67 --input label=2" if named else ""
    run(f"plan --net fuzz.prototxt --budget 80% --json{shapes}".split())


def solver(folder: Path, path: str = "fuzz_solver.prototxt") -> None:
    """Plan a solver, and train ten iterations if that is little work and writes nowhere else."""
    file = read_solver(folder / path)
    report = layermem.plan(solver=file, strategy="auto")
    p = file.message
    batches = max(p.iter_size, *p.test_iter, 0)
    inside = not Path(p.snapshot_prefix).is_absolute() and ".." not in p.snapshot_prefix
    if report.peak_bytes < MAX_BYTES and report.seconds < MAX_SECONDS and batches <= MAX_BATCHES and inside:
        with Solver(file, iterations=10) as training:
            training.solve()


@cache
def resumable(prefix: str) -> Solver:
    return Solver(f"{prefix}.prototxt")


def weights(path: str) -> Callable[[Path], None]:
    return lambda folder: resumable("run").load(folder / path)


def state(path: str) -> Callable[[Path], None]:
    return lambda folder: resumable("run").restore(path)


def mean(folder: Path) -> None:
    read_blob(folder / "mean.binaryproto")


def data(kind: str) -> Callable[[Path], None]:
    return lambda folder: solver(folder, f"{kind}.prototxt")


def records(folder: Path) -> None:
    """Read an LMDB whose records are the lines of the mutated file."""
    write_raw_lmdb(folder / "lmdb_fuzz", (folder / "records").read_bytes())
    text = (folder / "Data.prototxt").read_text().replace('"lmdb"', '"lmdb_fuzz"')
    (folder / "records.prototxt").write_text(text)
    solver(folder, "records.prototxt")


def write_raw_lmdb(folder: Path, raw: bytes) -> None:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    with lmdb.open(str(folder), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for index, record in enumerate(raw.split(b"\n--\n")):
            txn.put(f"{index:08d}".encode(), record)


def leveldb_corpus(folder: Path, pictures: np.ndarray) -> None:
    """Write the files of a LevelDB, and its table, which opening it makes from its log."""
    write_database(
        folder / "level_new", ((b"%d" % i, datum(p, i % 4)) for i, p in enumerate(pictures)), backend="leveldb"
    )
    shutil.copytree(folder / "level_new", folder / "level_old")
    LevelDbSource(folder / "level_old", labels=True).close()
    for name, (template, part) in LEVELDB_FILES.items():
        (file,) = [f for f in (folder / template).iterdir() if part in f.name and f.stat().st_size]
        shutil.copy(file, folder / name)
    text = (folder / "Data.prototxt").read_text().replace('"lmdb"', '"level_fuzz"')
    (folder / "level.prototxt").write_text(text.replace("backend: LMDB", ""))


LEVELDB_FILES = {  # mutated file -> its database, and a part of its name there
    "level.log": ("level_new", ".log"),
    "level.ldb": ("level_old", ".ldb"),
    "level.manifest": ("level_old", "MANIFEST"),
    "level.current": ("level_old", "CURRENT"),
}


def leveldb(name: str) -> Callable[[Path], None]:
    """Return a function that reads a LevelDB of which one file is the mutated one."""
    template, part = LEVELDB_FILES[name]

    def read(folder: Path) -> None:
        shutil.rmtree(folder / "level_fuzz", ignore_errors=True)
        shutil.copytree(folder / template, folder / "level_fuzz")
        (file,) = [f for f in (folder / "level_fuzz").iterdir() if part in f.name and f.stat().st_size]
        file.write_bytes((folder / name).read_bytes())
        solver(folder, "level.prototxt")

    return read


def convert_images(folder: Path) -> None:
    shutil.rmtree(folder / "converted", ignore_errors=True)
    run(["convert", "images", "--labels", "3", "labels.txt", "converted"])
    run(["convert", "labels", "labels.txt", "converted.h5"])


def record_seeds() -> list[bytes]:
    picture = np.zeros(IMAGE, np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(picture.transpose(1, 2, 0)).save(encoded, "PNG")
    whole = datum(picture, 1).SerializeToString()
    png = datum(picture, 1)
    png.data, png.encoded = encoded.getvalue(), True
    floats = datum(picture, 2)
    floats.ClearField("data")
    floats.float_data.extend([0.25] * picture.size)
    return [b"\n--\n".join([whole, each.SerializeToString(), whole]) for each in (png, floats, datum(picture, 0))]


def net_seeds() -> list[bytes]:
    files = [path.read_bytes() for name in NETS for path in sorted((PROTOTXT / name).glob("*train_val.prototxt"))]
    return [*files, FORKS.encode(), *(random_net(random.Random(i)).encode() for i in range(12))]


def solver_seeds() -> list[bytes]:
    kinds = ('type: "Adam" momentum2: 0.9', 'type: "RMSProp"', 'type: "AdaDelta" delta: 1e-6', 'type: "Nesterov"', "")
    policies = (
        'lr_policy: "step" gamma: 0.5 stepsize: 1',
        'lr_policy: "inv" gamma: 0.1 power: 0.5',
        'lr_policy: "poly" power: 2',
        'lr_policy: "multistep" gamma: 0.1 stepvalue: 1 stepvalue: 2',
        'lr_policy: "sigmoid" gamma: -1 stepsize: 1',
        'lr_policy: "exp" gamma: 0.5',
    )
    more = ("clip_gradients: 1 iter_size: 2", "test_iter: 1 test_interval: 1", "average_loss: 2 display: 1 snapshot: 1")
    rng = random.Random(0)
    return [
        f'{rng.choice(kinds)}\nbase_lr: 0.01\n{policy}\n{rng.choice(more)}\nmax_iter: 2\nsnapshot_prefix: "seed"\n'
        f"net_param {{\n{random_net(rng)}}}\n".encode()
        for policy in policies * 2
    ]


SMALL_NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 7 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "bn" type: "BatchNorm" bottom: "a" top: "b" } layer { name: "relu" type: "ReLU" bottom: "b" top: "b" }
layer { name: "pool" type: "Pooling" bottom: "b" top: "c" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "cut" type: "Slice" bottom: "c" top: "d" top: "e" } layer { name: "crop" type: "Crop" bottom: "d"
  bottom: "e" top: "f" } layer { name: "sum" type: "Eltwise" bottom: "e" bottom: "f" top: "g" }
layer { name: "ip" type: "InnerProduct" bottom: "g" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


def onnx_model(folder: Path) -> None:
    """Read the net of a model, and build it like one from a prototxt."""
    Net(read_net_text(load(folder / "model.onnx").prototxt), PHASES["TEST"])


def onnx_seeds() -> list[bytes]:
    """Valid models: an exported net, and shapes that are computed in the manner of other programs."""
    net = Net(read_net_text(SMALL_NET), PHASES["TEST"])
    rng = np.random.default_rng(0)
    values = {name: rng.random(owned.param.shape, np.float32) for name, owned in net.params.items()}
    model = export_model(net, values).model
    nodes = [
        ("Shape", "data", "s", {}),
        ("Gather", "s i", "n", {}),
        ("Concat", "n r", "d", {"axis": 0}),
        ("Relu", "data", "a", {}),
        ("Pad", "a p", "b", {}),
        ("MaxPool", "a", "c", {"kernel_shape": [2, 2]}),
        ("Reshape", "c d", "e", {}),
        ("MatMul", "e w", "f", {}),
        ("Add", "f v", "y", {}),
    ]
    constants = {
        "i": np.array([0]),
        "r": np.array([-1]),
        "p": np.zeros(8, np.int64),
        "w": np.ones((126, 3), np.float32),
        "v": np.ones(3, np.float32),
    }
    made = [helper.make_node(op, i.split(), o.split(), op, **attributes) for op, i, o, attributes in nodes]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    given = helper.make_tensor_value_info("data", 1, ["N", 3, 8, 7])
    graph = helper.make_graph(made, "g", [given], [helper.make_tensor_value_info("y", 1, None)], tensors)
    other = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return [model.SerializeToString(), other.SerializeToString()]


def outputs(words: str) -> Callable[[Path], None]:
    return lambda folder: run(words.split())


KINDS = {
    "net": Kind("fuzz.prototxt", net, net_seeds, text=True),
    "solver": Kind("fuzz_solver.prototxt", solver, solver_seeds, text=True),
    "hints": Kind("net.prototxt.hints", outputs("plan --net net.prototxt --strategy recompute"), text=True),
    "plan": Kind("plan.json", outputs("plan --net net.prototxt --load plan.json --json"), text=True),
    "costs": Kind("costs.csv", outputs("plan --net net.prototxt --costs costs.csv --budget 90% --json"), text=True),
    "graph": Kind("graph.txt", outputs("plan-graph graph.txt --time-limit 1"), text=True),
    "state json": Kind("run_iter_2.solverstate.json", state("run_iter_2.solverstate"), text=True),
    "caffemodel": Kind("run_iter_2.caffemodel", weights("run_iter_2.caffemodel")),
    "solverstate": Kind("loose.solverstate", state("loose.solverstate")),
    "caffemodel.h5": Kind("h5run_iter_2.caffemodel.h5", weights("h5run_iter_2.caffemodel.h5")),
    "solverstate.h5": Kind("loose.solverstate.h5", state("loose.solverstate.h5")),
    "binaryproto": Kind("mean.binaryproto", mean),
    "hdf5 data": Kind("rows.h5", data("HDF5Data")),
    "hdf5 list": Kind("rows.txt", data("HDF5Data"), text=True),
    "image list": Kind("images.txt", data("ImageData"), text=True),
    "window list": Kind("windows.txt", data("WindowData"), text=True),
    "image": Kind("1.bmp", data("ImageData")),
    "records": Kind("records", records, record_seeds),
    "lmdb": Kind("lmdb/data.mdb", data("Data"), library=True),
    "npz": Kind("named.npz", weights("named.npz")),
    "safetensors": Kind("named.safetensors", weights("named.safetensors")),
    "name map": Kind("mapped.npz.names", weights("mapped.npz"), text=True),
    "label list": Kind("labels.txt", convert_images, text=True),
    "onnx": Kind("model.onnx", onnx_model, onnx_seeds),
}
if LevelDbSource.is_installed():
    KINDS |= {f"leveldb {Path(name).suffix[1:]}": Kind(name, leveldb(name)) for name in LEVELDB_FILES}


def contents(folder: Path) -> dict[str, list[bytes]]:
    """The valid contents of each kind."""
    found = {}
    for name, kind in KINDS.items():
        path = folder / kind.path
        found[name] = ([path.read_bytes()] if path.exists() else []) + kind.seeds()
    return found
