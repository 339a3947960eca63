"""Independent blocks: repetitions whose mean the particles are, and what they say of its error.

Each block b gives an unbiased estimate Ẑ_b of p(α) and knows three things about its error.

**Spread.** The Ẑ_b are independent, so their spread is the error of their mean. With four of them it is a rough number, and
where all of them miss the same texts they agree for no good reason.

**Thinning.** A block that keeps distinct prefixes is exact but for its draws: where it may keep m prefixes it keeps the heavy
ones and draws among the light ones, each with a probability π and a weight raised by 1/π. F being the share of the final weight
that goes back to a drawn prefix, these draws have a relative variance of about Σ (1 − π)(F − F̄)², F̄ the mean of the drawn; and
as F² holds what later draws do to F already, their variance counts π times only (Horvitz and Thompson in several stages;
Särndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992, section 4.3). A single block can tell it. Draws at the
last position leave the sum as it is, so F is what a prefix leads to before them: where few sequences are kept of many prefixes,
their luck would look like an error.

**Surprise.** Both look at what was found. How much was missed shows in how wrong the expectations were. Before each selection
the twist foretells Ẑ_b; were it right, all forecasts would be the same, and d, the root of the sum of the squares of their
differences in nats, is about how wrong it is of a prefix, those that were not drawn included. (Where nothing is foretold, as in
SMC with replacement, d² is the variance among particles of the logs of what a position multiplied their weights by.) If a share
t of the weight is drawn among, m times, √(t/m) · d is about the relative error that such prefixes leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF, segment_logsumexp
from locore.kernel.plugins import cached_property

LEAST, ROUNDING = 2, 1e-15  # blocks with a spread; a variance that may be of last digits


@dataclass(frozen=True)
class Surprise:
    """How far a block went otherwise than expected.

    Attributes:
        nats: d, root mean square.
        share_drawn: largest share of the weight at a position that was drawn among, not kept for certain.
        width: prefixes at a position, in the mean.
    """

    nats: float
    share_drawn: float
    width: float

    @property
    def unseen(self) -> float:
        """Relative error by what was not drawn."""
        return self.nats * math.sqrt(self.share_drawn / self.width)


@dataclass(frozen=True, eq=False)
class Kept:
    """The prefixes that were kept at a position.

    Attributes:
        tokens: Long[kept], the last of each.
        log_weights: f64[kept].
        log_masses: f64[kept before], log of the probability of all tokens that may follow each prefix.
    """

    tokens: Tensor
    log_weights: Tensor
    log_masses: Tensor


@dataclass(frozen=True, eq=False)
class Lineage:
    """Where the sequences of a block come from.

    Attributes:
        parent: for each position Long[kept], which of the prefixes kept before a prefix goes on from.
        log_raise: for each position f64[kept], −log of the probability π with which a prefix was kept.
        log_rows: f64[kept at the last position but one], log of what the sequences weigh that each of these prefixes leads to,
            those that were not kept included.
        prefixes: those of each position; None where something steered, as it is not known then what may follow.
    """

    parent: tuple[Tensor, ...]
    log_raise: tuple[Tensor, ...]
    log_rows: Tensor
    prefixes: tuple[Kept, ...] | None = None

    @property
    def log_grain(self) -> float:
        """Log of the largest weight that a prefix was raised to: less probable sets may have none; nan if unknown."""
        if self.prefixes is None:
            return math.nan
        raised = (here.log_weights[more > 0] for here, more in zip(self.prefixes, self.log_raise, strict=True))
        return max((float(weights.max()) for weights in raised if len(weights)), default=NEG_INF)

    def variance(self) -> float:
        """Relative variance of Ẑ, which the draws at the last position leave as it is."""
        return float(self._variance(self.log_rows, len(self.parent) - 1))

    def variance_of(self, log_weights: Tensor) -> Tensor:
        """f64[…]: relative variances of the sums of weights, f64[…, sequences], some of which are zero."""
        return self._variance(log_weights, len(self.parent))

    def _variance(self, log_weights: Tensor, positions: int) -> Tensor:
        share = torch.softmax(log_weights, -1)
        variance = torch.zeros_like(share)
        sizes = [1, *(len(raised) for raised in self.log_raise)]
        steps = list(zip(self.parent, self.log_raise, sizes, strict=False))[:positions]
        for parent, raised, before in reversed(steps):
            variance = _of_draws(share, raised) + (-raised).exp() * variance
            sums = (value.new_zeros(*value.shape[:-1], before).index_add_(-1, parent, value) for value in (share, variance))
            share, variance = sums
        return variance[..., 0]


def _of_draws(share: Tensor, raised: Tensor) -> Tensor:
    """f64[…, kept]: what the draw of each prefix adds, the number of draws being fixed."""
    lost = -torch.expm1(-raised)  # 1 − π
    drawn = int((lost > 0).sum())
    if not drawn:
        return torch.zeros_like(share)
    mean = (lost * share).sum(-1, keepdim=True) / lost.sum()
    return lost * (share - mean).square() * drawn / max(1, drawn - 1)


@dataclass(frozen=True, eq=False)
class Block:
    """One of the repetitions.

    Attributes:
        row: Long[sequences], which of the sequences that the blocks found together.
        log_weights: f64[sequences]; they sum to Ẑ_b.
        surprise: None where nothing is known of it.
        lineage: None where prefixes are copied.
        is_whole: are these all the sequences that it kept, with the weights that it gave them?
        rescoring: relative variance of Ẑ_b by the ratio of the law that is weighed by to that which was drawn from.
    """

    row: Tensor
    log_weights: Tensor
    surprise: Surprise | None = None
    lineage: Lineage | None = None
    is_whole: bool = True
    rescoring: float = 0.0

    @property
    def log_evidence(self) -> float:
        """log Ẑ_b; −inf where nothing is left of it."""
        return float(torch.logsumexp(self.log_weights, 0)) if len(self.log_weights) else NEG_INF

    def log_weights_of(self, inside: Tensor) -> Tensor:
        """f64[sets, sequences], those of Bool[sets, sequences that all blocks found] alone."""
        return self.log_weights.masked_fill(~inside[:, self.row], NEG_INF)

    @cached_property  # every set that is all of the block asks for it
    def variance(self) -> float:
        """Relative variance of Ẑ_b by thinning; nan if it is not known."""
        if self.lineage is None or self.log_evidence == NEG_INF:
            return math.nan
        drawn = self.lineage.variance() if self.is_whole else float(self.lineage.variance_of(self.log_weights))
        return drawn + self.rescoring

    def variance_of(self, inside: Tensor) -> Tensor:
        """f64[sets]: that of Bool[sets, sequences that all blocks found]; draws at the last position keep the whole alone."""
        weights = self.log_weights_of(inside)
        parts = weights.new_tensor(math.nan) if self.lineage is None else self.lineage.variance_of(weights)
        return torch.where(inside[:, self.row].all(1), self.variance, parts)

    def where(self, keep: Tensor, number: Tensor) -> Block:
        """Of the sequences Bool[num], which then have the numbers Long[num]; the weights of the rest become zero."""
        stays = keep[self.row]
        weights = self.log_weights.masked_fill(~stays, NEG_INF)
        row = number[self.row].clamp_min(0)  # without weight it may be any
        return replace(self, row=row, log_weights=weights, is_whole=self.is_whole and bool(stays.all()))

    def times(self, log_factors: Tensor, are_near: bool = False) -> Block:
        """With weights multiplied by f64[sequences that all blocks found].

        What the factors differ by is one more surprise, as of a last position (of what they exclude it is not known), and the
        draws at the last position keep the sum of the weights, but not that of the products, unless all factors are near 1.
        """
        factors = log_factors[self.row]
        left = factors > NEG_INF
        share = torch.softmax(self.log_weights[left], 0)
        surprise, rescoring = self.surprise, self.rescoring
        if bool((self.log_weights[left] > NEG_INF).any()):
            rescoring += float((share * factors[left]).square().sum()) if are_near else 0.0  # one alone shows no spread
            if surprise is not None:
                nats = (share * (factors[left] - share @ factors[left]).square()).sum().sqrt()
                surprise = replace(surprise, nats=math.hypot(surprise.nats, float(nats)))
        is_whole, weights = are_near and self.is_whole, self.log_weights + factors
        return replace(self, log_weights=weights, surprise=surprise, is_whole=is_whole, rescoring=rescoring)


@dataclass(frozen=True, eq=False)
class Blocks:
    """All repetitions.

    Attributes:
        log_evidence: log Ẑ_b of each.
        members: the blocks with their sequences; empty where only the estimates are known.
        tokens: Long[sequences, time], what they found together; None where only the estimates are known.
        token_scores: f64[sequences, time], log p(y_t | y_<t), where known.
    """

    log_evidence: tuple[float, ...]
    members: tuple[Block, ...] = ()
    tokens: Tensor | None = None
    token_scores: Tensor | None = None

    @classmethod
    def of(cls, members: Sequence[Block], tokens: Tensor, token_scores: Tensor | None = None) -> Blocks:
        """From what each found."""
        return cls(tuple(block.log_evidence for block in members), tuple(members), tokens, token_scores)

    def log_weights(self) -> Tensor:
        """f64[sequences]: the mean over the blocks of what a sequence weighs in each."""
        assert self.tokens is not None  # they are about sequences
        total = torch.full((len(self.tokens),), NEG_INF, dtype=torch.float64)
        for block in self.members:
            total = torch.logaddexp(total, segment_logsumexp(block.log_weights, block.row, len(total)))
        return total - math.log(len(self))

    def __len__(self) -> int:
        return len(self.log_evidence)

    @property
    def spread(self) -> float:
        """Relative standard error of the mean by the spread of the blocks; nan for fewer than two."""
        return relative_error(self.log_evidence)

    @cached_property  # the interval and the verdict ask for it several times
    def thinning(self) -> float:
        """Relative standard error of the mean by thinning; nan where that is not known."""
        everything = torch.ones(1, 0 if self.tokens is None else len(self.tokens), dtype=torch.bool)
        return float(self.thinning_of(everything)) if self.members else math.nan

    def log_evidence_of(self, inside: Tensor) -> Tensor:
        """f64[sets, blocks]: log Ẑ_b of Bool[sets, sequences] alone."""
        return torch.stack([block.log_weights_of(inside).logsumexp(1) for block in self.members], 1)

    def thinning_of(self, inside: Tensor) -> Tensor:
        """f64[sets]: as `thinning`, of Bool[sets, sequences] alone; nan where there is nothing, or it is not known."""
        total = torch.zeros(len(inside), dtype=torch.float64)
        for part, block in zip(torch.softmax(self.log_evidence_of(inside), 1).T, self.members, strict=True):
            total += torch.where(part == 0, 0.0, part.square() * block.variance_of(inside))
        return total.sqrt()

    @property
    def error(self) -> float:
        """Relative standard error of the mean: the larger of the two; nan where neither is known."""
        errors = [error for error in (self.spread, self.thinning) if not math.isnan(error)]
        return max(errors, default=math.nan)

    @property
    def surprise(self) -> float:
        """Nats, mean over the blocks; 0 where nothing is known of it."""
        return self._mean([block.surprise.nats for block in self.members if block.surprise])

    @property
    def unseen(self) -> float:
        """Relative error by what was not drawn, mean over the blocks; 0 where nothing is known of it."""
        return self._mean([block.surprise.unseen for block in self.members if block.surprise])

    @property
    def width(self) -> float:
        """Prefixes at a position of all blocks together; 0 where that is not known."""
        return sum(block.surprise.width for block in self.members if block.surprise)

    @cached_property  # every field of a record asks for it
    def log_seen(self) -> float:
        """Log of how many draws from the model these prefixes stand for; nan where that is not known.

        A set of probability s has the expected number s/c of the prefixes that were raised to the weight c at a position.
        """
        grains = [math.nan if block.lineage is None else block.lineage.log_grain for block in self.members]
        return float(torch.tensor(grains, dtype=torch.float64).neg().logsumexp(0)) if grains else math.nan

    @property
    def are_complete(self) -> bool:
        """Did each of them keep every prefix that could be completed?"""
        return bool(self.members) and all(
            block.surprise is not None and not block.surprise.share_drawn for block in self.members
        )

    @staticmethod
    def _mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    def effective_number(self) -> float:
        """How many independent draws from p(y | α) would know its law as well; nan for fewer than two blocks with sequences.

        By how far the laws of the blocks lie apart: Σ_x Var p̂(x), which would be (1 − Σ_x p(x)²) / n for n independent draws,
        x being the first t tokens. The worst t counts: sequences that share a beginning are worth less than their number where
        it is the beginning that matters.
        """
        blocks = [(block, log) for block, log in zip(self.members, self.log_evidence, strict=False) if log > NEG_INF]
        if len(blocks) < LEAST or self.tokens is None:
            return math.nan
        share = torch.softmax(torch.tensor([log for _, log in blocks], dtype=torch.float64), 0)
        laws = torch.zeros(len(blocks), len(self.tokens), dtype=torch.float64)
        for row, (block, _) in zip(laws, blocks, strict=True):
            row.index_add_(0, block.row, torch.softmax(block.log_weights, 0))
        most = float(sum(int((block.log_weights > NEG_INF).sum()) for block, _ in blocks))
        prefix = torch.zeros(len(self.tokens), dtype=torch.long)
        for column in self.tokens.T:
            prefix = torch.unique(torch.stack([prefix, column]), dim=1, return_inverse=True)[1]
            by_prefix = torch.zeros(len(blocks), int(prefix.max()) + 1, dtype=torch.float64).index_add_(1, prefix, laws)
            most = min(most, _draws_worth(by_prefix, share))
        return most

    def times(self, log_factors: Tensor, near_scores: Tensor | None = None) -> Blocks | None:
        """With weights times f64[sequences]; as draws of the law of `near_scores`, if given. None where not all are known."""
        if self.tokens is None or len(log_factors) != len(self.tokens):
            return None
        scores = self.token_scores if near_scores is None else near_scores
        return Blocks.of([block.times(log_factors, near_scores is not None) for block in self.members], self.tokens, scores)

    def ordered(self, order: Tensor) -> Blocks:
        """With the sequences in another order, Long[num]; as they are where these are not all that the blocks know."""
        if self.tokens is None or len(order) != len(self.tokens):
            return self
        number, scores = order.argsort(), None if self.token_scores is None else self.token_scores[order]
        return Blocks.of([replace(block, row=number[block.row]) for block in self.members], self.tokens[order], scores)

    def where(self, keep: Tensor) -> Blocks | None:
        """The blocks of Bool[num] sequences alone, filtered before they are averaged; None where not all are known."""
        if self.tokens is None or len(keep) != len(self.tokens):
            return None
        number = keep.long().cumsum(0) - 1
        scores = None if self.token_scores is None else self.token_scores[keep]
        return Blocks.of([block.where(keep, number) for block in self.members], self.tokens[keep], scores)


def _draws_worth(laws: Tensor, share: Tensor) -> float:
    """As `Blocks.effective_number`, for f64[blocks, values] and the f64[blocks] with which they are averaged."""
    mean = share @ laws
    variance = float((share.square() @ (laws - mean).square()).sum()) * len(laws) / (len(laws) - 1)
    return (1 - float(mean.square().sum()) + variance) / variance if variance > ROUNDING else math.inf


def relative_error(log_estimates: Sequence[float]) -> float:
    """Relative standard error of the mean of independent unbiased estimates, given as logs; nan for fewer than two."""
    if len(log_estimates) < LEAST:
        return math.nan
    top = max(log_estimates)
    if top == NEG_INF:
        return math.nan
    values = torch.tensor([math.exp(value - top) for value in log_estimates], dtype=torch.float64)
    return float(values.std() / values.mean() / math.sqrt(len(values)))
