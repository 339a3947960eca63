"""Foresight by an n-gram table of the model's own distributions, prepared or learned within the call.

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

from torch import Tensor

from locore.evidence import TableUse
from locore.models import LanguageModel
from locore.samplers.ahead import last_tokens
from locore.samplers.base import Ahead, Prefixes, Worth
from locore.samplers.rounds import Rounds, tried
from locore.samplers.swor import LESSONS, Round, Watch
from locore.samplers.twist.counts import foresight
from locore.samplers.twist.ngram import NGramCounts, NGramTable
from locore.samplers.twist.prepared import prepare, prepared_table
from locore.samplers.without_replacement import WithoutReplacement

DRAFT_SHARE = 1 / 12  # of all prefixes


@dataclass(frozen=True)
class NGrams:
    """A `Foresight` of `WithoutReplacement`.

    Attributes:
        table: "prepared" for the table that `locore.prepare` made for the model, or where there is none one that is learned
            within the call and the budget; None to learn one in any case; "model" to make the model's where there is none,
            which costs some 20,000 LM tokens beside the budget (they are in the result's info, not in `lm_tokens`); or a table.
        seen: distributions of the prompted model that were recorded before the call; learning begins with them instead of
            drafts. They must not depend on the generator's numbers that are still to come, and nothing else is asked of them.
    """

    table: NGramTable | Literal["prepared", "model"] | None = "prepared"
    seen: NGramCounts | None = field(default=None, compare=False, repr=False)

    def rounds(self, run: Rounds, blocks: int, asked: int | None, budget: int) -> tuple[list[Round], dict[str, Any]]:
        """As `Foresight.rounds`."""
        table, use = self._table(run.model)
        if run.reader.outline is None:  # a table of n-grams needs that of all states
            rounds = run.alike(blocks, budget, None)
        elif table is not None:
            rounds = run.by_foresight(blocks, budget, foresight(table, run.reader, run.model.device))
        else:
            rounds = _by_lessons(run, max(blocks, LESSONS) if asked is None else blocks, blocks, budget, self.seen)
        if run.left_aside:
            use = replace(use, origin="left aside")
        # What was learned in the call foretells what was seen: what all rounds missed it would not have found.
        return rounds, {"guided": run.twisted and table is not None, "table": use}

    def _table(self, model: LanguageModel) -> tuple[NGramTable | None, TableUse]:
        if isinstance(self.table, NGramTable):
            return self.table, TableUse("given")
        if self.table == "model" and model.fingerprint() is not None:
            made = prepare(model)
            return made.table, TableUse("of the model", made.lm_tokens, made.seconds)
        table = prepared_table(model) if self.table == "prepared" else None
        return table, TableUse("learned in the call" if table is None else "of the model")


def _by_lessons(run: Rounds, number: int, blocks: int, budget: int, seen: NGramCounts | None) -> list[Round]:
    """Rounds of which each is steered by all that was seen before it; where drafts mislead, `blocks` without a twist.

    Nothing is learned where the budget does not leave a prefix to each round.
    """
    prefixes, model = budget // run.price, run.model
    drafts = 0 if seen is not None else max(1, round(prefixes * DRAFT_SHARE))
    if drafts + tried(prefixes) + number > prefixes:
        return run.alike(blocks, budget, None)
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids) if seen is None else seen.copy()
    if drafts:
        counts.draft(model, drafts, run.reader.length, run.generator)
    run.left_aside, cost = run.misleads(prefixes, _of(counts, run), recording(counts))
    left = budget - drafts * run.price - cost
    if run.left_aside:
        return run.alike(blocks, left, None)
    run.twisted = True
    return run.done(_taught(run, number, left, counts), number)


def _taught(run: Rounds, number: int, left: int, counts: NGramCounts) -> Iterator[Round]:
    """Each by all that was seen before it."""
    for remaining in range(number, 0, -1):
        watch = (recording(counts),) if remaining > 1 else ()
        one = run.one(left // remaining, number, _of(counts, run), watch)
        left -= one.lm_tokens
        yield one


def _of(counts: NGramCounts, run: Rounds) -> Ahead:
    """By all that was counted so far."""
    return foresight(counts.table(), run.reader, run.model.device)


def recording(counts: NGramCounts) -> Watch:
    """Counts what the model says behind the prefixes of a round."""

    def record(prefixes: Prefixes, weights: Tensor) -> None:
        counts.add(*last_tokens(prefixes.tokens), prefixes.log_probs)

    return record


def Twisted(  # noqa: N802  # a class once
    table: NGramTable | Literal["prepared", "model"] | None = "prepared",
    blocks: int | None = None,
    seen: NGramCounts | None = None,
    name: str = "twisted",
    worth: Worth | None = None,
) -> WithoutReplacement:
    """SMC without replacement that is steered by n-grams; `table` and `seen` are those of `NGrams`."""
    return WithoutReplacement(blocks, name, None, worth, NGrams(table, seen))
