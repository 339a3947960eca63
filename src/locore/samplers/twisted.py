"""SMC without replacement, steered by an n-gram table of the model's own distributions.

Selecting prefixes by p(prefix) needs many of them before one that leads to α is among them. Selecting by p(prefix) · β(prefix),
β an estimate of p(α | prefix), needs few. β comes from a table prepared for the model, or it is learned within the call:
unconstrained drafts; a small round without a twist, which shows what α leaves and puts what the drafts taught to the test; then
rounds of which each is steered by all that was seen before it. Where β would have foretold the trial far worse than nothing
does (drafts of prose know nothing of JSON), it is left aside. What steers a round is fixed before it begins, so given the past
each round is unbiased: their mean is unbiased, and as their errors are uncorrelated, their spread is an honest error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.evidence import Draws, TableUse
from locore.models import LanguageModel
from locore.samplers.ahead import last_tokens
from locore.samplers.base import Prefixes, Worth, left_to_right
from locore.samplers.rounds import Rounds, tried
from locore.samplers.swor import LESSONS, Round, Watch, blocks_for, pooled, width_of
from locore.samplers.twist.lookahead import LookAhead, look_ahead
from locore.samplers.twist.ngram import NGramCounts, NGramTable
from locore.samplers.twist.prepared import prepare, prepared_table

DRAFT_SHARE = 1 / 12  # of all prefixes


@dataclass(frozen=True)
class Twisted:
    """Twisted SMC without replacement.

    Attributes:
        table: "prepared" for the table that `locore.prepare` made for the model, or where there is none one that is learned
            within the call and the budget; None to learn one in any case; "model" to make the model's where there is none,
            which costs some 20,000 LM tokens beside the budget (they are in the result's info, not in `lm_tokens`); or a table.
        blocks: repetitions that share the budget, as in `WithoutReplacement`; where a table is learned in the call each learns
            from those before it, and None makes two of them at least.
        seen: distributions of the prompted model that were recorded before the call; learning begins with them instead of
            drafts. They must not depend on the generator's numbers that are still to come, and nothing else is asked of them.
        worth: of texts beyond α. Rounds are steered by what is known of beginnings, and by what the texts of earlier rounds
            with the same beginning were worth.
    """

    table: NGramTable | Literal["prepared", "model"] | None = "prepared"
    blocks: int | None = None
    seen: NGramCounts | None = field(default=None, compare=False, repr=False)
    name: str = "twisted"
    worth: Worth | None = field(default=None, compare=False, repr=False)

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position of all rounds together; see `Sampler`."""
        reader = left_to_right(circuit)
        blocks = blocks_for(self.blocks, num_particles, circuit.length, budget)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        price = max(1, circuit.length - 1)
        left = width * blocks * price if budget is None else budget
        table, use = self._table(model)
        run = _Lessons(model, reader, num_particles, generator, self.worth)
        if not reader.tabulated:  # a twist needs the table of all states
            rounds = run.alike(blocks, left, None)
        elif table is not None:
            rounds = run.by_foresight(blocks, left, look_ahead(table, reader, model.device))
        else:
            rounds = run.by_lessons(max(blocks, LESSONS) if self.blocks is None else blocks, blocks, left, self.seen)
        if run.left_aside:
            use = replace(use, origin="left aside")
        # What was learned in the call foretells what was seen: what all rounds missed it would not have found.
        known: dict[str, Any] = {"guided": run.twisted and table is not None, "table": use, "notes": run.notes}
        return pooled(rounds, num_particles, generator, **known)

    def _table(self, model: LanguageModel) -> tuple[NGramTable | None, TableUse]:
        if isinstance(self.table, NGramTable):
            return self.table, TableUse("given")
        if self.table == "model" and model.fingerprint() is not None:
            made = prepare(model)
            return made.table, TableUse("of the model", made.lm_tokens, made.seconds)
        table = prepared_table(model) if self.table == "prepared" else None
        return table, TableUse("learned in the call" if table is None else "of the model")


class _Lessons(Rounds):
    """Rounds of one call that may learn from each other."""

    def by_lessons(self, number: int, blocks: int, budget: int, seen: NGramCounts | None) -> list[Round]:
        """Rounds of which each is steered by all that was seen before it; where drafts mislead, `blocks` without a twist.

        Nothing is learned where the budget does not leave a prefix to each round.
        """
        prefixes = budget // self.price
        drafts = 0 if seen is not None else max(1, round(prefixes * DRAFT_SHARE))
        if drafts + tried(prefixes) + number > prefixes:
            return self.alike(blocks, budget, None)
        counts = NGramCounts(self.model.vocab_size, self.model.tokenizer.eos_ids) if seen is None else seen.copy()
        if drafts:
            counts.draft(self.model, drafts, self.reader.length, self.generator)
        self.left_aside, cost = self.misleads(prefixes, self._twist(counts), recording(counts))
        left = budget - drafts * self.price - cost
        if self.left_aside:
            return self.alike(blocks, left, None)
        self.twisted = True
        return self.done(self._taught(number, left, counts), number)

    def _taught(self, number: int, left: int, counts: NGramCounts) -> Iterator[Round]:
        """Each by all that was seen before it."""
        for remaining in range(number, 0, -1):
            watch = (recording(counts),) if remaining > 1 else ()
            one = self.one(left // remaining, number, self._twist(counts), watch)
            left -= one.lm_tokens
            yield one

    def _twist(self, counts: NGramCounts) -> LookAhead:
        """By all that was counted so far."""
        return look_ahead(counts.table(), self.reader, self.model.device)


def recording(counts: NGramCounts) -> Watch:
    """Counts what the model says behind the prefixes of a round."""

    def record(prefixes: Prefixes, weights: Tensor) -> None:
        counts.add(*last_tokens(prefixes.tokens), prefixes.log_probs)

    return record
