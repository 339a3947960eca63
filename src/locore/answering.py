"""One request, from the model and the target to particles: what is drawn from, what filters and what weighs is put together."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from locore.canonical import OnlyCanonical, Spelling, share_of_others
from locore.circuits import Circuit
from locore.compilers.compile import compile
from locore.evidence import Particles
from locore.kernel.chat import Prompt
from locore.kernel.constraints.base import Constraint
from locore.kernel.errors import InvalidArgument, LocoreWarning
from locore.kernel.pipeline import Prepared, particles_of
from locore.kernel.request import Ending, Request
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, LanguageModel, prompt_ids
from locore.potentials import Scorer, Target
from locore.remarks import missing_space, share_cut_off
from locore.samplers import Sampler
from locore.samplers.steering import SeeksMode, keeping_all, steered
from locore.stopping import ending_of, stopped

BAD = ("do not trust", "biased")  # verdicts


@dataclass(frozen=True, eq=False)
class Asked:
    """A request and what is asked.

    Attributes:
        base: the model under its law, before the prompt.
        aim: the target.
        complete: with ending="complete" texts end where this constraint is; None: the target's own.
    """

    request: Request
    base: LanguageModel
    prompt: Prompt
    aim: Target
    sampler: Sampler
    complete: Constraint | None = None

    def compiled(self, constraint: Constraint) -> Circuit:
        """The circuit of a constraint on the texts that are asked for."""
        request = self.request
        return compile(constraint, self.base, request.max_new_tokens, min_length=request.min_new_tokens, limits=request.limits)


def answered(asked: Asked) -> Particles:
    """Draw, check, filter, weigh: `generate` after its arguments are checked."""
    ready, before = prepared(asked)
    return described(particles_of(ready), ready, before, asked.base)


def prepared(asked: Asked) -> tuple[Prepared, list[int] | None]:
    """Read the prompt, compile, and tell model and sampler of whatever is filtered and weighed afterwards.

    Returns:
        What is drawn from, and the ids of the prompt; None where it has none.
    """
    request, base, prompt, aim, sampler = asked.request, asked.base, asked.prompt, asked.aim, asked.sampler
    started, constraint = time.perf_counter(), aim.constraint
    prompted = base.prompted(prompt)
    prompted.require_length(request.max_new_tokens)  # before anything is compiled, which may take long
    circuit = asked.compiled(constraint)
    compiled = time.perf_counter() - started
    counted, mode, tokenizer = Counted(prompted), request.canonical, base.tokenizer
    before = _ids_before(tokenizer, prompt) if mode is None else prompt_ids(tokenizer, prompt)
    complete_at = circuit if asked.complete is None else asked.compiled(asked.complete)
    ending = ending_of(request.ending, complete_at, counted)
    law = stopped(counted, complete_at) if ending == "complete" else counted
    spelling = None if mode is None or before is None else Spelling(mode, constraint, tokenizer, before)
    if mode == "only" and circuit.reader is not None and before is not None:
        law = OnlyCanonical(law, circuit.reader, before)
    scorer = _scorer(aim, tokenizer, complete_at, ending)
    if isinstance(sampler, SeeksMode):
        worth = _worth(scorer, spelling, constraint.bind(tokenizer) if circuit.relaxed else None, tokenizer)
        sampler = sampler.seeking(worth, 0.0 if scorer is None else scorer.log_most)
    elif scorer is not None:
        sampler, law = steered(sampler, law, circuit, scorer)
    elif mode is not None or circuit.relaxed:
        sampler = keeping_all(sampler)  # nothing is thinned before it is filtered
    ready = Prepared(
        *(request, constraint, circuit, tokenizer, law, counted, sampler, sampler is not asked.sampler),
        *(ending, spelling, scorer, started, compiled),
    )
    return ready, before


def described(particles: Particles, ready: Prepared, before: list[int] | None, base: LanguageModel) -> Particles:
    """With what a reader should know of the texts."""
    request = ready.request
    if before is not None and request.canonical is None:
        particles = replace(particles, record=replace(particles.record, not_canonical=share_of_others(particles, before)))
    space = None if before is None else missing_space(particles, ready.circuit, before, base)
    known: dict[str, Any] = {
        "cut_off": None if request.min_new_tokens >= request.max_new_tokens else share_cut_off(particles, ready.constraint),
        "hints": particles.record.hints if space is None else (*particles.record.hints, space),
        "tables_mislead": any(leaf.tables_mislead for leaf in ready.constraint.leaves()),
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
