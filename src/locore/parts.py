"""A request whose target has bonuses: its parts are sampled apart, each as under a constraint, and put together.

Whether the constraints of k bonuses hold divides the texts into 2^k parts, in each of which all bonuses together are one
number; parts with the same number are one. So Z = Σ_s e^{w_s} p(α ∧ s), every term of which a sampler of constraints finds by
its own means, and what is rare but worth much is a constraint of its own instead of something that draws may miss.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from locore.answering import Asked, answered
from locore.evidence import Mode, Particles, Run
from locore.evidence.joining import Part, joined
from locore.kernel.certain import apart
from locore.kernel.constraints.base import Constraint, conjunction, disjunction, negation
from locore.kernel.constraints.spelling import spelled
from locore.kernel.errors import InvalidConstraint, Unsatisfiable, ZeroWeights
from locore.kernel.evidence.record import UNKNOWN
from locore.kernel.numerics import make_generator
from locore.kernel.pipeline import SEED_RANGE, drawn_seed, thinned
from locore.kernel.samplers.base import promised
from locore.potentials import Bonus, Target
from locore.samplers import Sampler
from locore.samplers.steering import SeeksMode, check_proper

MOST_BONUSES = 6
DIGITS = 9  # of a number of nats, by which parts are told apart


@dataclass(frozen=True, eq=False)
class Stratum:
    """A part of the texts.

    Attributes:
        target: without bonuses.
        where: what tells it from the other parts.
        nats: what its texts are multiplied by, as a logarithm.
    """

    target: Target
    where: Constraint
    nats: float


def strata_of(aim: Target) -> list[Stratum]:
    """The parts that the bonuses of a target make, those that are worth most first; one where there are none.

    Raises:
        InvalidConstraint: more than MOST_BONUSES.
    """
    worth: dict[Constraint, float] = {}
    for one in aim.bonuses:
        worth[one.constraint] = worth.get(one.constraint, 0.0) + one.nats
    counted = [(constraint, nats) for constraint, nats in worth.items() if nats]
    if len(counted) > MOST_BONUSES:
        raise InvalidConstraint(
            f"there are {len(counted)} bonuses, at most {MOST_BONUSES} can be told apart; give what is worth the same as one, "
            "bonus(contains([...]), nats), or write a potential with bound=..."
        )
    others = tuple(factor for factor in aim.factors if not isinstance(factor, Bonus))
    parts: dict[float, list[Constraint]] = {}
    for holds in itertools.product([True, False], repeat=len(counted)):
        nats = sum(value for (_, value), flag in zip(counted, holds, strict=True) if flag)
        each = [one if flag else negation(one) for (one, _), flag in zip(counted, holds, strict=True)]
        parts.setdefault(round(nats, DIGITS), []).append(conjunction(each))
    strata = [(nats, disjunction(members)) for nats, members in sorted(parts.items(), reverse=True)]
    return [Stratum(Target(conjunction([aim.constraint, where]), others), where, nats) for nats, where in strata]


def answered_by_parts(asked: Asked) -> Particles:
    """As `answered`; what bonuses tell apart is sampled apart, by the same sampler.

    Texts end where the constraint of the whole target is complete, as they would without bonuses. A budget is shared: each part
    gets an equal share of what is left.

    Raises:
        InvalidConstraint: more bonuses than can be told apart.
        Unsatisfiable: nothing satisfies the constraint, bonuses apart.
        ZeroWeights: nothing was found of any part.
    """
    strata, request, sampler = strata_of(asked.aim), asked.request, asked.sampler
    if len(strata) == 1:
        return answered(replace(asked, aim=strata[0].target))
    start = time.perf_counter()
    check_proper(sampler)
    asked.compiled(asked.aim.constraint)
    seed = drawn_seed(request.seed)
    generator = make_generator(seed)
    seeds = torch.randint(SEED_RANGE, (len(strata),), generator=generator).tolist()
    whole = asked.aim.constraint if asked.complete is None else asked.complete
    parts = _sampled(replace(asked, complete=whole), strata, seeds)
    run = _run(parts, sampler, seed, time.perf_counter() - start)
    if isinstance(sampler, SeeksMode):
        return _best_of(parts, run)
    return thinned(joined(parts, run), request.num_particles, generator)


def _sampled(asked: Asked, strata: Sequence[Stratum], seeds: Sequence[int]) -> list[Part]:
    """What was found of each part that can be satisfied.

    Raises:
        ZeroWeights: nothing of any.
    """
    parts: list[Part] = []
    failed: ZeroWeights | None = None
    left = asked.request.lm_tokens
    for number, (stratum, seed) in enumerate(zip(strata, seeds, strict=True)):
        share = None if left is None else left // (len(strata) - number)
        found = None
        try:
            with apart():
                request = replace(asked.request, seed=seed, budget=share)
                found = answered(replace(asked, request=request, aim=stratum.target))
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
