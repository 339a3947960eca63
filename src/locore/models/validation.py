"""Checks of what callers hand to a model; each error names the cause and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locore.errors import CannotScore, InvalidArgument


def positive(value: int, name: str) -> int:
    """The value, if it is an integer of at least 1.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is {value!r}; give an integer of at least 1.")
    return value


def token_ids(tokens: Tensor | Sequence[object], shape: str, vocab_size: int) -> Tensor:
    """Token ids as a Long tensor on the CPU.

    Args:
        tokens: ids as a tensor or nested sequences.
        shape: names of its axes, such as "batch time".
        vocab_size: ids go from 0 to this, exclusive.

    Raises:
        InvalidArgument: not integers, other axes than these, no position, or an id out of range.
    """
    ids = torch.as_tensor(tokens)
    axes = shape.split()
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InvalidArgument(f"Token ids are integers, not {ids.dtype}.")
    if ids.ndim != len(axes):
        raise InvalidArgument(f"Token ids have the shape {tuple(ids.shape)}; give one with the axes ({shape}).")
    if "time" in axes and ids.shape[axes.index("time")] == 0:
        raise InvalidArgument("The sequences have no position; the length is at least 1.")
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if wrong.numel():
        raise InvalidArgument(f"Token id {int(wrong[0])} is out of range: ids go from 0 to {vocab_size - 1}.")
    return ids.to("cpu", torch.int64)


def row_indices(parents: Tensor | Sequence[int] | None, count: int, batch: int) -> Tensor:
    """Which rows of a cursor go on; all of them, in order, by default.

    Args:
        parents: Long[count] in 0 … batch−1.
        count: how many rows go on.
        batch: how many rows there are.

    Raises:
        InvalidArgument: of another number than the tokens, or out of range.
    """
    if parents is None:
        if count != batch:
            raise InvalidArgument(f"{count} tokens for {batch} rows; give one for each, or name their parents.")
        return torch.arange(batch)
    rows = torch.as_tensor(parents, dtype=torch.int64, device="cpu")
    if rows.shape != (count,):
        raise InvalidArgument(f"{count} tokens need {count} parents, not {tuple(rows.shape)}.")
    if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < batch:
        raise InvalidArgument(f"Parents are rows 0 to {batch - 1} of the cursor.")
    return rows


def within_context(prompt: int, length: int, limit: int | None) -> None:
    """Refuse what the model cannot read.

    Raises:
        CannotScore: prompt and continuation are longer than the context.
    """
    if limit is not None and prompt + length > limit:
        raise CannotScore(
            f"The prompt has {prompt} tokens and the continuation {length}, together "
            f"{prompt + length}, but the context of this model ends at {limit}. "
            "Shorten the prompt or ask for fewer new tokens."
        )
