"""What fits into memory: batches that are halved when it runs out, and how much is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from locore.kernel.errors import CannotScore
from locore.kernel.limits import may_stop

_MEMINFO = Path("/proc/meminfo")
_UNCOUNTED = 1.5  # activations, and what the allocator cannot use: of 100 and 21 million parameters 1.45 and 1.9 were measured


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
        may_stop()
        try:
            parts.append(work(slice(at, min(at + size, rows))))
            at += size
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise CannotScore(
                    "There is not enough memory for a single sequence. Use a shorter prompt, a smaller dtype or another device."
                ) from error
            size //= 2
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def is_out_of_memory(error: Exception) -> bool:
    """Is that what an error says?"""
    # The allocator of the CPU has no exception of its own.
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def free_bytes(device: torch.device) -> int | None:
    """Memory that is left; None where nobody says."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    if device.type != "cpu" or not _MEMINFO.exists():
        return None
    line = next((line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")), None)
    return None if line is None else 1024 * int(line.split()[1])


def how_many_fit(free_bytes: int, bytes_each: int) -> int:
    """How many parts of this size, as far as it can be counted, fit into the free memory."""
    return int(free_bytes / (_UNCOUNTED * bytes_each))
