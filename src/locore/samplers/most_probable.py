"""Temperature 0: the most probable text that satisfies the constraint, and how sure that is.

The likeliest prefixes are read first, as by `best_first`: a sequence that was not read is at most as probable as the likeliest
prefix that was not, so once none of these is above the best sequence found, that one is the most probable for certain. Where
that takes too long, most of the budget goes to a search of another kind: weighted draws of the law at temperature 1/2, which
look for likely texts where prefixes alone mislead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.evidence import Draws, Mode, Record
from locore.kernel.certain import apart
from locore.kernel.errors import BudgetExceeded, TimedOut, ZeroWeights
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.base import affordable
from locore.models import LanguageModel, Tempered
from locore.samplers.auto import Auto
from locore.samplers.best_first import Scored, Search

SEARCHED = 0.3  # share of the budget that reads the likeliest prefixes
SHARPENED = 0.5  # temperature of the draws
KEPT = 32  # draws
COMPARED = 8  # of the draws, the likeliest, which are scored under the law itself


@dataclass(frozen=True)
class MostProbable:
    """The most probable sequence found, by p(y) or by what it is worth.

    Attributes:
        worth: log of what Long[num, length] are worth beyond their probability, f64[num], −inf where one must not be; None for
            nothing.
        log_most: what that cannot exceed.
    """

    name: str = "most-probable"
    worth: Callable[[Tensor], Tensor] | None = field(default=None, compare=False, repr=False)
    log_most: float = 0.0

    def seeking(self, worth: Callable[[Tensor], Tensor] | None, log_most: float) -> MostProbable:
        """By probability and worth; see the attributes."""
        return replace(self, worth=worth, log_most=log_most)

    def most_prefixes(self, num_particles: int) -> float:
        """One is drawn, and scored under the law itself."""
        return max(2, num_particles)

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """See `Sampler`: one sequence. Without a budget it may cost what `num_particles` plain draws do.

        Raises:
            ZeroWeights: nothing was found.
        """
        price = max(1, circuit.length - 1)
        limit = int(price * self.most_prefixes(num_particles)) if budget is None else budget
        affordable(1, 2 * price, limit, self.name)  # one is drawn, and scored under the law itself
        search = None if circuit.reader is None else Search(model, circuit)
        within = min(int(limit * SEARCHED), limit - 2 * price)
        scored = [] if search is None else search.seek(within, self._values, self.log_most)
        ahead = 0.0 if search is None else search.log_next
        if ahead + self.log_most > max((float(values.max()) for _, _, values in scored), default=NEG_INF):
            drawn = self._drawn(model, circuit, limit - (0 if search is None else search.walk.contexts), generator)
            scored += [(*drawn, self._values(*drawn))] if drawn is not None else []
        if not any(bool((values > NEG_INF).any()) for _, _, values in scored):
            if ahead == NEG_INF:
                raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
            raise ZeroWeights(f"no text that satisfies the constraint was found in {limit:,} LM tokens; use a larger budget.")
        tokens, scores, values = (torch.cat(part) for part in zip(*scored, strict=True))
        best = values.argmax()[None]
        mode = Mode(float(values[best]), ahead + self.log_most, len(tokens))
        record = Record(guarantee="mode", weighted=False, drawn=1, mode=mode, bounds=_bounds(search, float(scores[best].sum())))
        return Draws(tokens[best], values[best], scores[best], record)

    def _values(self, tokens: Tensor, scores: Tensor) -> Tensor:
        """f64[num]: log of what sequences are compared by."""
        values = scores.sum(-1)
        return values if self.worth is None else values + self.worth(tokens)

    def _drawn(self, model: LanguageModel, circuit: Circuit, budget: int, generator: torch.Generator) -> Scored | None:
        """The likeliest of weighted draws of a sharper law, with their scores under the model's; None where none was found."""
        sharper, price = Tempered(model, SHARPENED), max(1, circuit.length - 1)
        compared = max(1, min(COMPARED, budget // (4 * price)))
        try:
            with apart():
                draws = Auto()(sharper, circuit, KEPT, budget - compared * price, generator)
        except (ZeroWeights, BudgetExceeded, TimedOut):
            return None
        known = sharper.token_scores(draws.tokens) if draws.token_scores is None else draws.token_scores
        likely = self._values(draws.tokens, known).argsort(descending=True)[:compared]
        tokens = draws.tokens[likely]
        return tokens, model.token_scores(tokens)


def _bounds(search: Search | None, log_prob: float) -> tuple[float, float]:
    """Of log p(α)."""
    if search is None:
        return log_prob, 0.0
    low = max(search.log_found, log_prob)
    return low, min(0.0, float(torch.logsumexp(torch.tensor([low, search.log_left], dtype=torch.float64), 0)))
