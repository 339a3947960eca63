"""`auto`: look at the problem, then hand it to the sampler that suits it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from locore.circuits import Circuit
from locore.models import LanguageModel
from locore.ngram import NGramCounts
from locore.prepared import prepared_table
from locore.samplers.base import Draws, Sampler
from locore.samplers.enumeration import Enumeration, price_of_enumeration
from locore.samplers.lcr import LocallyConstrainedResampling
from locore.samplers.rejection import Rejection
from locore.samplers.swor import JUDGED_BLOCKS, JUDGED_WIDTH
from locore.samplers.twisted import Twisted

LIKELY = 1 / 8  # share of accepted pilot draws from which rejection is the cheapest exact way
LEAST_ACCEPTED = 3  # pilot draws, below which a share means nothing: one of five may be luck, and rejection then finds none
PILOT_SHARE = 1 / 8  # of a budget, at most


@dataclass(frozen=True)
class Auto:
    """Chooses by what the constraint leaves and by a pilot of unconstrained draws.

    Few prefixes left: enumeration. A likely constraint: rejection, which is exact. Otherwise twisted SMC without
    replacement, with the model's table if `locore prepare` has made it, and with one learned in the call if not, from the
    pilot to begin with. The pilot chooses and teaches, but none of its draws becomes a particle, so it cannot bias anything.
    Without a budget, twisted SMC keeps enough prefixes for a verdict, however few particles are asked for; of a budget that is
    enough for that the pilot takes no more than the rest.

    Attributes:
        pilot_draws: unconstrained draws of the pilot, at most.
    """

    pilot_draws: int = 32
    name: str = "auto"

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
        # Without a budget it is what twisted SMC would cost: for one particle, too, a pilot is then cheaper than no pilot.
        judged = price * max(num_particles, JUDGED_BLOCKS * JUDGED_WIDTH)
        limit = judged if budget is None else budget
        spare = limit - price * JUDGED_BLOCKS * JUDGED_WIDTH
        pilot = spare if budget is not None and spare >= 0 else limit
        chosen, why, spent = self._choose(model, circuit, limit, pilot, generator)
        rest = None if budget is None else budget - spent
        if budget is None and isinstance(chosen, Twisted):
            rest = judged
        draws = chosen(model, circuit, num_particles, rest, generator)
        return replace(draws, info={**draws.info, "chosen": chosen.name, "why": why})

    def _choose(
        self, model: LanguageModel, circuit: Circuit, limit: int, spare: int, generator: torch.Generator
    ) -> tuple[Sampler, str, int]:
        """The sampler, the reason in words, and the LM tokens that the choice cost: a share of the limit, at most `spare`."""
        if circuit.reader is not None:
            prefixes = price_of_enumeration(circuit.reader, model.tokenizer.eos_ids)
            if prefixes <= limit:
                return Enumeration(max_contexts=limit), f"only {prefixes:,.0f} prefixes can be completed", 0
        price = max(1, circuit.length - 1)
        draws = min(self.pilot_draws, int(limit * PILOT_SHARE) // price, spare // price)
        table = None if circuit.reader is None else prepared_table(model)
        learns = table is None and circuit.reader is not None and circuit.reader.tabulated
        seen = NGramCounts(model.vocab_size, model.tokenizer.eos_ids) if draws and learns else None
        accepted = 0
        if seen is not None:
            accepted = int(circuit.accepts(seen.draft(model, draws, circuit.length, generator)).sum())
        elif draws:
            accepted = int(circuit.accepts(model.sample(draws, circuit.length, generator).tokens).sum())
        why = f"{accepted} of {draws} unconstrained draws satisfy the constraint"
        if accepted >= max(LEAST_ACCEPTED, LIKELY * draws):
            return Rejection(), why, draws * price
        if circuit.reader is None:
            return LocallyConstrainedResampling(), f"{why}, and it has no left-to-right reading", draws * price
        known = "the model's table is there" if table else "no table is prepared for this model"
        return Twisted(table, seen=seen), f"{why}; {known}", draws * price
