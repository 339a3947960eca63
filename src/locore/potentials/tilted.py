"""A model times others, token by token: what samplers that read prefixes need of a product of experts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.errors import BrokenPotential, CannotScore, InvalidArgument
from locore.models import Cursor, LanguageModel
from locore.models.base import Drafts, Wrapper
from locore.models.wrappers import CombinedCursor
from locore.numerics import NEG_INF

INFINITE = (
    "an expert with a negative weight gives no probability to what the model may write, which would be infinitely good; mix a "
    "little of a full model into it, locore.models.Mixture(expert, model, 0.01)."
)


class Tilted(Wrapper):
    """p(v | y_<t) · Π_k q_k(v | y_<t)^{w_k}, not normalised: its rows do not sum to 1.

    So the product over positions is p(y) · Π_k q_k(y)^{w_k} itself, and a sampler that weighs prefixes by the sums of rows, as
    masking does by the sum of what is allowed, weighs by the experts too. What expects a distribution gets none.
    """

    def __init__(self, base: LanguageModel, experts: Sequence[tuple[float, LanguageModel]]) -> None:
        """Prompted models with the same tokenizer, and their exponents."""
        super().__init__(base)
        self.experts = tuple(experts)
        self.full_support = base.full_support and all(model.full_support for _, model in self.experts)

    def prompted(self, prompt: Prompt) -> LanguageModel:
        """Not possible: each of the models has its prompt."""
        raise InvalidArgument("prompt the models first, then multiply them.")

    def fingerprint(self) -> None:
        """None: nothing that is kept is about products."""
        return None

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Float[batch, time, vocab], as of the base but for normalisation."""
        return self._product([self.base.log_probs(tokens), *(model.log_probs(tokens) for _, model in self.experts)])

    def token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time], as of the base but for normalisation."""
        return self._product([self.base.token_scores(tokens), *(model.token_scores(tokens) for _, model in self.experts)])

    def begin(self, batch: int) -> Cursor:
        """As of the base but for normalisation."""
        cursors = (self.base.begin(batch), *(model.begin(batch) for _, model in self.experts))
        return CombinedCursor(cursors, self._product)

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """Drafts from the base, for what only learns from them; they have no density here."""
        return self.base.sample(num, length, seed, keep_log_probs)

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """Not known."""
        raise CannotScore("a product of experts is read from left to right.")

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self.log_probs(tokens)

    def _product(self, rows: Sequence[Tensor]) -> Tensor:
        total = rows[0]
        for (weight, _), row in zip(self.experts, rows[1:], strict=True):
            total = total + weight * row
        total = total.masked_fill(rows[0] == NEG_INF, NEG_INF)  # where p is 0 it stays so, and −∞ + ∞ is no number
        if bool((total == -NEG_INF).any()):
            raise BrokenPotential(INFINITE)
        return total
