"""The naive kernels of cuda/check.cu on arrays of the host, in Caffe's axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from layermem.backends.cuda.checks import check
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.narrow import narrowed, widened
from layermem.ops import NARROW, ConvProblem
from tests.backends.cuda.harness import CONTEXT, Memory, Way
from tests.emulator import emulate

Bind = Callable[[Mapping[str, int]], Iterable[Launch]]


def run(buffers: Mapping[str, np.ndarray], bind: Bind, way: Way) -> None:
    """The launches that `bind` makes of the addresses of these."""
    host = {role: array.ctypes.data for role, array in buffers.items()}
    for launch in bind(way.gpu.placed(buffers) if way.gpu else host):
        if way.gpu:
            way.gpu.launch(launch, CONTEXT)
            continue
        kernels = emulate.load(f"cuda/{launch.module}.cu", way.mode, order=way.order, copies=way.copies)
        kernels.launch(launch.function, launch.grid, launch.block, launch.args, buffers=[*buffers.values()])
    if way.gpu:
        way.gpu.bring_back()


def whole_numbers(count: int, seed: int, way: Way, word: str = "") -> np.ndarray:
    """Floats, or bits of the type `word`."""
    memory, dtype = Memory(), np.dtype(np.uint16 if word else np.float32)
    y = memory.bytes(count * dtype.itemsize).view(dtype)
    run({"y": y}, lambda at: [check.draw_whole_numbers(at["y"], count, seed, word)], way)
    memory.check()
    return y


def product(
    name: str, problem: ConvProblem, operands: Mapping[str, np.ndarray], word: str, way: Way, every: int = 1
) -> np.ndarray:
    """What the naive kernel of "fprop", "dgrad" or "wgrad" leaves, in the order of memory.  operands: in Caffe's axes,
    the one that is written with what is in it before."""
    memory, nbytes = Memory(), check.naive_wgrad_workspace_bytes(problem)
    buffers = {role: memory.stored(array, array.dtype) for role, array in operands.items()}
    buffers |= {"workspace": memory.bytes(nbytes)} if nbytes else {}

    def bind(at: Mapping[str, int]) -> Iterable[Launch]:
        maps, image, weights = (at[role] for role in ("maps", "image", "filter"))
        if name == "fprop":
            return [check.naive_fprop(problem, maps, image, weights, storage=word, every=every)]
        if name == "dgrad":
            return [check.naive_dgrad(problem, image, maps, weights, storage=word, every=every)]
        return check.naive_wgrad(problem, weights, maps, image, at.get("workspace", 0), storage=word, every=every)

    run(buffers, bind, way)
    memory.check()
    return buffers[{"fprop": "maps", "dgrad": "image", "wgrad": "filter"}[name]]


def differences(got: np.ndarray, wanted: np.ndarray, way: Way, every: int = 1) -> check.Differences:
    memory = Memory()
    found = memory.bytes(check.found_bytes(got.size, every)).view(np.uint32)
    run(
        {"found": found, "got": got, "wanted": wanted},
        lambda at: [check.compare(at["found"], at["got"], at["wanted"], got.size, got.itemsize, every=every)],
        way,
    )
    memory.check()
    return check.differences(found)


def stated(name: str, problem: ConvProblem, maps: np.ndarray, image: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """The same in double precision, tap by tap; arrays in the order of memory."""
    (pad_h, pad_w), (stride_h, stride_w) = problem.pad, problem.stride
    channels, outputs = problem.c // problem.groups, problem.k // problem.groups
    padded = np.pad(image, ((0, 0), (pad_h, pad_h), (pad_w, pad_w), (0, 0)))
    sums = {"fprop": np.zeros_like(maps), "dgrad": np.zeros_like(padded), "wgrad": np.zeros_like(filters)}
    for r, s, group in np.ndindex(*problem.kernel, problem.groups):
        down, right = r * problem.dilation[0], s * problem.dilation[1]
        rows = slice(down, down + stride_h * (problem.out_h - 1) + 1, stride_h)
        columns = slice(right, right + stride_w * (problem.out_w - 1) + 1, stride_w)
        c, k = (slice(group * each, (group + 1) * each) for each in (channels, outputs))
        x, y, w = padded[:, rows, columns, c], maps[..., k], filters[k, r, s]
        sums["fprop"][..., k] += np.einsum("nhwc,kc->nhwk", x, w)
        sums["dgrad"][:, rows, columns, c] += np.einsum("nhwk,kc->nhwc", y, w)
        sums["wgrad"][k, r, s] += np.einsum("nhwk,nhwc->kc", y, x)
    sums["dgrad"] = sums["dgrad"][:, pad_h : pad_h + problem.h, pad_w : pad_w + problem.w]
    return sums[name]


def product_and_sums(name: str, problem: ConvProblem, word: str, way: Way) -> tuple[np.ndarray, np.ndarray]:
    """What product() leaves of whole numbers, widened, and what stated() does, rounded alike."""
    each = {"maps": problem.maps, "image": problem.image, "filter": problem.filter}
    words = {"maps": word, "image": word, "filter": ""}
    operands = {
        role: whole_numbers(tensor.count, seed, way, words[role]).reshape(tensor.shape)
        for seed, (role, tensor) in enumerate(each.items())
    }
    dtype, writes_weights = NARROW.get(word, "float32"), name == "wgrad"
    got = product(name, problem, operands, word, way)
    floats = (widened(array, dtype) if array.dtype == np.uint16 else array for array in operands.values())
    sums = stated(name, problem, *(np.float64(array.transpose(0, 2, 3, 1)) for array in floats))
    if not word or writes_weights:
        return got, np.float32(sums)
    return widened(got, dtype), widened(narrowed(np.float32(sums), dtype), dtype)
