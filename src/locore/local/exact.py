"""The exact kernel: the contextualised pseudolikelihood (paper, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.local.kernel import Floored, neighbour_scores, tail_tokens
from locore.models import LanguageModel


@dataclass(frozen=True)
class Exact(Floored):
    """p̃_i(v) = p(v | ỹ_−i), from all sequences at Hamming distance 1 (paper, Algorithm 1)."""

    floor: float = 0.01

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: V·n(n−1)/2 + 2n."""
        return vocab_size * tail_tokens(length, positions) + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        candidates = torch.arange(model.vocab_size).expand(*tokens.shape, -1)
        return neighbour_scores(model, tokens, candidates, where)
