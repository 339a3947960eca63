"""One request, from the model and the target to particles: compile, sample, read again, filter, weigh."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from locore.canonical import OnlyCanonical, Spelling, share_of_others
from locore.certain import apart, only
from locore.chat import Prompt
from locore.circuits import Circuit
from locore.compilers import compile
from locore.constraints import Constraint, JsonSchema, PythonFunction
from locore.constraints.json_schema.places import places_of
from locore.constraints.machine import is_machine
from locore.constraints.sequence import TokenSequence
from locore.errors import InvalidArgument, InvalidConstraint, LocoreError, LocoreWarning, ZeroWeights
from locore.evidence import Draws, Particles, Run
from locore.evidence.weighing import weighed, with_all_of_blocks
from locore.models import Counted, LanguageModel, prompt_ids
from locore.numerics import make_generator
from locore.potentials import Scorer, Target
from locore.remarks import missing_space, share_cut_off
from locore.request import Ending, Request
from locore.samplers import Sampler
from locore.samplers.base import promised
from locore.samplers.most_probable import MostProbable
from locore.samplers.selection import select
from locore.samplers.steering import keeping_all, steered
from locore.stopping import ending_of, stopped
from locore.tokenizer import Tokenizer

SEED_RANGE = 2**31
BAD = ("do not trust", "biased")  # verdicts
RETRIES = 16  # of a reading that contradicts the circuit: does it contradict itself?
RELAXED = "allowed by the relaxed circuit, but not by the constraint"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A request made ready to be drawn from.

    Attributes:
        base: the model before the prompt.
        counted: the prompted model, which counts what it is asked.
        law: what is drawn from, given the circuit: the prompted model, stopped or steered.
        sampler: the one asked for, or one that knows of factors and filters; `steered` says which.
        ending: as it was chosen.
        before: the ids of the prompt; None where it has none.
        spelling: the filter by tokenisation.
        scorer: the factors.
        started, compiled: when the work began, and how many seconds compiling took.
    """

    request: Request
    base: LanguageModel
    constraint: Constraint
    circuit: Circuit
    counted: Counted
    law: LanguageModel
    sampler: Sampler
    steered: bool
    ending: Ending
    before: list[int] | None
    spelling: Spelling | None
    scorer: Scorer | None
    started: float
    compiled: float

    @property
    def filters(self) -> bool:
        """May sequences that are drawn be dropped or weighed anew?"""
        return self.scorer is not None or self.request.canonical is not None or self.circuit.relaxed


def answered(
    request: Request,
    base: LanguageModel,
    prompt: Prompt,
    aim: Target,
    sampler: Sampler,
    complete: Constraint | None = None,
) -> Particles:
    """Draw, check, filter, weigh: `generate` after its arguments are checked.

    With ending="complete" texts end where the constraint `complete` is, by default the target's own.
    """
    ready = prepared(request, base, prompt, aim, sampler, complete)
    seed = drawn_seed(request.seed)
    generator = make_generator(seed)
    draws = drawn(ready, generator)
    # Where all was read, all was kept until it was filtered; elsewhere a sampler may return more than it was asked for.
    whole = draws.record.enumerated
    most = request.num_particles if whole else max(request.num_particles, len(draws))
    particles = filtered(ready, checked(ready, draws, seed))
    particles = weighed_by_factors(ready, particles)
    return described(ready, thinned(particles, most, generator) if ready.filters else particles)


def prepared(
    request: Request,
    base: LanguageModel,
    prompt: Prompt,
    aim: Target,
    sampler: Sampler,
    complete: Constraint | None,
) -> Prepared:
    """Read the prompt, compile, and tell model and sampler of whatever is filtered and weighed afterwards."""
    started, constraint, given = time.perf_counter(), aim.constraint, sampler
    prompted = base.prompted(prompt)
    prompted.require_length(request.max_new_tokens)  # before anything is compiled, which may take long
    circuit = _compiled(constraint, base, request)
    compiled = time.perf_counter() - started
    counted, mode, tokenizer = Counted(prompted), request.canonical, base.tokenizer
    before = _ids_before(tokenizer, prompt) if mode is None else prompt_ids(tokenizer, prompt)
    complete_at = circuit if complete is None else _compiled(complete, base, request)
    ending = ending_of(request.ending, complete_at, counted)
    law = stopped(counted, complete_at) if ending == "complete" else counted
    spelling = None if mode is None or before is None else Spelling(mode, constraint, tokenizer, before)
    if mode == "only" and circuit.reader is not None and before is not None:
        law = OnlyCanonical(law, circuit.reader, before)
    scorer = _scorer(aim, tokenizer, complete_at, ending)
    if isinstance(sampler, MostProbable):
        worth = _worth(scorer, spelling, constraint.bind(tokenizer) if circuit.relaxed else None, tokenizer)
        sampler = replace(sampler, worth=worth, log_most=0.0 if scorer is None else scorer.log_most)
    elif scorer is not None:
        sampler, law = steered(sampler, law, circuit, scorer)
    elif mode is not None or circuit.relaxed:
        sampler = keeping_all(sampler)  # nothing is thinned before it is filtered
    return Prepared(
        *(request, base, constraint, circuit, counted, law, sampler, sampler is not given, ending, before, spelling, scorer),
        *(started, compiled),
    )


def _compiled(constraint: Constraint, base: LanguageModel, request: Request) -> Circuit:
    return compile(constraint, base, request.max_new_tokens, min_length=request.min_new_tokens, limits=request.limits)


def drawn(ready: Prepared, generator: torch.Generator) -> Draws:
    """What the sampler draws. Of one of the user's own nobody knows what it makes of the samplers that it calls."""
    circuit, sampler, request = ready.circuit, ready.sampler, ready.request
    if circuit.reader is not None:
        only(torch.zeros(1, 0, dtype=torch.long), circuit.reader, circuit.reader.initial(1))
    with nullcontext() if type(sampler).__module__.startswith("locore.") else apart():
        return sampler(ready.law, circuit, request.num_particles, request.budget, generator)


def checked(ready: Prepared, draws: Draws, seed: int) -> Particles:
    """Every sequence read again by another road, and what the run was."""
    constraint, tokenizer = ready.constraint, ready.base.tokenizer
    draws = with_all_of_blocks(draws) if ready.filters else draws
    seconds = time.perf_counter() - ready.started
    cost = {**ready.counted.account(), "slow_because": ready.counted.slow_because}
    run = Run(ready.sampler.name, seed, ready.ending, seconds, ready.compiled, remedy=promised(ready.sampler, "remedy"), **cost)
    notes = tuple(dict.fromkeys(note for leaf in constraint.leaves() for note in leaf.notes()))
    notes += () if ready.circuit.reader is None else ready.circuit.reader.notes()
    notes += _cut_characters(constraint, draws, tokenizer)
    draws = replace(draws, record=replace(draws.record, notes=(*draws.record.notes, *notes)))
    particles = Particles.of(draws, tokenizer, run, places=places_of(constraint))
    holds_exactly = _recheck(constraint, draws, tokenizer, ready.circuit.relaxed)
    return _exact(particles, holds_exactly) if ready.circuit.relaxed else particles


def filtered(ready: Prepared, particles: Particles) -> Particles:
    """Those whose tokenisation was asked for."""
    return particles if ready.spelling is None else ready.spelling.kept(particles)


def weighed_by_factors(ready: Prepared, particles: Particles) -> Particles:
    """Multiplied by what each text is worth; the most probable text has been chosen by that."""
    scorer = ready.scorer
    if scorer is None or particles.record.mode is not None:
        return particles
    return weighed(particles, scorer.of, lambda: scorer.use(ready.steered))


def described(ready: Prepared, particles: Particles) -> Particles:
    """With what a reader should know of the texts."""
    request, before = ready.request, ready.before
    if before is not None and request.canonical is None:
        particles = replace(particles, record=replace(particles.record, not_canonical=share_of_others(particles, before)))
    space = None if before is None else missing_space(particles, ready.circuit, before, ready.base)
    known: dict[str, Any] = {
        "cut_off": None if request.min_new_tokens >= request.max_new_tokens else share_cut_off(particles, ready.constraint),
        "hints": particles.record.hints if space is None else (*particles.record.hints, space),
        "tables_mislead": any(is_machine(leaf) or isinstance(leaf, JsonSchema) for leaf in ready.constraint.leaves()),
    }
    return replace(particles, record=replace(particles.record, **known))


def _scorer(aim: Target, tokenizer: Tokenizer, circuit: Circuit, chosen: Ending) -> Scorer | None:
    """The factors of a target for one run; None where there are none."""
    if not aim.factors:
        return None
    return Scorer(aim.factors, tokenizer, lambda model: stopped(model, circuit) if chosen == "complete" else model)


def _worth(
    scorer: Scorer | None, spelling: Spelling | None, exact: Constraint | None, tokenizer: Tokenizer
) -> Callable[[Tensor], Tensor] | None:
    """Log of what sequences are worth beyond their probability: the factors; −inf for those that a filter takes away."""
    if scorer is None and spelling is None and exact is None:
        return None

    def worth(tokens: Tensor) -> Tensor:
        keep = torch.ones(len(tokens), dtype=torch.bool)
        if exact is not None:
            keep &= torch.tensor([exact.evaluate(y, tokenizer) for y in tokens.tolist()], dtype=torch.bool)
        if spelling is not None:
            keep &= spelling.allows(tokens)
        values = torch.full((len(tokens),), -torch.inf, dtype=torch.float64)
        if bool(keep.any()):
            values[keep] = 0.0 if scorer is None else scorer.of(tokens[keep])
        return values

    return worth


def thinned(particles: Particles, most: int, generator: torch.Generator) -> Particles:
    """At most so many, whose total stays: all that are known of were weighed."""
    if len(particles) <= most:
        return particles
    uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
    chosen, weights = select(particles.log_weights, most, uniform)
    scores = particles.token_scores
    return replace(
        particles,
        tokens=particles.tokens[chosen],
        log_weights=weights + math.log(len(chosen) / len(particles)),
        token_scores=None if scores is None else scores[chosen],
    )


def drawn_seed(given: int | None) -> int:
    """The seed that was given, or one that is drawn, which makes the run repeatable all the same."""
    return int(torch.randint(SEED_RANGE, (), generator=make_generator(None))) if given is None else given


def drawn_from(particles: Particles, num: int) -> Particles:
    """So many texts in proportion to the weights: by other random numbers than the sampler's, and as repeatable."""
    seed = particles.run.seed
    return particles.resample(num, seed=None if seed is None else seed + 1)


def warn_of(particles: Particles, stacklevel: int) -> None:
    """Warn whoever gets a draw where the weights say that it cannot be trusted; `stacklevel` counts from the caller."""
    if particles.verdict.level in BAD:
        warnings.warn(particles.report(), LocoreWarning, stacklevel=stacklevel + 1)


def _ids_before(tokenizer: Tokenizer, prompt: Prompt) -> list[int] | None:
    """The ids of a prompt; None where it has none, such as a picture, or where nothing is spelled."""
    if not tokenizer.has_text:
        return None
    try:
        return prompt_ids(tokenizer, prompt)
    except InvalidArgument:  # the model itself has taken it
        return None


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
    if not tokenizer.has_text or any(isinstance(leaf, PythonFunction) or leaf.is_text for leaf in constraint.leaves()):
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
    if any(isinstance(leaf, PythonFunction) for leaf in constraint.leaves()):
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
