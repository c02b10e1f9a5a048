"""Arguments of native kernels: read by position and keyword, or refused by name."""

import inspect

import numpy as np
import pytest

from layermem._native import cpu


@pytest.mark.parametrize("count", [3, np.int64(3), np.uint8(3), True])
def test_integers_of_every_kind_are_taken(count):
    assert cpu.item_loss_workspace_bytes(count, classes=5) == cpu.item_loss_workspace_bytes(int(count), 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cpu.Axis("4", 2), r"__init__: 'outer' must be int, but is '4'"),
        (lambda: cpu.Axis(4, 2.0), r"'size' must be int, but is 2.0"),
        (lambda: cpu.Axis(4), r"__init__ needs 'size': __init__\(self, outer: int, size: int, inner: int = 1\)"),
        (lambda: cpu.Axis(4, 2, outer=4), r"got 'outer' twice"),
        (lambda: cpu.Axis(4, 2, 1, 1), r"got arguments that it does not take"),
        (lambda: cpu.Axis(4, 2, depth=1), r"got arguments that it does not take"),
        (lambda: cpu.Axis(1 << 63, 2), r"'outer' must be int, but is 9223372036854775808"),
        (lambda: cpu.softmax_loss_workspace_bytes(4), r"'axis' must be layermem._native.cpu.Axis, but is 4"),
        (lambda: cpu.softmax_forward(cpu.Axis(1, 1), 0, 0), r"softmax_forward needs 'y'"),
        (lambda: cpu.softmax_forward(cpu.Axis(1, 1), y=-1, x=0), r"'y' must be int, but is -1"),
        (lambda: cpu.relu_forward(1, y=0, x=0, slope="a"), r"'slope' must be float, but is 'a'"),
        (lambda: cpu.eltwise_max(1, y=0, xs="ab"), r"'xs' must be collections.abc.Sequence\[int\], but is 'ab'"),
        (lambda: cpu.eltwise_max(1, y=0, xs=[None]), r"'xs' must be"),
        (lambda: cpu.dropout(1, out=0, x=0, ratio=0.5, seed=0, stream=1 << 32), r"'stream' must be int, but is"),
        (lambda: cpu.update(7, 1, w=0, dw=0, h0=0), r"update: 'rule' must be str, but is 7"),
    ],
)
def test_others_are_refused_by_name(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_errors_of_the_kernels_are_value_errors():
    with pytest.raises(ValueError, match="must"):
        cpu.Axis(-1, 2)


@pytest.mark.parametrize("pair", [(3, 3), [3, 3], np.array([3, 3])])
def test_pairs_are_sequences_of_two(pair):
    problem = cpu.ConvProblem(n=1, c=1, h=8, w=8, k=1, kernel=pair)
    assert (problem.ho, problem.wo) == (6, 6)
    with pytest.raises(TypeError, match=r"'kernel' must be tuple\[int, int\]"):
        cpu.ConvProblem(n=1, c=1, h=8, w=8, k=1, kernel=(3, 3, 3))


def test_docstrings_begin_with_the_signature():
    first = inspect.getdoc(cpu.max_pool_forward).splitlines()[0]
    assert first == (
        "max_pool_forward(problem: layermem._native.cpu.PoolProblem, *, y: int, x: int, argmax: int = 0,"
        " storage: str = '') -> layermem._native.cpu.Launch"
    )
