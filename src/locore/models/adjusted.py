"""More models made of models, as services have them: a bias for each token, a floor on probabilities, penalties."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.kernel.errors import InvalidArgument
from locore.kernel.models.base import LanguageModel
from locore.kernel.numerics import NEG_INF
from locore.models.following import Following
from locore.models.wrappers import Reshaped


class Biased(Reshaped):
    """p_b(v | y_<t) ∝ p(v | y_<t) · exp(b_v): some tokens are made likelier or less likely, as by OpenAI's `logit_bias`.

    No bias excludes a token: one of −100 leaves it e^−100 of its odds. What must not occur belongs into a constraint.
    """

    def __init__(self, base: LanguageModel, bias: Mapping[int, float]) -> None:
        """A bias in nats for each of these token ids.

        Raises:
            InvalidArgument: an id that the vocabulary does not have, or a bias that is not finite.
        """
        super().__init__(base)
        for token, value in bias.items():
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < base.vocab_size:
                raise InvalidArgument(f"there is a bias for token {token!r}, but the ids are 0 to {base.vocab_size - 1}.")
            if not math.isfinite(value):
                raise InvalidArgument(f"the bias of token {token} is {value}; give a finite number of nats.")
        self.bias = dict(sorted(bias.items()))
        self._added = torch.zeros(base.vocab_size, dtype=torch.float64)
        self._added[list(self.bias)] = torch.tensor(list(self.bias.values()), dtype=torch.float64)

    def fingerprint(self) -> str | None:
        """That of the base, and of the bias."""
        base = self.base.fingerprint()
        return base and f"{base}-Biased-{hashlib.sha256(repr(self.bias).encode()).hexdigest()[:16]}"

    def _reshape(self, log_probs: Tensor) -> Tensor:
        return (log_probs + self._added.to(log_probs.dtype)).log_softmax(-1)

    def _around(self, base: LanguageModel) -> Biased:
        return Biased(base, self.bias)


class MinP(Reshaped):
    """The tokens that are at least a share as likely as the likeliest, renormalised.

    Nguyen et al., "Turning up the heat: min-p sampling", 2024. Its support is cut; see `TopP`.
    """

    def __init__(self, base: LanguageModel, share: float) -> None:
        """The likeliest token always stays.

        Raises:
            InvalidArgument: the share is not in [0, 1].
        """
        super().__init__(base)
        if not 0 <= share <= 1:
            raise InvalidArgument(f"the share is {share}; give a number from 0 to 1.")
        self.share = share
        self.full_support = base.full_support and share == 0

    def _reshape(self, log_probs: Tensor) -> Tensor:
        if self.share == 0:
            return log_probs
        least = log_probs.max(-1, keepdim=True).values + math.log(self.share)
        return log_probs.masked_fill(log_probs < least, NEG_INF).log_softmax(-1)

    def _around(self, base: LanguageModel) -> MinP:
        return MinP(base, self.share)


class Penalised(Following):
    """p'(v | y_<t) ∝ p(v | y_<t) · exp(−f·c_v − g·1[c_v > 0]), c_v how often v occurs in y_<t; OpenAI's two penalties.

    The prompt does not count. Negative penalties reward repetition.

    Attributes:
        frequency: f, in nats for each earlier occurrence.
        presence: g, in nats for tokens that have occurred.
    """

    def __init__(self, base: LanguageModel, frequency: float = 0.0, presence: float = 0.0) -> None:
        """Penalise.

        Raises:
            InvalidArgument: a penalty is not finite.
        """
        super().__init__(base)
        if not (math.isfinite(frequency) and math.isfinite(presence)):
            raise InvalidArgument(f"penalties must be finite numbers of nats, got {frequency} and {presence}.")
        self.frequency = frequency
        self.presence = presence

    def prompted(self, prompt: Prompt) -> Penalised:
        """The same penalties on the prompted model."""
        return Penalised(self.base.prompted(prompt), self.frequency, self.presence)

    def unprompted(self) -> Penalised:
        """The same penalties on the model before any prompt."""
        return Penalised(self.base.unprompted(), self.frequency, self.presence)

    def fingerprint(self) -> str | None:
        """That of the base, and the penalties."""
        base = self.base.fingerprint()
        return base and f"{base}-Penalised-{self.frequency}-{self.presence}"

    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] after Long[batch, time], penalised."""
        counts = torch.zeros_like(rows).scatter_add_(-1, tokens, torch.ones_like(tokens, dtype=rows.dtype))
        return (rows - self.frequency * counts - self.presence * (counts > 0)).log_softmax(-1)
