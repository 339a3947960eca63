"""The pseudolikelihood over likely tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.errors import InvalidArgument
from locore.local.kernel import Floored, neighbour_scores, tail_tokens
from locore.models import LanguageModel
from locore.numerics import NEG_INF


@dataclass(frozen=True)
class TopK(Floored):
    """The pseudolikelihood over the k tokens with the largest p(v | ỹ_<i), and the floor over all.

    Attributes:
        k: candidates at each position.
    """

    k: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise InvalidArgument(f"k must be at least 1, got {self.k}.")

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: k·n(n−1)/2 + 2n."""
        return min(self.k, vocab_size) * tail_tokens(length, positions) + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        candidates = forward.topk(min(self.k, model.vocab_size)).indices
        # Where a position is not needed all candidates stand for the token; it is not read.
        scores = neighbour_scores(model, tokens, candidates, where)
        return torch.full_like(forward, NEG_INF).scatter_(-1, candidates, scores)
