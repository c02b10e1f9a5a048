"""Input layers: their tops come from outside the net, from a data set or from the caller.

AnnotatedData                y0 images, y1 [1, 1, R, 8] their boxes, read from a database: a row is (item, label,
                             instance, left, top, right, bottom, difficult), and -1 in all numbers where it holds no box
Data ImageData HDF5Data      y{i} read from files (layermem/data); a label goes with its image
MemoryData DummyData Input   y{i} of the shapes that the layer states (MemoryData with dim, a field of OpenCL Caffe, of
                             any rank)
WindowData                   y0 windows cut from images, y1 their labels
DetectionSizes               y0, the window and the size of each image in the batch, from the `name_size_file` of a
                             DetectionEvaluate
DenseImageData               y0 images, y1 [N, 1, H, W] the class of each pixel
InfogainMatrix               y0, the matrix in the `source` of an InfogainLoss, the same in every batch
memory                       tops cannot be recomputed (recompute_kind "never"): a plan keeps or offloads them;
                             nothing is stashed, and no gradient flows
source                       Caffe data_layer.cpp and its neighbours; annotated_data_layer.cpp of the SSD fork;
                             dense_image_data_layer.cpp of alexgkendall/caffe-segnet
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import MAX_COUNT, Layer, Message, Step, Tensor, roles
from layermem.proto.blobs import read_blob
from layermem.proto.read import resolve_path
from layermem.proto.schema import enum_name
from layermem.utils.open_file import Files

ROWS_OF_ITEM = 8  # boxes that AnnotatedData plans for each image if its database does not exist
WINDOW_CHANNELS = 3  # BVLC reads windows of colour images only

Shapes = Sequence[Sequence[int]]
Probe = Callable[[Message, int, str, Files], Shapes]  # (LayerParameter, phase, path, files) -> shapes of its tops


class FeedLayer(Layer):
    """Tops of known shapes, which the runtime fills before each step."""

    record: ops.Feed
    bottom_range = (0, 0)
    top_range = (1, None)
    recompute_kind = "never"
    family = "input"
    param_block: ClassVar[str] = ""  # the field with batch size and source, for tops that are read from files
    is_given: ClassVar[bool] = False  # a program gives its data
    has_labels: ClassVar[bool] = False  # the shape of the second top follows from that of the first
    may_be_bytes: ClassVar[bool] = False  # images may reach the device as bytes
    is_transformed: ClassVar[bool] = False  # transform_param takes effect
    label_form: ClassVar[str] = "N"  # shape of the second top, as users write it
    shape_hint: ClassVar[str] = ""  # further ways to state shapes, for errors
    form: ClassVar[str] = ""  # an example of the parameters that state shapes, for errors

    def __init__(self, param: Message, phase: int, shapes: Shapes, path: str = "", files: Files | None = None):
        self.type = param.type
        self.shapes = [tuple(int(d) for d in shape) for shape in shapes]
        self.path, self.files = path, files or Files()
        super().__init__(param, phase, ())

    def setup(self) -> None:
        self.tops = tuple(Tensor(shape) for shape in self.shapes)
        self.record = ops.Feed(self.name, len(self.tops), *self._images())
        for top in self.tops:
            if any(d <= 0 for d in top.shape) or top.count > MAX_COUNT:
                raise InputError(f"has a top of shape {top}; every dimension must be positive, at most 2^31-1 in all")

    def _images(self) -> tuple[Tensor | None, Tensor | None]:
        """The first top if batches of it may be images in bytes, else None, and the shape of the mean image.  A mean
        file that is absent, or is no such image, is subtracted where the data are read."""
        name, top = self.param.transform_param.mean_file, self.tops[0]
        if not self.may_be_bytes or len(top.shape) != 4:
            return None, None
        if not name:
            return top, None
        try:
            mean = read_blob(resolve_path(name, self.path), self.files.read_bytes)
        except InputError:
            return None, None
        shape = mean.shape[1:] if mean.ndim == 4 else mean.shape
        return (top, Tensor(shape)) if len(shape) == 3 else (None, None)

    def forward(self) -> Step:
        return Step("forward", (), roles("y", len(self.tops)))

    @classmethod
    def set_batch(cls, param: Message, batch: int) -> None:
        """Write the batch size into `param`."""
        if cls.param_block:
            getattr(param, cls.param_block).batch_size = batch

    @classmethod
    def stated_batch(cls, param: Message) -> int:
        """The batch size that a layer of files, or DummyData, states; 0 for other types."""
        return int(getattr(param, cls.param_block).batch_size) if cls.param_block else 0

    @classmethod
    def shapes_in(cls, param: Message) -> list[tuple[int, ...]]:
        """The shapes that `param` states, one for each top or one for all."""
        return []

    @classmethod
    def image_in(cls, param: Message) -> tuple[int, int, int]:
        """Channels, height and width of the images of a layer that reads files, by its prototxt alone; 0 for those that
        it does not state."""
        return 0, 0, 0

    @classmethod
    def labels_in(cls, images: Sequence[int]) -> tuple[int, ...]:
        """The shape of the second top of a layer of files, beside `images` in the first."""
        return (images[0],)

    @classmethod
    def set_shapes(cls, param: Message, shapes: Shapes, given: Collection[str]) -> None:
        """Write shapes into `param`, from which the data source reads them; `given` are the tops whose shapes the user
        states."""


FEED_LAYERS: dict[str, type[FeedLayer]] = {}  # by Caffe's name


def feed(cls: type[FeedLayer]) -> type[FeedLayer]:
    cls.type = cls.__name__
    FEED_LAYERS[cls.type] = cls
    return cls


def _channels_in(transform: Message) -> int:
    """The number of channels of a database's images, 0 if unknown; a single mean value fits any number."""
    means = len(transform.mean_value) if len(transform.mean_value) > 1 else 0
    return 3 if transform.force_color else 1 if transform.force_gray else means


@feed
class AnnotatedData(FeedLayer):
    param_block = "data_param"
    is_transformed = True
    label_form = "1,1,R,8"

    @classmethod
    def image_in(cls, param: Message) -> tuple[int, int, int]:
        size = stated_size(param.transform_param)
        return (_channels_in(param.transform_param), *(size or (0, 0)))

    @classmethod
    def labels_in(cls, images: Sequence[int]) -> tuple[int, ...]:
        return (1, 1, images[0] * ROWS_OF_ITEM, 8)


@feed
class Data(FeedLayer):
    param_block = "data_param"
    has_labels = may_be_bytes = is_transformed = True
    shape_hint = ", or set crop_size with force_color, force_gray or a mean_value for each channel"

    @classmethod
    def image_in(cls, param: Message) -> tuple[int, int, int]:
        crop = param.transform_param.crop_size
        return _channels_in(param.transform_param), crop, crop


@feed
class ImageData(FeedLayer):
    param_block = "image_data_param"
    has_labels = may_be_bytes = is_transformed = True

    @classmethod
    def image_in(cls, param: Message) -> tuple[int, int, int]:
        p, crop = getattr(param, cls.param_block), param.transform_param.crop_size
        return (3 if p.is_color else 1), crop or p.new_height, crop or p.new_width


@feed
class DenseImageData(ImageData):
    param_block = "dense_image_data_param"
    label_form = "N,1,H,W"

    @classmethod
    def labels_in(cls, images: Sequence[int]) -> tuple[int, ...]:
        return (images[0], 1, *images[2:])


@feed
class HDF5Data(FeedLayer):
    param_block = "hdf5_data_param"


@feed
class WindowData(FeedLayer):
    param_block = "window_data_param"
    has_labels = is_transformed = True

    @classmethod
    def image_in(cls, param: Message) -> tuple[int, int, int]:
        crop = param.transform_param.crop_size
        return WINDOW_CHANNELS, crop, crop


@feed
class MemoryData(FeedLayer):
    has_labels = is_given = True

    @classmethod
    def set_batch(cls, param: Message, batch: int) -> None:
        p = param.memory_data_param
        if p.dim:
            p.dim[0] = batch
        else:
            p.batch_size = batch

    @classmethod
    def shapes_in(cls, param: Message) -> list[tuple[int, ...]]:
        p = param.memory_data_param
        four = [field for field in ("batch_size", "channels", "height", "width") if p.HasField(field)]
        if p.dim:
            if four:
                raise InputError(f"states both dim and {four[0]} in its memory_data_param; keep dim")
            return [tuple(p.dim), (p.dim[0],)][: len(param.top)]
        if min(p.batch_size, p.channels, p.height, p.width) <= 0:
            raise InputError(
                "needs batch_size, channels, height and width; set each in memory_data_param to at least 1"
            )
        return [(p.batch_size, p.channels, p.height, p.width), (p.batch_size,)][: len(param.top)]


class StatedFeed(FeedLayer):
    """A layer whose parameters list a shape for each top."""

    @classmethod
    def set_batch(cls, param: Message, batch: int) -> None:
        for shape in getattr(param, cls.form).shape:
            if shape.dim:
                shape.dim[0] = batch

    @classmethod
    def shapes_in(cls, param: Message) -> list[tuple[int, ...]]:
        return [tuple(shape.dim) for shape in getattr(param, cls.form).shape]

    @classmethod
    def set_shapes(cls, param: Message, shapes: Shapes, given: Collection[str]) -> None:
        block = getattr(param, cls.form)
        del block.shape[:]
        for shape in shapes:
            block.shape.add(dim=shape)


@feed
class DummyData(StatedFeed):
    form = "dummy_data_param"

    @classmethod
    def set_batch(cls, param: Message, batch: int) -> None:
        super().set_batch(param, batch)
        if param.dummy_data_param.num:
            param.dummy_data_param.num[:] = [batch] * len(param.dummy_data_param.num)

    @classmethod
    def stated_batch(cls, param: Message) -> int:
        return next((shape[0] for shape in stated_shapes(param) if shape), 0)

    @classmethod
    def shapes_in(cls, param: Message) -> list[tuple[int, ...]]:
        p = param.dummy_data_param
        return super().shapes_in(param) or list(zip(p.num, p.channels, p.height, p.width))

    @classmethod
    def set_shapes(cls, param: Message, shapes: Shapes, given: Collection[str]) -> None:
        if any(top in given for top in param.top):
            param.dummy_data_param.ClearField("num")  # BVLC's older form states all four axes, one by one
            super().set_shapes(param, shapes, given)


@feed
class Input(StatedFeed):
    is_given = True
    form = "input_param"


class FileOfLayer(FeedLayer):
    """The contents of a file that another layer names (composite.py); Caffe has no such type."""

    form = "input_param"
    has_items = False

    @classmethod
    def shapes_in(cls, param: Message) -> list[tuple[int, ...]]:
        return [tuple(shape.dim) for shape in param.input_param.shape]


@feed
class InfogainMatrix(FileOfLayer):
    pass


@feed
class DetectionSizes(FileOfLayer):
    pass


FROM_FILES = {name: cls.param_block for name, cls in FEED_LAYERS.items() if cls.param_block}
MATRIX, SIZES = InfogainMatrix.__name__, DetectionSizes.__name__
FEEDS = set(FEED_LAYERS)


def make_feed_layer(
    param: Message,
    phase: int,
    *,
    path: str,
    batch: int | None,
    inputs: Mapping[str, tuple[int, ...]],
    probe: Probe | None,
    takes_inputs: bool = True,
    files: Files | None = None,
) -> FeedLayer:
    """The input layer of `param`; `batch` and `inputs` (NCHW by top name) replace the sizes that it states.

    `batch`, and the shapes of an Input or DummyData layer, are also written into `param`, from which the data source
    reads its size.
    takes_inputs   whether an error may advise to give `inputs`
    files          the open files of the net
    """
    files = files or Files()
    if batch is not None:
        set_batch(param, batch)
    known = _shapes_of_inputs(param, inputs)
    if known is not None:
        shapes: Shapes = known
    elif param.type not in FROM_FILES:
        shapes = stated_shapes(param, takes_inputs=takes_inputs)
    elif probe is None:
        raise InputError(f"reads files ({param.type}); give its shapes as `inputs`, or build the net by `layermem.Net`")
    else:
        shapes = probe(param, phase, path, files)
    shapes = [inputs.get(top, tuple(shape)) for top, shape in zip(param.top, shapes)]
    if not param.top:
        raise InputError("has no top; name at least one 'top:'")
    FEED_LAYERS[param.type].set_shapes(param, shapes, inputs)
    return FEED_LAYERS[param.type](param, phase, shapes, path, files)


COLOURS = 3  # channels of an image that has colours


def shape_options(param: Message, forms: Mapping[str, str] = MappingProxyType({})) -> str:
    """The command-line options that give the shapes of an input layer: an image, then a label for each, or boxes, with
    the numbers that `param` states; of a type that layermem does not have, those in `forms`, which the readers of its
    tops need."""
    cls, gray = FEED_LAYERS.get(param.type), ""
    if cls is not None:
        batch = cls.stated_batch(param) or "N"
        channels, *size = cls.image_in(param)
        if not channels and all(size):  # a line to copy: images of a stated size mostly have colours
            channels, gray = COLOURS, f" ({COLOURS} channels, or 1 of gray images)"
        known = {letter: number or letter for letter, number in zip("NCHW", (batch, channels, *size))}
        image, label = (",".join(str(known.get(n, n)) for n in f.split(",")) for f in ("N,C,H,W", cls.label_form))
        forms = {top: label if i else image for i, top in enumerate(param.top)}
    return " ".join(f"--input {top}={forms.get(top, '...')}" for top in param.top) + gray


def as_input(param: Message, inputs: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether `param`, of a type that layermem does not have, was made an Input layer: a source without bottoms
    whose tops all have a shape in `inputs`."""
    if param.bottom or not param.top or any(top not in inputs for top in param.top):
        return False
    param.type = "Input"
    return True


def has_shapes(param: Message, inputs: Mapping[str, tuple[int, ...]], *, stated: bool) -> bool:
    """Whether the shapes of an input layer are in `inputs` or, where `stated` ones count, in its parameters."""
    if _shapes_of_inputs(param, inputs) is not None:
        return True
    return stated and (param.type not in FROM_FILES or declared_shapes(param) is not None)


def _shapes_of_inputs(param: Message, inputs: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]] | None:
    """The shapes of all tops if `inputs` has them, without opening a file; a label goes with its images."""
    tops = list(param.top)
    if not tops or tops[0] not in inputs or not inputs[tops[0]]:
        return None
    batch = inputs[tops[0]][0]
    if FEED_LAYERS[param.type].has_labels and len(tops) == 2:
        inputs = {tops[1]: FEED_LAYERS[param.type].labels_in(inputs[tops[0]]), **inputs}
    if any(top not in inputs for top in tops):
        return None
    set_batch(param, batch)
    return [inputs[top] for top in tops]


def set_batch(param: Message, batch: int) -> None:
    """Set the batch size of an input layer of any type."""
    if not 1 <= batch <= MAX_COUNT:
        raise InputError(f"cannot take batches of {batch}; give a number from 1 to 2^31-1")
    FEED_LAYERS[param.type].set_batch(param, batch)


def stated_batch(param: Message) -> int:
    """The batch size that an input layer of files, or DummyData, states; 0 for other types."""
    return FEED_LAYERS[param.type].stated_batch(param) if param.type in FEED_LAYERS else 0


def declared_shapes(param: Message) -> tuple[tuple[int, ...], ...] | None:
    """Shapes of the tops of a layer of files by its prototxt alone; None if it does not state them completely."""
    cls = FEED_LAYERS[param.type]
    image = cls.image_in(param)
    if not all(image):
        return None
    images = (check_batch(param), *image)
    return (images, cls.labels_in(images))[: len(param.top)]


def check_batch(param: Message) -> int:
    """The batch size that a layer of files states; InputError if it states none."""
    batch = stated_batch(param)
    if batch < 1:
        raise InputError(f"has batch_size {batch}; set {FROM_FILES[param.type]} {{ batch_size }} to at least 1")
    return batch


def stated_size(transform: Message) -> tuple[int, int] | None:
    """Height and width of all images, by the resize_param of an AnnotatedData; None if they depend on the images."""
    resize = transform.resize_param
    if transform.crop_size and transform.HasField("resize_param"):
        raise InputError("has crop_size and resize_param; remove crop_size; batch_sampler cuts windows")
    if not (resize.height and resize.width):
        raise InputError("needs a resize_param with height and width in its transform_param")
    return None if enum_name(resize, "resize_mode") == "FIT_SMALL_SIZE" else (resize.height, resize.width)


def stated_shapes(param: Message, *, takes_inputs: bool = True) -> list[tuple[int, ...]]:
    """The shapes that the layer itself states: DummyData, Input, MemoryData."""
    cls, tops = FEED_LAYERS[param.type], len(param.top)
    stated = cls.shapes_in(param)
    if not cls.form:
        return stated
    if len(stated) == 1:
        stated = stated * tops
    if len(stated) != tops:
        options = f", or {shape_options(param)}" if param.type == "Input" and takes_inputs else ""
        form = f"{cls.form} {{ shape {{ dim: .. }} }}"
        raise InputError(
            f"states {len(stated)} shapes for {tops} tops; give one for each, or one for all, in {form}{options}"
        )
    return stated
