"""Rounds of SMC without replacement that share a budget: alike, or steered by a foresight that has to pass a trial first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.certain import apart
from locore.circuits import LeftToRight
from locore.models import LanguageModel
from locore.samplers.ahead import product
from locore.samplers.base import Ahead, Prefixes, Worth
from locore.samplers.swor import Round, Size, Watch, one_round, size_of_steps, until_ended
from locore.samplers.twist.outcomes import Outcomes

TRIAL_SHARE, TRIED = 1 / 12, 2  # of all prefixes; a trial has so many at least
WORTH_A_TRIAL = 24  # prefixes at a position from which foresight is put to the test
# Times the steps that forecasts take without foresight. Where it is missing it shows less in a lucky round than in others, and
# going without then costs far more than foresight that is not needed: so it takes plain evidence to leave it out.
MISLEADS = 3.0


@dataclass(frozen=True)
class Steps:
    """How well a foresight β would have foretold a round that it did not steer.

    Were β right, the sum of w · β over the prefixes that are kept would be p(α) at every position; were all prefixes as good as
    each other, so would the sum of w be.

    Attributes:
        plain, foreseen: root of the sum of the squares of the steps that these sums take, nats.
    """

    plain: float
    foreseen: float

    @property
    def misleads(self) -> bool:
        """Would the round have been foretold far worse with it than without?"""
        return self.foreseen > MISLEADS * self.plain


class Trial:
    """Watches a round to compare it with what a foresight says of it."""

    def __init__(self, ahead: Ahead) -> None:
        """Nothing has been seen yet."""
        self._ahead = ahead
        self._foretold: list[float] = []

    def __call__(self, prefixes: Prefixes, weights: Tensor) -> None:
        """Remember what is foretold of a position."""
        if prefixes.position:
            self._foretold.append(float(torch.logsumexp(weights + self._ahead.of(prefixes), 0)))

    def steps(self, done: Round) -> Steps | None:
        """At the end nothing is left to foretell. None where the round found nothing, which says nothing."""
        if not len(done.tokens):
            return None
        return Steps(size_of_steps(done.totals), size_of_steps([*self._foretold, done.totals[-1]]))


class Rounds:
    """Rounds of one call.

    Attributes:
        twisted: was the last of them steered?
        notes: what the report should say of them.
        left_aside: was there a foresight that did not pass its trial?
    """

    def __init__(
        self,
        model: LanguageModel,
        reader: LeftToRight,
        num_particles: int,
        generator: torch.Generator,
        worth: Worth | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        """Of a sampler with these fields."""
        self.model, self.reader, self.generator = model, reader, generator
        self.outcomes = None if worth is None else Outcomes(worth)
        self._always = product(ahead, self.outcomes)
        self.num_particles = num_particles
        self.price = max(1, reader.length - 1)
        self.twisted = self.left_aside = False
        self.notes: tuple[str, ...] = ()

    def alike(self, number: int, budget: int, ahead: Ahead | None) -> list[Round]:
        """Independent rounds that share the budget, steered by the same foresight or by none."""
        self.twisted = ahead is not None
        return self.done((self.one(budget // number, number, ahead) for _ in range(number)), number)

    def done(self, rounds: Iterator[Round], number: int) -> list[Round]:
        """As many of so many as the clock allows."""
        made, self.notes = until_ended(rounds, number)
        return made

    def by_foresight(self, number: int, budget: int, ahead: Ahead) -> list[Round]:
        """Independent rounds, steered by one foresight unless it misleads. Of a small budget nothing goes on its trial."""
        prefixes = budget // self.price
        if prefixes < WORTH_A_TRIAL:
            return self.alike(number, budget, ahead)
        self.left_aside, cost = self.misleads(prefixes, ahead)
        return self.alike(number, budget - cost, None if self.left_aside else ahead)

    def misleads(self, prefixes: int, ahead: Ahead, *watch: Watch) -> tuple[bool, int]:
        """Does a round that it does not steer say so, and the LM tokens that it cost. One that found nothing says nothing."""
        trial = Trial(ahead)
        with apart():
            plain = one_round(self.model, self.reader, Size(tried(prefixes)), self.generator, None, (trial, *watch))
        steps = trial.steps(plain)
        return steps is not None and steps.misleads, plain.lm_tokens

    def one(self, budget: int, number: int, ahead: Ahead | None, watch: Sequence[Watch] = ()) -> Round:
        """One of `number` within LM tokens."""
        size = Size(budget // self.price, math.ceil(self.num_particles / number), budget)
        done = one_round(self.model, self.reader, size, self.generator, product(ahead, self._always), watch)
        if self.outcomes is not None and number > 1:
            self.outcomes.add(Prefixes.read(self.model, self.reader, done.tokens, done.token_scores), done.log_weights)
        return done


def tried(prefixes: int) -> int:
    """Prefixes of a trial."""
    return max(TRIED, round(prefixes * TRIAL_SHARE))
