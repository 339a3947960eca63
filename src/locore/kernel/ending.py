"""End of sequence: after an EOS only the padding may follow, whatever a model says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF


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
