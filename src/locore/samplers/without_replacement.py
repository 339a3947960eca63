"""SMC without replacement: rounds that share a budget, alike, or steered by a foresight that has to pass a trial first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor

from locore.kernel.certain import apart, including, is_heard
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import LeftToRight
from locore.kernel.errors import TimedOut, ZeroWeights
from locore.kernel.evidence.record import UNKNOWN, Draws
from locore.kernel.evidence.weighing import with_all_of_blocks
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.rounds import Round, Walk, abreast, nothing_found, pooled, width_of
from locore.kernel.samplers.sampler import Ahead, Prefixes, Promises, Worth, left_to_right
from locore.models.wrappers import again
from locore.samplers.ahead import product
from locore.samplers.swor import Size, blocks_for, size_of_steps, walk

LESSONS = 2  # rounds at least where finished texts teach
WORTH_LESSONS = 16  # prefixes at a position from which the first half of them can teach the second
TRIAL_SHARE, TRIED = 1 / 12, 2  # of all prefixes; a trial has so many at least
WORTH_A_TRIAL = 24  # prefixes at a position from which foresight is put to the test
# Times the steps that forecasts take without foresight. Where it is missing it shows less in a lucky round than in others, and
# going without then costs far more than foresight that is not needed: so it takes plain evidence to leave it out.
MISLEADS = 3.0
MakesRound: TypeAlias = Callable[[Size], Walk[Round]]


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


class Trial:
    """A round without foresight that remembers what it met: a foresight can be asked afterwards what it had foretold.

    Attributes:
        done: the round, once it is over.
    """

    def __init__(self) -> None:
        self._met: list[tuple[Prefixes, Tensor]] = []
        self.done: Round | None = None

    def __call__(self, prefixes: Prefixes, weights: Tensor) -> None:
        """Remember a position."""
        if prefixes.position:
            self._met.append((prefixes.forgotten(), weights))

    def walk(
        self, model: LanguageModel, reader: LeftToRight, prefixes: int, generator: torch.Generator
    ) -> Walk[tuple[Tensor, float]]:
        """The round, with so many prefixes at each position; returns its tokens and what they cost."""
        self.done = yield from walk(model, reader, Size(prefixes), generator, None, (self,))
        return self.done.tokens, self.done.lm_tokens

    def steps(self, ahead: Ahead) -> Steps | None:
        """At the end nothing is left to foretell. None where the round found nothing, which says nothing."""
        done = self.done
        if done is None or not len(done.tokens):
            return None
        foretold = [float(torch.logsumexp(weights + ahead.of(prefixes), 0)) for prefixes, weights in self._met]
        return Steps(size_of_steps(done.totals), size_of_steps([*foretold, done.totals[-1]]))

    def refutes(self, ahead: Ahead) -> bool:
        """Would the round have been foretold far worse with it than without?"""
        steps = self.steps(ahead)
        return steps is not None and steps.foreseen > MISLEADS * steps.plain


class Rounds:
    """Rounds of one call.

    Attributes:
        twisted: was the last of them steered?
        notes: what the report should say of them.
        left_aside: was there a foresight that did not pass its trial?
        outcomes, always: what finished texts teach of potentials; what steers all rounds.
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
        self.model, self.reader, self.generator = model, reader, generator
        self.outcomes = None if worth is None else worth.lessons()
        self.always = product(ahead, self.outcomes)
        self.num_particles = num_particles
        self.price = max(1, reader.length - 1)
        self.twisted = self.left_aside = False
        self.notes: tuple[str, ...] = ()

    def alike(self, number: int, budget: float, ahead: Ahead | None, trial: Trial | None = None) -> list[Round]:
        """Independent rounds that share the budget, steered by the same foresight or by none."""
        self.twisted, steered = ahead is not None, product(ahead, self.always)
        return self.rounds_of(number, budget, lambda size: walk(self.model, self.reader, size, self.generator, steered), trial)

    def rounds_of(
        self, number: int, budget: float, of: MakesRound, trial: Trial | None = None, beside: Sequence[Walk[Any]] = ()
    ) -> list[Round]:
        """Rounds that share the budget; they go side by side, and beside others that are paid for.

        Where there is something to be learned of finished texts the second half goes after the first. If the time is up before,
        there is what a trial has found, unless somebody was told already how the text begins.
        """
        try:
            return self._halves(number, budget, of, beside)
        except TimedOut:
            done = None if trial is None or is_heard() else trial.done
            if done is None or not len(done.tokens):
                raise
            self.twisted, self.notes = False, ("the call was ended in the middle: these are the texts of a short first round",)
            return [done]

    def _halves(self, number: int, budget: float, of: MakesRound, others: Sequence[Walk[Any]]) -> list[Round]:
        """At once where nothing is learned in between."""
        if self.outcomes is None or number < 2:
            return self._abreast(number, budget / number, of, others)
        first = number // 2
        with apart():
            done = self._abreast(first, budget / number, of, others)
        for round_ in done:
            self.outcomes.add(round_.tokens, round_.log_weights)
        left = budget - sum(round_.lm_tokens for round_ in done)
        try:
            with including([round_.tokens for round_ in done]):
                return done + self._abreast(number - first, left / (number - first), of)
        except TimedOut:
            if not any(len(round_.tokens) for round_ in done):
                raise
            self.notes = (f"the call was ended after {first} of {number} blocks",)
            return done

    def _abreast(self, number: int, budget: float, of: MakesRound, others: Sequence[Walk[Any]] = ()) -> list[Round]:
        """So many rounds of this price each, which follow what they go beside."""
        size = Size(int(budget // self.price), math.ceil(self.num_particles / number), int(budget))
        return abreast([*others, *(of(size) for _ in range(number))])[len(others) :]

    def by_foresight(self, number: int, budget: int, ahead: Ahead, trial: Trial | None = None) -> list[Round]:
        """Independent rounds, steered by one foresight unless it misleads. Of a small budget nothing goes on its trial.

        Args:
            trial: one that is over already, which the budget does not pay for.
        """
        prefixes = budget // self.price
        left: float = budget
        if trial is None and prefixes >= WORTH_A_TRIAL:
            trial = Trial()
            with apart():
                ((_, cost),) = abreast([trial.walk(self.model, self.reader, tried(prefixes), self.generator)])
            left -= cost
        self.left_aside = trial is not None and trial.refutes(ahead)
        return self.alike(number, left, None if self.left_aside else ahead, trial)


def tried(prefixes: int) -> int:
    """Prefixes of a trial."""
    return max(TRIED, round(prefixes * TRIAL_SHARE))


class Foresight(Protocol):
    """Where the foresight of a call comes from, and what it costs: `NGrams` and `Contexts` in `locore.samplers.twist`."""

    def times_through(self, model: LanguageModel) -> int:
        """How often a call that has it goes through a text."""

    def rounds(self, run: Rounds, blocks: int, asked: int | None, budget: int) -> tuple[list[Round], dict[str, Any]]:
        """Rounds within so many LM tokens, and what the record should say.

        Args:
            run: the call.
            blocks: how many rounds, as far as the particles go.
            asked: how many the caller has asked for.
            budget: LM tokens, for rounds and foresight.
        """


@dataclass(frozen=True)
class WithoutReplacement(Promises):
    """SMC without replacement with exact look-ahead to the length, selected by p(prefix) · β(prefix).

    Attributes:
        blocks: independent repetitions that share the particles. Their spread is the error of the evidence; one block is more
            accurate, but nothing then tells how accurate. None: two if each gets 48 prefixes or more, otherwise one; where
            a table is learned in the call two from 24 prefixes on, of which one may find what the other has missed.
        ahead: what selection goes by beside that.
        worth: of texts beyond α. Selection goes by what is known of beginnings, and by what is learned from the texts of
            earlier blocks.
        foresight: β; None for none: by p alone, and evenly over the states of the constraint.
    """

    reads_prefixes: ClassVar[bool] = True

    blocks: int | None = None
    name: str = "swor"
    ahead: Ahead | None = field(default=None, compare=False, repr=False)
    worth: Worth | None = field(default=None, compare=False, repr=False)
    foresight: Foresight | None = None

    def most_prefixes(self, num_particles: int) -> float | None:
        """One for each particle, of which each block has one at least."""
        return max(num_particles, self.blocks or LESSONS)

    def times_through(self, model: LanguageModel) -> int:
        """Once, or as its foresight wants."""
        return 1 if self.foresight is None else self.foresight.times_through(model)

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position of all rounds together; see `Sampler`.

        They are drawn by the near model of a model that has one (`LanguageModel.near`), and the model weighs what is kept.
        """
        near = model.near
        if near is None:
            return self._drawn(model, circuit, num_particles, budget, generator)
        try:
            draws = self._drawn(near, circuit, num_particles, budget, generator)
        except ZeroWeights as error:
            if error.log_most == NEG_INF:  # no text satisfies the constraint
                raise
            raise ZeroWeights(nothing_found(0.0)) from error  # how little the near model left says nothing certain of this one
        return rescored(draws, model)

    def _drawn(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        reader, price = left_to_right(circuit), max(1, circuit.length - 1)
        blocks = blocks_for(self.blocks, num_particles, circuit.length, budget)
        prefixes = num_particles if budget is None else budget // price
        if self.worth is not None and self.blocks is None and prefixes >= WORTH_LESSONS:
            blocks = max(blocks, LESSONS)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        left = width * blocks * price if budget is None else budget
        run = Rounds(model, reader, num_particles, generator, self.worth, self.ahead)
        facts: dict[str, Any] = {}
        if self.foresight is None:
            rounds = run.alike(blocks, left, None)
        else:
            rounds, facts = self.foresight.rounds(run, blocks, self.blocks, left)
        return pooled(rounds, num_particles, generator, notes=run.notes, **facts)


def rescored(draws: Draws, model: LanguageModel) -> Draws:
    """Draws of a near law q as draws of the model: weights times p(y) / q(y). What was certain of q is forgotten.

    Weights are proper whatever q says, as the law that was drawn from is in them: E[mean w f(y)] = Σ_y q(y) 1[y ⊨ α] f(y).
    """
    everything = with_all_of_blocks(draws)
    assert everything.token_scores is not None
    with again(model):
        try:
            scores = model.token_scores(everything.tokens)
        except TimedOut:  # it is said once: what was drawn is not given up for the last pass
            scores = model.token_scores(everything.tokens)
    ratios, weights, old = scores.sum(-1) - everything.token_scores.sum(-1), everything.weights, draws.record
    apart = float((weights @ ratios.square()).sqrt())
    note = f"drawn by a copy in 16 bits and weighed by the model itself: log-probabilities of texts differ by {apart:.2g} nats"
    blocks = None if old.blocks is None else old.blocks.times(ratios, scores)
    record = replace(old, blocks=blocks, bounds=UNKNOWN, notes=(*old.notes, note))
    row = {tuple(y): number for number, y in enumerate(everything.tokens.tolist())}
    places = torch.tensor([row[tuple(y)] for y in draws.tokens.tolist()])
    return replace(draws, log_weights=draws.log_weights + ratios[places], token_scores=scores[places], record=record)
