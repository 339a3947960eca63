"""Rounds of SMC without replacement that share a budget: alike, or steered by a twist that has to pass a trial first."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from locore.certain import apart
from locore.circuits import LeftToRight
from locore.models import LanguageModel
from locore.samplers.base import Critic
from locore.samplers.swor import Recorder, Round, one_round, until_ended
from locore.samplers.twist.base import Twist
from locore.samplers.twist.outcomes import Outcomes

TRIAL_SHARE, TRIED = 1 / 12, 2  # of all prefixes; a trial has so many at least
WORTH_A_TRIAL = 24  # prefixes at a position from which a twist is put to the test


class Rounds:
    """Rounds of one call.

    Attributes:
        twisted: was the last of them steered?
        notes: what the report should say of them.
        left_aside: was there a twist that did not pass its trial?
    """

    def __init__(
        self,
        model: LanguageModel,
        reader: LeftToRight,
        num_particles: int,
        generator: torch.Generator,
        critic: Critic | None = None,
    ) -> None:
        self.model, self.reader, self.generator = model, reader, generator
        self.outcomes = None if critic is None else Outcomes(critic)
        self.num_particles = num_particles
        self.price = max(1, reader.length - 1)
        self.twisted = self.left_aside = False
        self.notes: tuple[str, ...] = ()

    def alike(self, number: int, budget: int, twist: Twist | None) -> list[Round]:
        """Independent rounds that share the budget, steered by the same twist or by none."""
        self.twisted = twist is not None
        return self.done((self.one(budget // number, number, twist) for _ in range(number)), number)

    def done(self, rounds: Iterator[Round], number: int) -> list[Round]:
        """As many of so many as the clock allows."""
        made, self.notes = until_ended(rounds, number)
        return made

    def by_twist(self, number: int, budget: int, twist: Twist) -> list[Round]:
        """Independent rounds, steered by one twist unless it misleads. Of a small budget nothing goes on its trial."""
        prefixes = budget // self.price
        if prefixes < WORTH_A_TRIAL:
            return self.alike(number, budget, twist)
        self.left_aside, cost = self.misleads(prefixes, twist, None)
        return self.alike(number, budget - cost, None if self.left_aside else twist)

    def misleads(self, prefixes: int, twist: Twist, record: Recorder | None) -> tuple[bool, int]:
        """Does a round without a twist say so, and the LM tokens that it cost. One that found nothing says nothing."""
        with apart():
            plain = one_round(self.model, self.reader, tried(prefixes), self.generator, None, record, tried=twist)
        return plain.trial is not None and plain.trial.misleads, plain.lm_tokens

    def one(self, budget: int, number: int, twist: Twist | None, record: Recorder | None = None) -> Round:
        """One of `number` within LM tokens."""
        width, wanted = budget // self.price, math.ceil(self.num_particles / number)
        worth = None if self.outcomes is None else self.outcomes.worth
        done = one_round(self.model, self.reader, width, self.generator, twist, record, wanted, budget, worth=worth)
        if self.outcomes is not None and number > 1:
            self.outcomes.add(done.tokens, done.log_weights)
        return done


def tried(prefixes: int) -> int:
    """Prefixes of a trial."""
    return max(TRIED, round(prefixes * TRIAL_SHARE))
