"""Foresight by an n-gram table of the model's own distributions, prepared or learned within the call.

Selecting prefixes by p(prefix) needs many of them before one that leads to α is among them. Selecting by p(prefix) ·
β(prefix), β an estimate of p(α | prefix), needs few. β comes from a table prepared for the model, or it is learned within the
call: rounds go through the text once, side by side with unconstrained drafts, and a table of all that they have read so far
steers them from the fourth token on. What steers a step is fixed before it, so given the past it is unbiased: so is the mean
of the rounds, and as their errors are uncorrelated, their spread is an honest error. A table that was made before is put to the
test by a small round without it: where it would have foretold that far worse than nothing does, it is left aside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from locore.circuits import LeftToRight
from locore.circuits.counted import CountedReader
from locore.evidence import TableUse
from locore.kernel.certain import apart
from locore.kernel.samplers.rounds import Round, Walk, abreast
from locore.kernel.samplers.sampler import Ahead, Prefixes, Worth
from locore.models import LanguageModel
from locore.samplers.ahead import Children, children_of, last_tokens, product
from locore.samplers.swor import ROUNDED, Size, size_of_steps, walk
from locore.samplers.twist.counts import counts_ahead
from locore.samplers.twist.lookahead import look_ahead, singled_out
from locore.samplers.twist.ngram import NGramCounts, NGramTable, prepare, prepared_table
from locore.samplers.without_replacement import LESSONS, WORTH_A_TRIAL, Rounds, Trial, WithoutReplacement

DRAFT_SHARE = 1 / 12  # of all prefixes
LEAST = 2  # prefixes of a round that learns
FIRST = 4  # position of the first table that is learned on the way; a third of it where that is less. Then at twice as many.

# Nats by which the forecasts of one table may change on the way. On SmolLM2 0.2 to 4.6 for words, endings and counts; 10 to 17
# in JSON, where what was read so far says nothing of what is to come, and steering by it loses most of p(α).
REFUTED = 5.0
# Entries of distributions that calls share, and of each; of hundreds of phrases a call would take three times as long.
MOST_SHARED, MOST_EACH = 3_000_000, 256


@dataclass(frozen=True, eq=False)
class Lesson:
    """What was seen of a prompted model, and of the constraint, before anything is steered.

    Attributes:
        counts: distributions along drafts of the model by itself; None where they are not needed. They must not depend on the
            generator's numbers that are still to come, and nothing else is asked of them.
        trial: a round without foresight, for a table that is there; None if there was none.
        tokens: Long[drafts, length].
        lm_tokens: what all of it cost.
    """

    counts: NGramCounts | None = None
    trial: Trial | None = None
    tokens: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    lm_tokens: int = 0

    @classmethod
    def taken(cls, model: LanguageModel, reader: LeftToRight, drafts: int, trial: int, generator: torch.Generator) -> Lesson:
        """So many drafts, and beside them a trial of so many prefixes; without one what the model says along the drafts."""
        counts, tried = counts_for(model, reader), Trial() if trial else None
        walks = [counts.drafts(model, drafts, reader.length, generator, tried is None)]
        if tried is not None:
            walks.append(tried.walk(model, reader, trial, generator))
        with apart():
            walked = abreast(walks)
        cost = math.ceil(sum(cost for _, cost in walked) - ROUNDED)
        return cls(counts if tried is None else None, tried, walked[0][0], cost)


@dataclass
class Shared:
    """What calls about one constraint, behind different prompts, learn from each other: words come about alike everywhere.

    Attributes:
        counts: of all calls so far; None before the first.
        is_closed: nothing more is taken in, so that the calls that follow do not depend on each other.
    """

    counts: NGramCounts | None = None
    is_closed: bool = False

    def take(self, counts: NGramCounts) -> None:
        """All that was counted, what was known before included, while it is not too much to look through for each table."""
        if not self.is_closed and counts.entries <= min(MOST_SHARED, MOST_EACH * counts.positions):
            self.counts = counts


@dataclass(frozen=True)
class NGrams:
    """A `Foresight` of `WithoutReplacement`.

    Attributes:
        table: "prepared" for the table that `locore.prepare` made for the model, or where there is none one that is learned
            within the call and the budget; None to learn one in any case; "model" to make the model's where there is none,
            which costs some 20,000 LM tokens beside the budget (they are in the result's info, not in `lm_tokens`); or a table.
        seen: what was seen before the call, and paid for; learning, or the judgement of a table, begins with it.
        shared: what other calls have read, in place of drafts; learning begins with it, and adds to it.
    """

    table: NGramTable | Literal["prepared", "model"] | None = "prepared"
    seen: Lesson | None = field(default=None, compare=False, repr=False)
    shared: Shared | None = field(default=None, compare=False, repr=False)

    def times_through(self, model: LanguageModel) -> int:
        """Twice with a table that is there, which is put to a trial first."""
        return 1 if self.table is None or (self.table == "prepared" and prepared_table(model) is None) else 2

    def rounds(self, run: Rounds, blocks: int, asked: int | None, budget: int) -> tuple[list[Round], dict[str, Any]]:
        """As `Foresight.rounds`."""
        table, use = self._table(run.model)
        if run.reader.outline is None:  # a table of n-grams needs that of all states
            rounds = run.alike(blocks, budget, None)
        elif table is not None:
            trial = None if self.seen is None else self.seen.trial
            rounds = run.by_foresight(blocks, budget, foresight(table, run.reader, run.model.device), trial)
        else:
            number = max(blocks, LESSONS) if asked is None and budget >= WORTH_A_TRIAL * run.price else blocks
            seen = None if self.seen is None else self.seen.counts
            rounds = _learning(run, number, budget, seen, self.shared or Shared(is_closed=True))
        if run.left_aside:
            use = replace(use, origin="left aside")
        # What was learned in the call foretells what was seen: what all rounds missed it would not have found.
        return rounds, {"guided": run.twisted and table is not None, "table": use}

    def _table(self, model: LanguageModel) -> tuple[NGramTable | None, TableUse]:
        if isinstance(self.table, NGramTable):
            return self.table, TableUse("given")
        if self.table == "model" and model.fingerprint() is not None:
            prepared = prepare(model)
            return prepared.table, TableUse("of the model", prepared.lm_tokens, prepared.seconds)
        table = prepared_table(model) if self.table == "prepared" else None
        return table, TableUse("learned in the call" if table is None else "of the model")


def _learning(run: Rounds, number: int, budget: int, seen: NGramCounts | None, shared: Shared) -> list[Round]:
    """Rounds that learn as they go, from each other and from drafts beside them, where these were not seen before.

    Without foresight where the budget does not leave two prefixes to each round: one would be steered by what it said itself.
    """
    if shared.counts is not None:
        seen = shared.counts if seen is None else shared.counts.with_more(seen)
    drafts = max(1, round(budget // run.price * DRAFT_SHARE)) if seen is None else 0
    if (drafts + LEAST * number) * run.price > budget:
        return run.alike(number, budget, None)
    counts = counts_for(run.model, run.reader)
    lessons = _Lessons(run, counts if seen is None else seen.with_more(counts))
    length = min(lessons.last + 1, run.reader.length)
    beside = [lessons.counts.drafts(run.model, drafts, length, run.generator)] if drafts else []
    run.twisted = True
    rounds = run.rounds_of(number, budget - drafts * lessons.last, lessons.walk, beside=beside)
    run.left_aside = lessons.left_aside
    shared.take(lessons.counts)
    return rounds


class _Lessons:
    """A table of all that was counted so far, made anew on the way.

    Attributes:
        counts: what the model says behind the prefixes of all rounds, and along drafts.
        last: position of the last table that is made; what comes later is not counted.
        left_aside: was it refuted in a round?
    """

    def __init__(self, run: Rounds, counts: NGramCounts) -> None:
        """Of this call; nothing is foreseen before something was counted."""
        self.counts, self._run, self.left_aside = counts, run, False
        self._next, self._ahead = max(1, min(FIRST, run.reader.length // 3)), self._of_counts() if counts.positions else None
        self.last = self._next
        while 2 * self.last < run.reader.length:
            self.last *= 2

    def at(self, position: int) -> Ahead | None:
        """What is foreseen at a position, to all rounds the same."""
        if position == self._next:
            self._next, self._ahead = 2 * position, self._of_counts()
        return self._ahead

    def _of_counts(self) -> Ahead:
        return foresight(self.counts.table(), self._run.reader, self._run.model.device)

    def _record(self, prefixes: Prefixes, weights: Tensor) -> None:
        if prefixes.position <= self.last and self._next <= self.last:  # rounds that refuted a table ask for no other
            self.counts.add(*last_tokens(prefixes.tokens), prefixes.log_probs)

    def walk(self, size: Size) -> Walk[Round]:
        """A round that learns as it goes."""
        along, run = _Along(self), self._run
        steered = product(along, run.always)
        done = yield from walk(run.model, run.reader, size, run.generator, steered, (self._record,))
        return along.judged(done)


class _Along:
    """An `AheadByToken` that changes while it steers a round, until it is refuted by what came.

    Forecasts are judged by what a table says of the positions after those that it was made of: that an earlier one knew less is
    no surprise. What the first says of prefixes that were kept without it is as good a forecast as any.
    """

    def __init__(self, lessons: _Lessons) -> None:
        self._lessons = lessons
        self._ahead: Ahead | None = None
        self._met: list[tuple[Prefixes, Tensor]] = []  # of which nothing was foretold yet
        self._plain: list[float] = []
        self._foretold: list[list[float]] = []  # by each table
        self._refuted = False

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num], as `Ahead.of`."""
        return torch.zeros(len(prefixes), dtype=torch.float64) if self._ahead is None else self._ahead.of(prefixes)

    def after(self, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
        """As `AheadByToken.after`."""
        if prefixes.position:
            self._plain.append(float(torch.logsumexp(weights, 0)))
        if self._refuted:
            return None
        self._hear(prefixes, weights)
        return None if self._ahead is None else children_of(self._ahead, prefixes, weights, share)

    def _hear(self, prefixes: Prefixes, weights: Tensor) -> None:
        """Test the present table, and take the next if it is time."""
        if self._ahead is not None:
            self._foretell(prefixes, weights)
            if size_of_steps(self._foretold[-1]) > REFUTED:
                self._refuted, self._ahead, self._lessons.left_aside = True, None, True
                return
        elif prefixes.position:
            self._met.append((prefixes.forgotten(), weights))
        ahead = self._lessons.at(prefixes.position)
        if ahead is not self._ahead:
            self._ahead = ahead
            self._foretold.append([])
            for met in self._met or [(prefixes, weights)]:
                self._foretell(*met)
            self._met.clear()

    def _foretell(self, prefixes: Prefixes, weights: Tensor) -> None:
        if prefixes.position:
            self._foretold[-1].append(float(torch.logsumexp(weights + self.of(prefixes), 0)))

    def judged(self, done: Round) -> Round:
        """The round, surprised by how its forecasts changed; by its weights where nothing steered it in the end."""
        if done.surprise is None or not self._foretold:
            return done
        by_tables = [self._plain] if self._refuted else self._foretold
        last = [*by_tables[-1], done.totals[-1]]
        nats = math.hypot(*(size_of_steps(sums) for sums in (*by_tables[:-1], last)))
        return replace(done, surprise=replace(done.surprise, nats=nats))


def Twisted(  # noqa: N802  # a class once
    table: NGramTable | Literal["prepared", "model"] | None = "prepared",
    blocks: int | None = None,
    seen: Lesson | None = None,
    name: str = "twisted",
    worth: Worth | None = None,
    shared: Shared | None = None,
) -> WithoutReplacement:
    """SMC without replacement that is steered by n-grams; `table`, `seen` and `shared` are those of `NGrams`."""
    return WithoutReplacement(blocks, name, None, worth, NGrams(table, seen, shared))


def counts_for(model: LanguageModel, reader: LeftToRight) -> NGramCounts:
    """Nothing counted yet, for those who look ahead in a reading with an outline."""
    wanted = None if reader.outline is None else singled_out(reader.outline).nonzero()[:, 0]
    return NGramCounts(model.vocab_size, model.tokenizer.eos_ids, wanted)


def foresight(table: NGramTable, reader: LeftToRight, device: torch.device) -> Ahead:
    """What a table says of the states of a reading that has an outline, and of what is counted beside them."""
    assert reader.outline is not None
    ahead = look_ahead(table, reader.outline, device)
    return product(ahead, counts_ahead(table, reader)) or ahead if isinstance(reader, CountedReader) else ahead
