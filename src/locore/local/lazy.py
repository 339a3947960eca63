"""The lazy kernel: keep most tokens, so that only repairs are paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from locore.errors import InvalidArgument
from locore.local.forward import Forward
from locore.local.kernel import Kernel, share
from locore.models import LanguageModel
from locore.numerics import NEG_INF


@dataclass(frozen=True)
class Lazy:
    """q_i = (1 − ρ)·δ_ỹi + ρ·kernel_i: full support through the floor of the inner kernel.

    A plain kernel moves all n positions at once, and Var(log w) grows with n. A lazy one moves
    about ρ·n of them and those that the constraint forces. ρ → 0 is rejection, ρ = 1 the inner
    kernel. Under a ban with p(α) = .55 and n = 8 (stories260k) the ESS of LCR is 0.4 % with the
    forward kernel and 46 % with a lazy one around it, at 21 LM tokens a pair; 39 % with top-k and
    58 % with a lazy one around that, at 1,000. It repairs, it does not force: nothing helps LCR to
    write a rare word.

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

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most: those of the inner kernel."""
        return self.kernel.price(length, vocab_size, positions)

    def distributions(
        self, model: LanguageModel, tokens: Tensor, where: Tensor | None = None, forward: Tensor | None = None
    ) -> Tensor:
        """f64[batch, time, vocab], normalised logs q_i(v); see `Kernel`."""
        local = share(self.kernel.distributions(model, tokens, where, forward), self.rho)
        own = tokens[..., None]
        stay = math.log1p(-self.rho) if self.rho < 1 else NEG_INF
        kept = torch.logaddexp(local.gather(-1, own), torch.tensor(stay, dtype=local.dtype))
        return local.scatter(-1, own, kept)
