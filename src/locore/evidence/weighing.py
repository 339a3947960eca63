"""Weights times factors: draws from p(y | α) become draws from p(y | α) · φ(y), normalised.

E[mean_i w_i f(y_i)] = Σ_y p(y) 1[y ⊨ α] f(y) holds for every f, so for f · φ too: weights that are proper stay proper, and
their mean is now Σ_y p(y) 1[y ⊨ α] φ(y). This is the only place where weights are multiplied by potentials, but for
rejection, whose acceptance is the factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from locore.errors import InvalidArgument, ZeroWeights
from locore.evidence.record import UNKNOWN, Draws, Factors, Record, log_total
from locore.numerics import NEG_INF

EXCLUDED = "a potential gives the text no weight"
D = TypeVar("D", bound=Draws)


def weighed(draws: D, log_factors: Callable[[Tensor], Tensor], told: Callable[[], Factors]) -> D:
    """Draws whose weights are multiplied.

    Args:
        draws: with proper weights.
        log_factors: of Long[num, length] f64[num], log φ; it remembers what it was asked.
        told: what was asked in all, to be called afterwards.

    Raises:
        ZeroWeights: φ is zero on all of them.
        InvalidArgument: the weights are not proper, so that multiplying them says nothing.
    """
    record = draws.record
    if record.factors is not None:  # the sampler has accepted texts for what they are worth
        factors = log_factors(draws.tokens)
        used = replace(told(), log_before=draws.log_mean_weight, log_seen=float(factors.max()))
        return replace(draws, record=replace(record, factors=used))
    if record.guarantee != "proper":
        raise InvalidArgument(f"weights that are {record.guarantee} cannot carry potentials; use a sampler whose are proper.")
    resampled = record.resampled_from is not None
    blocks = None if record.blocks is None or resampled or record.blocks.tokens is None else record.blocks
    of_blocks = None if blocks is None or blocks.tokens is None else log_factors(blocks.tokens)
    factors = log_factors(draws.tokens)
    keep = factors > NEG_INF
    if not bool(keep.any()):
        raise ZeroWeights(_nothing_left(len(draws), told()))
    share = int(keep.sum()) / len(draws)
    used = replace(told(), log_before=draws.log_mean_weight, log_seen=float(factors.max()))
    low = NEG_INF
    if draws.token_scores is not None:  # distinct sequences, and what they are worth
        low = log_total(draws.tokens[keep], (draws.token_scores.sum(-1) + factors)[keep])
    times = None if blocks is None or of_blocks is None else blocks.times(of_blocks)
    return replace(
        draws,
        tokens=draws.tokens[keep],
        log_weights=(draws.log_weights + factors)[keep] + math.log(share),
        token_scores=None if draws.token_scores is None else draws.token_scores[keep],
        record=replace(_of_product(draws, used, share), blocks=times, bounds=(low, record.bounds[1] + used.log_most)),
    )


def _of_product(draws: Draws, used: Factors, share: float) -> Record:
    """The record of the product: what was known of α alone is dropped."""
    old = draws.record
    thinned = old.enumerated and old.sequences is not None and len(draws) < old.sequences
    unknown = thinned or (old.blocks is not None and (old.blocks.tokens is None or old.resampled_from is not None))
    zeros = {**old.zeros, EXCLUDED: (1 - sum(old.zeros.values())) * (1 - share)} if share < 1 else old.zeros
    cap = old.weight_cap
    return replace(
        old,
        drawn=draws.drawn,
        evidence="thinned" if thinned else "exact" if old.enumerated else "estimated",
        independent=old.independent and not unknown,
        exact_draws=False,
        zeros=zeros,
        interval=None,
        likely=None if old.interval is None and old.likely is None else UNKNOWN,
        weight_cap=None if cap is None or used.log_most == math.inf else cap + used.log_most,
        pareto_k=None,
        ess=None,
        not_canonical=None,
        factors=used,
    )


def _nothing_left(number: int, used: Factors) -> str:
    lost = [f"{used.errors} by an error ({used.first_error})"] if used.errors else []
    lost += [f"{used.timeouts} by taking too long"] if used.timeouts else []
    how = f", {' and '.join(lost)}" if lost else ""
    return (
        f"potentials exclude all {number} texts that were found{how}. Use more particles, give a function of beginnings "
        "(prefix=...) that steers towards what they let through, or put what can be said of the text into the constraint."
    )
