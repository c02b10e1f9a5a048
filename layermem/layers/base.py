"""The base of all layers: shapes, parameters, and the ops of a training step with the operands they read and write.

A layer names operands by *role*; the training graph (graph/train.py) turns roles into named buffers:

    x0 x1 ..   bottoms          y0 y1 ..   tops            w0 w1 ..   parameters
    dx0 ..     and gradients     dy0 ..     gradients          dw0 ..     gradients
    any other name              a stash: what forward saves only for its backward

Planners read only these ops of a layer; backends read only its op records (layermem/ops).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy.typing as npt

from layermem.errors import InputError
from layermem.layers.fillers import check_filler
from layermem.ops.base import MAX_COUNT, OpRecord, Tensor, Window, roles
from layermem.proto.checks import MAX_AXES
from layermem.proto.forks import fork_of_type
from layermem.proto.schema import Message
from layermem.proto.upgrade import v2_type
from layermem.utils.similar import did_you_mean

CAFFE_VALUE_BYTES = 4  # of a value, an index or an element of a mask in Caffe
MULTIPLIERS = ("lr_mult", "decay_mult")  # fields of the `param { }` block of a parameter


@dataclass(frozen=True)
class Param:
    """A learnable blob of a layer.

    shape    Caffe's, for users and files
    tensor   for kernels: the same numbers in the same NCHW order, so that an InnerProduct over a 4-D bottom may have
             shape (K, C*H*W) and tensor (K, C, H, W)
    """

    shape: tuple[int, ...]
    filler: Message  # FillerParameter
    tensor: Tensor
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    name: str = ""  # layers that give the same name share the parameter
    permissive: bool = False  # shared with another shape of the same count
    stated: frozenset[str] = frozenset()  # the multipliers, lr_mult or decay_mult, that the layer states
    learned: bool = True  # False: changed by forward only (BatchNorm's running averages)
    initial: npt.NDArray[Any] | None = field(default=None, compare=False, repr=False)  # replaces the filler's values
    carried: bool = False  # state passed from step to step: zero at first, in no weight file


@dataclass(frozen=True)
class Overlay:
    """Permission to write `out` over the bytes of `over`: the kernel reads each element before it writes it.

    kind   inplace    the user named one blob for both (and the gradients that follow from it)
           forward    an output over an input that no later op reads
           gradient   a gradient over the gradient it comes from
           intra      a gradient over activation data (Layrub's intra-layer reuse)
    """

    out: str
    over: str
    kind: str


Y_OVER_X = Overlay("y0", "x0", "forward")
DX_OVER_DY = Overlay("dx0", "dy0", "gradient")
DX_OVER_X = Overlay("dx0", "x0", "intra")


@dataclass(frozen=True)
class Step:
    """One op of a layer, in roles.  `reads` and `writes` are disjoint; `updates` are read and written."""

    step: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    updates: tuple[str, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    flops: int = 0
    record: OpRecord | None = None  # None: the record of the layer


class Layer:
    """Base of all layers: `setup` runs once, and nothing changes after it.

    `setup` must set `tops` and `record`, the typed op that its steps run; it may set `params` and `stash`.
    """

    type: str = ""  # Caffe's name
    bottom_range: ClassVar[tuple[int, int | None]] = (1, 1)  # smallest and largest count
    top_range: ClassVar[tuple[int, int | None]] = (1, 1)
    recompute_kind: str = "exact"  # exact, seeded (counter-based random numbers) or never (data)
    inplace: ClassVar[bool] = False  # may a top carry the name of its bottom?
    is_loss: ClassVar[bool] = False  # the first top has loss weight 1 unless the net states another
    has_gradient: ClassVar[bool] = True  # False: nothing flows back through it
    bottom_forms: ClassVar[tuple[str, ...]] = ()  # shapes of bottoms as users write them, for errors; "" for any
    unread: InputError | None = None  # about fields without which data cannot be read (proto/unread.py)
    has_items: ClassVar[bool] = True  # without bottoms: whether axis 0 of its tops is the batch
    moves_values: ClassVar[bool] = False  # its tops hold values of its bottoms
    gives_probabilities: ClassVar[bool] = False
    family: ClassVar[str] = "other"  # its hue in pictures; losses and scores have one of their own (known_types.py)
    window_block: ClassVar[str] = ""  # the field with kernel, stride and pad of its windows

    # The behaviour of BVLC Caffe, where a blob is one array (graph/inplace_hazards.py, graph/caffe_bytes.py).
    caffe_reads: str = ""  # arrays of bottoms (x) and tops (y) that backward reads, other than copies
    reads_x_for_weights: ClassVar[bool] = False  # backward reads x for the gradient of weights only
    right_in_place: ClassVar[bool] = False  # whether its gradient is right when it works in place
    keeps_signs: ClassVar[bool] = False  # harmless in place after a ReLU, whose backward reads only signs
    shares_data: bool = False  # its top is the array of its bottom
    shares_diff: bool = False  # its gradients share one array too
    in_caffe: ClassVar[bool] = True  # False: a part that Caffe's unrolled net does not have

    # Its treatment in a deploy form (graph/deploy.py).
    deploys_as: ClassVar[str] = ""  # for a loss over scores: the type of layer that replaces it
    takes_truth: ClassVar[bool] = False  # removed like a loss: it reads labels, or has no consumer
    is_score: ClassVar[bool] = False  # scores outputs against the truth: the higher the better
    compares_classes: ClassVar[bool] = False  # reads scores of classes and labels
    compared_bottoms: ClassVar[int] = 1  # number of leading bottoms that hold no truth

    def __init__(self, param: Message, phase: int, bottoms: Sequence[Tensor]):
        self.param = param
        self.name: str = param.name
        self.phase = phase  # 0 TRAIN, 1 TEST
        self.bottoms = tuple(bottoms)
        self.tops: tuple[Tensor, ...] = ()
        self.params: tuple[Param, ...] = ()
        self.stash: dict[str, Tensor] = {}
        self.record: OpRecord
        self._check_counts()
        self.setup()
        tops: tuple[Tensor, ...] = self.tops
        for top in tops:
            if len(top.shape) > MAX_AXES:
                raise InputError(f"has a top of {len(top.shape)} axes, and a blob has at most {MAX_AXES}; use fewer")
            if top.count > MAX_COUNT:
                raise InputError(f"has a top of {top} elements, more than 2^31-1; use a smaller batch or image")
            if any(d < 0 for d in top.shape):
                raise InputError(f"has a top of impossible shape {top}; change its sizes, or those of its bottoms")

    @property
    def bottom_names(self) -> tuple[str, ...]:
        return tuple(self.param.bottom)

    @property
    def top_names(self) -> tuple[str, ...]:
        return tuple(self.param.top)

    def setup(self) -> None:
        raise NotImplementedError

    def forward(self) -> Step:
        raise NotImplementedError

    def recompute(self) -> Step | None:
        """Return the forward step as it runs a second time, from the same inputs; None if it cannot."""
        return None if self.recompute_kind == "never" else self.forward()

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        """The ops that write the gradients in `wants` (roles dx*, dw*), in the order in which they run.

        saved   roles that the backward of other ops keeps in any case; a layer may read them instead of a stash
        """
        return ()

    @property
    def works_in_place(self) -> bool:
        return self.bottom_names[:1] == self.top_names[:1] != ()

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes that Caffe's layer keeps between forward and backward: values, indices and masks of 32 bits."""
        return 0

    def index_limit(self, bottom: int) -> int | None:
        """The exclusive upper limit of the indices in a bottom (labels: the classes); None for other bottoms."""
        return None

    def truth_labels(self, bottom: int) -> tuple[int, ...] | None:
        """The range of labels in a bottom of true boxes (layers/detection.py); None for other bottoms."""
        return None

    # -- helpers for setup ---------------------------------------------------------------------------------

    def _check_counts(self) -> None:
        for kind, names, (low, high) in (
            ("bottom", self.param.bottom, self.bottom_range),
            ("top", self.param.top, self.top_range),
        ):
            if len(names) < low or (high is not None and len(names) > high):
                counts = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
                raise InputError(
                    f"has {len(names)} {kind}{'s' * (len(names) != 1)}; {self.type} takes {counts}: "
                    f"add or remove '{kind}:' lines"
                )

    def make_param(
        self, index: int, shape: Iterable[int], filler: Message, *, stored: Iterable[int] | None = None
    ) -> Param:
        """Parameter `index` with the multipliers of its `param { }` block, if the layer has one."""
        check_filler(filler)
        shape = tuple(shape)
        tensor = Tensor(tuple(stored) if stored is not None else shape)
        if tensor.count > MAX_COUNT or tensor.count <= 0:
            raise InputError(
                f"has a parameter of shape {tensor}; each dimension must be positive, at most 2^31-1 in all"
            )
        if index >= len(self.param.param):
            return Param(shape, filler, tensor)
        spec = self.param.param[index]
        for name in MULTIPLIERS:
            if not math.isfinite(getattr(spec, name)):
                raise InputError(f"has {name} {getattr(spec, name):g} of parameter {index}; use a finite number")
        stated = frozenset(name for name in MULTIPLIERS if spec.HasField(name))
        permissive = bool(spec.share_mode)
        return Param(shape, filler, tensor, spec.lr_mult, spec.decay_mult, spec.name, permissive, stated)

    def axis(self, index: int, tensor: Tensor | None = None) -> int:
        """A Caffe axis (negative counts from the end) as a non-negative one; the error names the valid range."""
        rank = len((tensor or self.bottoms[0]).shape)
        if not -rank <= index < rank:
            raise InputError(f"names axis {index}, but its bottom has {rank} axes: use {-rank} to {rank - 1}")
        return index % rank


LAYERS: dict[str, type[Layer]] = {}


def has_gradient(name: str) -> bool:
    """Whether a gradient flows back through a layer of this type, or through an op of several layers."""
    return name not in LAYERS or LAYERS[name].has_gradient


PARTS: set[str] = set()  # types that exist only as parts of other layers (composite.py); no net names them


def layer(name: str, *, part: bool = False) -> Callable[[type[Layer]], type[Layer]]:
    """Register a layer under Caffe's type name; `part`: it is one of PARTS."""

    def register(cls: type[Layer]) -> type[Layer]:
        cls.type = name
        LAYERS[name] = cls
        if part:
            PARTS.add(name)
        return cls

    return register


def make_layer(
    param: Message, phase: int, bottoms: Sequence[Tensor], *, more: Collection[str] = (), remedy: str = ""
) -> Layer:
    """The layer that `param` (LayerParameter) describes; InputError names the types that exist.

    more     other types that exist, those of input layers
    remedy   what else would work for a type that does not
    """
    if param.type not in LAYERS:
        what = f"has type '{param.type}', which layermem does not have"
        raise InputError(what + type_remedy(param.type, sorted({*LAYERS, *more} - PARTS), remedy))
    return LAYERS[param.type](param, phase, bottoms)


def type_remedy(name: str, types: Sequence[str], remedy: str = "") -> str:
    """Return the end of the error about an unknown type: its fork or the type that was probably meant, with `remedy`;
    or all types."""
    fork, hint = fork_of_type(name), _hint(name, types)
    if fork is not None and remedy:
        return f": it is from {fork}; {remedy}"
    if fork is None and hint:
        return f"; {hint}{f' or {remedy}' if remedy else ''}"
    origin = "; " if fork is None else f": it is from {fork}; "
    return f"{origin}{f'{remedy}; ' if remedy else ''}it has: {' '.join(types)}"


def _hint(name: str, types: Collection[str]) -> str:
    """ "did you mean 'SoftmaxWithLoss'?" for softmax_loss, SOFTMAX_LOSS or a misspelled name, or nothing."""
    today = v2_type(name.upper())
    return did_you_mean(today if today in types else name, types)


__all__ = [
    "CAFFE_VALUE_BYTES",
    "LAYERS", "MAX_COUNT", "MULTIPLIERS", "PARTS", "Layer", "Message", "Overlay", "Param", "Step", "Tensor", "Window",
    "has_gradient", "layer", "make_layer", "roles", "type_remedy",
]  # fmt: skip
