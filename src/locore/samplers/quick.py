"""`quick`: for an answer that is wanted soon. What is easy is done exactly; a few prefixes at each position do for the rest.

What takes time is the number of passes after each other, and on a CPU their rows. So where draws are all that is wanted, each
is one row where the model by itself would likely keep to the constraint, and where it would not nothing is tried beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch

from locore.circuits import Circuit, LeftToRight
from locore.evidence import Draws
from locore.models import LanguageModel
from locore.samplers.auto import FEW, told
from locore.samplers.base import Prefixes, Sampler, Worth
from locore.samplers.enumeration import Enumeration, price_of_enumeration
from locore.samplers.few import few_draws
from locore.samplers.lcr import LocallyConstrainedResampling
from locore.samplers.rejection import Rejection
from locore.samplers.swor import WithoutReplacement
from locore.samplers.twist.prepared import prepared_table
from locore.samplers.twisted import Twisted

LIKELY = math.log(1 / 2)  # of the first token's being one with which the constraint can be satisfied
PATIENCE = 4  # times the price of plain draws, that rejection may cost where it is likely to succeed
PLAIN = "the first draws of the model that satisfy the constraint"
MOSTLY_BROKEN = "the model's first token mostly breaks the constraint"
NOT_PLAIN = "draws of the model by itself would hardly satisfy the constraint"


@dataclass(frozen=True)
class Quick:
    """Chooses as `Auto` does, at the price of `num_particles` plain draws: (length − 1) LM tokens for each.

    Few prefixes left: enumeration. Both of two unconstrained draws satisfy the constraint: rejection. Otherwise SMC without
    replacement on as many prefixes as the price allows, twisted by the model's table if `locore prepare` has made it. Nothing
    is learned in the call, and fewer than 96 prefixes leave no verdict on their error. What takes time is the number of passes
    after each other, so nothing is drawn in vain where the first token alone says that draws would hardly do.

    Attributes:
        pilot_draws: unconstrained draws, which are thrown away.
        draws: how many texts will be drawn from what comes back, where that is all it is for; None where p(α) is wanted too.
            They are then exact where a text may end at once and the first token is likely: as many plain draws, each given up
            where it breaks the constraint, and tried four times. If that fails, or elsewhere, without a pilot.
        worth: of texts beyond α; the sampler that is chosen goes by it where it can.
    """

    pilot_draws: int = 2
    draws: int | None = None
    name: str = "quick"
    worth: Worth | None = field(default=None, compare=False, repr=False)

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """As the sampler that is chosen; its name and the reason are in `info`."""
        price = max(1, circuit.length - 1)
        limit = num_particles * price if budget is None else budget
        prefixes = math.inf
        if circuit.reader is not None:
            prefixes = price_of_enumeration(circuit.reader, model.tokenizer.eos_ids, most=FEW)
        if self._may_be_plain(model, circuit, prefixes, limit):
            found = few_draws(model, circuit, self.draws or 1, PATIENCE, generator)
            if found is not None:
                return replace(found, record=replace(found.record, chosen=Rejection.name, why=PLAIN))
        chosen, why, spent, limit = self._choose(model, circuit, prefixes, limit, price, generator)
        draws = chosen(model, circuit, num_particles, limit - spent, generator)
        return replace(draws, record=replace(draws.record, chosen=chosen.name, why=why))

    def _may_be_plain(self, model: LanguageModel, circuit: Circuit, prefixes: float, limit: int) -> bool:
        """Are a few draws wanted, and does the constraint only forbid, so that the model by itself would likely keep to it?"""
        ends, reader = list(model.tokenizer.eos_ids), circuit.reader
        if self.draws is None or self.worth is not None or reader is None or circuit.relaxed or prefixes <= min(FEW, limit):
            return False
        return bool(Prefixes.start(model, reader).allowed()[0, ends].any()) and _is_likely(model, reader)

    def _choose(
        self,
        model: LanguageModel,
        circuit: Circuit,
        prefixes: float,
        limit: int,
        price: int,
        generator: torch.Generator,
    ) -> tuple[Sampler, str, int, int]:
        """The sampler, the reason in words, the LM tokens that the choice cost, and those that may be spent in all."""
        reader = circuit.reader
        if prefixes <= min(FEW, limit):
            return (
                Enumeration(max_contexts=limit, keep_all=self.worth is not None),
                f"only {prefixes:,.0f} prefixes can be completed",
                0,
                limit,
            )
        likely = reader is None or (self.draws is None and _is_likely(model, reader))
        draws = min(self.pilot_draws, limit // (PATIENCE * price)) if likely else 0
        accepted = int(circuit.accepts(model.sample(draws, circuit.length, generator).tokens).sum()) if draws else 0
        why, spent = told(accepted, draws, self.worth), draws * price
        if not likely:
            why = MOSTLY_BROKEN if self.draws is None else NOT_PLAIN
        if draws > 1 and accepted == draws:
            return Rejection(), why, spent, PATIENCE * limit
        if reader is None:
            return LocallyConstrainedResampling(), f"{why}, and it has no left-to-right reading", spent, limit
        table = prepared_table(model)
        known = "the model's table is there" if table else "no table is prepared for this model"
        worth = self.worth
        swor = WithoutReplacement(worth=worth) if table is None else Twisted(table, worth=worth)
        return swor, f"{why}; {known}", spent, limit


def _is_likely(model: LanguageModel, reader: LeftToRight) -> bool:
    """Is the first token one with which the constraint can be satisfied?"""
    return float(Prefixes.start(model, reader).masked().logsumexp(-1)) >= LIKELY
