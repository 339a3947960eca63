"""Work in batches that fit into memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locore.errors import CannotScore


def in_batches(rows: int, size: int, work: Callable[[slice], Tensor]) -> Tensor:
    """Do `work` on slices of the rows and put the results together along the first axis.

    Args:
        rows: how many there are; at least one.
        size: how many to try at once; halved whenever memory runs out.
        work: maps a slice of the rows to a result with as many rows.

    Raises:
        CannotScore: one row alone does not fit.
    """
    parts: list[Tensor] = []
    at, size = 0, max(1, min(size, rows))
    while at < rows:
        try:
            parts.append(work(slice(at, min(at + size, rows))))
            at += size
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            if size == 1:
                raise CannotScore(
                    "There is not enough memory for a single sequence. Use a shorter prompt, a smaller dtype or another device."
                ) from error
            size //= 2
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _out_of_memory(error: RuntimeError) -> bool:
    # The allocator of the CPU has no exception of its own.
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
