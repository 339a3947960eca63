"""Optimal resampling without replacement (Fearnhead and Clifford 2003): keep what is large, thin the rest without bias."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.numerics import NEG_INF


def select(log_weights: Tensor, num: int, uniform: float) -> tuple[Tensor, Tensor]:
    """Choose at most `num` items so that each keeps its weight in the mean.

    The threshold c solves Σ min(w/c, 1) = num. Items of weight at least c stay as they are; the others are chosen by systematic
    sampling with probability w/c and then weigh c. The total weight is kept exactly, and nothing is chosen twice.

    Args:
        log_weights: f64[items], natural logs; −inf is never chosen.
        num: how many to choose; fewer positive items are all kept.
        uniform: a number in [0, 1), the only randomness.

    Returns:
        Long[chosen] in increasing order, and f64[chosen], their new log weights.
    """
    possible = (log_weights > NEG_INF).nonzero()[:, 0]
    if len(possible) <= num:
        return possible, log_weights[possible]
    weights = (log_weights[possible] - log_weights[possible].max()).exp()
    log_scale = log_weights[possible].max()
    threshold, large = _threshold(weights, num)
    slots = num - int(large.sum())
    small = (~large).nonzero()[:, 0]
    points = _systematic(weights[small].cumsum(0), slots, uniform)
    chosen = torch.cat([large.nonzero()[:, 0], small[points]]).sort().values
    kept = torch.where(large[chosen], weights[chosen], threshold)
    return possible[chosen], kept.log() + log_scale


def _threshold(weights: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """The threshold c, and Bool[items], which items weigh at least c."""
    # Raising the set of large items lowers c, so the set only grows; it starts with what exceeds the mean share.
    ordered, order = torch.topk(weights, num)
    rest = weights.sum() - ordered.cumsum(0) + ordered  # weight of the items from each rank on
    rank = torch.arange(num, device=weights.device)
    thresholds = rest / (num - rank)  # c if exactly the items before this rank are large
    count = int((ordered < thresholds).to(torch.uint8).argmax()) if bool((ordered < thresholds).any()) else num - 1
    large = torch.zeros_like(weights, dtype=torch.bool)
    large[order[:count]] = True
    return thresholds[count].clamp_min(torch.finfo(weights.dtype).tiny), large


def _systematic(cumulative: Tensor, num: int, uniform: float) -> Tensor:
    """Long[num]: the items hit by `num` equidistant points on the line of cumulated weights."""
    points = (torch.arange(num, dtype=cumulative.dtype, device=cumulative.device) + uniform) / num
    hit = torch.searchsorted(cumulative, points * cumulative[-1], right=True)
    distinct: Tensor = torch.unique_consecutive(hit.clamp_max(len(cumulative) - 1))
    return distinct
