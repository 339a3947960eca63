"""What to trust: one verdict on the texts with its reason and a remedy, and a line on p(α).

The verdict is on one draw from the particles, which is what most users take; p(α) has an interval, which says the same of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from locore.facts import evidence, facts
from locore.interval import is_out_of_sight, reach_in_sight
from locore.pareto import LARGE_K, LEAST_PARTICLES

if TYPE_CHECKING:
    from locore.particles import Particles

Level = Literal["trust", "rough", "not judged", "do not trust", "biased"]
Judgement = tuple[Level, str]
LEVELS: tuple[Level, ...] = get_args(Level)  # from best to worst
ENOUGH, SOME = 30.0, 10.0  # effective sample sizes; with 30, no weight has more than 1/√30 = 18 % of the whole
MORE_PARTICLES = 128
SMALL_ERROR, FAIR_ERROR = 0.1, 0.35  # relative errors of the evidence
SMALL_REACH, FAIR_REACH = 0.5, 3.0  # nats by which p(α) may be larger than the estimate; a draw's error is less than half of it
MOST = math.log(2)  # nats: what was not drawn may hold more than what was
ENCLOSED = 0.01  # nats between certain bounds, within which nothing is left to doubt
SURPRISED = 0.5  # nats that are worth saying
HARDLY_EVER = -50.0  # nats: below, the model as it is would not write such a text in all its use


@dataclass(frozen=True)
class Verdict:
    """The judgement on a set of particles.

    Attributes:
        level: of the texts, that is of one draw from them: "trust", "rough", "do not trust"; "not judged" where nothing shows
            an error; "biased" where no weight helps.
        text: the judgement with its reason, and what is known of p(α): two lines.
        details: what there is to know beyond that.
    """

    level: Level
    text: str = field(repr=False)
    details: str = field(repr=False)


def diagnose(particles: Particles) -> Verdict:
    """Judge particles by each thing that can go wrong; the worst counts, the first of equals is the reason given."""
    level, reason = max(_judgements(particles), key=lambda judgement: LEVELS.index(judgement[0]))
    details = [*facts(particles), *_caveats(particles, level)]
    return Verdict(level, f"Texts: {level}; {reason}\n{evidence(particles)}", "\n".join(details))


def _judgements(particles: Particles) -> Iterator[Judgement]:
    info = particles.info
    if info.get("guarantee") == "biased":
        yield "biased", "these sequences satisfy the constraint, but are not distributed as p(y | α)."
        return
    if info.get("evidence") == "exact":
        kept = f"{len(particles):,} of {info['sequences']:,} sequences are kept"
        yield "trust", f"every sequence that satisfies the constraint was enumerated, so the evidence is exact; {kept}."
        return
    if math.isnan(particles.log_evidence_error) and info.get("refused") and particles.blocks is None:
        yield "not judged", _refused(particles)
        return
    yield from _by_certain_bounds(particles)
    if is_out_of_sight(particles):
        yield (
            "rough",
            "the constraint is rare and nothing steers these particles to it, so they may all have missed where it is likely; "
            "use sampler='twisted', or many more particles.",
        )
    yield from _by_tail(particles)
    if is_blocked(particles):
        yield _by_blocks(particles)
    # The states of chains are judged by their own effective sample size too, however well the evidence is known.
    if not is_blocked(particles) or info.get("guarantee") == "asymptotic":
        yield _by_weights(particles)


def _refused(particles: Particles) -> str:
    """Why what is left shows no error."""
    reason = "particles were refused whose part in the error is not known"
    if particles.info.get("evidence") == "thinned":
        return f"{reason}; num_particles={particles.info['sequences']} keeps every sequence, which makes the answer exact."
    return f"{reason}; filter before resampling, or put the condition into the constraint."


def _by_certain_bounds(particles: Particles) -> Iterator[Judgement]:
    """An estimate outside of what is certain is wrong by at least the difference."""
    estimate, (low, high) = particles.log_mean_weight, particles.log_evidence_bounds
    error = 1 - math.exp(-max(low - estimate, estimate - high, 0.0))
    if error <= SMALL_ERROR:
        return
    level: Level = "rough" if error <= FAIR_ERROR else "do not trust"
    if estimate < low:
        known = f"sequences that are known have a probability of {math.exp(low):.2g} together"
        yield level, f"{known}, but the weights say {math.exp(estimate):.2g} for all there are. {_remedy(particles)}"
    else:
        known = f"p(α) is at most {math.exp(high):.2g}"
        yield level, f"{known}, but the weights say {math.exp(estimate):.2g}. {_remedy(particles)}"


def _by_tail(particles: Particles) -> Iterator[Judgement]:
    """By the largest of independent weights."""
    k = particles.pareto_k
    if k > LARGE_K:
        yield "rough", f"Pareto k̂ is {k:.2f}: weights to come may outweigh all of these. {_remedy(particles)}"


def is_blocked(particles: Particles) -> bool:
    """Were the particles made in independent blocks, within which they depend on each other?"""
    return particles.blocks is not None


def is_enclosed(particles: Particles) -> bool:
    """Was next to all that satisfies the constraint read, for certain?"""
    low, high = particles.log_evidence_bounds
    return particles.info.get("evidence") == "enclosed" and high - low <= ENCLOSED


def _by_blocks(particles: Particles) -> Judgement:
    """By how far p(α) may lie above the estimate: what may have been missed is what a draw from the particles misses."""
    assert particles.blocks is not None
    if is_enclosed(particles):
        low, high = particles.log_evidence_bounds
        return "trust", f"next to all that satisfies the constraint was read: at most {math.expm1(high - low):.2%} was not."
    above = reach_in_sight(particles)
    if math.isnan(above):
        return "not judged", f"one block cannot show its own error; num_particles={MORE_PARTICLES} makes several."
    number = len(particles.blocks)
    error = f"±{max(particles.log_evidence_error, 0.01):.0%}"
    found = (
        f"p(α) is known to {error} by a single block"
        if number == 1
        else f"{number} independent blocks agree on p(α) to {error}"
    )
    if above <= SMALL_REACH:
        return "trust", f"{found}."
    if particles.blocks.surprise > SURPRISED:
        found += f", but forecasts of it were off by {particles.blocks.surprise:.1f} nats"
    if above <= FAIR_REACH:
        if above > MOST:
            found += "; what was not drawn may hold most of the weight"
        return "rough", f"{found}; use the result for orientation, or raise num_particles or budget."
    return "do not trust", f"{found}. {_remedy(particles)}"


def _by_weights(particles: Particles) -> Judgement:
    """By the effective sample size of independent particles, or of the states of chains."""
    ess = particles.ess
    if particles.info.get("exact_draws"):
        return _by_exact_draws(particles, round(ess))
    found = f"ESS {ess:.1f} of {particles.info.get('drawn', len(particles))}"
    if ess >= ENOUGH:
        return "trust", f"{found}; the weights are even enough for averages over these particles."
    if ess >= SOME:
        return "rough", f"{found}; use the result for orientation, or draw more particles."
    few = "the chains hardly moved" if "iterations" in particles.info else "a few particles carry all the weight"
    return "do not trust", f"{found}; {few}. {_remedy(particles)}"


def _by_exact_draws(particles: Particles, number: int) -> Judgement:
    """Each one is as good as a draw can be; of averages over them the reader is told if they are few."""
    found = f"{number} exact draw{'' if number == 1 else 's'} of p(y | α)"
    if number >= ENOUGH:
        return "trust", f"{found}; enough for averages over these particles."
    return "trust", f"{found}; too few for averages. {_remedy(particles)}"


def _remedy(particles: Particles) -> str:
    drawn = int(particles.info.get("drawn", len(particles)))
    if particles.log_evidence < HARDLY_EVER:
        return (
            f"This model would hardly ever write such a text (p(α) ≈ e^{particles.log_evidence:.0f}): a prompt that leads "
            "there, or a model that knows such texts, helps more than particles."
        )
    if particles.info.get("sampler") in ("lcr", "greedy", "smc"):
        return "Try sampler='twisted', or 'rejection' if the constraint is likely."
    more = max(4 * drawn, 128)
    if particles.info.get("table") == "learned in the call":
        return f"Try num_particles={more}, or `locore prepare MODEL`, once: its table makes this sampler far more exact."
    if drawn < 4 * ENOUGH:
        return f"Try num_particles={more}."
    return "Try more particles, or a constraint that leaves the model more freedom."


def _caveats(particles: Particles, level: Level) -> list[str]:
    """What the judgement cannot see."""
    info = particles.info
    if level not in ("trust", "rough") or info.get("exact_draws") or info.get("evidence") == "exact" or is_enclosed(particles):
        return []
    what = "agreement of blocks" if is_blocked(particles) else "ESS"
    unseen = f"Note: {what} cannot see likely sequences that were never drawn; another sampler's answer is better evidence."
    if is_blocked(particles) or info.get("drawn", len(particles)) >= LEAST_PARTICLES:
        return [unseen]
    return [f"Note: with fewer than {LEAST_PARTICLES} particles tail diagnostics such as Pareto k̂ mean nothing.", unseen]
