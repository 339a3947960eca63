"""Local factorised distributions around a sequence: the paper's, and cheaper kernels.

A kernel maps a sequence ỹ to q_ỹ(y) = Π_i q_i(y_i), normalised at every position. Any kernel keeps the importance weight exact
as long as the numbers that propose are the numbers that enter the weight and no position excludes a token. The second part
needs a floor, q_i = (1 − ε)·kernel_i + ε·floor_i, also behind the end of ỹ, where the kernel knows nothing but padding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument
from locore.kernel.models.cursor import scores_of
from locore.kernel.numerics import NEG_INF, ended_before, live_lengths
from locore.models import Cursor, LanguageModel

__all__ = ["Exact", "Forward", "Kernel", "Lazy", "TopK", "Window", "kernel_by_name", "pseudolikelihood"]

UNIFORM_SHARE = 0.01  # of the floor, where the model itself excludes tokens
NUMBERS = 2**24  # next-token probabilities that `Window` holds together


class Kernel(Protocol):
    """A local distribution around each sequence: a deterministic function of the sequence."""

    @property
    def floor(self) -> float:
        """Share ε of the floor."""

    @property
    def excludes(self) -> bool:
        """Does it give tokens no probability where the model would allow them?"""

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most; of so many adjacent positions, or of all."""

    def distributions(
        self, model: LanguageModel, tokens: Tensor, where: Tensor | None = None, forward: Tensor | None = None
    ) -> Tensor:
        """The local distributions around sequences.

        Args:
            model: the prompted model.
            tokens: Long[batch, time].
            where: Bool[batch, time], positions that are needed; the others get the floor alone, and nothing is spent on them.
                All by default.
            forward: Float[batch, time, vocab], `model.log_probs(tokens)` if that is known already.

        Returns:
            f64[batch, time, vocab], normalised logs q_i(v), on the device of `forward`.
        """


@dataclass(frozen=True)
class Floored:
    """A kernel with a temperature and a floor.

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

    @property
    def excludes(self) -> bool:
        """Does it give tokens no probability, because nothing lies under it?"""
        return self.floor == 0

    def distributions(
        self, model: LanguageModel, tokens: Tensor, where: Tensor | None = None, forward: Tensor | None = None
    ) -> Tensor:
        """f64[batch, time, vocab], normalised logs q_i(v); see `Kernel`."""
        where = torch.ones_like(tokens, dtype=torch.bool) if where is None else where
        forward = (model.log_probs(tokens) if forward is None else forward).double()
        floor = _floor(model, forward, tokens)
        local = self._local(model, tokens, forward, where).to(forward.device)
        where = where.to(forward.device)
        if local is forward and self.temperature == 1 and model.full_support:
            return self._forward_and_floor(model, tokens, forward, floor, where)
        local = local / self.temperature
        mass = local.logsumexp(-1, keepdim=True)
        # A sequence that the model excludes has no neighbourhood: the floor alone.
        possible = (mass > NEG_INF) & where[..., None]
        local = torch.where(possible, self._completed(local - torch.where(possible, mass, 0.0)), floor)
        return self._mixed(local, floor)

    def _completed(self, local: Tensor) -> Tensor:
        """Normalised logs f64[batch, time, vocab], with what the kernel gives tokens that it did not read."""
        return local

    def _forward_and_floor(self, model: LanguageModel, tokens: Tensor, forward: Tensor, floor: Tensor, where: Tensor) -> Tensor:
        """Where nothing is excluded the forward distributions are their own floor; only behind an end they are not."""
        behind = ended_before(tokens, model.tokenizer.eos_ids).to(where.device) & where
        if bool(behind.any()):
            floor[behind] = self._mixed(forward[behind], floor[behind])
        return floor

    def _mixed(self, local: Tensor, floor: Tensor) -> Tensor:
        return torch.logaddexp(_scaled(local, 1 - self.floor), _scaled(floor, self.floor))

    @abstractmethod
    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        """f64[batch, time, vocab], unnormalised logs; only read `where` they are needed."""


@dataclass(frozen=True)
class Exact(Floored):
    """p̃_i(v) = p(v | ỹ_−i), from all sequences at Hamming distance 1 (paper, Algorithm 1)."""

    floor: float = 0.01

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: V·n(n−1)/2 + 2n."""
        return vocab_size * _tail_tokens(length, positions, length) + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        candidates = torch.arange(model.vocab_size).expand(*tokens.shape, -1)
        return _neighbour_scores(model, tokens, candidates, where)


@dataclass(frozen=True)
class TopK(Floored):
    """The pseudolikelihood over the k tokens with the largest p(v | ỹ_<i), and the floor over all.

    `TopK(k, own=True, off_candidates=-300.0, floor=0.0)` follows the authors' earlier code for language models (Ahmed, Chang,
    Van den Broeck, "A Pseudo-Semantic Loss for Autoregressive Models with Logical Constraints", NeurIPS 2023): the token of
    the sequence is always a candidate, and what is none is not excluded but 300 nats below. Nothing is impossible then, so
    the weight is proper without a floor; a way that leaves the candidates is as good as impossible all the same.

    Attributes:
        k: candidates at each position.
        own: is ỹ_i a candidate too? It costs nothing.
        off_candidates: log-probability, before all is normalised again, of every token that is no candidate; no candidate gets
            less. −inf excludes them.
    """

    k: int = 32
    own: bool = False
    off_candidates: float = NEG_INF

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise InvalidArgument(f"k must be at least 1, got {self.k}.")
        if not self.off_candidates < 0:
            raise InvalidArgument(f"off_candidates is a log-probability below 0, got {self.off_candidates}.")

    @property
    def excludes(self) -> bool:
        """Does it give tokens no probability?"""
        return self.floor == 0 and self.off_candidates == NEG_INF

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: k·n(n−1)/2 + 2n."""
        return min(self.k, vocab_size) * _tail_tokens(length, positions, length) + 2 * length

    def candidates(self, tokens: Tensor, forward: Tensor) -> Tensor:
        """Long[batch, time, candidates]: ids that are read around Long[batch, time], of which ỹ_i may be there twice."""
        likeliest = forward.topk(min(self.k, forward.shape[-1])).indices
        return torch.cat([likeliest, tokens[..., None].to(likeliest.device)], -1) if self.own else likeliest

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        candidates = self.candidates(tokens, forward)
        # Where a position is not needed all candidates stand for the token; it is not read.
        scores = _neighbour_scores(model, tokens, candidates.cpu(), where)
        return torch.full_like(forward, NEG_INF).scatter_(-1, candidates, scores.to(forward.device))

    def _completed(self, local: Tensor) -> Tensor:
        if self.off_candidates == NEG_INF:
            return local
        return local.clamp(min=self.off_candidates).log_softmax(-1)


@dataclass(frozen=True)
class Window(Floored):
    """q_i(v) ∝ p(v | ỹ_<i) · Π_{j=i+1..i+w} p(ỹ_j | ỹ_<i, v, ỹ_i+1..j−1) over the k likeliest v.

    A token is judged by the next few tokens, not by all. An approximate kernel; the weight stays proper. w = n − 1 is `TopK`,
    w = 0 would be `Forward`.

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
        return min(self.k, vocab_size) * _tail_tokens(length, positions, self.w) + 2 * length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        k = min(self.k, model.vocab_size)
        candidates = forward.topk(k).indices.cpu()
        together = max(1, NUMBERS // (k * model.vocab_size))
        parts = (torch.split(rows, together) for rows in (tokens, candidates, where))
        ahead = torch.cat([self._ahead(model, *part) for part in zip(*parts, strict=True)])
        candidates = candidates.to(forward.device)
        scores = forward.gather(-1, candidates) + ahead.to(forward.device)
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
                result[rows, position] = _read_on(trunk, rows, candidates[rows, position], following)
            if position + 2 < length:
                trunk = trunk.advance(tokens[:, position])
        return result


@dataclass(frozen=True)
class Forward(Floored):
    """q_i(v) = p(v | ỹ_<i): free, because the model gives it while it draws or scores ỹ."""

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: n."""
        return length

    def _local(self, model: LanguageModel, tokens: Tensor, forward: Tensor, where: Tensor) -> Tensor:
        return forward


@dataclass(frozen=True)
class Lazy:
    """q_i = (1 − ρ)·δ_ỹi + ρ·kernel_i: most tokens are kept; full support through the floor of the inner kernel.

    A plain kernel moves all n positions at once, and Var(log w) grows with n. A lazy one moves about ρ·n of them and those that
    the constraint forces. ρ → 0 is rejection, ρ = 1 the inner kernel. Under a ban with p(α) = .55 and n = 8 (stories260k) the
    ESS of LCR is 0.4 % with the forward kernel and 46 % with a lazy one around it, at 21 LM tokens a pair; 39 % with top-k and
    58 % with a lazy one around that, at 1,000. It repairs, it does not force: nothing helps LCR to write a rare word.

    Attributes:
        rho: ρ, in (0, 1].
        kernel: the inner kernel.
    """

    rho: float = 0.1
    kernel: Kernel = field(default_factory=Forward)

    def __post_init__(self) -> None:
        if not 0 < self.rho <= 1:
            raise InvalidArgument(f"rho must lie in (0, 1], got {self.rho}.")

    @property
    def floor(self) -> float:
        """Share of the inner kernel's floor: ρ·ε."""
        return self.rho * self.kernel.floor

    @property
    def excludes(self) -> bool:
        """Does the inner kernel?"""
        return self.kernel.excludes

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: those of the inner kernel."""
        return self.kernel.price(length, vocab_size, positions)

    def distributions(
        self, model: LanguageModel, tokens: Tensor, where: Tensor | None = None, forward: Tensor | None = None
    ) -> Tensor:
        """f64[batch, time, vocab], normalised logs q_i(v); see `Kernel`."""
        local = _scaled(self.kernel.distributions(model, tokens, where, forward), self.rho)
        own = tokens[..., None].to(local.device)
        stay = math.log1p(-self.rho) if self.rho < 1 else NEG_INF
        least = torch.logaddexp(local.gather(-1, own), torch.tensor(stay, dtype=local.dtype))
        return local.scatter(-1, own, least)


KERNELS: dict[str, Kernel] = {"exact": Exact(), "topk": TopK(), "window": Window(), "forward": Forward(), "lazy": Lazy()}


def kernel_by_name(kernel: str | Kernel) -> Kernel:
    """A kernel given by name ("topk", "exact", "window", "forward", "lazy") or as an object."""
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


def _neighbour_scores(model: LanguageModel, tokens: Tensor, candidates: Tensor, where: Tensor) -> Tensor:
    """f64[batch, time, k]: log p of y with y_i replaced by candidates[…, i, j].

    Where positions are not needed, the token itself stands in for its candidates: it is free.
    """
    candidates = torch.where(where[..., None], candidates, tokens[..., None])
    return torch.stack([model.neighbours(y, c) for y, c in zip(tokens, candidates, strict=True)])


def _read_on(trunk: Cursor, rows: Tensor, candidates: Tensor, following: Tensor) -> Tensor:
    """f64[rows, k]: log p of Long[rows, w] after each of Long[rows, k], after the trunk's rows."""
    k = candidates.shape[1]
    fork = trunk.advance(candidates.flatten(), rows.repeat_interleave(k))
    total = torch.zeros(candidates.numel(), dtype=torch.float64)
    for step in range(following.shape[1]):
        token = following[:, step].repeat_interleave(k)
        total += scores_of(fork.log_probs, token)
        if step + 1 < following.shape[1]:
            fork = fork.advance(token)
    return total.view(candidates.shape)


def _tail_tokens(length: int, positions: int | None, at_most: int) -> int:
    """Σ_i min(w, n − 1 − i) over the first positions, which have the most after them; w is `at_most`."""
    return sum(min(at_most, length - 1 - i) for i in range(length if positions is None else min(positions, length)))


def _scaled(logs: Tensor, weight: float) -> Tensor:
    """Logs of weight·exp(logs)."""
    return logs + (math.log(weight) if weight else NEG_INF)


def _floor(model: LanguageModel, forward: Tensor, tokens: Tensor) -> Tensor:
    """Full support everywhere: the forward distributions, behind the end those at the end."""
    at = torch.arange(tokens.shape[1])
    last = live_lengths(tokens, model.tokenizer.eos_ids) - 1
    position = torch.minimum(at, last[:, None])
    rows = torch.arange(len(tokens))[:, None]
    floor = forward if bool((position == at).all()) else forward[rows.to(forward.device), position.to(forward.device)]
    if model.full_support:
        return floor
    uniform = torch.full_like(floor, -math.log(model.vocab_size))
    return torch.logaddexp(_scaled(floor, 1 - UNIFORM_SHARE), _scaled(uniform, UNIFORM_SHARE))
