"""What kernels share: their call, a temperature, and a floor under every token."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from locore.ending import ended_before, live_lengths
from locore.errors import InvalidArgument
from locore.models import LanguageModel
from locore.numerics import NEG_INF

UNIFORM_SHARE = 0.01  # of the floor, where the model itself excludes tokens


class Kernel(Protocol):
    """A local distribution around each sequence: a deterministic function of the sequence."""

    @property
    def floor(self) -> float:
        """Share ε of the floor."""

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most; of so many adjacent positions, or of all."""

    def distributions(
        self, model: LanguageModel, tokens: Tensor, where: Tensor | None = None, forward: Tensor | None = None
    ) -> Tensor:
        """The local distributions around sequences.

        Args:
            model: the prompted model.
            tokens: Long[batch, time].
            where: Bool[batch, time], positions that are needed; the others get the floor alone,
                and nothing is spent on them. All by default.
            forward: Float[batch, time, vocab], `model.log_probs(tokens)` if that is known already.

        Returns:
            f64[batch, time, vocab], normalised logs q_i(v).
        """


@dataclass(frozen=True)
class Floored:
    """A kernel with a temperature and a floor.

    Attributes:
        floor: ε, the share of the forward distributions p(· | ỹ_<i) (behind the end: those at the
            end).
        temperature: τ; the kernel becomes q_i ∝ p̃_i^{1/τ} before the floor (paper, appendix).
    """

    floor: float = 0.05
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise InvalidArgument(f"floor must lie in 0..1, got {self.floor}.")
        if not 0 < self.temperature < math.inf:
            raise InvalidArgument(f"temperature must be positive and finite, got {self.temperature}.")

    def distributions(
        self, model: LanguageModel, tokens: Tensor, where: Tensor | None = None, forward: Tensor | None = None
    ) -> Tensor:
        """f64[batch, time, vocab], normalised logs q_i(v); see `Kernel`."""
        where = torch.ones_like(tokens, dtype=torch.bool) if where is None else where
        forward = (model.log_probs(tokens) if forward is None else forward).double()
        floor = _floor(model, forward, tokens)
        local = self._local(model, tokens, forward, where)
        if local is forward and self.temperature == 1 and model.full_support:
            return self._forward_and_floor(model, tokens, forward, floor, where)
        local = local / self.temperature
        mass = local.logsumexp(-1, keepdim=True)
        # A sequence that the model excludes has no neighbourhood: the floor alone.
        possible = (mass > NEG_INF) & where[..., None]
        local = torch.where(possible, local - torch.where(possible, mass, 0.0), floor)
        return torch.logaddexp(share(local, 1 - self.floor), share(floor, self.floor))

    def _forward_and_floor(self, model: LanguageModel, tokens: Tensor, forward: Tensor, floor: Tensor, where: Tensor) -> Tensor:
        """Where nothing is excluded the forward distributions are their own floor; only behind an end they are not."""
        behind = ended_before(tokens, model.tokenizer.eos_ids) & where
        if not bool(behind.any()):
            return floor
        floor[behind] = torch.logaddexp(share(forward[behind], 1 - self.floor), share(floor[behind], self.floor))
        return floor

    @abstractmethod
    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        """f64[batch, time, vocab], unnormalised logs; only read `where` they are needed."""


def neighbour_scores(model: LanguageModel, tokens: Tensor, candidates: Tensor, where: Tensor) -> Tensor:
    """f64[batch, time, k]: log p of y with y_i replaced by candidates[…, i, j].

    Where positions are not needed, the token itself stands in for its candidates: it is free.
    """
    candidates = torch.where(where[..., None], candidates, tokens[..., None])
    rows = [model.neighbours(y, c) for y, c in zip(tokens, candidates, strict=True)]
    return torch.stack(rows)


def tail_tokens(length: int, positions: int | None, at_most: int | None = None) -> int:
    """Σ_i min(w, n − 1 − i) over the first positions, which have the most after them."""
    last = length - 1
    return sum(
        min(last - i, last if at_most is None else at_most)
        for i in range(length if positions is None else min(positions, length))
    )


def share(logs: Tensor, weight: float) -> Tensor:
    """Logs of weight·exp(logs)."""
    return logs + (math.log(weight) if weight else NEG_INF)


def _floor(model: LanguageModel, forward: Tensor, tokens: Tensor) -> Tensor:
    """Full support everywhere: the forward distributions, behind the end those at the end."""
    at = torch.arange(tokens.shape[1])
    last = live_lengths(tokens, model.tokenizer.eos_ids) - 1
    position = torch.minimum(at, last[:, None])
    floor = forward if bool((position == at).all()) else forward[torch.arange(len(tokens))[:, None], position]
    if model.full_support:
        return floor
    uniform = torch.full_like(floor, -math.log(model.vocab_size))
    return torch.logaddexp(share(floor, 1 - UNIFORM_SHARE), share(uniform, UNIFORM_SHARE))
