"""Host I/O: copies input batches to the device and outputs back, through pinned staging buffers.

Blobs are NCHW on the host, as in Caffe, and channels-last on the device.  If the order differs, the transposing kernel
reads or writes the pinned buffer itself, so it is also the copy over the link.  Images that are stored in bytes are
copied in bytes, and transformed on the GPU (images.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from layermem.backends.base import Bound
from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.copy import reorder
from layermem.backends.cuda.driver.context import Array, Driver, Event
from layermem.backends.cuda.driver.memory import DeviceSpan
from layermem.backends.cuda.images import INT, ImageBlock, transform_images
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.registry import StepContext
from layermem.errors import InputError
from layermem.ops import ByteImages, Feed, Tensor
from layermem.schedule.ir import COMPUTE, H2D

NEVER = -1
HostArray = Array | ByteImages  # one blob of a batch
BindLaunches = Callable[[Iterable[Launch], StepContext], Bound]


class HostIO:
    """The inputs and outputs of one device, on its compute stream.

    bind_launches   turns launches into a call
    buffer_index    which of the two pinned buffers of each input the current step reads
    """

    def __init__(self, driver: Driver, bind_launches: BindLaunches):
        self.driver, self.bind_launches = driver, bind_launches
        self.buffer_index = 0
        self.runs = 0  # number of runs so far that used the arena
        self._pending_outputs: list[tuple[dict[str, Array], str, Array]] = []
        self._new_stagers: list[InputStager] = []

    def feed(
        self, record: Feed, tops: Sequence[DeviceSpan], workspace: DeviceSpan | None, context: StepContext
    ) -> Bound:
        """Return a call that copies this step's batch of an input layer to its tops."""
        stager = InputStager(self, record, tops, workspace, context)
        self._new_stagers.append(stager)
        return stager.run

    def take_new_stagers(self) -> list[InputStager]:
        """The stagers made since the last call."""
        stagers, self._new_stagers = self._new_stagers, []
        return stagers

    def copy_out(self, blob: str, span: DeviceSpan, context: StepContext) -> Bound:
        """Return a call that copies a blob to the host; `collect_outputs` adds it to the context's results."""
        staging = self.pinned(span)
        move = self.move(span, staging, context, inwards=False)

        def expect() -> None:
            self._pending_outputs.append((context["results"], blob, staging))

        def run() -> None:
            move()
            self.driver.on_host(expect)

        return run

    def collect_outputs(self) -> None:
        """Put the outputs of a completed run into its results."""
        for results, blob, staging in self._pending_outputs:
            results[blob] = staging.copy()
        self._pending_outputs.clear()

    def pinned(self, span: DeviceSpan) -> Array:
        """Pinned memory for a blob, with Caffe's axes."""
        return self.driver.pinned(span.nbytes).view(np.float32).reshape(span.blob.shape)

    def move(self, span: DeviceSpan, staging: Array, context: StepContext, *, inwards: bool) -> Bound:
        """Return a call that copies between a blob on the device and its staging buffer."""
        tensor = span.blob
        if not tensor.interleaved:  # memory is already in Caffe's order
            if inwards:
                return self.driver.copy_in(span.address, staging, COMPUTE)
            return self.driver.copy_out(staging, span.address, COMPUTE)
        host, plain = int(staging.ctypes.data), Tensor((tensor.count,))
        if inwards:
            return self.bind_launches(reorder(span.address, tensor, host, plain), context)
        return self.bind_launches(reorder(host, plain, span.address, tensor), context)


class InputStager:
    """Double buffering of an input layer: two sets of pinned buffers, and the copies from each to the tops.

    A batch has floats, or images in bytes; buffers of either form are made for the first batch that has it.
    workspace   workspace of the layer's op, for images in bytes
    """

    def __init__(
        self,
        host_io: HostIO,
        record: Feed,
        tops: Sequence[DeviceSpan],
        workspace: DeviceSpan | None,
        context: StepContext,
    ):
        self.host_io, self.layer, self.context = host_io, record.layer, context
        self._record, self._tops, self._workspace = record, tops, workspace
        self._block = None if record.images is None else ImageBlock(record)
        self._forms: dict[bool, Sequence[_Staging]] = {}  # by whether images are in bytes; for both buffer indices
        self._staged: tuple[int, Sequence[HostArray]] | None = None  # buffer index and arrays of a batch staged early
        self._uploaded_in = NEVER  # the run that copied it to the GPU

    def run(self) -> None:
        batch = self.context["batch"][self.layer]
        form = self._in_bytes(batch)
        staging = self._staging(form, self.host_io.buffer_index)
        self.host_io.driver.on_host(lambda: self._fill(form))
        staging.move(is_uploaded=self._uploaded_in == self.host_io.runs - 1)

    def stage(self, arrays: Sequence[HostArray], buffer_index: int) -> None:
        """Copy a batch to the buffers `buffer_index`, which no pending copy reads."""
        self._staging(self._in_bytes(arrays), buffer_index).fill(arrays)
        self._staged, self._uploaded_in = (buffer_index, arrays), NEVER

    def upload(self, free: Mapping[str, Event]) -> None:
        """Copy the batch that was staged last to the GPU, if it is in bytes, once the events `free` have occurred.  The
        next run uses it there, unless another run in between may have overwritten it."""
        assert self._staged is not None
        index, arrays = self._staged
        if self._in_bytes(arrays):
            self.host_io.driver.wait(H2D, free)
            self._staging(True, index).upload()
            self._uploaded_in = self.host_io.runs

    def _in_bytes(self, arrays: Sequence[HostArray]) -> bool:
        return self._block is not None and self._block.takes(arrays[0])

    def _staging(self, form: bool, buffer_index: int) -> _Staging:
        if form not in self._forms:
            self._forms[form] = [_Staging(self._buffers(form)) for _ in range(2)]
        return self._forms[form][buffer_index]

    def _buffers(self, in_bytes: bool) -> Iterator[_Buffer]:
        plain = self._tops
        if in_bytes and self._workspace is not None:
            first, *plain = self._tops
            yield image_buffer(self.host_io, self._record, first, self._workspace, self.context)
        for top in plain:
            buffer = self.host_io.pinned(top)
            yield _Buffer(partial(_copy, buffer), self.host_io.move(top, buffer, self.context, inwards=True))

    def _fill(self, form: bool) -> None:
        """Copy the context's batch to the buffers of this step, unless it was staged before."""
        batch, index = self.context["batch"][self.layer], self.host_io.buffer_index
        if self._in_bytes(batch) != form:  # after a capture
            what = "has images in bytes in some batches and numbers in others; leave --cuda-graph out"
            raise InputError(what, layer=self.layer)
        staged, self._staged = self._staged, None
        if staged is None or staged[0] != index or any(a is not b for a, b in zip(staged[1], batch, strict=True)):
            self.stage(batch, index)
            self._staged = None


class _Buffer(NamedTuple):
    """A pinned buffer: the function that fills it from an array, and the calls that move it to its top: first `upload`,
    if there is one, then `move`.

    upload   runs on the stream that it is given; None if `move` does everything
    """

    fill: Callable[[HostArray], None]
    move: Bound
    upload: Callable[[str], None] | None = None


def _copy(buffer: Array, array: HostArray) -> None:
    buffer[...] = array


class _Staging:
    """The buffers of all tops."""

    def __init__(self, buffers: Iterable[_Buffer]):
        self._buffers = [*buffers]

    def fill(self, arrays: Sequence[HostArray]) -> None:
        for buffer, array in zip(self._buffers, arrays, strict=True):
            buffer.fill(array)

    def upload(self, stream: str = H2D) -> None:
        """The copies that precede `move`, for a batch that was filled in."""
        for buffer in self._buffers:
            if buffer.upload is not None:
                buffer.upload(stream)

    def move(self, *, is_uploaded: bool) -> None:
        if not is_uploaded:
            self.upload(COMPUTE)
        for buffer in self._buffers:
            buffer.move()


def image_buffer(
    host_io: HostIO, record: Feed, top: DeviceSpan, workspace: DeviceSpan, context: StepContext
) -> _Buffer:
    """The buffer for images in bytes: one copy to the workspace, and the kernel that transforms them."""
    at = ImageBlock(record)
    items, shape = at.images.shape[0], at.images.shape
    block = host_io.driver.pinned(at.nbytes)
    pixels = block[at.pixels :][: at.images.count].reshape(shape)
    settings = block[at.settings :][: FLOAT * (1 + prod(at.mean))].view(np.float32)
    corners = block[at.corners :][: INT * 2 * items].view(np.int32).reshape(items, 2)
    mirrored = block[at.mirrored :][:items]
    uploads = {stream: host_io.driver.copy_in(workspace.address, block, stream) for stream in (COMPUTE, H2D)}
    transform = host_io.bind_launches([transform_images(record, top.address, workspace.address)], context)

    def fill(array: HostArray) -> None:
        assert isinstance(array, ByteImages)
        pixels[...], corners[...], mirrored[...] = array.pixels, array.corners, array.mirrored
        settings[0], settings[1:] = array.scale, array.mean.reshape(-1)

    return _Buffer(fill, transform, lambda stream: uploads[stream]())
