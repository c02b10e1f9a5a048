"""A growing random net: its blobs with their shapes, and layers that are added if the net accepts them."""

from __future__ import annotations

import random

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.layers import LAYERS
from layermem.proto.read import read_net_text
from layermem.proto.schema import PHASES

Shape = tuple[int, ...]
MAX_ELEMENTS = 60_000  # elements of a blob
ITEM_BY_ITEM = 0.5  # fraction of nets that keep the items of a batch separate, so that they can run in slices
MIXING = {"BatchNorm", "BN", "BatchReindex", "LSTM", "RNN", "Parameter"}
FILLERS = (
    'type: "xavier"',
    'type: "msra"',
    'type: "gaussian" std: 0.2',
    'type: "uniform" min: -0.3 max: 0.3',
    'type: "constant" value: 0.1',
    'type: "positive_unitball"',
)


class NetWriter:
    """A growing net: `blobs` are its names and shapes in order, `unread` those that no layer reads yet.

    item_by_item   whether layers that mix the items of a batch are left out, as far as this class can tell
    """

    def __init__(self, rng: random.Random, item_by_item: bool = False):
        self.rng = rng
        self.layers: list[str] = []
        self.blobs: dict[str, Shape] = {}
        self.unread: dict[str, None] = {}
        self.learned: dict[str, None] = {}  # blobs that depend on a parameter
        self.shared: dict[tuple[object, ...], str] = {}  # properties that must agree -> names of parameters
        self.item_by_item = self.chance(ITEM_BY_ITEM) or item_by_item
        self.batch = 0

    @property
    def text(self) -> str:
        return "\n".join(self.layers) + "\n"

    def pick(self, *ranks: int) -> str:
        """A blob with one of these numbers of axes (at least one), mostly a late one; LookupError if there is none."""
        fitting = [name for name, shape in self.blobs.items() if len(shape) in (ranks or range(1, 9))]
        if not fitting:
            raise LookupError
        return fitting[-1 - int(len(fitting) * self.rng.random() ** 3)]

    def like(self, name: str) -> list[str]:
        """The names of all blobs of the same shape."""
        return [other for other, shape in self.blobs.items() if shape == self.blobs[name]]

    def filler(self, name: str = "weight_filler") -> str:
        return f"{name} {{ {self.rng.choice(FILLERS)} }}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def add(
        self, kind: str, bottoms: list[str], settings: str = "", tops: int = 1, in_place: bool = False
    ) -> list[str]:
        """Add a layer and return its tops; LookupError if the net refuses it."""
        name = f"{kind.lower()}{len(self.layers)}"
        names = bottoms[:1] if in_place else [name if i == 0 else f"{name}_{i}" for i in range(tops)]
        wiring = "".join(f' bottom: "{b}"' for b in bottoms) + "".join(f' top: "{t}"' for t in names)
        line = f'layer {{ name: "{name}" type: "{kind}"{wiring} {settings} }}'
        phase = "TEST" if "phase: TEST" in settings else "TRAIN"
        try:
            net = Net(read_net_text(self.text + line), PHASES[phase])
        except InputError:
            raise LookupError from None
        layer = net.layers[-1]
        shapes = [net.blobs[top].shape for top in layer.tops]
        if any(net.blobs[top].count > MAX_ELEMENTS for node in layer.nodes for top in node.tops):
            raise LookupError
        if self.item_by_item and (kind in MIXING or any(shape and shape[0] != self.batch for shape in shapes)):
            raise LookupError
        self.layers.append(line)
        if phase == "TEST":
            return names
        learned = bool(layer.params) or any(b in self.learned for b in bottoms)
        for bottom in bottoms:
            self.unread.pop(bottom, None)
        for top, shape in zip(names, shapes):
            self.blobs.pop(top, None)
            self.blobs[top] = shape
            self.unread[top] = None
            if learned:
                self.learned[top] = None
        return names

    def maybe_in_place(self, kind: str, bottom: str, settings: str = "") -> list[str]:
        return self.add(kind, [bottom], settings, in_place=LAYERS[kind].inplace and self.chance(0.5))

    def params(self, key: tuple[object, ...], count: int) -> str:
        """Return `param` blocks: often none; else factors, frozen parameters, or parameters shared with an equal
        layer."""
        choice = self.rng.random()
        if choice < 0.5:
            return ""
        if choice < 0.7:
            names = self.shared.setdefault(key, f"shared{len(self.shared)}")
            return " ".join(f'param {{ name: "{names}_{i}" }}' for i in range(count))
        factors = [self.rng.choice(("0", "1", "2", "0.5")) for _ in range(count)]
        return " ".join(f"param {{ lr_mult: {f} decay_mult: {self.rng.choice('012')} }}" for f in factors)
