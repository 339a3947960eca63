"""What is true of an example, and how far an answer is from it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

REST = "\N{REPLACEMENT CHARACTER}" * 3  # stands for all texts that are not known


@dataclass(frozen=True)
class Reference:
    """The posterior of an example.

    Attributes:
        posterior: p(text | α) of the texts that are known, most probable first; they need not be all.
        log_evidence: log p(α), nats.
        error: its standard error; 0 where all texts were enumerated.
        sequences: how many were enumerated; 0 where they were too many.
        lm_tokens, seconds: what it cost.
    """

    posterior: dict[str, float]
    log_evidence: float
    error: float
    sequences: int
    lm_tokens: int
    seconds: float

    def rest(self, texts: list[str]) -> float:
        """Probability of all texts but these."""
        return max(0.0, 1 - sum(self.posterior.get(text, 0.0) for text in texts))

    def distance(self, law: dict[str, float]) -> float:
        """Total variation; texts that the truth does not know count as one."""
        known = sum(abs(p - law.get(text, 0.0)) for text, p in self.posterior.items())
        others = sum(p for text, p in law.items() if text not in self.posterior)
        return (known + abs(others - self.rest(list(self.posterior)))) / 2

    def perfect_distance(self, draws: int, seed: int) -> float:
        """Distance of so many draws from the truth itself: what chance alone does. Unknown texts count as one."""
        texts = list(self.posterior)
        chances = [*self.posterior.values(), self.rest(texts)]
        drawn = random.Random(seed).choices([*texts, REST], chances, k=draws)
        return self.distance({text: number / draws for text, number in Counter(drawn).items()})
