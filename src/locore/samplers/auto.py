"""`auto`: look at the problem, then hand it to the sampler that suits it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from locore.circuits import Circuit, LeftToRight
from locore.evidence import Draws
from locore.kernel.errors import ZeroWeights
from locore.kernel.evidence.record import Bounds
from locore.kernel.samplers.sampler import Prefixes, Promises, Sampler, Worth
from locore.models import LanguageModel
from locore.samplers.best_first import MOST_SEQUENCES, BestFirst, Enumeration, Search
from locore.samplers.enumeration import price_of_enumeration
from locore.samplers.few import few_draws
from locore.samplers.free import Begun, free_states
from locore.samplers.lcr import LocallyConstrainedResampling
from locore.samplers.rejection import Rejection
from locore.samplers.swor import JUDGED_BLOCKS, JUDGED_WIDTH
from locore.samplers.twist.lessons import Lesson, Shared, Twisted
from locore.samplers.twist.ngram import prepared_table
from locore.samplers.without_replacement import Trial, WithoutReplacement, tried

LIKELY = 1 / 4  # share of accepted pilot draws from which rejection is the cheapest exact way
LEAST_ACCEPTED = 3  # pilot draws, below which a share means nothing: one of five may be luck, and rejection then finds none
FOR_ONE = 12  # prefixes at a position for each particle that is asked for, up to those of a verdict
PILOT_SHARE = 1 / 8  # of a budget, at most
BEFORE_ALL = 1 / 4  # of the price of all prefixes: what the likeliest may cost before all are read
FEW = 128  # prefixes that can be completed and are simply enumerated
LIKELY_FIRST = math.log(1 / 2)  # of the first token's being one with which the constraint can be satisfied
PATIENCE = 4  # times the price of plain draws, that rejection may cost where it is likely to succeed
PLAIN = "the first draws of the model that satisfy the constraint"
MOSTLY_BROKEN = "the model's first token mostly breaks the constraint"
NOT_PLAIN = "draws of the model by itself would hardly satisfy the constraint"
ONCE = "all is done in one go through the text"
KNOWN, UNKNOWN = "the model's table is there", "no table is prepared for this model"
MORE_PASSES = 8  # than a text takes: those of a search that does not seem to end
ENOUGH = JUDGED_BLOCKS * JUDGED_WIDTH  # prefixes at a position for a verdict
READ_AT_ONCE = 384  # prefixes for each position: so many are read in the passes of a text where the likeliest do not suffice
WITHIN_SIGHT = 100  # times the limit: so many prefixes may be spellings of a few likely texts


@dataclass(frozen=True)
class Auto(Promises):
    """Chooses by what the constraint leaves and by a pilot of unconstrained draws.

    Few prefixes left: enumeration. More of them: the likeliest first, which is as good where they are spellings of a few
    texts, or where the rest of the text is free once they are written, and is given up after an eighth of the budget where
    they are not. Without a budget a pilot comes next, and of a likely constraint rejection, which is exact and cheap. Otherwise
    SMC without replacement with a twist, from the model's table if `locore prepare` has made it, and if not from one learned in
    the call, from the pilot if there was one. The pilot chooses and teaches, but none of its draws becomes a particle, so it
    cannot bias anything. Without a budget, twisted SMC keeps enough prefixes for a verdict, and fewer, without a pilot, where
    less than eight particles are asked for. So the model takes at most two passes for each token and eight.

    Attributes:
        pilot_draws: unconstrained draws of the pilot, at most.
        worth: of texts beyond α; the choice is then between enumeration and twisted SMC, which learns from it.
        soon: an answer is wanted that costs no more than as many plain draws as particles; see `quickly`.
        draws: of an answer that is wanted soon: how many texts will be drawn from what comes back, where that is all it is for;
            None where p(α) is wanted too. They are then exact where a text may end at once and the first token is likely: as
            many plain draws, each given up where it breaks the constraint, and tried four times. If that fails, or elsewhere,
            without a pilot.
        keep_all: where all is read, nothing is thinned before it can be weighed or filtered.
        shared: what twisted SMC learns from, and adds to, of calls about the same constraint behind other prompts.
    """

    reads_prefixes: ClassVar[bool] = True

    pilot_draws: int = 32
    name: str = "auto"
    worth: Worth | None = field(default=None, compare=False, repr=False)
    soon: bool = False
    draws: int | None = None
    keep_all: bool = field(default=False, compare=False, repr=False)
    shared: Shared | None = field(default=None, compare=False, repr=False)

    def most_prefixes(self, num_particles: int) -> float | None:
        """Those of a verdict, and what it looks at before it chooses: the likeliest prefixes, and a pilot."""
        return None if self.soon else (1 + 2 * PILOT_SHARE) * max(num_particles, ENOUGH)

    def times_through(self, model: LanguageModel) -> int:
        """As "twisted", which it mostly chooses."""
        return Twisted().times_through(model)

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """As the sampler that is chosen; its name and the reason are in `info`."""
        if self.soon:
            return quickly(self, model, circuit, num_particles, budget, generator)
        price = max(1, circuit.length - 1)
        judged = price * max(num_particles, ENOUGH)
        # Without a budget it is what twisted SMC would cost, and few texts are not worth as much as a verdict.
        limit = min(judged, price * FOR_ONE * num_particles) if budget is None else budget
        reader, eos_ids, most = circuit.reader, model.tokenizer.eos_ids, WITHIN_SIGHT * limit  # nobody asks for more
        prefixes = math.inf if reader is None else price_of_enumeration(reader, eos_ids, most=most)
        few = _are_few(circuit, prefixes, limit)
        search = None if self.worth else _searched(model, circuit, prefixes, few, limit, generator)
        spent = 0 if search is None else search.walk.contexts
        if search is not None and search.is_done(BestFirst.share):
            free = f"{spent:,} prefixes were read, up to where the rest of the text is free"
            read = free if search.begun else f"{spent:,} of {prefixes:,.0f} prefixes were read"
            why = f"{read}; what they leave out is below {BestFirst.share:.1%} of what they hold"
            return named(search.draws(num_particles, generator, self.keep_all, budget), BestFirst(), why)
        few = few or _fit_at_once(circuit, prefixes + spent, limit)
        budget = None if budget is None else budget - spent
        # It takes a pass for each token: not after those of a search, nor where there is a budget to be made most of.
        pilot = budget is None and search is None and self.worth is None and limit >= judged
        draws = min(self.pilot_draws, int(limit * PILOT_SHARE) // price) if pilot or reader is None else 0
        chosen: Sampler
        if few and (self.worth is None or circuit.count() <= FEW):
            chosen = Enumeration(max_contexts=limit, keep_all=self.keep_all or self.worth is not None)
            why, cost = few_left(prefixes), 0
        else:
            chosen, why, cost = self._choose(model, circuit, limit, draws, search is not None, generator)
        rest = None if budget is None else budget - cost
        if budget is None and isinstance(chosen, WithoutReplacement):
            rest = judged if limit == judged else limit - spent - cost
        try:
            drawn = chosen(model, circuit, num_particles, rest, generator)
        except ZeroWeights as error:
            error.log_most = error.log_most if search is None else min(error.log_most, search.bounds[1])
            raise
        return named(drawn if search is None else _narrowed(drawn, search.bounds), chosen, why)

    def _choose(
        self, model: LanguageModel, circuit: Circuit, limit: int, draws: int, late: bool, generator: torch.Generator
    ) -> tuple[Sampler, str, int]:
        """The sampler, why, and the LM tokens of so many draws of a pilot; no table is tried where passes were made before."""
        price, reader = max(1, circuit.length - 1), circuit.reader
        table, by = None if reader is None else prepared_table(model), model.near or model
        of_table, seen, cost = KNOWN if table else UNKNOWN, Lesson(trial=Trial()) if late else None, draws * price
        if reader is not None and not draws:
            return Twisted(table, seen=seen, worth=self.worth, shared=self.shared), f"{ONCE}; {of_table}", 0
        if reader is not None and reader.outline is not None:
            trial = 0 if table is None else tried((limit - cost) // price)
            seen = Lesson.taken(by, reader, draws, trial, generator)
            drawn, cost = seen.tokens, seen.lm_tokens
        elif draws:
            drawn = by.sample(draws, circuit.length, generator).tokens
        accepted = int(circuit.accepts(drawn).sum()) if draws else 0
        why = pilot_report(accepted, draws, self.worth)
        if self.worth is None and (accepted >= max(LEAST_ACCEPTED, LIKELY * draws) or accepted == draws > 1):
            return Rejection(seen=(accepted, draws)), why, cost
        if reader is None:
            return LocallyConstrainedResampling(), f"{why}, and it has no left-to-right reading", cost
        return Twisted(table, seen=seen, shared=self.shared), f"{why}; {of_table}", cost


def _narrowed(draws: Draws, bounds: Bounds) -> Draws:
    """Draws that know what a search was certain of as well."""
    (low, high), (least, most) = draws.record.bounds, bounds
    return replace(draws, record=replace(draws.record, bounds=(max(low, least), min(high, most))))


def _are_few(circuit: Circuit, prefixes: float, limit: int) -> bool:
    """Are all of them read, in large passes, if the likeliest are not enough?

    A Sudoku of 81 cells with a hundred solutions has 3,600 prefixes. Best first reads 2,600 of them in nearly as many passes:
    11 CPU seconds with a model of half a million parameters, where all of them take .6. Few prefixes may have millions of ends,
    which nobody wants one by one.
    """
    if prefixes <= min(FEW, limit):
        return True
    return prefixes <= limit * PILOT_SHARE and circuit.count() <= MOST_SEQUENCES


def _fit_at_once(circuit: Circuit, prefixes: float, limit: int) -> bool:
    """Are so many read in the passes of a text, those included that were read in vain?"""
    return prefixes <= min(limit, READ_AT_ONCE * circuit.length)


def _searched(
    model: LanguageModel, circuit: Circuit, prefixes: float, few: bool, limit: int, generator: torch.Generator
) -> Search | None:
    """The likeliest prefixes read first, where so many prefixes may be spellings of a few likely texts; None elsewhere.

    Prefixes that leave the rest of the text free are not counted, nor what begins with them.
    """
    if prefixes <= min(FEW, limit):
        return None
    begun, tried = None, int(BEFORE_ALL * prefixes if few else PILOT_SHARE * limit)
    free = None if few or circuit.reader is None else free_states(circuit.reader, model.tokenizer)
    if free is not None and circuit.reader is not None:
        begun = Begun(free, circuit.length, generator)
        prefixes = price_of_enumeration(circuit.reader, model.tokenizer.eos_ids, free, WITHIN_SIGHT * limit)
    if prefixes > WITHIN_SIGHT * limit or limit - tried < circuit.length - 1:
        return None
    search = Search(model, circuit, begun).run(tried, BestFirst.share, circuit.length + MORE_PASSES)
    at_once = few or _fit_at_once(circuit, prefixes + search.walk.contexts, limit)
    if prefixes <= limit and not at_once and not search.is_done(BestFirst.share):
        search.run(limit, BestFirst.share)
        if not search.is_done(BestFirst.share):
            search.run(limit, 0.0)  # all of them, and then nothing is left to chance
    return search


def Quick(pilot_draws: int = 2, draws: int | None = None, worth: Worth | None = None) -> Auto:  # noqa: N802  # a class once
    """`Auto` for an answer that is wanted soon."""
    return Auto(pilot_draws, "quick", worth, True, draws)


def quickly(
    sampler: Auto, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
) -> Draws:
    """At the price of `num_particles` plain draws: (length − 1) LM tokens for each.

    Few prefixes left: enumeration. Both of two unconstrained draws satisfy the constraint: rejection. Otherwise SMC without
    replacement on as many prefixes as the price allows, twisted by the model's table if `locore prepare` has made it. Nothing
    is learned in the call, and fewer than 96 prefixes leave no verdict. Nothing is drawn in vain where the first token says
    that draws would hardly do; where draws are all that is wanted, each is one row if the model would likely keep to the
    constraint, and if not nothing is tried beforehand.
    """
    worth, price, reader, prefixes = sampler.worth, max(1, circuit.length - 1), circuit.reader, math.inf
    limit = num_particles * price if budget is None else budget
    if reader is not None:
        prefixes = price_of_enumeration(reader, model.tokenizer.eos_ids, most=FEW)
    if prefixes <= min(FEW, limit):
        exact = Enumeration(max_contexts=limit, keep_all=sampler.keep_all or worth is not None)
        return named(exact(model, circuit, num_particles, limit, generator), exact, few_left(prefixes))
    if sampler.draws is not None and worth is None and _only_forbids(model, circuit):
        few = few_draws(model, circuit, sampler.draws, PATIENCE, generator)
        if few is not None:
            return named(few, Rejection(), PLAIN)
    likely = reader is None or (sampler.draws is None and _is_likely(model, reader))
    draws = min(sampler.pilot_draws, limit // (PATIENCE * price)) if likely else 0
    accepted = int(circuit.accepts(model.sample(draws, circuit.length, generator).tokens).sum()) if draws else 0
    why = pilot_report(accepted, draws, worth) if likely else MOSTLY_BROKEN if sampler.draws is None else NOT_PLAIN
    chosen: Sampler
    if draws > 1 and accepted == draws:
        chosen, limit = Rejection(), PATIENCE * limit
    elif reader is None:
        chosen, why = LocallyConstrainedResampling(), f"{why}, and it has no left-to-right reading"
    else:
        table = prepared_table(model)
        why += f"; {KNOWN if table else UNKNOWN}"
        chosen = WithoutReplacement(worth=worth) if table is None else Twisted(table, worth=worth)
    return named(chosen(model, circuit, num_particles, limit - draws * price, generator), chosen, why)


def _only_forbids(model: LanguageModel, circuit: Circuit) -> bool:
    """May a text end at once, and is the first token likely, so that the model by itself would likely keep to it?"""
    ends, reader = list(model.tokenizer.eos_ids), circuit.reader
    if reader is None or circuit.relaxed:
        return False
    return bool(Prefixes.start(model, reader).allowed()[0, ends].any()) and _is_likely(model, reader)


def _is_likely(model: LanguageModel, reader: LeftToRight) -> bool:
    """Is the first token one with which the constraint can be satisfied?"""
    return float(Prefixes.start(model, reader).masked().logsumexp(-1)) >= LIKELY_FIRST


def pilot_report(accepted: int, draws: int, worth: Worth | None) -> str:
    """What a pilot found, in words; it asks no potential."""
    if not draws:
        return "unconstrained draws were not tried, which would have cost too much of the LM tokens to be spent"
    aside = "" if worth is None else "; potentials were not asked about them"
    return f"{accepted} of {draws} unconstrained draws satisfy the constraint{aside}"


def few_left(prefixes: float) -> str:
    """Why a constraint is enumerated."""
    return f"only {prefixes:,.0f} prefixes can be completed"


def named(draws: Draws, chosen: Sampler, why: str) -> Draws:
    """Draws that say who made them."""
    return replace(draws, record=replace(draws.record, chosen=chosen.name, why=why))
