"""Write the name maps from the weights of torchvision to the example nets: prototxt/NET/torchvision.names.

    python tools/name_maps.py            write them
    python tools/name_maps.py --check    exit 1 unless the files are up to date

A map has a line for each blob of the net: a convolution or an inner product is a module of torchvision, and a BatchNorm
with its Scale another one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from layermem.graph.net import Net, NetOptions  # noqa: E402
from layermem.proto.read import read_net  # noqa: E402

Module = Callable[[str], str]  # the name of a layer -> the module whose tensors it has
RESNEXT = {"shortcut": "downsample.0", "a": "conv1", "b": "conv2", "c": "conv3"}
FIRES = {"2": 3, "3": 4, "4": 5, "5": 7, "6": 8, "7": 9, "8": 10, "9": 12}  # the module of a fire of SqueezeNet 1.0


def vgg(counts: str) -> Module:
    """Convolutions by the number in each stage: a ReLU follows each, and a pooling each stage."""
    stages = [int(count) for count in counts]

    def module(name: str) -> str:
        if name.startswith("fc"):
            return f"classifier.{3 * (int(name[2]) - 6)}"
        stage, index = (int(part) for part in name.removeprefix("conv").split("_"))
        return f"features.{sum(2 * count + 1 for count in stages[: stage - 1]) + 2 * (index - 1)}"

    return module


def squeezenet(name: str) -> str:
    if name in ("conv1", "conv10"):
        return {"conv1": "features.0", "conv10": "classifier.1"}[name]
    fire, part = name.removeprefix("fire").split("/")
    return f"features.{FIRES[fire]}.{'squeeze' if part == 'squeeze1x1' else part}"


def resnext(name: str) -> str:
    if name in ("conv1", "fc1000", "bn_conv1", "scale_conv1"):
        return {"conv1": "conv1", "fc1000": "fc"}.get(name, "bn1")
    kind, stage, block, part = _parts(r"(|bn_|scale_)stage(\d)_(\d+)_(\w+)", name)
    module = RESNEXT[part] if not kind else RESNEXT[part].replace("conv", "bn").replace("sample.0", "sample.1")
    return f"layer{int(stage) - 1}.{int(block) - 1}.{module}"


def densenet(name: str) -> str:
    name, _, kind = name.rpartition("/") if name.endswith(("/bn", "/scale")) else (name, "", "")
    part = "norm" if kind else "conv"
    if name == "conv1":
        return f"features.{part}0"
    if name in ("fc6", "conv5_blk"):
        return {"fc6": "classifier", "conv5_blk": "features.norm5"}[name]
    if name.endswith("_blk"):
        return f"features.transition{int(name[4]) - 1}.{part}"
    stage, block, index = _parts(r"conv(\d)_(\d+)/x(\d)", name)
    return f"features.denseblock{int(stage) - 1}.denselayer{block}.{part}{index}"


def mobilenet2(name: str) -> str:
    if name == "fc":
        return "classifier.1"
    name, _, kind = name.rpartition("/") if name.endswith(("/bn", "/scale")) else (name, "", "")
    block, _, part = name.removeprefix("conv").partition("/")
    prefix, normalizes = f"features.{int(block) - 1}", bool(kind)
    if not part:
        return f"{prefix}.{int(normalizes)}"
    parts = ["expand", "dw", "project"] if block != "2" else ["dw", "project"]
    place = parts.index(part)
    return f"{prefix}.conv.{place + normalizes}" if part == "project" else f"{prefix}.conv.{place}.{int(normalizes)}"


def _parts(pattern: str, name: str) -> tuple[str, ...]:
    match = re.fullmatch(pattern, name)
    if match is None:
        raise SystemExit(f"layer '{name}' has no rule; add one")
    return match.groups()


NETS: dict[str, tuple[str, Module]] = {  # the model of torchvision, and its modules
    "vgg16": ("vgg16", vgg("22333")),
    "vgg19": ("vgg19", vgg("22444")),
    "squeezenet10": ("squeezenet1_0", squeezenet),
    "resnext50": ("resnext50_32x4d", resnext),
    "densenet121": ("densenet121", densenet),
    "densenet161": ("densenet161", densenet),
    "mobilenet2": ("mobilenet_v2", mobilenet2),
}


def lines_of(name: str) -> Iterator[str]:
    model, module = NETS[name]
    net = Net(read_net(ROOT / "prototxt" / name / "train_val.prototxt"), 0, NetOptions(stages=("dummy",)))
    yield f"# torchvision.models.{model}: `layermem convert {model}.safetensors {name}.caffemodel --names FILE`"
    for layer in net.layers:
        if layer.type == "BatchNorm":
            tensors = [f"{module(layer.name)}.running_mean", f"{module(layer.name)}.running_var", "=1"]
        else:
            tensors = [f"{module(layer.name)}.{part}" for part in ("weight", "bias")] if layer.params else []
        for index, tensor in enumerate(tensors[: len(layer.params)]):
            yield f"{layer.name}/{index} {tensor}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 unless the files are up to date")
    arguments = parser.parse_args(words)
    old = 0
    for name in NETS:
        path, text = ROOT / "prototxt" / name / "torchvision.names", "".join(f"{line}\n" for line in lines_of(name))
        old += not path.exists() or path.read_text() != text
        if not arguments.check:
            path.write_text(text)
    return int(arguments.check and old > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
