"""Times training steps of a net in nntrainer, for tools/bench_cpu.py.  Needs g++, and nntrainer found by pkg-config.

    PKG_CONFIG_PATH=PREFIX/lib/pkgconfig python tools/nntrainer_peer.py NET.json --mode unplanned --steps 10

NET.json is the description of a net by tools/cpu/description.py: a chain of Convolution, InnerProduct, MAX Pooling,
ReLU and Dropout that ends in SoftmaxWithLoss.  A layer whose values or shape would differ from Caffe's is refused.
tools/cpu/nntrainer_steps.cpp runs the steps and prints a line of JSON: `seconds` of each, `bytes` (peak resident set),
`parameters` (their count), `note` (the size of nntrainer's pools of weights and tensors).

The update is SGD, which in nntrainer has no momentum.  In mode `unplanned` no two tensors share bytes
(memory_optimization=false).  There is no mode for its swap file, as its values are wrong in training
(docs/benchmarks/peers.md).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Layer = dict[str, Any]
SOURCE = Path(__file__).resolve().parent / "cpu" / "nntrainer_steps.cpp"
PACKAGES = ("ccapi-ml-training", "nntrainer")
MODES = {"planned": [], "unplanned": ["memory_optimization=false"]}


def chain_of(description: dict[str, Any]) -> list[str]:
    """The layers of a net as lines for nntrainer_steps.cpp: a type, and properties as key=value."""
    shape, blob = list(description["data"][1:]), "data"
    lines = [f"input name=data input_shape={':'.join(map(str, shape))}"]
    for layer in description["layers"]:
        if layer["bottoms"][0] != blob:
            raise SystemExit(f"layer '{layer['name']}' does not read '{blob}', so the net is no chain")
        lines += lines_of(layer, shape)
        blob = layer["tops"][0]
    return lines


def lines_of(layer: Layer, shape: list[int]) -> list[str]:
    """The lines of a layer that reads items of `shape`, which becomes the shape of those that it writes."""
    kind, name = layer["type"], f"name={layer['name']}"
    if kind == "Convolution" and layer["group"] == 1:
        spans = [dilation * (kernel - 1) + 1 for dilation, kernel in zip(layer["dilation"], layer["kernel"])]
        shape[:] = [layer["outputs"], *(1 + step[0] for step in steps_of(layer, shape, spans))]
        size = f"kernel_size={pair(layer['kernel'])} dilation={pair(layer['dilation'])}"
        return [f"conv2d {name} filters={layer['outputs']} {size} {placing(layer)} {bias(layer)}"]
    if kind == "Pooling" and layer["method"] == "MAX":
        steps = steps_of(layer, shape, layer["kernel"])
        if any(rest for _, rest in steps):
            raise SystemExit(f"layer '{layer['name']}' has a window that ends beyond its image, as only Caffe's may")
        shape[1:] = [1 + count for count, _ in steps]
        return [f"pooling2d {name} pooling=max pool_size={pair(layer['kernel'])} {placing(layer)}"]
    if kind == "InnerProduct":
        flatten = [f"flatten name={layer['name']}/flatten"] if len(shape) > 1 else []
        shape[:] = [layer["outputs"]]
        return [*flatten, f"fully_connected {name} unit={layer['outputs']} {bias(layer)}"]
    if kind == "ReLU":
        return [f"activation {name} activation=relu"]
    if kind == "Dropout":
        return [f"dropout {name} dropout_rate={layer['ratio']}"]
    if kind == "SoftmaxWithLoss" and layer["weight"] == 1 and len(shape) == 1:
        return [f"cross_softmax {name}"]
    raise SystemExit(f"layer '{layer['name']}' of type {kind} is not supported")


def steps_of(layer: Layer, shape: Sequence[int], spans: Sequence[int]) -> list[tuple[int, int]]:
    """How often a window moves along rows and along columns, and what is left of the image behind the last one."""
    axes = zip(shape[1:], layer["pad"], spans, layer["stride"])
    return [divmod(size + 2 * pad - span, stride) for size, pad, span, stride in axes]


def placing(layer: Layer) -> str:
    return f"stride={pair(layer['stride'])} padding={pair(layer['pad'])}"


def pair(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def bias(layer: Layer) -> str:
    return f"disable_bias={str(not layer['bias']).lower()}"


def is_installed() -> bool:
    """Whether pkg-config finds nntrainer."""
    found = shutil.which("pkg-config")
    return bool(found) and subprocess.run([found, "--exists", *PACKAGES], check=False).returncode == 0


def compile_driver(driver: Path) -> None:
    """Compile nntrainer_steps.cpp against the installed nntrainer."""
    asked = ["pkg-config", "--cflags", "--libs", *PACKAGES]
    flags = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    folders = [f"-Wl,-rpath,{flag[2:]}" for flag in flags if flag.startswith("-L")]
    language = ["-std=c++20", "-DMIN_CPP_VERSION=201703L", "-O2"]
    subprocess.run(["g++", *language, str(SOURCE), "-o", str(driver), *flags, *folders], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", type=Path, help="the description of a net by bench_cpu.py")
    parser.add_argument("--mode", choices=tuple(MODES), default="planned")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--driver", type=Path, help="keep the compiled driver in this file, and use it if it exists")
    options = parser.parse_args()
    if not is_installed():
        parser.error(f"pkg-config does not find {' and '.join(PACKAGES)}; set PKG_CONFIG_PATH")
    description = json.loads(options.net.read_text(encoding="utf-8"))
    batch, *shape = description["data"]
    numbers = [options.steps, batch, math.prod(shape), description["classes"]]
    with tempfile.TemporaryDirectory() as folder:  # nntrainer writes its log there, too
        chain = Path(folder, "chain")
        chain.write_text("\n".join(chain_of(description)), encoding="utf-8")
        driver = (options.driver or Path(folder, "steps")).absolute()
        if not driver.exists():
            compile_driver(driver)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(options.threads))
        command = [str(driver), str(chain), *map(str, numbers), *MODES[options.mode]]
        ended = subprocess.run(command, cwd=folder, env={**os.environ, **threads}, check=False)
    raise SystemExit(ended.returncode)


if __name__ == "__main__":
    main()
