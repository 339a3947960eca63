"""SMC without replacement, steered by an n-gram table of the model's own distributions.

Selecting prefixes by p(prefix) needs many of them before one that leads to α is among them. Selecting by p(prefix) · β(prefix), β an
estimate of p(α | prefix), needs few. β comes from a table made once per model, or learned within the call: unconstrained drafts,
then a small round whose prefixes show where α leads, then the final round with β fixed, so that its weights are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from locore.circuits import Circuit
from locore.lookahead import look_ahead
from locore.models import LanguageModel
from locore.ngram import NGramCounts, NGramTable
from locore.samplers.base import Draws, left_to_right
from locore.samplers.swor import one_round, pooled, width_of

LEARNING_SHARE = 1 / 6  # of the budget for drafts, and again for the learning round


@dataclass(frozen=True)
class Twisted:
    """Twisted SMC without replacement.

    Attributes:
        table: an n-gram table of the model; None to learn one within the call.
        blocks: as in `WithoutReplacement`.
    """

    table: NGramTable | None = None
    blocks: int = 4
    name: str = "twisted"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position of the final round; see `Sampler`."""
        reader = left_to_right(circuit)
        width = width_of(num_particles, circuit.length, budget, self.blocks, self.name)
        if self.table is not None:
            twist = look_ahead(self.table, reader)
            rounds = [one_round(model, reader, width, generator, twist) for _ in range(self.blocks)]
            return pooled(rounds, self.name)
        return pooled([self._learned(model, circuit, width, generator) for _ in range(self.blocks)], self.name)

    def _learned(self, model: LanguageModel, circuit: Circuit, width: int, generator: torch.Generator):
        reader = left_to_right(circuit)
        small = max(2, round(width * LEARNING_SHARE))
        counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
        drafts = model.sample(small, circuit.length, generator, keep_log_probs=True)
        counts.add_sequences(drafts.tokens, drafts.log_probs)
        one_round(model, reader, small, generator, look_ahead(counts.table(), reader), counts.add)
        twist = look_ahead(counts.table(), reader)
        return one_round(model, reader, max(1, width - 2 * small), generator, twist)
