"""Images in bytes: the kernel's bits are those of the host's transform, on its own and in a training run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.backends.cuda.images import ImageBlock, feed_workspace_bytes, transform_images
from layermem.ops import ByteImages, Feed, Tensor
from tests.backends.cuda.harness import Memory, Way
from tests.backends.cuda.on_fake_driver import run
from tests.cases.records import BYTE_IMAGES
from tests.data.makers import write_mean
from tests.emulator import emulate, fake_driver
from tests.emulator.emulate import WAYS

DIGITS = "prototxt/digits/solver.prototxt"


def drawn(shape: tuple[int, ...], scale: float, is_image: bool, rng: np.random.Generator) -> ByteImages:
    n, c, h, w = shape
    pixels = rng.integers(0, 256, shape).astype(np.uint8)
    corners = rng.integers(0, 4, (n, 2)).astype(np.int32)
    mean = np.float32(rng.uniform(0, 255, (c, h + 3, w + 5) if is_image else (c, 1, 1)))
    return ByteImages(pixels, corners, rng.random(n) < 0.5, mean, scale)


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: way.mode)
@pytest.mark.parametrize("scale", [1.0, 0.017])
@pytest.mark.parametrize("is_image", [False, True], ids=["a mean for each channel", "a mean image"])
@pytest.mark.parametrize("shape", BYTE_IMAGES, ids=str)
def test_images_in_bytes_become_the_numbers_of_the_host(shape, is_image, scale, way, rng):
    images, memory = drawn(shape, scale, is_image, rng), Memory()
    op = Feed("data", 1, Tensor(shape), Tensor(images.mean.shape) if is_image else None)
    at = ImageBlock(op)
    assert at.takes(images) and not at.takes(np.asarray(images))
    block, y = memory.bytes(at.nbytes), memory.stored(np.zeros(shape), np.float32)
    y[...] = np.nan
    block[at.pixels :][: images.nbytes] = images.pixels.reshape(-1)
    block[at.settings :][: 4 + 4 * images.mean.size].view(np.float32)[...] = [scale, *images.mean.reshape(-1)]
    block[at.corners :][: 8 * shape[0]].view(np.int32)[...] = images.corners.reshape(-1)
    block[at.mirrored :][: shape[0]] = images.mirrored
    one = transform_images(op, y.ctypes.data, block.ctypes.data)
    emulate.load(f"cuda/{one.module}.cu", way.mode, order=way.order, copies=way.copies).launch(
        one.function, one.grid, one.block, one.args, one.shared, buffers=[block, y]
    )
    memory.check()
    want = np.asarray(images).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(y.view(np.uint32), np.ascontiguousarray(want).view(np.uint32))


def test_the_workspace_of_an_input_layer_holds_its_batch_in_bytes():
    images = Tensor((128, 3, 224, 224))
    nbytes = get_device("cuda").workspace_bytes(Feed("data", 2, images), "forward", ("y0", "y1"))
    assert images.count < nbytes == feed_workspace_bytes(Feed("data", 2, images)) < images.count + 2048
    assert get_device("cuda").workspace_bytes(Feed("data", 2), "forward", ("y0", "y1")) == 0


STAGED = """
import hashlib, json, sys
from layermem.backends.base import get_device
from layermem.backends.cuda.driver import host_io
from layermem.ops import ByteImages
from layermem.interactive.solver import Solver

graph, in_bytes, strategy = sys.argv[2:]
device = get_device("cuda", graph=bool(int(graph)))
device.takes_bytes = bool(int(in_bytes))
streams, upload = [], host_io._Staging.upload

def counted(self, stream="h2d"):
    if any(buffer.upload for buffer in self._buffers):
        streams.append(stream)
    upload(self, stream)

host_io._Staging.upload = counted
pinned, total = device.driver.pinned, []
device.driver.pinned = lambda nbytes: (total.append(nbytes), pinned(nbytes))[1]
with Solver(sys.argv[1], device=device, strategy=strategy, poison=not device.graph) as solver:
    losses = []
    for _ in range(5):
        solver.step(1)
        losses.append(float(solver.loss).hex())
    hashed = hashlib.sha256(b"".join(b.tobytes() for blobs in solver.parameters().values() for b in blobs))
    formed = isinstance(solver._engine.context["batch"]["data"][0], ByteImages)
print(json.dumps([losses, hashed.hexdigest(), formed, sum(total), streams]))
"""


def cropped(folder: Path, rng: np.random.Generator) -> Path:
    """A solver of the digits: windows of 6 x 6, mirrored, less those of a mean image."""
    write_mean(folder / "mean.binaryproto", rng.random((1, 8, 8)))
    net, digits = folder / "net.prototxt", Path(DIGITS).resolve().parent
    text = (digits / "train_val.prototxt").read_text().replace('source: "', f'source: "{digits}/')
    transform = 'scale: 0.0625 crop_size: 6 mirror: true mean_file: "mean.binaryproto"'
    net.write_text(text.replace("scale: 0.0625", transform))
    solver = folder / "solver.prototxt"
    solver.write_text(Path(DIGITS).read_text().replace('net: "train_val.prototxt"', f'net: "{net}"'))
    return solver


@pytest.mark.whole
@pytest.mark.samples(8)
@pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="PyCUDA is not installed")
@pytest.mark.parametrize("streams", ["random", "eager"])
@pytest.mark.parametrize("solver", ["cropped", DIGITS])
def test_a_net_learns_the_same_bits_from_images_in_bytes_and_in_numbers(solver, streams, tmp_path, rng):
    if solver == "cropped":
        solver = cropped(tmp_path, rng)
    ways = [("0", "0", "liveness"), ("0", "1", "liveness"), ("1", "1", "liveness"), ("0", "1", "hybrid")]
    answers = []
    for way in ways:
        done = run(STAGED, str(solver), *way, streams=streams)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert len({(*answer[0], answer[1]) for answer in answers}) == 1
    assert [answer[2] for answer in answers] == [False, True, True, True]
    assert answers[1][3] < answers[0][3]  # pinned bytes
    assert "h2d" not in answers[2][4] and not answers[0][4]
    for answer in (answers[1], answers[3]):  # the first batch, and those behind the test nets, go when a step begins
        assert answer[4].count("h2d") >= 4 and answer[4].count("compute") <= 3


UNAWAITED = STAGED.replace("streams, upload =", "device.driver.wait = lambda *events: None\nstreams, upload =")


@pytest.mark.whole
@pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="PyCUDA is not installed")
def test_a_batch_that_does_not_wait_for_its_bytes_shows():
    right, wrong = (run(program, DIGITS, "0", "1", "liveness", streams="random") for program in (STAGED, UNAWAITED))
    assert right.returncode == 0 and "device.driver.wait" in UNAWAITED
    assert "DivergenceError" in wrong.stderr or json.loads(wrong.stdout)[:2] != json.loads(right.stdout)[:2]
