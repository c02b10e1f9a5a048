"""Ranks that share the training of a solver: their micro-batches, and options that are invalid with ranks.

Limits of a net that ranks share are in graph/sharing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.proto.read import SolverFile
from layermem.proto.schema import copy_of

MAX_RANKS = 4096


def with_iter_size(solver: SolverFile, iter_size: int | None) -> SolverFile:
    """The solver with iter_size replaced if one is given."""
    if iter_size is None:
        return solver
    if not 1 <= iter_size < 2**31:
        raise InputError(f"iter_size {iter_size} is no number of micro-batches; give 1 or more")
    message = copy_of(solver.message)
    message.iter_size = iter_size
    return replace(solver, message=message)


def ranks_of(solver: SolverFile, size: int = 1, rank: int = 0) -> Ranks:
    """Rank number `rank` of `size` that share the micro-batches of `solver`."""
    check_rank_count(size)
    count: int = solver.message.iter_size
    if count % size:
        fitting = -(-count // size) * size
        raise InputError(
            f"iter_size {count} cannot be shared by {size} ranks; --iter-size {fitting} trains as iter_size: {fitting} "
            "does on one machine",
            path=str(solver.path),
        )
    return Ranks(rank, size, count)


def ranks_of_net(size: int, iter_size: int | None = None) -> Ranks:
    """The first of `size` ranks that share the training of a net without a solver, with `iter_size` micro-batches in
    all, by default one each."""
    check_rank_count(size)
    count = size if iter_size is None else iter_size
    if count < 1 or count % size:
        raise InputError(f"iter_size {count} cannot be shared by {size} ranks; give {size} or a multiple of it")
    return Ranks(0, size, count)


def check_rank_count(size: int) -> None:
    if not 1 <= size <= MAX_RANKS:
        raise InputError(f"{size} ranks cannot train a net; give a number from 1 to {MAX_RANKS:,}")


def check_keep_shareable(keep: Sequence[str], ranks: Ranks) -> None:
    """Raise InputError for globs that hold gradients whose rows the ranks divide."""
    for glob in keep if ranks.size > 1 else ():
        if glob.endswith(".diff"):
            raise InputError(f"keep '{glob}' is of gradients, which ranks share by rows; leave it out, or use one rank")


def check_measurable(ranks: Ranks) -> None:
    """Raise InputError if several ranks share the step, whose times one rank cannot measure."""
    if ranks.size > 1:
        raise InputError("--measure runs the step of one rank alone, and it is one of several; give --costs instead")
