"""Sums in log space, where −inf is an exact zero and never makes a NaN; equal rows; and rows after the end of a text."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument

NEG_INF = float("-inf")
CACHED = 2**17  # numbers that are worked on together, so that they stay near the processor
ELSEWHERE = 2**26  # numbers that are worked on together where no cache is near, such as on a GPU
# Below these exp is subnormal, which takes a processor ten times as long, or zero, which takes it three times as long.
_LEAST_LOG = {torch.float32: -87.0, torch.float64: -708.0}


def rows_at_once(width: int, device: torch.device) -> int:
    """How many rows of `width` numbers are worked on together."""
    return max(1, (CACHED if device.type == "cpu" else ELSEWHERE) // width)


def row_slices(matrix: Tensor, least: int = 1) -> Iterator[slice]:
    """The rows that are worked on together, one after the other; at least so many where each slice has a cost of its own."""
    step = max(least, rows_at_once(matrix.shape[1], matrix.device))
    return (slice(first, first + step) for first in range(0, len(matrix), step))


def exp_(logs: Tensor) -> Tensor:
    """e to the power of f32 or f64, in place. −inf, and what is too small for a normal number, is exactly zero."""
    least = _LEAST_LOG[logs.dtype]
    return torch.nn.functional.threshold(logs.clamp_min_(least).exp_(), math.exp(least) * (1 + 1e-4), 0.0, inplace=True)


def segment_logsumexp(values: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Log-sum-exp of the last axis within segments.

    Args:
        values: Float[..., items], natural logs; −inf is zero.
        segment: Long[items], the segment of each item.
        num_segments: number of segments; an empty one gets −inf.

    Returns:
        Float[..., num_segments], in the dtype of `values`.
    """
    shape = (*values.shape[:-1], num_segments)
    index = segment.expand(values.shape)
    top = values.new_full(shape, NEG_INF).scatter_reduce_(-1, index, values, "amax")
    # A segment of zeros keeps the shift 0, so that -inf - (-inf) is never formed.
    shift = torch.where(top == NEG_INF, 0.0, top)
    mass = values.new_zeros(shape).scatter_add_(-1, index, (values - shift.gather(-1, index)).exp_())
    return mass.log_().add_(shift)


def distinct(values: Tensor) -> tuple[Tensor, Tensor]:
    """A row for each distinct value of Long[num, ...], in increasing order, and Long[num], which of these each row is."""
    unique, which = torch.unique(values, dim=0, return_inverse=True)
    return torch.zeros(len(unique), dtype=torch.long).scatter_(0, which, torch.arange(len(which))), which


def effective_sample_size(log_weights: Tensor) -> float:
    """(Σw)² / Σw² of unnormalised log weights (Kong 1992); 0 when every weight is zero."""
    total = torch.logsumexp(log_weights, 0)
    if total == NEG_INF:
        return 0.0
    return float(torch.exp(2 * total - torch.logsumexp(2 * log_weights, 0)))


def categorical(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """One draw from each row by inversion; an item of probability zero is never drawn.

    Args:
        log_probs: Float[batch, items], natural logs, normalised or not; −inf is zero.
        uniforms: f64[batch] in [0, 1).

    Returns:
        Long[batch], where the uniforms are.

    Raises:
        InvalidArgument: a row has no mass or a NaN.
    """
    top = log_probs.amax(-1, keepdim=True)
    if not bool(torch.isfinite(top).all()):
        raise InvalidArgument("Cannot draw from a distribution without mass or with a NaN.")
    at_once = rows_at_once(log_probs.shape[-1], log_probs.device)  # rows whose sums, in double, are held together
    numbers = uniforms.to(log_probs.device)
    parts = zip(torch.split(log_probs, at_once), torch.split(top, at_once), torch.split(numbers, at_once), strict=True)
    # Rows of a joined pass may lie apart in memory: sums and search go along them, and torch warns of a copy that it makes.
    draws = torch.cat([_inverted(exp_((rows - peaks).double().contiguous()).cumsum_(-1), own) for rows, peaks, own in parts])
    return draws.to(uniforms.device)


def _inverted(mass: Tensor, uniforms: Tensor) -> Tensor:
    """Long[batch]: where the uniforms fall among cumulated masses f64[batch, items]."""
    # A uniform below 1 times the total rounds to below the total, so the first sum that exceeds
    # it exists, and the item that made it exceed has mass.
    return torch.searchsorted(mass, (uniforms * mass[:, -1])[:, None], right=True)[:, 0]


def make_generator(seed: int | torch.Generator | None, device: torch.device | str = "cpu", stream: int = 0) -> torch.Generator:
    """A generator of its own, never the global random state: a given one, one from a seed and a stream, or a fresh one."""
    if isinstance(seed, torch.Generator):
        return seed
    if seed is not None and not hasattr(seed, "__index__"):
        raise InvalidArgument(f"a seed must be a whole number, got {seed!r}.")
    return torch.Generator(device).manual_seed(secrets.randbits(63) if seed is None else int(seed) ^ stream)


def is_end(tokens: Tensor, eos_ids: Sequence[int]) -> Tensor:
    """Bool like `tokens`: which of them end a text."""
    return torch.isin(tokens, torch.tensor(eos_ids, dtype=tokens.dtype, device=tokens.device))


def ended_before(tokens: Tensor, eos_ids: Sequence[int]) -> Tensor:
    """Bool[batch, time]: has the text ended before this position?"""
    ends = is_end(tokens, eos_ids)
    return ends.cumsum(-1) > ends.long()


def live_lengths(tokens: Tensor, eos_ids: Sequence[int]) -> Tensor:
    """Long[batch]: number of tokens up to and with the first EOS, or all."""
    return (~ended_before(tokens, eos_ids)).sum(-1)


def end_row(vocab_size: int, eos_ids: Sequence[int], like: Tensor) -> Tensor:
    """Float[vocab]: the distribution after an end, certain of the padding; of the dtype and on the device of another."""
    row = like.new_full((vocab_size,), NEG_INF)
    row[eos_ids[0]] = 0.0
    return row


def absorb_rows(log_probs: Tensor, tokens: Tensor, eos_ids: Sequence[int]) -> Tensor:
    """Conditionals Float[batch, time, vocab] of `tokens`, certain of the padding after an end."""
    ended = ended_before(tokens, eos_ids)
    if not bool(ended.any()):
        return log_probs
    log_probs = log_probs.clone()
    log_probs[ended] = end_row(log_probs.shape[-1], eos_ids, log_probs)
    return log_probs


def absorb_scores(scores: Tensor, tokens: Tensor, eos_ids: Sequence[int]) -> Tensor:
    """Scores Float[batch, time] of `tokens`, 0 for padding after an end and −inf for the rest."""
    if not eos_ids:
        return scores
    after = torch.where(tokens == eos_ids[0], 0.0, NEG_INF).to(scores.dtype)
    return torch.where(ended_before(tokens, eos_ids), after, scores)
