"""The windowed pseudolikelihood: a token is judged by the next few tokens, not by all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.errors import InvalidArgument
from locore.local.kernel import Floored, tail_tokens
from locore.models import Cursor, LanguageModel
from locore.numerics import NEG_INF

NUMBERS = 2**24  # next-token probabilities that are held together


@dataclass(frozen=True)
class Window(Floored):
    """q_i(v) ∝ p(v | ỹ_<i) · Π_{j=i+1..i+w} p(ỹ_j | ỹ_<i, v, ỹ_i+1..j−1) over the k likeliest v.

    An approximate kernel; the weight stays proper. w = n − 1 is `TopK`, w = 0 would be `Forward`.

    Attributes:
        w: how many of the following tokens are read again.
        k: candidates at each position.
    """

    w: int = 4
    k: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.w < 1 or self.k < 1:
            raise InvalidArgument(f"w and k must be at least 1, got w={self.w}, k={self.k}.")

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: k·Σ_i min(w, n − 1 − i) + 2n."""
        return min(self.k, vocab_size) * tail_tokens(length, positions, self.w) + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        k = min(self.k, model.vocab_size)
        candidates = forward.topk(k).indices
        together = max(1, NUMBERS // (k * model.vocab_size))
        parts = (torch.split(rows, together) for rows in (tokens, candidates, where))
        ahead = torch.cat([self._ahead(model, *part) for part in zip(*parts, strict=True)])
        scores = forward.gather(-1, candidates) + ahead
        return torch.full_like(forward, NEG_INF).scatter_(-1, candidates, scores)

    def _ahead(self, model: LanguageModel, tokens: Tensor, candidates: Tensor, where: Tensor) -> Tensor:
        """f64[batch, time, k]: log-probability of the next w tokens after each candidate."""
        length = tokens.shape[1]
        result = torch.zeros(candidates.shape, dtype=torch.float64)
        trunk = model.begin(len(tokens))
        for position in range(length - 1):
            rows = where[:, position].nonzero()[:, 0]
            if len(rows):
                following = tokens[rows, position + 1 : position + 1 + self.w]
                chosen = candidates[rows, position]
                result[rows, position] = _read_on(trunk, rows, chosen, following)
            if position + 2 < length:
                trunk = trunk.advance(tokens[:, position])
        return result


def _read_on(trunk: Cursor, rows: Tensor, candidates: Tensor, following: Tensor) -> Tensor:
    """f64[rows, k]: log p of Long[rows, w] after each of Long[rows, k], after the trunk's rows."""
    k = candidates.shape[1]
    fork = trunk.advance(candidates.flatten(), rows.repeat_interleave(k))
    total = torch.zeros(candidates.numel(), dtype=torch.float64)
    for step in range(following.shape[1]):
        token = following[:, step].repeat_interleave(k)
        total += fork.log_probs.gather(1, token[:, None])[:, 0].double()
        if step + 1 < following.shape[1]:
            fork = fork.advance(token)
    return total.view(candidates.shape)
