"""Update rules: one kernel each; rate and iteration are packed before every launch, other settings before the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import sqrt
from typing import Any

from layermem.backends.cuda.launch import Addresses, Later, Launch, ceil_div, kernel, launch

RULES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")


def rule(name: str) -> Callable[[Any, Addresses], Iterator[Launch]]:
    """The launches of one rule."""

    def launches(parameter: Any, b: Addresses) -> Iterator[Launch]:
        yield update(name, parameter, parameter.tensor.count, b)

    return launches


def update(name: str, parameter: Any, count: int, b: Addresses) -> Launch:
    """The update of `count` elements of `parameter` by rule `name`."""
    return launch(
        "update", f"update_{name.lower()}", "UpdateArgs", ceil_div(count, 1024), w=b["w0"], dw=b["dw0"],
        h0=b["h0"], h1=b["h1"], norm=b["norm"], count=count,
        l1=Later(lambda c: int(c["regularization"] == "L1"), once=True),
        clip=Later(lambda c: c["clip"], once=True), part=Later(lambda c: 1 / c["iter_size"], once=True),
        decay=Later(lambda c: c["weight_decay"] * parameter.decay_mult, once=True),
        momentum=setting("momentum"), momentum2=setting("momentum2"), delta=setting("delta"),
        rms_decay=setting("rms_decay"), rate=Later(lambda c: c["rate"] * parameter.lr_mult),
        correction=Later(adam_correction) if name == "Adam" else 1.0,
    )  # fmt: skip


def setting(name: str) -> Later:
    return Later(lambda context: context[name], once=True)


def adam_correction(context: Mapping[str, Any]) -> float:
    t = context["iteration"] + 1
    return sqrt(1 - context["momentum2"] ** t) / (1 - context["momentum"] ** t)


for _name in RULES:
    kernel(f"{_name}.update")(rule(_name))
