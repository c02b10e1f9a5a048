"""Tensors and windows: shapes for users, order in memory."""

import pytest

from layermem.ops import Tensor, Window, roles


def test_a_tensor_of_four_axes_is_stored_channels_last():
    assert Tensor((2, 3, 4, 5)).stored == (2, 4, 5, 3)
    assert Tensor((2, 3, 4)).stored == (2, 3, 4)


@pytest.mark.parametrize("axis, around", [(0, (1, 2, 60)), (1, (40, 3, 1)), (2, (2, 4, 15)), (3, (8, 5, 3))])
def test_an_axis_splits_memory_into_outer_size_and_inner(axis, around):
    assert Tensor((2, 3, 4, 5)).around(axis) == around


def test_memory_is_interleaved_where_channels_meet_pixels():
    shapes = [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (2, 60)]
    assert [Tensor(shape).interleaved for shape in shapes] == [True, False, False, False]


def test_two_shapes_hold_the_same_sequence_unless_one_is_interleaved():
    assert Tensor((2, 60)).ordered_like(Tensor((2, 60, 1, 1)))
    assert not Tensor((2, 60)).ordered_like(Tensor((2, 3, 4, 5)))
    assert Tensor((2, 3, 4, 5)).ordered_like(Tensor((2, 3, 5, 4)))
    assert not Tensor((2, 3)).ordered_like(Tensor((2, 4)))


def test_bytes_follow_the_element_type():
    assert Tensor((2, 3)).nbytes == 24
    assert Tensor((2, 3)).of("uint8").nbytes == 6


def test_a_window_counts_its_positions():
    assert Window(7, 3).floor_out == 5
    assert Window(7, 3, stride=2, pad=1).floor_out == 4
    assert Window(7, 3, dilation=2).extent == 5 and Window(7, 3, dilation=2).floor_out == 3


def test_roles_are_numbered():
    assert roles("dx", 2) == ("dx0", "dx1")
