"""What few draws cannot show: a rule of three for weights, and for what potentials are worth elsewhere.

**Three in n.** What happens with a probability above 3/n shows among n draws, but for one case in twenty: (1 − 3/n)^n < e^−3.
So weights that all agree are no proof that all others would: a share 3/n of the draws may have other weights, none at all or
more. Where particles are kept for certain and only a share of the weight is drawn among, it is that share of 3/n. Where nothing
differs, the other weights may be anything that certain bounds allow; where weights do differ their spread says what is to be
expected, and the share counts once more, as if it weighed as much as the mean.

**Potentials.** The texts that were asked about say nothing of the others, which hold a share u of the weight: what was drawn
among and not found, by the rule of three, and no more than what certainly was not found. Each may be worth as much as φ can be.
That is its bound; a potential without one is taken to exceed what was seen by no more than twice the spread of its answers, and
by anything where they are all the same, for then nothing was learned about it.
"""

from __future__ import annotations

import math

from locore.evidence.record import Draws, log_total
from locore.numerics import effective_sample_size

OF_THREE = 3.0
UNSEEN = 1.5  # standard errors by what was not drawn; see `locore.evidence.bounds`
SAME = 1e-9  # nats by which equal weights may differ


def number_drawn(draws: Draws) -> tuple[float, float]:
    """How many draws there were, and the share of the weight that was drawn among."""
    blocks = draws.blocks
    if blocks is None:
        return float(draws.drawn), 1.0
    if not blocks.members:
        return float(max(len(blocks), draws.drawn)), 1.0
    widths = [block.surprise.width if block.surprise else len(block.row) for block in blocks.members]
    shares = [block.surprise.drawn if block.surprise else 1.0 for block in blocks.members]
    return float(sum(widths)), max(shares)


def missed_share(draws: Draws) -> float:
    """The share of the weight that n draws may have missed, at most 1."""
    number, drawn_among = number_drawn(draws)
    return drawn_among * min(1.0, OF_THREE / max(1.0, number))


def nothing_differs(draws: Draws) -> bool:
    """Are all weights the same, so that their spread says nothing?"""
    if draws.blocks is not None:
        logs = draws.blocks.log_evidence
        return draws.blocks.surprise <= SAME and max(logs) - min(logs) <= SAME
    return draws.drawn == len(draws) and float(draws.log_weights.max() - draws.log_weights.min()) <= SAME


def unasked_share(draws: Draws) -> float:
    """The share of p(α), in units of its estimate, on texts that are not among these: what potentials were not asked about."""
    number, drawn_among = number_drawn(draws)
    if draws.blocks is None:
        number = effective_sample_size(draws.log_weights)
    share = drawn_among * min(1.0, OF_THREE / max(1.0, number))
    if draws.token_scores is not None:
        found = log_total(draws.tokens, draws.token_scores.sum(-1)) - draws.log_mean_weight
        share = min(share, max(0.0, -math.expm1(found)))
    return share + (0.0 if draws.blocks is None else UNSEEN * draws.blocks.unseen)


def log_reach_of_others(draws: Draws) -> float:
    """Log of how many times Z the texts may be worth that no potential was asked about; −inf where there are none."""
    factors = draws.record.factors
    if factors is None or factors.unasked <= 0.0 or draws.record.exact_draws or draws.record.enumerated:
        return -math.inf
    mean = draws.log_mean_weight - factors.log_before
    return math.log(factors.unasked) + factors.log_beyond - mean
