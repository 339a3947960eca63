"""Putting together what was drawn apart: weighted texts of parts that exclude each other, each part times a number.

With Ẑ_s of p(α ∧ s), or of the normaliser there, Z = Σ_s e^{w_s} Z_s, and the weights of all parts side by side are proper for
it.

**Interval.** Parts are independent, so that of the sum is as far from the estimate, on either side, as the root of the sum of
the squares of what the intervals of the parts leave there (the method of variance estimates recovery, Zou and Donner 2008).
Where a part has no interval, or nothing was found of it, its certain bounds stand for it.

**Certain bounds.** Each part lies between its own; and as they exclude each other, all together have no more than 1 (times what
potentials cannot exceed), so what one has is not left for another: the greatest sum gives what is left to those that are worth
most.

**Verdict.** The worst of those of the parts that matter: that may hold more than a tenth of Z. And how well it is known what
each holds, since a draw from all of them takes a part by that; exact draws from a part say little of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from locore.kernel.evidence.bounds import SMALL_REACH, within
from locore.kernel.evidence.particles import Particles
from locore.kernel.evidence.record import Bounds, Factors, Guarantee, Joined, Record, Run
from locore.kernel.evidence.verdict import FAIR_REACH, LEVELS
from locore.kernel.numerics import NEG_INF

MATTERS = 0.1  # share of Z below which the verdict on a part says nothing of the whole
ROUNDING = 1e-12  # relative


@dataclass(frozen=True, eq=False)
class Part:
    """Texts that were drawn apart.

    Attributes:
        particles: with the weights of the part alone; None where nothing was found, though there may be something.
        nats: log of what their weights are multiplied by.
        name: what tells them from others.
    """

    particles: Particles | None
    nats: float
    name: str

    @property
    def log_z(self) -> float:
        """Log of the estimate, with what it is multiplied by."""
        return NEG_INF if self.particles is None else self.particles.log_mean_weight + self.nats


def joined(parts: Sequence[Part], run: Run) -> Particles:
    """All parts as one.

    Args:
        parts: at least one of which something was found.
        run: settings and cost of all.
    """
    pairs = [(part, part.particles) for part in parts if part.particles is not None]
    length = sum(len(draws) for _, draws in pairs)
    weights = [draws.log_weights - math.log(len(draws)) + part.nats + math.log(length) for part, draws in pairs]
    scores = [draws.token_scores for _, draws in pairs if draws.token_scores is not None]
    return replace(
        pairs[0][1],
        tokens=torch.cat([draws.tokens for _, draws in pairs]),
        log_weights=torch.cat(weights),
        token_scores=torch.cat(scores) if len(scores) == len(pairs) else None,
        record=_record(parts, [draws for _, draws in pairs]),
        run=run,
    )


def _record(parts: Sequence[Part], drawn: Sequence[Particles]) -> Record:
    """What is known of the sum."""
    records = [run.record for run in drawn]
    most = max((record.log_most for record in records), default=0.0)
    bounds = _certain(parts, most)
    shares = [math.exp(part.log_z - _total(parts)) for part in parts]
    exact = len(drawn) == len(parts) and all(record.enumerated for record in records)
    highs = [_interval(part, bounds[1])[1] for part in parts]
    spelled = [record.not_canonical for record in records]
    held = [share for share, part in zip(shares, parts, strict=True) if part.particles is not None]
    return Record(
        guarantee=max((record.guarantee for record in records), key=_ORDER.index),
        evidence="exact" if exact else "estimated",
        drawn=sum(run.drawn for run in drawn),
        sequences=sum(record.sequences or 0 for record in records) if exact else None,
        independent=False,
        bounds=bounds,
        interval=None if exact else _sum_interval(parts, bounds),
        likely=bounds,
        ess=_ess(drawn, held),
        factors=_factors(records, most + max(part.nats for part in parts)),
        joined=None if exact else _judged(parts, shares, highs, _sum_interval(parts, bounds)),
        chosen="; ".join(dict.fromkeys(record.chosen for record in records if record.chosen)) or None,
        why="; ".join(
            f"{part.name}: {part.particles.record.why}" for part in parts if part.particles and part.particles.record.why
        )
        or None,
        not_canonical=(
            sum(share * value for share, value in zip(held, spelled, strict=True) if value is not None)
            if all(value is not None for value in spelled)
            else None
        ),
        notes=tuple(dict.fromkeys([*_lines(parts, shares), *(note for record in records for note in record.notes)])),
    )


_ORDER: tuple[Guarantee, ...] = ("proper", "asymptotic", "biased")


def _total(parts: Sequence[Part]) -> float:
    return float(torch.logsumexp(torch.tensor([part.log_z for part in parts], dtype=torch.float64), 0))


def _interval(part: Part, high: float) -> Bounds:
    """Of a part with what it is multiplied by; `high` is a certain bound of the sum."""
    low, above = (math.nan, math.nan) if part.particles is None else part.particles.log_evidence_interval
    if part.particles is not None and math.isnan(low):
        low, above = part.particles.log_evidence_bounds
    if part.particles is None:
        low, above = NEG_INF, math.inf
    return low + part.nats, min(above + part.nats, high)


def _sum_interval(parts: Sequence[Part], bounds: Bounds) -> Bounds:
    """See the top."""
    total = _total(parts)
    below = above = 0.0
    for part in parts:
        low, high = _interval(part, bounds[1])
        own = _times(part.log_z - total)
        below += max(0.0, own - _times(low - total)) ** 2
        above += max(0.0, _times(high - total) - own) ** 2
    left = 1 - math.sqrt(below)
    low = total + math.log(left) if left > 0 else NEG_INF
    high = total + math.log1p(math.sqrt(above)) if above < math.inf else math.inf
    return within(low, high, bounds)


def _times(log: float) -> float:
    """e^log, infinite where no float is as large."""
    return math.exp(log) if log < 300 else math.inf  # whose square is a float


def _certain(parts: Sequence[Part], most: float) -> Bounds:
    """See the top; `most` is the log of what all parts together cannot exceed before they are multiplied."""
    own = [(NEG_INF, most) if part.particles is None else part.particles.log_evidence_bounds for part in parts]
    low = _sum([log + part.nats for (log, _), part in zip(own, parts, strict=True)])
    if most == math.inf:
        return low, _sum([log + part.nats for (_, log), part in zip(own, parts, strict=True)])
    room = max(0.0, -math.expm1(min(0.0, _sum([log for log, _ in own]) - most))) + ROUNDING  # in units of e^most
    largest = []
    for part, (least, high) in sorted(zip(parts, own, strict=True), key=lambda pair: -pair[0].nats):
        more = min(room, max(0.0, math.exp(high - most) - math.exp(least - most)))
        room -= more
        largest.append(math.log(math.exp(least - most) + more + 1e-320) + most + part.nats)
    return low, max(low, _sum(largest))


def _sum(logs: Sequence[float]) -> float:
    return float(torch.logsumexp(torch.tensor(logs, dtype=torch.float64), 0))


def _factors(records: Sequence[Record], log_most: float) -> Factors:
    """What was asked in all parts."""
    asked = [record.factors for record in records if record.factors is not None]
    return Factors(
        texts=sum(factors.texts for factors in asked),
        beginnings=sum(factors.beginnings for factors in asked),
        errors=sum(factors.errors for factors in asked),
        timeouts=sum(factors.timeouts for factors in asked),
        first_error=next((factors.first_error for factors in asked if factors.first_error), None),
        log_most=log_most,
    )


def _ess(drawn: Sequence[Particles], shares: Sequence[float]) -> float:
    """As many draws as would know the mixture as well."""
    inverse = [0.0 if run.record.enumerated else share**2 / run.ess for run, share in zip(drawn, shares, strict=True) if share]
    total = sum(inverse)
    return 1 / total if total else math.inf


def _judged(parts: Sequence[Part], shares: Sequence[float], highs: Sequence[float], interval: Bounds) -> Joined:
    """The error, and the worst verdict of a part that matters."""
    total = _total(parts)
    square, worst = 0.0, ("trust", "")
    for part, share, high in zip(parts, shares, highs, strict=True):
        rest = 1 - share
        held = _times(high - total)
        matters = held > MATTERS * (held + rest)
        if part.particles is None:
            level, reason = "do not trust", "nothing was found of it, though it may hold much"
            error = math.nan
        else:
            level, reason = part.particles.verdict.level, part.particles.report().partition("\n")[0].partition("; ")[2]
            error = part.particles.log_evidence_error
        square += (share * error) ** 2 if matters or not math.isnan(error) else 0.0
        if matters and (not worst[1] or LEVELS.index(level) > LEVELS.index(worst[0])):
            worst = level, f"{part.name}: {reason}"
    far = max(interval[1] - total, total - interval[0])
    if worst[0] == "trust" and far > SMALL_REACH:
        level = "rough" if far <= FAIR_REACH else "do not trust"
        doubt = f"how much of Z each holds is known to a factor of {_times(far):.2g} only; raise num_particles or budget."
        return Joined(math.sqrt(square), level, f"{len(parts)} parts were sampled apart; {doubt}")
    return Joined(math.sqrt(square), worst[0], f"{len(parts)} parts were sampled apart; of {worst[1]}")


def _lines(parts: Sequence[Part], shares: Sequence[float]) -> list[str]:
    """A line for each part."""
    lines = []
    for part, share in zip(parts, shares, strict=True):
        if part.particles is None:
            lines.append(f"nothing was found of {part.name} ({part.nats:+g} nats), which is not known to be impossible")
        else:
            lines.append(
                f"{part.name} ({part.nats:+g} nats) holds {share:.1%} of Z; its log p is {part.particles.log_evidence:.2f}"
            )
    return lines
