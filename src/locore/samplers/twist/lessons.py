"""Foresight by an n-gram table of the model's own distributions, prepared or learned within the call.

Selecting prefixes by p(prefix) needs many of them before one that leads to α is among them. Selecting by p(prefix) ·
β(prefix), β an estimate of p(α | prefix), needs few. β comes from a table prepared for the model, or it is learned within the
call: unconstrained drafts and, beside them, a small round without a twist, which shows what α leaves and puts what the drafts
taught to the test; then rounds that are steered by all of it, again side by side. Where β would have foretold the trial far
worse than nothing does (drafts of prose know nothing of JSON), it is left aside. Where there are few prefixes, one round
learns as it goes, from drafts beside it and from what it reads itself, which takes half as many passes of the model. What
steers a step is fixed before it, so given the past it is unbiased: so is the mean of the rounds, and as their errors are
uncorrelated, their spread is an honest error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from locore.circuits import LeftToRight
from locore.evidence import TableUse
from locore.kernel.certain import apart
from locore.kernel.samplers.abreast import Walk, abreast
from locore.kernel.samplers.ahead import Children, children_of, last_tokens, product
from locore.kernel.samplers.base import Ahead, Prefixes, Worth
from locore.kernel.samplers.swor import LESSONS, ROUNDED, Round, Size, Watch, walk
from locore.kernel.samplers.without_replacement import WORTH_A_TRIAL, Rounds, Trial, WithoutReplacement, tried
from locore.models import LanguageModel
from locore.samplers.twist.counts import foresight
from locore.samplers.twist.ngram import NGramCounts, NGramTable
from locore.samplers.twist.prepared import prepare, prepared_table

DRAFT_SHARE = 1 / 12  # of all prefixes
AGAIN = (1 / 3, 2 / 3)  # of the way: where a round that learns as it goes makes its table anew


@dataclass(frozen=True, eq=False)
class Lesson:
    """What was seen of a prompted model, and of the constraint, before anything is steered.

    Attributes:
        counts: distributions along drafts of the model by itself. They must not depend on the generator's numbers that are
            still to come, and nothing else is asked of them.
        trial: a round without foresight; None if there was none.
        met: distributions behind its prefixes.
        tokens: Long[drafts, length].
        lm_tokens: what all of it cost.
    """

    counts: NGramCounts
    trial: Trial | None = None
    met: NGramCounts | None = None
    tokens: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    lm_tokens: int = 0

    @classmethod
    def taken(
        cls,
        model: LanguageModel,
        reader: LeftToRight,
        drafts: int,
        trial: int,
        generator: torch.Generator,
        counting: bool = True,
    ) -> Lesson:
        """So many drafts and the prefixes of a trial, in one go; without `counting` their distributions are not kept."""
        counts, met = (NGramCounts(model.vocab_size, model.tokenizer.eos_ids) for _ in range(2))
        tried = Trial()
        walks = [tried.walk(model, reader, trial, generator, *([recording(met)] if counting else []))]
        if drafts:
            walks.append(counts.drafts(model, drafts, reader.length, generator, counting))
        with apart():
            found = abreast(walks)
        tokens = found[1][0] if drafts else torch.zeros(0, reader.length, dtype=torch.long)
        return cls(counts, tried, met, tokens, math.ceil(sum(cost for _, cost in found) - ROUNDED))


@dataclass(frozen=True)
class NGrams:
    """A `Foresight` of `WithoutReplacement`.

    Attributes:
        table: "prepared" for the table that `locore.prepare` made for the model, or where there is none one that is learned
            within the call and the budget; None to learn one in any case; "model" to make the model's where there is none,
            which costs some 20,000 LM tokens beside the budget (they are in the result's info, not in `lm_tokens`); or a table.
        seen: what was seen before the call, and paid for; learning begins with it.
    """

    table: NGramTable | Literal["prepared", "model"] | None = "prepared"
    seen: Lesson | None = field(default=None, compare=False, repr=False)

    def rounds(self, run: Rounds, blocks: int, asked: int | None, budget: int) -> tuple[list[Round], dict[str, Any]]:
        """As `Foresight.rounds`."""
        table, use = self._table(run.model)
        if run.reader.outline is None:  # a table of n-grams needs that of all states
            rounds = run.alike(blocks, budget, None)
        elif table is not None:
            trial = None if self.seen is None else self.seen.trial
            rounds = run.by_foresight(blocks, budget, foresight(table, run.reader, run.model.device), trial)
        else:
            rounds = _by_lesson(run, max(blocks, LESSONS) if asked is None else blocks, blocks, budget, self.seen)
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


def _by_lesson(run: Rounds, number: int, blocks: int, budget: int, seen: Lesson | None) -> list[Round]:
    """Rounds steered by all that was seen before them; where that misleads, `blocks` without foresight.

    Nothing is learned where the budget does not leave a prefix to each round.
    """
    prefixes, model = budget // run.price, run.model
    if seen is None and number == LESSONS > blocks and LESSONS < prefixes < WORTH_A_TRIAL and run.outcomes is None:
        return [_going(run, prefixes, budget)]
    drafts = 0 if seen is not None else max(1, round(prefixes * DRAFT_SHARE))
    trial = 0 if seen is not None and seen.trial is not None else tried(prefixes)
    if drafts + trial + number > prefixes:
        return run.alike(blocks, budget, None)
    lesson = seen
    if trial:
        lesson = Lesson.taken(model, run.reader, drafts, trial, run.generator)
        budget -= lesson.lm_tokens
        lesson = lesson if seen is None else replace(lesson, counts=seen.counts)
    assert lesson is not None and lesson.trial is not None
    run.left_aside = lesson.trial.refutes(_of(lesson.counts, run))
    if run.left_aside:
        return run.alike(blocks, budget, None, lesson.trial)
    counts = lesson.counts if lesson.met is None else lesson.counts.with_more(lesson.met)
    return run.alike(number, budget, _of(counts, run), lesson.trial)


def _going(run: Rounds, prefixes: int, budget: int) -> Round:
    """A round that learns as it goes, beside drafts."""
    drafts, along = max(1, round(prefixes * DRAFT_SHARE)), _Along(run)
    left, run.twisted = budget - drafts * run.price, True
    size = Size(prefixes - drafts, run.num_particles, left)
    steered, watch = product(along, run.always), (recording(along.counts),)
    walks: list[Walk[Any]] = [walk(run.model, run.reader, size, run.generator, steered, watch)]
    walks.append(along.counts.drafts(run.model, drafts, run.reader.length, run.generator))
    done: Round = abreast(walks)[0]
    return done


class _Along:
    """An `AheadByToken` by what is counted while it steers; nothing is known at first."""

    def __init__(self, run: Rounds) -> None:
        """Of this call, and with no counts yet."""
        self.counts = NGramCounts(run.model.vocab_size, run.model.tokenizer.eos_ids)
        self._run = run
        self._now: Ahead | None = None
        self._again = {max(1, round(share * run.reader.length)) for share in AGAIN}

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num], as `Ahead.of`."""
        return torch.zeros(len(prefixes), dtype=torch.float64) if self._now is None else self._now.of(prefixes)

    def after(self, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
        """As `AheadByToken.after`, by a table of what was counted up to a third or two thirds of the way."""
        if prefixes.position in self._again:
            self._now = _of(self.counts, self._run)
        return children_of(self._now, prefixes, weights, share)


def _of(counts: NGramCounts, run: Rounds) -> Ahead:
    """By all that was counted."""
    return foresight(counts.table(), run.reader, run.model.device)


def recording(counts: NGramCounts) -> Watch:
    """Counts what the model says behind the prefixes of a round."""

    def record(prefixes: Prefixes, weights: Tensor) -> None:
        counts.add(*last_tokens(prefixes.tokens), prefixes.log_probs)

    return record


def Twisted(  # noqa: N802  # a class once
    table: NGramTable | Literal["prepared", "model"] | None = "prepared",
    blocks: int | None = None,
    seen: Lesson | None = None,
    name: str = "twisted",
    worth: Worth | None = None,
) -> WithoutReplacement:
    """SMC without replacement that is steered by n-grams; `table` and `seen` are those of `NGrams`."""
    return WithoutReplacement(blocks, name, None, worth, NGrams(table, seen))
