"""SMC without replacement, steered by an n-gram table of the model's own distributions.

Selecting prefixes by p(prefix) needs many of them before one that leads to α is among them. Selecting by p(prefix) · β(prefix),
β an estimate of p(α | prefix), needs few. β comes from a table made once per model, or it is learned within the call:
unconstrained drafts, then a small round whose prefixes show where α leads, then the final round. β is fixed before the round
that it steers, so the weights of that round are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from locore.circuits import Circuit, LeftToRight
from locore.lookahead import look_ahead
from locore.models import LanguageModel
from locore.ngram import NGramCounts, NGramTable
from locore.prepared import prepare
from locore.samplers.base import Draws, left_to_right
from locore.samplers.swor import JUDGED_WIDTH, Round, blocks_for, one_round, pooled, width_of

DRAFT_SHARE, LEARNING_SHARE = 1 / 12, 1 / 4  # of the budget of a block, where nothing is known of the model yet


@dataclass(frozen=True)
class Twisted:
    """Twisted SMC without replacement.

    Attributes:
        table: "model" for the table of the model, made at its first use and kept on disk (its cost is in the result's info and
            not in `lm_tokens`); a table; or None to learn one within the call and the budget.
        blocks: independent repetitions that share the budget, as in `WithoutReplacement`.
    """

    table: NGramTable | Literal["model"] | None = "model"
    blocks: int | None = None
    name: str = "twisted"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position of the final rounds; see `Sampler`."""
        reader = left_to_right(circuit)
        blocks = blocks_for(self.blocks, num_particles, circuit.length, budget)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        wanted = math.ceil(num_particles / blocks)
        table, info = self._table(model)
        if table is None:
            info["guided"] = width >= JUDGED_WIDTH and reader.tabulated
            rounds = [learned_round(model, reader, width, generator, wanted) for _ in range(blocks)]
        else:
            info["guided"] = reader.tabulated
            twist = look_ahead(table, reader) if reader.tabulated else None
            rounds = [one_round(model, reader, width, generator, twist, wanted=wanted) for _ in range(blocks)]
        return pooled(rounds, info)

    def _table(self, model: LanguageModel) -> tuple[NGramTable | None, dict[str, Any]]:
        if self.table != "model":
            return self.table, {"table": "given" if self.table else "learned in the call"}
        if model.fingerprint() is None:
            return None, {"table": "learned in the call"}
        prepared = prepare(model)
        cost = {"table_lm_tokens": prepared.lm_tokens, "table_seconds": prepared.seconds}
        return prepared.table, {"table": "of the model", **cost}


def learned_round(model: LanguageModel, reader: LeftToRight, width: int, generator: torch.Generator, wanted: int = 0) -> Round:
    """Drafts, a learning round and a final round that together expand `width` prefixes a position."""
    drafts, learning = max(1, round(width * DRAFT_SHARE)), max(1, round(width * LEARNING_SHARE))
    if drafts + learning >= width or not reader.tabulated:  # a twist needs the table of all states
        return one_round(model, reader, width, generator, wanted=wanted)
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    sample = model.sample(drafts, reader.length, generator, keep_log_probs=True)
    assert sample.log_probs is not None  # they were asked for
    counts.add_sequences(sample.tokens, sample.log_probs)
    one_round(model, reader, learning, generator, look_ahead(counts.table(), reader), counts.add)
    twist = look_ahead(counts.table(), reader)
    return one_round(model, reader, width - drafts - learning, generator, twist, wanted=wanted)
