"""ASAp (Park et al., "Grammar-Aligned Decoding", NeurIPS 2024) in fixed-length form: biased.

Each iteration is masked decoding in which a token v is drawn with probability ∝ p(v | x) · c(xv).
The approximation c of p(α | ·) is 1 below prefixes that were not visited and can be completed, 0
where they cannot, and c(x) = Σ_v p(v | x) c(xv) where x was visited. It only falls, and never below
p(α | x), so the law of one iteration tends to p(· | α); but the first iteration is greedy masking,
and nothing says how far off the later ones are. No weight mends this: c(root) is an upper bound of
p(α).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from locore.circuits import Circuit
from locore.evidence import Draws, Guarantee, Record
from locore.kernel.errors import ZeroWeights
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.sampler import Promises, affordable, left_to_right
from locore.models import LanguageModel
from locore.samplers.adaptive_rejection import Trie


@dataclass(frozen=True)
class ASAp(Promises):
    """Adaptive sampling with approximate expected futures.

    With a budget it makes all the iterations that surely pays for, and returns the last
    `num_particles`.
    """

    guarantee: ClassVar[Guarantee] = "biased"

    name: str = "asap"

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Sequences of equal weight c(root); see `Sampler`."""
        price = circuit.length - 1
        iterations = affordable(num_particles, price, budget, self.name)
        if budget is not None and price:
            iterations = budget // price
        trie = Trie(model, left_to_right(circuit), "masked")
        attempts = [trie.attempt(generator) for _ in range(iterations)]
        finished = [attempt for attempt in attempts if attempt.accepted][-num_particles:]
        if not finished:
            raise ZeroWeights(f"none of {iterations} masked sequences could be completed with positive probability.")
        upper = math.log(trie.remaining)
        record = Record(
            guarantee="biased",
            bounds=(NEG_INF, upper),
            iterations=iterations,
            notes=("ASAp approaches p(y | α) only in the limit; its evidence is an upper bound",),
            details={"nominal_lm_tokens": sum(attempt.lm_tokens for attempt in attempts)},
        )
        return Draws(
            torch.tensor([attempt.tokens for attempt in finished]),
            torch.full((len(finished),), upper, dtype=torch.float64),
            torch.tensor([attempt.scores for attempt in finished], dtype=torch.float64),
            record,
        )
