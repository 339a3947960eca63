"""SMC without replacement, steered by an n-gram table of the model's own distributions.

Selecting prefixes by p(prefix) needs many of them before one that leads to α is among them. Selecting by p(prefix) · β(prefix),
β an estimate of p(α | prefix), needs few. β comes from a table made once per model, or it is learned within the call:
unconstrained drafts; a small round without a twist, which shows what α leaves and puts what the drafts taught to the test; a
round steered by both; then the final rounds, which share what was learned. Where β would have foretold the first round far
worse than nothing does (drafts of prose know nothing of JSON), the final rounds go without. β is fixed before the rounds that
it steers, so the weights of these rounds are exact, and given β they are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from locore.circuits import Circuit, LeftToRight
from locore.evidence import Draws, TableUse
from locore.models import LanguageModel
from locore.samplers.base import left_to_right
from locore.samplers.swor import JUDGED_WIDTH, blocks_for, one_round, pooled, width_of
from locore.samplers.twist.lookahead import LookAhead, look_ahead
from locore.samplers.twist.ngram import NGramCounts, NGramTable
from locore.samplers.twist.prepared import prepare

# Of all prefixes, where nothing is known of the model yet; the first round has two at least.
DRAFT_SHARE, TRIAL_SHARE, LEARNING_SHARE, TRIED = 1 / 12, 1 / 12, 1 / 3, 2
WORTH_A_TRIAL = 24  # prefixes at a position from which a table that is given is put to the test


@dataclass(frozen=True)
class Twisted:
    """Twisted SMC without replacement.

    Attributes:
        table: "model" for the table of the model, made at its first use and kept on disk (its cost is in the result's info and
            not in `lm_tokens`); a table; or None to learn one within the call and the budget.
        blocks: independent repetitions that share the budget, as in `WithoutReplacement`, and a table that is learned.
        seen: distributions of the prompted model that were recorded before the call; learning begins with them instead of
            drafts. They must not depend on the generator's numbers that are still to come, and nothing else is asked of them.
    """

    table: NGramTable | Literal["model"] | None = "model"
    blocks: int | None = None
    seen: NGramCounts | None = field(default=None, compare=False, repr=False)
    name: str = "twisted"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position of the final rounds; see `Sampler`."""
        reader = left_to_right(circuit)
        blocks = blocks_for(self.blocks, num_particles, circuit.length, budget)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        price = max(1, circuit.length - 1)
        left = width * blocks * price if budget is None else budget
        table, use = self._table(model)
        enough = left >= JUDGED_WIDTH * price  # to have learned something
        twist = None
        if reader.tabulated:  # a twist needs the table of all states
            if table is None:
                twist, spent = learned(model, reader, left, blocks, generator, self.seen)
            else:
                twist, spent = tried(model, reader, left, generator, look_ahead(table, reader))
            left -= spent
            if twist is None and spent:
                use = replace(use, origin="left aside")
        guided = twist is not None and (table is not None or enough)
        wanted, share = math.ceil(num_particles / blocks), left // blocks
        rounds = [
            one_round(model, reader, share // price, generator, twist, wanted=wanted, lm_tokens=share) for _ in range(blocks)
        ]
        return pooled(rounds, num_particles, generator, guided=guided, table=use)

    def _table(self, model: LanguageModel) -> tuple[NGramTable | None, TableUse]:
        if self.table != "model":
            return self.table, TableUse("given" if self.table else "learned in the call")
        if model.fingerprint() is None:
            return None, TableUse("learned in the call")
        prepared = prepare(model)
        return prepared.table, TableUse("of the model", prepared.lm_tokens, prepared.seconds)


def tried(
    model: LanguageModel, reader: LeftToRight, budget: int, generator: torch.Generator, twist: LookAhead
) -> tuple[LookAhead | None, int]:
    """The twist of a table that others made, unless a round without it shows that it misleads; and the LM tokens of the round.

    Of a small budget nothing is spent on that.
    """
    prefixes = budget // max(1, reader.length - 1)
    if prefixes < WORTH_A_TRIAL:
        return twist, 0
    plain = one_round(model, reader, max(TRIED, round(prefixes * TRIAL_SHARE)), generator, None, tried=twist)
    assert plain.trial is not None  # it was asked for
    return None if plain.trial.misleads else twist, plain.lm_tokens


def learned(
    model: LanguageModel,
    reader: LeftToRight,
    budget: int,
    blocks: int,
    generator: torch.Generator,
    seen: NGramCounts | None = None,
) -> tuple[LookAhead | None, int]:
    """A twist learned from drafts, unless something was seen before, and from two rounds; and the LM tokens that it cost.

    None where the first round shows that it would not help, or where the budget does not leave a prefix to each final round.
    """
    price = max(1, reader.length - 1)
    prefixes = budget // price
    drafts = 0 if seen is not None else max(1, round(prefixes * DRAFT_SHARE))
    first, second = max(TRIED, round(prefixes * TRIAL_SHARE)), max(1, round(prefixes * LEARNING_SHARE))
    if drafts + first + second + blocks > prefixes:
        return None, 0
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids) if seen is None else seen.copy()
    if drafts:
        counts.draft(model, drafts, reader.length, generator)
    hearsay = look_ahead(counts.table(), reader)
    plain = one_round(model, reader, first, generator, None, counts.add, tried=hearsay)
    cost = drafts * price + plain.lm_tokens
    assert plain.trial is not None  # it was asked for
    if plain.trial.misleads:
        return None, cost
    steered = one_round(model, reader, second, generator, look_ahead(counts.table(), reader), counts.add)
    return look_ahead(counts.table(), reader), cost + steered.lm_tokens
