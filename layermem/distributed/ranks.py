"""Division of a job among ranks: processes that train one net together, each on some of the micro-batches.

    iter_size M = 4, N = 2 ranks        micro-batch of the iteration   0  1  2  3
                                        rank that computes it          0  1  0  1

The gradient of an iteration is ((g0 + g1) + g2) .., each g_m of one micro-batch and computed from zero.  Every rank
owns some rows of each parameter, adds the gradients of these rows in the order of m, and updates the rows; so neither
the bits of the result nor the total size of optimizer state depend on N.
source  Rajbhandari et al., "ZeRO", 2020, stage 1, for the owners of the optimizer state
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """Rank number `rank` of `size`, and the number of micro-batches of an iteration, which `size` divides."""

    rank: int = 0
    size: int = 1
    micro_batches: int = 1

    @property
    def sub_steps(self) -> int:
        """Number of micro-batches of an iteration that one rank computes."""
        return self.micro_batches // self.size

    def micro_batch(self, sub_step: int) -> int:
        """The number within the iteration of the micro-batch that this rank computes in `sub_step`."""
        return sub_step * self.size + self.rank

    def bounds(self, rows: int) -> tuple[int, ...]:
        """The begin of each rank's rows, for a parameter with `rows` rows; the last entry is their number."""
        return tuple(rows * rank // self.size for rank in range(self.size + 1))

    def own(self, rows: int) -> range:
        """The rows that this rank owns; possibly none if there are more ranks than rows."""
        begin, end = self.bounds(rows)[self.rank : self.rank + 2]
        return range(begin, end)

    def __str__(self) -> str:
        """ "rank 1 of 4, 8 micro-batches"."""
        return f"rank {self.rank} of {self.size}, {self.micro_batches} micro-batches"
