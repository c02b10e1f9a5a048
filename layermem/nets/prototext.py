"""Writes nets and solvers as prototxt.

    net = NetText("LeNet", notes=["LeNet: LeCun et al. 1998"])
    x = net.conv("conv1", "data", num_output=20, kernel_size=5, weight_filler=filler("xavier"))
    x = net.pool("pool1", x, "MAX", kernel_size=2, stride=2)
    print(net)

A value is an int, a float, a bool, a str (quoted), a Word (an enum's bare name), a dict (a message) or a list (a
repeated field).  A layer is written on one line if it fits in WIDTH columns, else with one line per message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

WIDTH = 118
IMAGENET_MEAN = [104, 117, 123]  # blue, green, red, as Caffe orders channels


class Word(str):
    """The value of an enum, written without quotes."""


Value: TypeAlias = "int | float | str | Mapping[str, Value] | Sequence[Value]"


def field(name: str, value: Value) -> list[str]:
    """The text of a field; a list has one text per element."""
    if isinstance(value, list):
        return [text for each in value for text in field(name, each)]
    if isinstance(value, dict):
        inside = " ".join(text for key, each in value.items() for text in field(key, each))
        return [f"{name} {{ {inside} }}" if inside else f"{name} {{ }}"]
    if isinstance(value, bool):
        return [f"{name}: {'true' if value else 'false'}"]
    if isinstance(value, Word) or not isinstance(value, str):
        return [f"{name}: {value}"]
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return [f'{name}: "{quoted}"']


def lines(name: str, value: Value) -> list[str]:
    """The lines of a field: one per message, or one per subfield of a message that is too long for a line."""
    result = []
    for each, text in zip(value if isinstance(value, list) else [value], field(name, value)):
        if len(text) + 2 <= WIDTH or not isinstance(each, dict):
            result.append(f"  {text}")
        else:
            inside = [line for key, part in each.items() for line in field(key, part)]
            result += [f"  {name} {{", *(f"    {line}" for line in inside), "  }"]
    return result


def filler(kind: str, **values: float) -> dict[str, Value]:
    return {"type": kind, **values}


Params: TypeAlias = Sequence[Mapping[str, Value]]
CONSTANT = filler("constant", value=0)
MSRA = filler("msra")
WEIGHT_AND_BIAS = [{"lr_mult": 1, "decay_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]


class NetText:
    """The text of a net.  Each method adds a layer and returns the name of its first top."""

    def __init__(self, name: str, *, notes: list[str]):
        self.text = [*(f"# {note}" for note in notes), *field("name", name)]

    def __str__(self) -> str:
        return "\n".join(self.text) + "\n"

    def layer(self, name: str, kind: str, bottoms: str | list[str], tops: str | list[str], **messages: Value) -> str:
        bottoms = [bottoms] if isinstance(bottoms, str) else bottoms
        tops = [tops] if isinstance(tops, str) else tops
        head = " ".join(
            f for k, v in {"name": name, "type": kind, "bottom": bottoms, "top": tops}.items() for f in field(k, v)
        )
        rest = [text for key, value in messages.items() for text in field(key, value)]
        line = "layer { " + " ".join([head, *rest]) + " }"
        if len(line) <= WIDTH:
            self.text.append(line)
        else:
            self.text += ["layer {", f"  {head}", *(text for k, v in messages.items() for text in lines(k, v)), "}"]
        return tops[0] if tops else name

    def conv(
        self, name: str, bottom: str, *, param: Params | None = None, kind: str = "Convolution", **fields: Value
    ) -> str:
        return self.convolution(name, bottom, fields, param=param, kind=kind)

    def convolution(
        self,
        name: str,
        bottom: str,
        fields: Mapping[str, Value],
        *,
        param: Params | None = None,
        kind: str = "Convolution",
    ) -> str:
        """Add a convolution whose fields are a mapping."""
        extra: dict[str, Value] = {"param": param} if param else {}
        return self.layer(name, kind, bottom, name, **extra, convolution_param=fields)

    def relu(self, name: str, blob: str) -> str:
        return self.layer(name, "ReLU", blob, blob)

    def dropout(self, name: str, blob: str, ratio: float) -> str:
        return self.layer(name, "Dropout", blob, blob, dropout_param={"dropout_ratio": ratio})

    def pool(self, name: str, bottom: str, method: str, **fields: Value) -> str:
        return self.layer(name, "Pooling", bottom, name, pooling_param={"pool": Word(method), **fields})

    def lrn(self, name: str, bottom: str) -> str:
        return self.layer(name, "LRN", bottom, name, lrn_param={"local_size": 5, "alpha": 0.0001, "beta": 0.75})

    def fc(self, name: str, bottom: str, *, param: Params | None = None, **fields: Value) -> str:
        extra = {"param": param} if param else {}
        return self.layer(name, "InnerProduct", bottom, name, **extra, inner_product_param=fields)

    def batch_norm(self, name: str, scale: str, blob: str) -> str:
        """Add BatchNorm and Scale in place, as Caffe splits batch normalization."""
        self.layer(name, "BatchNorm", blob, blob)
        return self.layer(scale, "Scale", blob, blob, scale_param={"bias_term": True})

    def concat(self, name: str, bottoms: list[str]) -> str:
        return self.layer(name, "Concat", bottoms, name)

    def add(self, name: str, bottoms: list[str]) -> str:
        return self.layer(name, "Eltwise", bottoms, name, eltwise_param={"operation": Word("SUM")})

    def loss(
        self, name: str, bottom: str, *, top: str | None = None, weight: float | None = None, **fields: Value
    ) -> str:
        extra: dict[str, Value] = {} if weight is None else {"loss_weight": weight}
        if fields:
            extra["loss_param"] = fields
        return self.layer(name, "SoftmaxWithLoss", [bottom, "label"], top or name, **extra)

    def accuracy(self, name: str, bottom: str, *, top: str | None = None, **fields: Value) -> str:
        extra = {"accuracy_param": fields} if fields else {}
        return self.layer(name, "Accuracy", [bottom, "label"], top or name, include={"phase": Word("TEST")}, **extra)

    def data(self, phase: str, source: str, batch: int, transform: dict[str, Value]) -> None:
        """Add images and labels of an LMDB, unless stage 'dummy' is on."""
        include = {"phase": Word(phase), "not_stage": "dummy"}
        source_fields: dict[str, Value] = {"source": source, "batch_size": batch, "backend": Word("LMDB")}
        self.layer(
            "data", "Data", [], ["data", "label"], include=include, transform_param=transform, data_param=source_fields
        )

    def dummy(
        self,
        phase: str,
        image: list[int],
        label: list[int],
        classes: int,
        when: dict[str, str] | None = None,
        largest: float = 128,
    ) -> None:
        """Add noise images and random labels, for benchmarks and planning; by default in stage 'dummy'."""
        include = {"phase": Word(phase), **(when or {"stage": "dummy"})}
        shapes = [{"dim": image}, {"dim": label}]
        fill = [filler("uniform", min=-largest, max=largest), filler("uniform", min=0, max=classes)]
        self.layer(
            "data",
            "DummyData",
            [],
            ["data", "label"],
            include=include,
            dummy_data_param={"shape": shapes, "data_filler": fill},
        )

    def hdf5(self, phase: str, source: str, batch: int) -> None:
        """Add images and label maps of HDF5 files in stage 'hdf5'."""
        source_fields: dict[str, Value] = {"source": source, "batch_size": batch, "shuffle": phase == "TRAIN"}
        include = {"phase": Word(phase), "stage": "hdf5"}
        self.layer("data", "HDF5Data", [], ["data", "label"], include=include, hdf5_data_param=source_fields)

    def imagenet(self, crop: int, train: int, test: int, *, unit: bool = False) -> None:
        """Add ILSVRC 2012 from LMDBs at the paths of Caffe's scripts, or dummy data in stage "dummy"; `unit` divides
        values by about their standard deviation."""
        for phase, batch, name in (("TRAIN", train, "train"), ("TEST", test, "val")):
            transform: dict[str, Value] = {"scale": 0.017} if unit else {}
            transform |= {"mirror": phase == "TRAIN", "crop_size": crop, "mean_value": IMAGENET_MEAN}
            self.data(phase, f"examples/imagenet/ilsvrc12_{name}_lmdb", batch, transform)
        for phase, batch in (("TRAIN", train), ("TEST", test)):
            self.dummy(phase, [batch, 3, crop, crop], [batch], 1000, largest=2 if unit else 128)

    def imagenet_head(self, bottom: str) -> None:
        self.accuracy("accuracy/top-1", bottom)
        self.accuracy("accuracy/top-5", bottom, top_k=5)
        self.loss("loss", bottom)


@dataclass(frozen=True)
class NetFiles:
    """A net, its solver, and a solver that runs it on noise."""

    net: NetText
    solver: str
    solver_dummy: str
    names: ClassVar = ("train_val.prototxt", "solver.prototxt", "solver_dummy.prototxt")

    def texts(self) -> dict[str, str]:
        """The files by name."""
        return dict(zip(self.names, (str(self.net), self.solver, self.solver_dummy)))


def solver(notes: list[str], **fields: Value) -> str:
    """The text of a solver, with one field per line."""
    lines = [*(f"# {note}" for note in notes), *(text for key, value in fields.items() for text in field(key, value))]
    return "\n".join(lines) + "\n"


def dummy_solver(prefix: str, *, stage: str | None = "dummy", **fields: Value) -> str:
    """A solver that runs the net in the same folder on noise for a few steps, without tests and snapshots."""
    state = {"train_state": {"stage": stage}} if stage else {}
    notes = ["Runs the same net on noise, without a data set: to measure it, never to learn."]
    return solver(
        notes,
        net="train_val.prototxt",
        **state,
        display=1,
        max_iter=20,
        **fields,
        random_seed=1,
        snapshot_after_train=False,
        snapshot_prefix=prefix,
    )
