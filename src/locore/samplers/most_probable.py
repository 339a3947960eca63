"""The most probable texts that satisfy the constraint, with a proof where one is in reach: `sampler="search"`, temperature 0.

A sequence is at most as probable as each of its beginnings. So once no prefix that was not read is more probable than the best
sequence found, that one is the most probable for certain. All prefixes above it have to be read for that, in whatever order;
they are read in beams: eight prefixes are followed to their ends, what was left by the way waits, and the next beam begins at
the likeliest prefix that waits. What is below the best sequence found is never read. (Vadlamudi et al. 2012, "Anytime column
search", go back to what a beam has left.) Half of a beam are the likeliest prefixes, the others the likeliest of each state
of the constraint, as those that have written a keyword are less likely than those that have not (Post and Vilar 2018).

Where half the budget leaves more than can be read, the rest goes to a search of another kind: weighted draws of the law at
temperature 1/2, which look for likely texts where prefixes alone mislead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.evidence import Draws, Mode, Record
from locore.kernel.certain import apart
from locore.kernel.errors import BudgetExceeded, TimedOut, ZeroWeights
from locore.kernel.evidence.record import Guarantee
from locore.kernel.numerics import NEG_INF
from locore.kernel.request import cut_before
from locore.kernel.samplers.sampler import Prefixes, Promises, affordable
from locore.models import LanguageModel, Tempered
from locore.samplers.auto import Auto
from locore.samplers.best_first import Scored, padded
from locore.samplers.enumeration import Walk

WIDTH = 8  # prefixes of a beam
AT_ONCE = 64  # of one length, where all that wait can be paid for
MOST_NUMBERS = 2**28  # next-token distributions that prefixes which wait hold: 1 GiB
PLAIN = 16  # texts whose price a search may cost where nothing else is said
SEARCHED = 0.5  # share of the budget that goes to beams, and more where the end is in sight
SHARPENED = 0.5  # temperature of the draws
KEPT = 32  # draws
COMPARED = 8  # of the draws, the likeliest, which are scored under the law itself

Values = Callable[[Tensor, Tensor], Tensor]  # of Long[num, length] with their f64[num, length] token scores: f64[num]


@dataclass(frozen=True)
class MostProbable(Promises):
    """The most probable texts found, by p(y) of their likeliest tokenisation or by what it is worth.

    Attributes:
        texts: how many; None for as many as particles are asked for.
        worth: log of what Long[num, length] are worth beyond their probability, f64[num], −inf where one must not be; None for
            nothing.
        log_most: what that cannot exceed.
        stops: strings before the first of which texts are cut.
    """

    guarantee: ClassVar[Guarantee] = "mode"

    name: str = "search"
    texts: int | None = None
    worth: Callable[[Tensor], Tensor] | None = field(default=None, compare=False, repr=False)
    log_most: float = 0.0
    stops: tuple[str, ...] = ()

    def seeking(self, worth: Callable[[Tensor], Tensor] | None, log_most: float, stops: tuple[str, ...]) -> MostProbable:
        """By probability and worth; see the attributes."""
        return replace(self, worth=worth, log_most=log_most, stops=stops)

    def most_prefixes(self, num_particles: int) -> float:
        """One is drawn, and scored under the law itself."""
        return max(2, num_particles) if self.texts == 1 else max(PLAIN, num_particles)

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """See `Sampler`: each text once. Without a budget it may cost what so many plain draws do.

        Raises:
            ZeroWeights: nothing was found.
        """
        affordable(num_particles, 0, None, self.name)
        price = max(1, circuit.length - 1)
        limit = int(price * self.most_prefixes(num_particles)) if budget is None else budget
        affordable(1, price, limit, self.name)
        best = Best(model, num_particles if self.texts is None else self.texts, self._values, self.stops)
        log_unread = self._searched(model, circuit, best, limit, generator)
        if not best.by_text:
            if log_unread == NEG_INF:
                raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
            raise ZeroWeights(f"no text that satisfies the constraint was found in {limit:,} LM tokens; use a larger budget.")
        return best.draws(log_unread)

    def _searched(self, model: LanguageModel, circuit: Circuit, best: Best, limit: int, generator: torch.Generator) -> float:
        """Find what is best; log of what no sequence is worth that was neither found nor passed over.

        Raises:
            TimedOut: the time was up before anything was found.
        """
        if circuit.reader is None:
            best.add(*self._drawn(model, circuit, limit, generator))
            return self.log_most
        price, frontier = max(1, circuit.length - 1), Frontier(model, circuit.reader, best, limit, self.log_most)
        try:
            if limit < 3 * price:
                frontier.run(limit)
            elif not frontier.run(max(price, int(limit * SEARCHED))) and not frontier.run_on(limit - 2 * price):
                best.add(
                    *self._drawn(model, circuit, limit - frontier.walk.contexts, generator)
                )  # one at least, and it is scored
        except TimedOut:
            if not best.by_text:
                raise
            best.notes = (f"the search was ended after {frontier.walk.contexts:,} of {limit:,} LM tokens",)
        return frontier.log_unread

    def _values(self, tokens: Tensor, scores: Tensor) -> Tensor:
        """f64[num]: log of what sequences are compared by."""
        values = scores.sum(-1)
        return values if self.worth is None else values + self.worth(tokens)

    def _drawn(self, model: LanguageModel, circuit: Circuit, budget: int, generator: torch.Generator) -> Scored:
        """The likeliest of weighted draws of a sharper law, with their scores under the model's; none where none was found."""
        sharper, price = Tempered(model, SHARPENED), max(1, circuit.length - 1)
        compared = max(1, min(COMPARED, budget // (4 * price)))
        try:
            with apart():
                draws = Auto()(sharper, circuit, KEPT, budget - compared * price, generator)
        except (ZeroWeights, BudgetExceeded, TimedOut):
            return torch.zeros(0, circuit.length, dtype=torch.long), torch.zeros(0, circuit.length, dtype=torch.float64)
        scores = sharper.token_scores(draws.tokens) if draws.token_scores is None else draws.token_scores
        likely = self._values(draws.tokens, scores).argsort(descending=True)[:compared]
        tokens = draws.tokens[likely]
        return tokens, model.token_scores(tokens)


class Best:
    """The most probable texts so far, each by its likeliest tokenisation.

    Attributes:
        by_text: of each text its value, tokens and token scores, the most probable first; so many at most.
        compared: sequences that were compared.
        notes: what the report should say.
    """

    def __init__(self, model: LanguageModel, number: int, values: Values, stops: tuple[str, ...] = ()) -> None:
        self._tokenizer, self._number, self._values = model.tokenizer, number, values
        self._stops = [stop.encode() for stop in stops]
        self.by_text: dict[Hashable, tuple[float, Tensor, Tensor]] = {}
        self.compared = 0
        self.notes: tuple[str, ...] = ()

    @property
    def log_least(self) -> float:
        """What a text must be worth to be among them."""
        return NEG_INF if len(self.by_text) < self._number else min(value for value, *_ in self.by_text.values())

    def add(self, tokens: Tensor, scores: Tensor) -> None:
        """Whole sequences Long[num, length] with f64[num, length] scores."""
        self.compared += len(tokens)
        for value, y, each in zip(self._values(tokens, scores).tolist(), tokens, scores, strict=True):
            if value > self.log_least:
                name = self._name(y.tolist())
                earlier = self.by_text.get(name)
                if earlier is None or earlier[0] < value:
                    self.by_text[name] = (value, y, each)
                    ranked = sorted(self.by_text.items(), key=lambda item: -item[1][0])
                    self.by_text = dict(ranked[: self._number])

    def _name(self, tokens: list[int]) -> Hashable:
        """What makes two sequences one text."""
        tokenizer = self._tokenizer
        return cut_before(tokenizer.text_bytes(tokens), self._stops) if tokenizer.has_text else tuple(tokens)

    def draws(self, log_unread: float) -> Draws:
        """All of them, where none that was not read is worth more than e^log_unread."""
        values, tokens, scores = zip(*self.by_text.values(), strict=True)
        mode = Mode.of(values, max(log_unread, self.log_least), self.compared)  # what is below was passed over
        record = Record(guarantee="mode", weighted=False, drawn=len(values), mode=mode, notes=self.notes)
        return Draws(torch.stack(tokens), torch.tensor(values, dtype=torch.float64), torch.stack(scores), record)


class Frontier:
    """Prefixes that were reached and not read, in groups of one length that go on from the same pass.

    Attributes:
        walk: counts LM tokens.
    """

    def __init__(self, model: LanguageModel, reader: LeftToRight, best: Best, most: int, log_most: float = 0.0) -> None:
        """Nothing has been read.

        Args:
            best: what is found goes there.
            most: LM tokens that will be spent in all; more prefixes than that are not kept.
            log_most: no sequence is worth more than e^log_most times its probability.
        """
        self.walk = Walk(model, reader, most)
        self._best, self._log_most = best, log_most
        self._groups = [Prefixes.start(model, reader)]  # the likeliest of each first
        self._log_dropped = NEG_INF

    @property
    def log_unread(self) -> float:
        """Log of what no sequence is worth that was neither found nor passed over."""
        waiting = (float(group.log_mass[0]) for group in self._groups)
        return max([self._log_dropped, *waiting]) + self._log_most

    @property
    def is_done(self) -> bool:
        """Can nothing that waits be among the best?"""
        return self.log_unread <= self._best.log_least

    def run(self, limit: int) -> bool:
        """Follow beams until that is so, or until so many LM tokens are spent; is it so?"""
        while self._pruned() and self._room(limit, self._groups[0]):
            self._follow(self._groups.pop(0), limit)
        return self.is_done

    def run_on(self, limit: int) -> bool:
        """As `run`, as long as what waits is less than can be read."""
        while self._groups and sum(map(len, self._groups)) <= limit - self.walk.contexts:
            self.run(min(limit, self.walk.contexts + AT_ONCE))
        return self.is_done

    @property
    def _floor(self) -> float:
        """Log probability below which a prefix leads to nothing that is wanted."""
        return self._best.log_least - self._log_most

    def _room(self, limit: int, group: Prefixes) -> int:
        """How many prefixes of a group are read together; all that wait where that is within the limit."""
        left = limit - self.walk.contexts if group.position else max(1, limit)
        if not self._best.by_text and left > 1:  # one prefix at least is followed to its end
            left = max(1, left - (self.walk.reader.length - 1 - group.position))
        waiting = len(group) + sum(len(other) for other in self._groups if other is not group)
        return min(left, AT_ONCE if waiting <= left else max(1, min(WIDTH, left // self.walk.reader.length)))

    def _follow(self, group: Prefixes, limit: int) -> None:
        """A beam from the likeliest of a group to the end of its texts; what it leaves waits."""
        while len(group) and (width := self._room(limit, group)):
            if len(group) > width:
                now = _first(group, width)
                self._groups.append(group.at(~now))
                group = group.at(now)
            try:
                group = self._read(group)
            except TimedOut:
                self._groups.append(group)  # it was not read
                raise
        if len(group):
            self._groups.append(group)

    def _read(self, prefixes: Prefixes) -> Prefixes:
        """The children that may lead to something, the likeliest first; whole sequences are found."""
        joint = self.walk.joint(prefixes).flatten()
        most = max(AT_ONCE, self.walk.max_contexts - self.walk.contexts)
        masses, which = joint.topk(min(most + 1, len(joint)))
        if len(masses) > most and float(masses[most]) > self._floor:
            self._log_dropped = max(self._log_dropped, float(masses[most]))
        which = which[:most][masses[:most] > self._floor]  # never −inf
        row, token = which // self.walk.model.vocab_size, which % self.walk.model.vocab_size
        children = prefixes.extended(row, token)
        whole = ~children.going() | torch.tensor(children.are_complete)
        if bool(whole.any()):
            self._best.add(*padded(children.at(whole), *self.walk.model.tokenizer.eos_ids[:1]))
        return children.at(~whole & (children.log_mass > self._floor))

    def _pruned(self) -> list[Prefixes]:
        """What waits, the likeliest first, without what leads to nothing; where memory ends, without what is least likely."""
        groups = []
        for group in self._groups:
            likely = group.log_mass > self._floor
            groups += [group if bool(likely.all()) else group.at(likely)] if bool(likely.any()) else []
        groups.sort(key=lambda group: -float(group.log_mass[0]))
        most = MOST_NUMBERS // (WIDTH * self.walk.model.vocab_size)
        self._log_dropped = max([self._log_dropped, *(float(group.log_mass[0]) for group in groups[most:])])
        self._groups = groups[:most]
        return self._groups


def _first(group: Prefixes, width: int) -> Tensor:
    """Bool[num]: so many to be read, half of them the likeliest, and the likeliest of each state of the constraint."""
    _, which = torch.unique(group.states, return_inverse=True)
    firsts = torch.full((int(which.max()) + 1,), len(group)).scatter_reduce_(0, which, torch.arange(len(group)), "amin")
    order = torch.arange(len(group), dtype=torch.float64)
    order[firsts] -= len(group)  # the likeliest of a state come before all others
    order[: -(-width // 2)] -= 2 * len(group)
    now = torch.zeros(len(group), dtype=torch.bool)
    now[order.argsort()[:width]] = True
    return now
