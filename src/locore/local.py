"""Local factorised distributions around a sequence: the pseudolikelihood of the paper (its Algorithm 1) and cheaper kernels.

A kernel maps a sequence ỹ to q_ỹ(y) = Π_i q_i(y_i), normalised at every position. Any kernel keeps the importance weight exact as
long as the numbers that propose are the numbers that enter the weight and no position excludes a token. The second part needs
a floor: q_i = (1 − ε)·kernel_i + ε·floor_i, also behind the end of ỹ, where the kernel knows nothing but padding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from locore.errors import InvalidArgument
from locore.models import LanguageModel
from locore.models.ending import live_lengths
from locore.numerics import NEG_INF

UNIFORM_SHARE = 0.01  # of the floor, where the model itself excludes tokens


class Kernel(Protocol):
    """A local distribution around each sequence."""

    @property
    def floor(self) -> float:
        """Share ε of the floor."""

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one sequence, at most."""

    def distributions(self, model: LanguageModel, tokens: Tensor) -> Tensor:
        """f64[batch, time, vocab], normalised logs q_i(v), around Long[batch, time]."""


@dataclass(frozen=True)
class _Floored:
    """What the kernels share: a temperature and a floor.

    Attributes:
        floor: ε, the share of the forward distributions p(· | ỹ_<i) (behind the end: those at the end).
        temperature: τ; the kernel becomes q_i ∝ p̃_i^{1/τ} before the floor (paper, appendix).
    """

    floor: float = 0.05
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise InvalidArgument(f"floor must lie in 0..1, got {self.floor}.")
        if not 0 < self.temperature < math.inf:
            raise InvalidArgument(f"temperature must be positive and finite, got {self.temperature}.")

    def distributions(self, model: LanguageModel, tokens: Tensor) -> Tensor:
        """f64[batch, time, vocab], normalised logs q_i(v), around Long[batch, time]."""
        forward = model.log_probs(tokens).double()
        floor = _floor(model, forward, tokens)
        local = self._local(model, tokens, forward) / self.temperature
        mass = local.logsumexp(-1, keepdim=True)
        possible = mass > NEG_INF  # a sequence that the model excludes has no neighbourhood: the floor alone
        local = torch.where(possible, local - torch.where(possible, mass, 0.0), floor)
        return torch.logaddexp(_share(local, 1 - self.floor), _share(floor, self.floor))

    @abstractmethod
    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor) -> Tensor:
        """f64[batch, time, vocab], unnormalised logs."""


@dataclass(frozen=True)
class Exact(_Floored):
    """The contextualised pseudolikelihood: p̃_i(v) = p(v | ỹ_−i), from all Hamming-1 neighbours (paper, Algorithm 1)."""

    floor: float = 0.01

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one sequence, at most: V·n(n−1)/2 + 2n."""
        return vocab_size * length * (length - 1) // 2 + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor) -> Tensor:
        candidates = torch.arange(model.vocab_size).expand(tokens.shape[1], -1)
        return torch.stack([model.neighbours(y, candidates) for y in tokens])


@dataclass(frozen=True)
class TopK(_Floored):
    """The pseudolikelihood over the k tokens with the largest p(v | ỹ_<i), and the floor over all.

    Attributes:
        k: candidates at each position.
    """

    k: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise InvalidArgument(f"k must be at least 1, got {self.k}.")

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one sequence, at most: k·n(n−1)/2 + 2n."""
        return min(self.k, vocab_size) * length * (length - 1) // 2 + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor) -> Tensor:
        candidates = forward.topk(min(self.k, model.vocab_size)).indices
        rows = [model.neighbours(y, c) for y, c in zip(tokens, candidates, strict=True)]
        return torch.full_like(forward, NEG_INF).scatter_(-1, candidates, torch.stack(rows))


@dataclass(frozen=True)
class Forward(_Floored):
    """q_i(v) = p(v | ỹ_<i): free, because the model gives it while it draws or scores ỹ."""

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one sequence, at most: n."""
        return length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor) -> Tensor:
        return forward


def _floor(model: LanguageModel, forward: Tensor, tokens: Tensor) -> Tensor:
    """Distributions with full support at every position: the forward ones, behind the end those at the end."""
    last = live_lengths(tokens, model.tokenizer.eos_ids) - 1
    position = torch.minimum(torch.arange(tokens.shape[1]), last[:, None])
    floor = forward.gather(1, position[..., None].expand(-1, -1, forward.shape[-1]))
    if model.full_support:
        return floor
    uniform = torch.full_like(floor, -math.log(model.vocab_size))
    return torch.logaddexp(_share(floor, 1 - UNIFORM_SHARE), _share(uniform, UNIFORM_SHARE))


def _share(logs: Tensor, weight: float) -> Tensor:
    """Logs of weight·exp(logs)."""
    return logs + (math.log(weight) if weight else NEG_INF)


KERNELS = {"exact": Exact(), "topk": TopK(), "forward": Forward()}


def kernel_by_name(kernel: str | Kernel) -> Kernel:
    """A kernel given by name ("topk", "exact", "forward") or as an object."""
    if not isinstance(kernel, str):
        return kernel
    if kernel not in KERNELS:
        raise InvalidArgument(f"unknown kernel {kernel!r}; known are {', '.join(KERNELS)}, or pass an object of locore.local.")
    return KERNELS[kernel]


def pseudolikelihood(model: LanguageModel, tokens: Tensor) -> Tensor:
    """log p(v | ỹ_−i) for all positions and tokens, without a floor (paper, Algorithm 1).

    Args:
        tokens: Long[time], the sequence ỹ; the model must give it positive probability.

    Returns:
        f64[time, vocab], normalised logs.
    """
    return Exact(floor=0.0).distributions(model, tokens[None])[0]
