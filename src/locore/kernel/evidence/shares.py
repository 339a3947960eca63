"""What particles say of the probability of texts and of values, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.kernel.evidence.blocks import Blocks
from locore.kernel.evidence.record import Draws
from locore.kernel.evidence.verdict import Level

SHOWS = 16.0  # prefixes at a position that show an error
AT_ONCE = 1 << 20  # values times particles


@dataclass(frozen=True)
class FieldValue:
    """One value of a field.

    Attributes:
        value: as `json.loads` gives it; None where the field is missing.
        probability: of this value given α.
        error: standard error of the probability; None where it is not known, as where all draws have the same value.
        present: is the field there?
        verdict: on the particles that say so: no probability is better than they are.
        bounds: what the probability lies between for certain, by the texts found and what is left for all others.
    """

    value: Any
    probability: float
    error: float | None
    present: bool = True
    verdict: Level = "not judged"
    bounds: tuple[float, float] = (0.0, 1.0)

    def __str__(self) -> str:
        """In words: `'Paris': 0.93 ± 0.02; rough`."""
        value = repr(self.value) if self.present else "missing"
        error = "error unknown" if self.error is None else f"± {self.error:.2g}"
        return f"{value}: {self.probability:.3g}{',' if self.error is None else ''} {error}; {self.verdict}"


class Posterior(dict[str, float]):
    """Texts and their probabilities, the most probable first; printed, each with its standard error.

    An error says how far this run's own blocks or weights disagree; the verdict says what none of them may have seen.
    """

    def __init__(self, draws: Draws, probabilities: dict[str, float], rows: dict[str, list[int]]) -> None:
        """Of these probabilities, and the rows of the draws that spell each text."""
        super().__init__(probabilities)
        self._draws, self._rows = draws, rows

    def error(self, text: str) -> float | None:
        """Standard error of the probability of a text, by blocks where there are such; None where none is known."""
        return next(shares_with_errors(self._draws, [self._rows[text]]))[1]

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{text!r}: {self._shown(text)}" for text in self) + "}"

    def _shown(self, text: str) -> str:
        error = self.error(text)
        return f"{self[text]:.4g}" if not error else f"{self[text]:.3g} ± {error:.2g}"


def shares_with_errors(draws: Draws, rows: list[list[int]]) -> Iterator[tuple[Tensor, float | None]]:
    """Bool[num] for each, and the error of its share; None where unknown, or where it is all: no spread is not no error."""
    is_exact, most = draws.is_whole and draws.record.guarantee == "proper", max(1, AT_ONCE // len(draws))
    for some in (rows[start : start + most] for start in range(0, len(rows), most)):
        inside = torch.zeros(len(some), len(draws), dtype=torch.bool)
        for each, members in zip(inside, some, strict=True):
            each[members] = True
        errors = torch.zeros(len(some)) if is_exact else torch.where(inside.all(1), math.nan, _ratio_errors(draws, inside))
        for each, error in zip(inside, errors.tolist(), strict=True):
            yield each, None if math.isnan(error) else error


def _ratio_errors(draws: Draws, inside: Tensor) -> Tensor:
    """f64[values], of ratios of two means by the delta method, for Bool[values, num]: over blocks, or independent weights.

    With u_b the weight inside of block b and w_b its whole weight, r = Σu / Σw has variance B/(B−1) · Σ(u_b − r·w_b)² / (Σw)².
    """
    blocks, unknown = draws.blocks, torch.full((len(inside),), math.nan, dtype=torch.float64)
    if blocks is not None:
        if draws.record.resampled_from is not None or blocks.tokens is None or len(blocks.tokens) != len(draws):
            return unknown
        whole = torch.tensor(blocks.log_evidence, dtype=torch.float64)
        whole, held = ((logs - whole.max()).exp() for logs in (whole, blocks.log_evidence_of(inside)))
    elif draws.record.independent:
        # Zeros were drawn, too, and count as draws of weight 0.
        whole = (draws.log_weights - draws.log_weights.max()).exp()
        held = whole * inside
    else:
        return unknown
    number = len(whole) if blocks is not None else max(draws.drawn, len(whole))
    ratio = held.sum(1) / whole.sum()
    thinned = torch.zeros_like(ratio) if blocks is None else _thinned(blocks, inside, ratio)
    spread = (held - ratio[:, None] * whole).square().sum(1).mul(number / max(1, number - 1)).sqrt() / whole.sum()
    return torch.maximum(thinned, spread) if number > 1 else torch.where(thinned == 0, unknown, thinned)


def _thinned(blocks: Blocks, inside: Tensor, share: Tensor) -> Tensor:
    """Errors of f64[values] shares by what was drawn among: 0 where nothing was; nan with fewer than `SHOWS` prefixes.

    Draws keep the sum of all weights, so what one part has too much the other lacks: errors of the two do not average out. A
    few draws do not show how they differ: they are at least as far off as if what was drawn had been drawn once.
    """
    drawn = max((block.surprise.share_drawn for block in blocks.members if block.surprise), default=0.0)
    if not drawn or blocks.width < SHOWS:
        return torch.full_like(share, math.nan if drawn else 0.0)
    once = drawn * (share * (1 - share).clamp_min(0) / blocks.width).sqrt()
    sides = torch.stack([share, 1 - share]) * blocks.thinning_of(torch.cat([inside, ~inside])).view(2, -1)
    return torch.cat([once[None], torch.where(sides.isnan(), once, sides)]).amax(0)
