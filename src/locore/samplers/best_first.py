"""Best first: the likeliest prefixes that can be completed are read first, until what is unread hardly matters.

A choice among ten labels has thousands of tokenisations, and nearly all the probability on ten of them. Let F be the
probability of the sequences found, R that of the prefixes that were reached and not read. Then F ≤ p(α) ≤ F + R for certain,
and once R is a small share of F the answer is as good as enumerated, for a hundredth of its price. Which prefixes are read
depends on the model alone, so the sequences found are weighed by p(y) itself; for the rest, prefixes are drawn in proportion to
their probability and completed by masked decoding, each with the weight R · Π Z_t. Every y ⊨ α that was not found has exactly
one beginning x among the unread prefixes, so E[w(y)] = R · (p(x)/R) · p(y | x) = p(y): proper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.record import Bounds, Draws, Record
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.rounds import Round, pooled
from locore.kernel.samplers.sampler import Prefixes, Promises, affordable, left_to_right
from locore.kernel.samplers.selection import select
from locore.samplers.enumeration import KEPT, Walk, enumerated
from locore.samplers.free import Beginnings, Begun
from locore.samplers.masking import NUMBERS, regrown

NEARLY = math.log(4)  # nats below the likeliest prefix: what is read together with it
# Prefixes that are read together, as few take hardly less time, and none further below.
AT_ONCE, FAR = 16, math.log(64)
MOST_NUMBERS = 2**27  # of prefixes that were reached and not read: 1 GiB
Scored = tuple[Tensor, Tensor]  # Long[num, length], whole sequences, and f64[num, length], their token scores
MOST_SEQUENCES = 2**18  # found and reached: they cost no LM tokens, and yet time, of which drawing a few takes less
REST = 4  # sequences that stand for what was not read


@dataclass(frozen=True)
class BestFirst(Promises):
    """Enumeration of what is likely, with certain bounds; exact where nothing is left, and with a share of 0.

    It suits constraints that leave few *texts*, and is at a loss where the likely beginnings are not those of α.

    Attributes:
        share: of the probability found, below which what is unread is left to chance. 0: all is read, in large passes, or
            nothing where that would cost too much.
        max_contexts: LM tokens that may be spent where the caller sets no budget.
        keep_all: nothing is thinned before it can be weighed or filtered.
    """

    reads_prefixes: ClassVar[bool] = True

    share: float = 0.001
    max_contexts: int = 10_000
    name: str = "best-first"
    keep_all: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or self.max_contexts < 1:
            raise InvalidArgument(
                f"share must be at least 0 and below 1 and max_contexts at least 1, got {self.share} and {self.max_contexts}."
            )

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """See `Sampler`. With a small budget more is left to chance."""
        if num_particles < 1:
            raise InvalidArgument(f"num_particles must be at least 1, got {num_particles}.")
        affordable(1, circuit.length - 1, budget if self.share else None, self.name)
        limit = self.max_contexts if budget is None else budget
        if not self.share:
            return enumerated(model, circuit, num_particles, limit, generator, self.keep_all)
        return Search(model, circuit).run(limit, self.share).draws(num_particles, generator, self.keep_all)


def Enumeration(max_contexts: int = 100_000, keep_all: bool = False) -> BestFirst:  # noqa: N802  # a class once
    """Exact, where few enough prefixes can be completed."""
    return BestFirst(0.0, max_contexts, "exact", keep_all)


class Search:
    """What was found and what is left to read.

    Attributes:
        walk: counts LM tokens.
        passes: of the model, so far.
        rest: sequences that will stand for what is not read.
        begun: prefixes that leave the rest free, none of which is read on; None where that is not asked.
    """

    def __init__(self, model: LanguageModel, circuit: Circuit, begun: Begun | None = None) -> None:
        """Nothing has been read yet; what `begun` says is free will not be."""
        reader = left_to_right(circuit)
        self.walk = Walk(model, reader, max_contexts=2**62)
        self.rest = REST
        self._circuit, self.begun = circuit, begun
        self._unread = [Prefixes.start(model, reader)]
        self._sequences: list[Scored] = []
        self.passes = 0

    @property
    def log_found(self) -> float:
        """log F, with all that is free."""
        return _log_sum(self._log_whole, NEG_INF if self.begun is None else self.begun.log_mass)

    @property
    def _log_whole(self) -> float:
        """Of whole sequences alone."""
        return _log_total([scores for _, scores in self._sequences])

    @property
    def log_left(self) -> float:
        """log R."""
        return _log_total([prefixes.token_scores for prefixes in self._unread])

    @property
    def bounds(self) -> Bounds:
        """Certain ones of log p(α). What is free counts above only: it may hold texts that break off within a character."""
        return self._log_whole, _log_sum(self.log_found, self.log_left)

    def is_done(self, share: float) -> bool:
        """Is what is left at most this share of what was found?"""
        return not self._unread or (share > 0 and self.log_left <= self.log_found + math.log(share))

    def run(self, limit: int, share: float, passes: float = math.inf) -> Search:
        """Read until that is so, or until another round would leave too little of the limit, or of memory, for the rest.

        Args:
            passes: of the model, at most.
        """
        price_of_one = max(1, self._circuit.length - 1)
        self.rest = max(1, min(REST, limit // (2 * price_of_one)))
        reserve = self.rest * price_of_one * (bool(share) + (self.begun is not None))
        while not self.is_done(share):
            near, others = self._split(limit)
            price = sum(len(prefixes) for prefixes in near if prefixes.position)
            numbers = sum(prefixes.token_scores.numel() for prefixes in self._unread)
            sequences = sum(len(scores) for _, scores in self._sequences) + sum(map(len, self._unread))
            too_much = self.walk.contexts + price + reserve > limit or self.passes + len(near) > passes
            if too_much or numbers > MOST_NUMBERS or sequences > MOST_SEQUENCES:
                break
            self._follow(near, others)
        return self

    def _follow(self, near: list[Prefixes], others: list[Prefixes]) -> None:
        """Read some of the prefixes that were reached; the others stay unread."""
        self._unread = others
        for prefixes in near:
            self._read(prefixes)

    def _read(self, prefixes: Prefixes) -> None:
        """Of the children those that are free are begun, and the others added."""
        joint = self.walk.joint(prefixes)
        self.passes += 1
        if self.begun is not None:
            self.begun.take(prefixes, joint)
        self._add(self.walk.followed(prefixes, joint))

    def _split(self, limit: int) -> tuple[list[Prefixes], list[Prefixes]]:
        """The likeliest prefixes and those nearly as likely, and the others; of a small limit fewer at once."""
        masses = torch.cat([prefixes.log_mass for prefixes in self._unread])
        most = min(AT_ONCE, max(1, (limit - self.walk.contexts) // self._circuit.length))
        likeliest = masses.topk(min(most, len(masses))).values
        least = min(float(likeliest[0]) - NEARLY, max(float(likeliest[-1]), float(likeliest[0]) - FAR))
        near, rest = [], []
        for prefixes in self._unread:
            likely = prefixes.log_mass >= least
            near += [prefixes.at(likely)] if bool(likely.any()) else []
            rest += [prefixes.at(~likely)] if not bool(likely.all()) else []
        return near, rest

    def _add(self, children: Prefixes) -> None:
        """Whole sequences are found; one that has ended is whole but for its padding, which is certain."""
        if not len(children):
            return
        whole = ~children.going() | children.are_complete
        if bool(whole.any()):
            self._sequences.append(padded(children.at(whole), *self.walk.model.tokenizer.eos_ids[:1]))
        if not bool(whole.all()):
            self._unread.append(children.at(~whole))

    def draws(self, num_particles: int, generator: torch.Generator, keep_all: bool = False, budget: int | None = None) -> Draws:
        """All that was found, and some that stand for the rest; where nothing is left unread, all of it if that is to be kept.

        Of texts that go on from free prefixes there are as many as particles are asked for, if the budget pays for them.

        Raises:
            ZeroWeights: nothing was found, and what was drawn has no weight.
        """
        if not self._unread and not self.begun:
            return self._exact(max(KEPT, num_particles) if keep_all else num_particles, generator)
        paid = math.inf if budget is None else (budget - self.walk.contexts) // max(1, self._circuit.length - 1)
        # A round has at least one text for what is free, and one that stands for what was not read.
        self.rest = int(max(1, min(self.rest, paid // max(1, bool(self.begun) + bool(self._unread)))))
        texts = int(max(1, min(-(-num_particles // self.rest), paid // self.rest - bool(self._unread))))
        rounds = self._rounds(texts, generator)
        if not any(len(round_.tokens) for round_ in rounds):
            raise ZeroWeights("no sequence that satisfies the constraint was found; use a larger budget, or another sampler.")
        return pooled(rounds, num_particles, generator, bounds=self.bounds, evidence="enclosed")

    def _exact(self, num_particles: int, generator: torch.Generator) -> Draws:
        """All there is, thinned to the number asked for."""
        if not self._sequences:
            raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
        tokens, scores = _joined(self._sequences)
        uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
        chosen, weights = select(scores.sum(-1), num_particles, uniform)
        record = Record(evidence="exact", sequences=len(tokens))
        return Draws(tokens[chosen], weights + math.log(len(chosen)), scores[chosen], record)

    def _rounds(self, texts: int, generator: torch.Generator) -> list[Round]:
        """Each has what was found, one sequence that stands for all that was not read, and so many texts for what is free."""
        starts = [self._of_rest(generator)] if self._unread else []
        if self.begun:
            starts += [self.begun.drawn(texts, number, generator) for number in range(self.rest)]
        start = Beginnings.joined(starts)
        together = max(1, NUMBERS // self.walk.model.vocab_size)
        parts = zip(torch.split(start.tokens, together), torch.split(start.cuts, together), strict=True)
        grown = [regrown(self.walk.model, self.walk.reader, begun, cuts, generator) for begun, cuts in parts]
        tails, tail_scores = torch.cat([part.tokens for part in grown]), torch.cat([part.token_scores for part in grown])
        after = torch.arange(self._circuit.length) >= start.cuts[:, None]
        masses = torch.cat([part.log_masses for part in grown])
        weights = start.log_weights + torch.where(after, masses, 0.0).sum(-1)
        rounds = []
        for number in range(self.rest):
            own = (start.owner == number) & (weights > NEG_INF)
            tokens, scores = _joined([*self._sequences, (tails[own], tail_scores[own])])
            log_probs = scores[: len(scores) - int(own.sum())].sum(-1)
            rounds.append(Round(tokens, torch.cat([log_probs, weights[own]]), scores))
        return rounds

    def _of_rest(self, generator: torch.Generator) -> Beginnings:
        """One for each round, in proportion to their probability."""
        begun, scores = _joined([padded(prefixes) for prefixes in self._unread])
        cuts = torch.cat([torch.full((len(prefixes),), prefixes.position) for prefixes in self._unread])
        chosen = torch.multinomial(torch.softmax(scores.sum(-1), 0), self.rest, replacement=True, generator=generator)
        weights = torch.full((self.rest,), self.log_left, dtype=torch.float64)
        return Beginnings(begun[chosen], cuts[chosen], weights, torch.arange(self.rest))


def padded(prefixes: Prefixes, token: int = 0) -> Scored:
    """As whole sequences, with a token of probability 1; they can be read no more."""
    missing = (0, prefixes.reader.length - prefixes.position)
    return pad(prefixes.tokens, missing, value=token), pad(prefixes.token_scores, missing)


def _joined(parts: list[Scored]) -> Scored:
    tokens, scores = zip(*parts, strict=True)
    return torch.cat(tokens), torch.cat(scores)


def _log_sum(*logs: float) -> float:
    return float(torch.logsumexp(torch.tensor(logs, dtype=torch.float64), 0))


def _log_total(scores: list[Tensor]) -> float:
    """Log of the total probability of f64[num, time] each."""
    return float(torch.logsumexp(torch.cat([each.sum(-1) for each in scores]), 0)) if scores else NEG_INF
