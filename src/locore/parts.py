"""A request whose target has bonuses: its parts are sampled apart, each as under a constraint, and put together."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from locore.answering import SEED_RANGE, answered, drawn_seed, thinned
from locore.certain import apart
from locore.chat import Prompt
from locore.compilers import compile
from locore.constraints import Constraint
from locore.constraints.spelling import spelled
from locore.errors import Unsatisfiable, ZeroWeights
from locore.evidence import Mode, Particles, Run
from locore.evidence.joining import Part, joined
from locore.evidence.record import UNKNOWN
from locore.models import LanguageModel
from locore.numerics import make_generator
from locore.potentials import Stratum, Target, strata_of
from locore.request import Request
from locore.samplers import Sampler
from locore.samplers.base import promised
from locore.samplers.most_probable import MostProbable
from locore.samplers.steering import check_proper


def answered_by_parts(
    request: Request,
    base: LanguageModel,
    prompt: Prompt,
    aim: Target,
    sampler: Sampler,
    complete: Constraint | None = None,
) -> Particles:
    """As `answered`; what bonuses tell apart is sampled apart, by the same sampler.

    Texts end where the constraint of the whole target is complete, as they would without bonuses. A budget is shared: each part
    gets an equal share of what is left.

    Raises:
        InvalidConstraint: more bonuses than can be told apart.
        Unsatisfiable: nothing satisfies the constraint, bonuses apart.
        ZeroWeights: nothing was found of any part.
    """
    strata = strata_of(aim)
    if len(strata) == 1:
        return answered(request, base, prompt, strata[0].target, sampler, complete)
    start = time.perf_counter()
    check_proper(sampler)
    whole = aim.constraint if complete is None else complete
    compile(aim.constraint, base, request.max_new_tokens, min_length=request.min_new_tokens, limits=request.limits)
    seed = drawn_seed(request.seed)
    generator = make_generator(seed)
    seeds = torch.randint(SEED_RANGE, (len(strata),), generator=generator).tolist()
    parts = _sampled(replace(request, seed=seed), base, prompt, strata, sampler, whole, seeds)
    if isinstance(sampler, MostProbable):
        return _best_of(parts, _run(parts, sampler, seed, time.perf_counter() - start))
    particles = joined(parts, _run(parts, sampler, seed, time.perf_counter() - start))
    return thinned(particles, request.num_particles, generator)


def _sampled(
    request: Request,
    base: LanguageModel,
    prompt: Prompt,
    strata: Sequence[Stratum],
    sampler: Sampler,
    whole: Constraint,
    seeds: Sequence[int],
) -> list[Part]:
    """What was found of each part that can be satisfied.

    Raises:
        ZeroWeights: nothing of any.
    """
    parts: list[Part] = []
    failed: ZeroWeights | None = None
    left = request.budget
    for number, (stratum, seed) in enumerate(zip(strata, seeds, strict=True)):
        share = None if left is None else left // (len(strata) - number)
        found = None
        try:
            with apart():
                found = answered(replace(request, seed=seed, budget=share), base, prompt, stratum.target, sampler, whole)
        except Unsatisfiable:
            continue
        except ZeroWeights as error:
            failed = error
        finally:
            if left is not None and share is not None:
                left -= share if found is None else found.run.lm_tokens or 0
        parts.append(Part(found, stratum.nats, spelled(stratum.where)))
    if failed is not None and all(part.found is None for part in parts):
        raise failed
    return parts


def _best_of(parts: Sequence[Part], run: Run) -> Particles:
    """The most probable text of all parts, by what it is worth."""
    found = [
        (part.found, replace(mode, log_found=mode.log_found + part.nats, log_unread=mode.log_unread + part.nats))
        for part in parts
        if part.found is not None and (mode := part.found.record.mode) is not None
    ]
    best, mode = max(found, key=lambda each: each[1].log_found)
    unread = max(each.log_unread for _, each in found) if len(found) == len(parts) else math.inf
    mode = Mode(mode.log_found, unread, sum(each.compared for _, each in found))
    return replace(best, record=replace(best.record, mode=mode, bounds=UNKNOWN), run=run)


def _run(parts: Sequence[Part], sampler: Sampler, seed: int, seconds: float) -> Run:
    """Settings and cost of all parts; a context that two of them asked for counts twice."""
    runs = [part.found.run for part in parts if part.found is not None]
    return Run(
        sampler=sampler.name,
        seed=seed,
        ending=runs[0].ending,
        seconds=seconds,
        compile_seconds=sum(run.compile_seconds or 0.0 for run in runs),
        lm_tokens=sum(run.lm_tokens or 0 for run in runs),
        lm_contexts=sum(run.lm_contexts or 0 for run in runs),
        passes=sum(run.passes or 0 for run in runs),
        model_seconds=sum(run.model_seconds or 0.0 for run in runs),
        remedy=promised(sampler, "remedy"),
    )
