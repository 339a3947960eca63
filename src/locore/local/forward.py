"""The forward kernel: next-token distributions along the sequence."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from locore.local.kernel import Floored
from locore.models import LanguageModel


@dataclass(frozen=True)
class Forward(Floored):
    """q_i(v) = p(v | ỹ_<i): free, because the model gives it while it draws or scores ỹ."""

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: n."""
        return length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        return forward
