"""Optimal resampling of millions of items (Fearnhead and Clifford 2003): keep what is large, thin the rest without bias.

The weights are read once, in stretches of which only the sum and the maximum are remembered; large items are looked for in
stretches with a large maximum, and a sampled point is located by its stretch first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF, exp_, row_slices, segment_logsumexp

STRETCH = 512  # items
UNDERFLOW = math.exp(-87)  # of the largest weight: what is below is lost in f32
GOLDEN = (math.sqrt(5) - 1) / 2
ALIKE = 1e-6  # relative: rows that weigh the same but for rounding
ROUNDED = 1e-4  # of an item: more than single precision loses in a number of them
CANCELLED = 1e-9  # of the total: a threshold below it was lost in differences


@dataclass(frozen=True, eq=False)
class Selection:
    """What was chosen of a matrix of weights; all of it on the CPU, wherever the matrix is.

    Attributes:
        chosen: Long[chosen], indices of the flattened matrix in increasing order.
        log_raise: f64[chosen], −log of the probability of being chosen.
        log_total: log of the sum of all weights.
        share_drawn: of that sum, what was drawn among; the rest was kept for certain.
        log_left: f64[rows], log of what each row weighs without what was chosen, and of what may have been lost in f32.
        log_rows: f64[rows], log of what each row weighs.
    """

    chosen: Tensor
    log_raise: Tensor
    log_total: float
    share_drawn: float
    log_left: Tensor
    log_rows: Tensor


def padded_rows(rows: int, items: int, device: torch.device) -> Tensor:
    """f32[rows, items and some −inf]: a matrix of the shape that `select_in_place` reads without a copy."""
    return torch.full((rows, -(-items // STRETCH) * STRETCH), NEG_INF, device=device)


def select(log_weights: Tensor, num: int, uniform: float) -> tuple[Tensor, Tensor]:
    """Choose at most `num` items so that each keeps its weight in the mean.

    The threshold c solves Σ min(w/c, 1) = num. Items of weight at least c stay as they are; the others are chosen by systematic
    sampling with probability w/c and then weigh c. The total weight is kept exactly, and nothing is chosen twice.

    Args:
        log_weights: Float[items], natural logs; −inf is never chosen.
        num: how many to choose; fewer positive items are all kept.
        uniform: a number in [0, 1), the only randomness.

    Returns:
        Long[chosen] in increasing order, and f64[chosen], their new log weights.
    """
    padded = torch.nn.functional.pad(log_weights, (0, -len(log_weights) % STRETCH), value=NEG_INF)
    selection = select_in_place(padded[None].clone(), num, uniform)
    return selection.chosen, log_weights[selection.chosen].double() + selection.log_raise


def select_in_place(log_weights: Tensor, num: int, uniform: float, fine: float = 0.0, spares: bool = False) -> Selection:
    """As `select`, for a matrix that is used up.

    Args:
        log_weights: Float[rows, columns], columns a multiple of `STRETCH`. In f32, of more than `num` items those below e^−87
            of the largest count as nothing; `log_left` has room for them.
        num: how many to choose, at most.
        uniform: as in `select`.
        fine: no more are chosen than thinning to this share of all weights leaves in the mean.
        spares: does that hold too where there are no more than `num`?
    """
    weights, width = log_weights.view(-1, STRETCH), log_weights.shape[1]
    maxima, rows, logs = weights.amax(1), len(log_weights), None
    if int((maxima > NEG_INF).sum()) <= num:
        possible = (log_weights.view(-1) > NEG_INF).nonzero()[:, 0]
        if len(possible) <= num:
            logs = log_weights.view(-1)[possible]
            if not (fine and spares and len(possible)):
                return _all(logs, possible, rows, width)
    top = maxima.max()
    parts = [exp_(log_weights[part].sub_(top)).view(-1, STRETCH).sum(1) for part in row_slices(log_weights)]
    sums, maxima = torch.cat(parts).double(), (maxima - top).exp()
    total, log_rows = float(sums.sum()), float(top) + sums.view(rows, -1).sum(1).log()
    if fine:
        near = weights[maxima >= fine * total]
        heavy = near[near >= fine * total].double()
        num = min(num, math.ceil(len(heavy) + max(0.0, 1 - float(heavy.sum()) / total) / fine - ROUNDED))
        if logs is not None and len(logs) <= num:
            return _all(logs, possible, rows, width)
    large = _large(weights, sums, maxima, num)
    large, threshold = _set_apart(weights, sums, large, num)
    flat = weights.view(-1)
    small, times = _systematic(weights, sums, num - len(large), uniform, width)
    log_raise = (threshold * times / flat[small].double()).log()
    chosen, order = torch.cat([large, small]).sort()
    raised = torch.cat([log_raise.new_zeros(len(large)), log_raise])[order]
    share_drawn = float(threshold) * (num - len(large)) / total
    _sum_without(weights, sums, small)
    left = sums.view(rows, -1).sum(1) + width * UNDERFLOW
    log_left, log_rows = float(top) + left.log().cpu(), log_rows.cpu()
    return Selection(chosen.cpu(), raised.cpu(), float(top) + math.log(total), share_drawn, log_left, log_rows)


def _all(logs: Tensor, possible: Tensor, rows: int, width: int) -> Selection:
    """Nothing is left out of Long[possible], which weigh Float[possible] in logs."""
    weights, possible = logs.double().cpu(), possible.cpu()
    nothing = torch.full((rows,), NEG_INF, dtype=torch.float64)
    log_rows = segment_logsumexp(weights, possible // width, rows)
    return Selection(possible, torch.zeros_like(weights), float(torch.logsumexp(weights, 0)), 0.0, nothing, log_rows)


def _set_apart(weights: Tensor, sums: Tensor, large: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Take the large items out of the draw; Long: all of them, and f64[]: the threshold c of the others.

    c is summed anew: the difference between the total and the large is nothing but rounding where the others weigh 1e-16 of it,
    and a twist can be as wrong as that about them.
    """
    flat, total = weights.view(-1), sums.sum()
    while True:
        _sum_without(weights, sums, large)
        threshold = sums.sum() / (num - len(large))
        if threshold > CANCELLED * total:
            return large, threshold
        missed = (flat > threshold).nonzero()[:, 0]  # fewer than there are places: more could not exceed their mean share
        if not len(missed):
            return large, threshold.clamp_min(torch.finfo(torch.float64).tiny)
        large = torch.cat([large, missed])


def _sum_without(weights: Tensor, sums: Tensor, items: Tensor) -> None:
    """Let items weigh nothing, and sum the stretches that hold them anew."""
    weights.view(-1)[items] = 0
    touched = torch.unique(items // STRETCH)
    sums[touched] = weights[touched].sum(1, dtype=torch.float64)


def _large(weights: Tensor, sums: Tensor, maxima: Tensor, num: int) -> Tensor:
    """Long: the items that weigh at least the threshold c, up to rounding of the total."""
    total = sums.sum()
    # Only what exceeds the mean share can be large at first; as large items leave, the share of the rest falls.
    share = total / num
    while True:
        stretches = (maxima >= share).nonzero()[:, 0]
        near = weights[stretches]
        row, column = ((near >= share) & (near > 0)).nonzero(as_tuple=True)  # the share is 0 once all that weighs is large
        items = stretches[row] * STRETCH + column
        # Only the largest can be large, and sorting them all takes long where nothing else weighs.
        ordered, order = weights.view(-1)[items].double().topk(min(num - 1, len(items)))
        before = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])
        rank = torch.arange(len(before), device=weights.device)
        thresholds = (total - before).clamp_min(0) / (num - rank)  # c if exactly the items before this rank are large
        stays = ordered < thresholds[: len(ordered)]
        count = int(stays.to(torch.uint8).argmax()) if bool(stays.any()) else len(ordered)
        threshold = thresholds[count]
        # With all candidates large, an item below the share may exceed the threshold as well.
        if count < len(ordered) or count == num - 1 or threshold >= share:
            return items[order[:count]]
        share = threshold


def _systematic(weights: Tensor, sums: Tensor, num: int, uniform: float, width: int) -> tuple[Tensor, Tensor]:
    """Long[hit]: the items hit by `num` equidistant points on the line of cumulated weights, and how often (more than once by
    rounding alone); none where all weights are 0.

    Rows that weigh alike are hit at the same place: were they in the same order, prefixes that were drawn before, which weigh
    the same and mostly go on alike, would all go on with the same token. So each row begins at another place, by the golden
    section: within an item where no row is hit twice, else with the whole of it, as nothing is to be hit at both its ends.
    """
    rows = sums.view(-1, width // STRETCH)
    of_rows = rows.sum(1)
    ends = of_rows.cumsum(0)
    if ends[-1] <= 0:
        nothing = torch.zeros(0, dtype=torch.long, device=sums.device)
        return nothing, nothing
    points = (torch.arange(num, dtype=torch.float64, device=sums.device) + uniform) / num * ends[-1]
    row = torch.searchsorted(ends, points, right=True).clamp_max(int(of_rows.nonzero()[-1]))
    total = of_rows[row]
    offset = (points - (ends[row] - total)).clamp_min(0)
    first, long = torch.frac(row.double() * GOLDEN) * total, total > ends[-1] / num * (1 + ALIKE)
    first[long] = _item(weights, rows, row[long], first[long])[1]
    place = torch.where(offset + first < total, offset + first, offset + first - total)
    hit, times = torch.unique(_item(weights, rows, row, place)[0], return_counts=True)
    return hit, times


def _item(weights: Tensor, rows: Tensor, row: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """Long[points]: the item at f64[points] offsets in Long[points] rows, and f64[points]: what is before it in its row."""
    ends = rows[row].cumsum(1)
    place = torch.searchsorted(ends, offset[:, None].clamp_min(0), right=True)[:, 0]
    place = torch.minimum(place, (ends < ends[:, -1:]).sum(1))  # the last stretch with weight
    stretch = row * rows.shape[1] + place
    before = torch.where(place > 0, ends.gather(1, (place - 1).clamp_min(0)[:, None])[:, 0], 0.0)
    within = weights[stretch].double().cumsum(1)
    # The sums of a stretch and of its items may differ in the last digit: the point is moved inside.
    scale = rows[row, place] / within[:, -1].clamp_min(torch.finfo(torch.float64).tiny)
    inside = ((offset - before) / scale.clamp_min(torch.finfo(torch.float64).tiny)).clamp_min(0)
    item = torch.searchsorted(within, inside[:, None], right=True)[:, 0]
    item = torch.minimum(item, (within < within[:, -1:]).sum(1))  # the last item with weight
    start = torch.where(item > 0, within.gather(1, (item - 1).clamp_min(0)[:, None])[:, 0], 0.0)
    return stretch * STRETCH + item, before + start * scale
