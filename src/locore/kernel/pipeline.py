"""From what was made ready to particles: draw, check, filter, weigh; four functions in a row.

What filters and what weighs, the model's law and the sampler are handed in (`answering` puts them together for a request);
here is only what they promise.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from locore.kernel.certain import apart, can_only_return
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.constraints.constraint import Constraint, may_be_text
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.errors import InvalidConstraint, LocoreError, ZeroWeights
from locore.kernel.evidence.particles import Particles
from locore.kernel.evidence.record import Draws, Factors, Run
from locore.kernel.evidence.weighing import weighed, with_all_of_blocks
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import make_generator
from locore.kernel.request import Ending, Request, drawn_seed
from locore.kernel.samplers.sampler import Sampler, promised
from locore.kernel.samplers.selection import select
from locore.kernel.tokenizer import Tokenizer

RETRIES = 16  # of a reading that contradicts the circuit: does it contradict itself?
RELAXED = "allowed by the relaxed circuit, but not by the constraint"


class Filter(Protocol):
    """Takes away some of the sequences that satisfy the constraint."""

    def survivors(self, particles: Particles) -> Particles:
        """Those that are left; `ZeroWeights` where none is."""


class Weigher(Protocol):
    """Multiplies weights by what texts are worth."""

    def of(self, tokens: Tensor) -> Tensor:
        """f64[num]: log φ of finished sequences Long[num, length]."""

    def use(self, steered: bool) -> Factors:
        """What was asked of it, for the record; had the sampler been told?"""


class Meter(Protocol):
    """Counts what a run asks of the model."""

    @property
    def slow_because(self) -> str | None:
        """Why the model is read slowly, if it is."""

    def account(self) -> dict[str, Any]:
        """The counts, by the names that they have in a `Run`."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A request made ready to be drawn from.

    Attributes:
        circuit: of the constraint.
        tokenizer: the vocabulary.
        law: what is drawn from, given the circuit: the prompted model, stopped or steered.
        meter: of the prompted model.
        sampler: the one asked for, or one that knows of factors and filters; `steered` says which.
        ending: as it was chosen.
        filter, factors: what happens to the draws.
        started, compiled: when the work began, and how many seconds compiling took.
    """

    request: Request
    constraint: Constraint
    circuit: Circuit
    tokenizer: Tokenizer
    law: LanguageModel
    meter: Meter
    sampler: Sampler
    steered: bool
    ending: Ending
    filter: Filter | None
    factors: Weigher | None
    started: float
    compiled: float

    @property
    def changes(self) -> bool:
        """May sequences that are drawn be dropped or weighed anew?"""
        return self.factors is not None or self.filter is not None or self.circuit.relaxed


def particles_of(ready: Prepared) -> Particles:
    """Draw, check, filter, weigh."""
    seed = drawn_seed(ready.request.seed)
    generator = make_generator(seed)
    draws = drawn(ready, generator)
    # Where all was read, all was kept until it was filtered; elsewhere a sampler may return more than it was asked for.
    whole = draws.record.enumerated
    most = ready.request.num_particles if whole else max(ready.request.num_particles, len(draws))
    particles = filtered(ready, checked(ready, draws, seed))
    particles = weighed_by_factors(ready, particles)
    return thinned(particles, most, generator) if ready.changes else particles


def drawn(ready: Prepared, generator: torch.Generator) -> Draws:
    """What the sampler draws. Of one of the user's own nobody knows what it makes of the samplers that it calls."""
    circuit, sampler, request = ready.circuit, ready.sampler, ready.request
    if circuit.reader is not None:
        can_only_return(torch.zeros(1, 0, dtype=torch.long), circuit.reader, circuit.reader.initial(1))
    with nullcontext() if type(sampler).__module__.startswith("locore.") else apart():
        return sampler(ready.law, circuit, request.num_particles, request.lm_tokens, generator)


def checked(ready: Prepared, draws: Draws, seed: int) -> Particles:
    """Every sequence read again by another road, and what the run was."""
    constraint, tokenizer = ready.constraint, ready.tokenizer
    draws = with_all_of_blocks(draws) if ready.changes else draws
    seconds = time.perf_counter() - ready.started
    cost = {**ready.meter.account(), "slow_because": ready.meter.slow_because}
    run = Run(ready.sampler.name, seed, ready.ending, seconds, ready.compiled, remedy=promised(ready.sampler, "remedy"), **cost)
    notes = tuple(dict.fromkeys(note for leaf in constraint.leaves() for note in leaf.notes()))
    notes += () if ready.circuit.reader is None else ready.circuit.reader.notes()
    notes += _cut_characters(constraint, draws, tokenizer)
    draws = replace(draws, record=replace(draws.record, notes=(*draws.record.notes, *notes)))
    particles = Particles.of(draws, tokenizer, run, places=constraint.places())
    holds_exactly = _recheck(constraint, draws, tokenizer, ready.circuit.relaxed)
    return _exact(particles, holds_exactly) if ready.circuit.relaxed else particles


def filtered(ready: Prepared, particles: Particles) -> Particles:
    """Those that the filter lets through."""
    return particles if ready.filter is None else ready.filter.survivors(particles)


def weighed_by_factors(ready: Prepared, particles: Particles) -> Particles:
    """Multiplied by what each text is worth; the most probable text has been chosen by that."""
    factors = ready.factors
    if factors is None or particles.record.mode is not None:
        return particles
    return weighed(particles, factors.of, lambda: factors.use(ready.steered))


def thinned(particles: Particles, most: int, generator: torch.Generator) -> Particles:
    """At most so many, whose total stays: all that are known of were weighed."""
    if len(particles) <= most:
        return particles
    uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
    chosen, weights = select(particles.log_weights, most, uniform)
    return particles.at(chosen, weights + math.log(len(chosen) / len(particles)))


def _recheck(constraint: Constraint, draws: Draws, tokenizer: Tokenizer, relaxed: bool) -> Tensor:
    """Bool[num]: read every sequence plainly, by another road than the circuit's.

    Where the circuit is no relaxation a failure is a bug, and nothing is returned.
    """
    bound = constraint.bind(tokenizer)
    keep = [bound.evaluate(y, tokenizer) for y in draws.tokens.tolist()]
    for y, good in zip(draws.tokens.tolist(), keep, strict=True):
        if not (good or relaxed):
            spelled = f" ({tokenizer.decode(y)!r})" if tokenizer.has_text else ""
            if any(bound.evaluate(y, tokenizer) for _ in range(RETRIES)) or _is_of_chance(constraint, len(y)):
                raise InvalidConstraint(
                    f"the constraint gives other answers when it is asked again about the tokens {y}{spelled}: a @constraint "
                    "function may depend on its tokens only, not on chance or on what was asked before."
                )
            raise LocoreError(
                f"internal error: the circuit accepted the tokens {y}{spelled}, which do not satisfy the "
                f"constraint. Nothing was returned; {_whose(constraint)}."
            )
    return torch.tensor(keep, dtype=torch.bool)


def _cut_characters(constraint: Constraint, draws: Draws, tokenizer: Tokenizer) -> tuple[str, ...]:
    """A note where texts end within a character, as they may unless the constraint speaks about text."""
    if not tokenizer.has_text or may_be_text(constraint):
        return ()
    cut = sum(TokenSequence(y, tokenizer).is_broken for y in draws.tokens.tolist())
    if not cut:
        return ()
    return (
        f"{cut} of {len(draws.tokens)} texts are no UTF-8, most often because the horizon cuts a character; with a constraint "
        'on text there are none, such as regex("(?s).*"), which all others satisfy',
    )


def _is_of_chance(constraint: Constraint, length: int) -> bool:
    """Do its functions say other things when they are traced again?"""
    return len({constraint.at(length) for _ in range(RETRIES)}) > 1


def _whose(constraint: Constraint) -> str:
    """Whose error it is that two readings of a constraint differ."""
    if any(leaf.is_function for leaf in constraint.leaves()):
        return "if the @constraint function depends on more than its tokens (on chance, say), mend that, else report this"
    return "please report this"


def _exact(particles: Particles, keep: Tensor) -> Particles:
    """Particles of a relaxation that satisfy the constraint itself.

    Also where all do: bounds that rest on sequences which were not returned speak about the relaxation.
    """
    if not bool(keep.any()):
        raise ZeroWeights(
            f"none of {len(particles)} sequences satisfies the constraint: its circuit is a relaxation and lets more through. "
            "Use more particles, or a larger memory of simple_moves."
        )
    return particles.where(keep, RELAXED)
