"""Choices for ops that run in pieces: whether the pieces need less memory than the whole op, and how large the parts of
an op with 16-bit activations are.

graph/ makes the candidates and receives these functions (graph.partition.Choices), as it may not import planning.  They
depend on the net and the device, never on a budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from layermem.graph.partition import Choices


def most_part_bytes(largest_bytes: int, part_bytes: int, least_parts: int) -> int:
    """The most fp32 bytes of converted operands in one part of an op.

    largest_bytes   those of the whole op that has the most
    part_bytes, least_parts   of the device: the bytes that stay in a cache, and the fewest parts of the largest op
    """
    return min(part_bytes, largest_bytes // least_parts)


def part_items(items: int, converted_bytes: int, most_bytes: int) -> int:
    """Items of a part of an op with `items` items: the largest divisor whose share of `converted_bytes` is within
    `most_bytes`, or 1."""
    divisors = (items // parts for parts in range(1, items + 1) if items % parts == 0)
    return next((count for count in divisors if converted_bytes * count <= most_bytes * items), 1)


def runs_in_parts(whole_bytes: int, parts_bytes: int) -> bool:
    """Whether an op runs in parts, given its workspace as a whole and in parts: where the carries outweigh the savings,
    as with many weights, one part needs less."""
    return parts_bytes < whole_bytes


def sums_once(operand_bytes: int, carried_bytes: Sequence[int | None]) -> bool:
    """Whether a sum over the items runs once, after the slices, on operands that stay whole: they need no more bytes
    than the carries of the slices do, or the device cannot carry one of the sums (None)."""
    known = [nbytes for nbytes in carried_bytes if nbytes is not None]
    return len(known) < len(carried_bytes) or operand_bytes <= sum(known)


CHOICES = Choices(most_part_bytes, part_items, runs_in_parts, sums_once)
