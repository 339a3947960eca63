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

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.bounds import unasked_share
from locore.kernel.evidence.record import UNKNOWN, Bounds, Draws, Factors, Record, log_total
from locore.kernel.numerics import NEG_INF

EXCLUDED = "a potential gives the text no weight"
ROUNDING = 1e-12  # share that sums of everything may miss
D = TypeVar("D", bound=Draws)


def weighed(draws: D, log_factors: Callable[[Tensor], Tensor], usage: Callable[[], Factors]) -> D:
    """Draws whose weights are multiplied.

    Args:
        draws: with proper weights.
        log_factors: of Long[num, length] f64[num], log φ; it remembers what it was asked.
        usage: what was asked in all, to be called afterwards.

    Raises:
        ZeroWeights: φ is zero on all of them.
        InvalidArgument: the weights are not proper, so that multiplying them says nothing.
    """
    record = draws.record
    if record.factors is not None:  # the sampler has accepted texts for what they are worth
        factors = log_factors(draws.tokens)
        used = replace(usage(), log_before=draws.log_mean_weight, log_seen=float(factors.max()))
        return replace(draws, record=replace(record, factors=used, bounds=_bounds(draws, factors, used.log_most)))
    if record.guarantee != "proper":
        raise InvalidArgument(
            f"weights that are {record.guarantee} cannot carry potentials; use a sampler with proper weights."
        )
    draws = with_all_of_blocks(draws)
    factors = log_factors(draws.tokens)
    keep = factors > NEG_INF
    if not bool(keep.any()):
        raise ZeroWeights(_nothing_left(len(draws), usage()))
    share = int(keep.sum()) / len(draws)
    used = replace(usage(), log_before=draws.log_mean_weight, log_seen=float(factors.max()), unasked=unasked_share(draws))
    blocks = None if record.resampled_from is not None or record.blocks is None else record.blocks.times(factors)
    return replace(
        draws.at(keep, (draws.log_weights + factors)[keep] + math.log(share)),
        record=replace(_of_product(draws, used, share), blocks=blocks, bounds=_bounds(draws, factors, used.log_most)),
    )


def with_all_of_blocks(draws: D) -> D:
    """The draws before they were thinned, where blocks remember them: their error is that of all of them."""
    blocks = draws.blocks
    if blocks is None or blocks.tokens is None or draws.record.resampled_from is not None:
        return draws
    weights = blocks.log_weights() + math.log(len(blocks.tokens))
    return replace(draws, tokens=blocks.tokens, log_weights=weights, token_scores=blocks.token_scores)


def _bounds(draws: Draws, factors: Tensor, log_most: float) -> Bounds:
    """Certain ones of log Z: what the texts found are worth, and all others at most what φ cannot exceed.

    Args:
        draws: with the bounds of log p(α), or of the normaliser with experts.
        factors: f64[num], log φ of each.
        log_most: log of what φ cannot exceed.
    """
    high = draws.record.bounds[1]
    if draws.token_scores is None:
        return NEG_INF, high + log_most
    positive, scores = factors > NEG_INF, draws.token_scores.sum(-1)
    low = log_total(draws.tokens[positive], (scores + factors)[positive]) if bool(positive.any()) else NEG_INF
    if log_most == math.inf:
        return low, math.inf
    left = max(-math.expm1(min(0.0, log_total(draws.tokens, scores) - high)), ROUNDING)  # of what α may have
    return low, float(torch.logaddexp(*torch.tensor([low, math.log(left) + high + log_most], dtype=torch.float64)))


def _of_product(draws: Draws, used: Factors, share: float) -> Record:
    """The record of the product: what was known of α alone is dropped."""
    old = draws.record
    unknown = draws.is_thinned or (old.blocks is not None and (old.blocks.tokens is None or old.resampled_from is not None))
    zeros = {**old.zeros, EXCLUDED: (1 - sum(old.zeros.values())) * (1 - share)} if share < 1 else old.zeros
    cap = old.weight_cap
    return replace(
        old,
        drawn=draws.drawn,
        evidence="thinned" if draws.is_thinned else old.evidence,
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
