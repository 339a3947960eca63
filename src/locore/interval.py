"""The 95 % interval of log p(α): how far it may lie from the estimate, by all that the particles say of their error.

Where draws of the model were counted the interval is exact. Elsewhere it is an approximation with three terms: the standard
error; more above where a run was surprised, as the weights are then skewed and the error itself is underestimated; and what was
never drawn. See `locore.blocks` for what is made of surprise, docs/concepts/diagnostics.md for how often the interval holds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from locore.blocks import LEAST
from locore.bounds import CONFIDENCE, Bounds
from locore.student import quantile

if TYPE_CHECKING:
    from locore.particles import Particles

# In standard errors; the others were fitted once. What a sampler misses makes its estimate too low, never too high.
SIGNIFICANT, SKEW, UNSEEN = 2.0, 1.0, 1.5
BEYOND = 1.5  # times the surprise: how much higher what is out of sight may be
EXPECTED_DRAWS = 10.0  # that would satisfy the constraint, had the particles been unconstrained draws
CLOSED = 0.1  # bounds that leave less than this share open leave nothing out of sight


def interval(particles: Particles) -> Bounds:
    """95 % interval of log p(α), exact where draws of the model were counted and approximate elsewhere; nan if unknown."""
    exact = particles.info.get("log_evidence_interval")
    if exact:
        return float(exact[0]), float(exact[1])
    estimate, error = particles.log_evidence, particles.log_evidence_error
    if math.isnan(error):
        return math.nan, math.nan
    # Weights that make p(α) more than 1 are wrong by at least what is too much.
    excess = particles.log_mean_weight - estimate
    low = estimate - max(_significant(particles) * error, excess)
    high = estimate + max(reach(particles), excess)
    sure = particles.log_evidence_bounds
    if low > sure[1] or high < sure[0]:
        return sure  # the weights are known to be wrong, so only what is certain counts
    return max(low, sure[0]), min(high, sure[1])


def reach(particles: Particles) -> float:
    """How far above the estimate log p(α) may lie, nats; nan if unknown."""
    seen = reach_in_sight(particles)
    return seen + BEYOND * _surprise(particles)[0] if is_out_of_sight(particles) else seen


def reach_in_sight(particles: Particles) -> float:
    """The same, but for what is out of sight. See `locore.blocks` for what is made of surprise."""
    error = particles.log_evidence_error
    if particles.info.get("evidence") == "exact" or math.isnan(error):
        return error
    surprise, unseen = _surprise(particles)
    return error * (_significant(particles) + SKEW * surprise) + UNSEEN * unseen


def _significant(particles: Particles) -> float:
    """Standard errors; Student's quantile where nothing but the spread of a few blocks gives the error."""
    blocks = particles.blocks
    if blocks is None or len(blocks) < LEAST or not math.isnan(blocks.thinning):
        return SIGNIFICANT
    return quantile(len(blocks) - 1, CONFIDENCE)


def _surprise(particles: Particles) -> tuple[float, float]:
    """What blocks say; of independent weights the standard deviation of their logs, as of one position."""
    if particles.blocks is not None:
        return particles.blocks.surprise, particles.blocks.unseen
    if len(particles) < 2:
        return 0.0, 0.0
    nats = float(particles.log_weights.std())
    return nats, nats / math.sqrt(int(particles.info.get("drawn", len(particles))))


def is_out_of_sight(particles: Particles) -> bool:
    """Could texts that nobody drew hold more than those that were found?

    Particles that nothing steers towards the constraint go where prefixes are likely, so N of them see nothing of a set of
    prefixes with less mass than about 1/N. If p(α) is not well above that, what they agree on may be the wrong mode. Unless
    every prefix was read, or certain bounds say that next to nothing is left.
    """
    if any(particles.info.get(key) for key in ("guided", "unweighted", "exact_draws")):
        return False
    if particles.blocks is not None and particles.blocks.are_complete:
        return False
    low, high = particles.log_evidence_bounds
    if low > math.log1p(-CLOSED) + high:
        return False
    return particles.log_evidence + math.log(particles.info.get("drawn", len(particles))) < math.log(EXPECTED_DRAWS)
