"""The samplers that are compared. A new one in `locore.samplers.BY_NAME` is compared as well, under its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from locore import samplers
from locore.errors import InvalidArgument
from locore.local import Exact
from locore.models import LanguageModel
from locore.ngram import NGramCounts, NGramTable
from locore.samplers import LocallyConstrainedResampling, Sampler
from locore.samplers.swor import WithoutReplacement
from locore.samplers.twisted import Twisted

TABLE_LENGTH = 50  # of the texts that a table is made from


@dataclass(frozen=True)
class Entry:
    """A row of the benchmark.

    Attributes:
        name: in tables.
        sampler: what is called.
        weighted: False takes the sequences without their weights, as masking engines do.
        with_table: makes the sampler from a table of the model; its cost is stated apart.
        price: LM tokens of one particle, from the length and the vocabulary, for a sampler that would rather refuse than buy
            fewer particles; others are asked for more than the budget buys.
    """

    name: str
    sampler: Sampler | None = None
    weighted: bool = True
    with_table: Callable[[NGramTable], Sampler] | None = None
    price: Callable[[int, int], int] | None = None

    def particles(self, length: int, vocab_size: int, budget: int) -> int:
        """How many to ask for."""
        return budget if self.price is None else max(1, budget // self.price(length, vocab_size))


def exact_price(length: int, vocab_size: int) -> int:
    """The exact neighbourhoods of ỹ and of y, and their scores."""
    return 2 * Exact().price(length, vocab_size) + 2 * length


LISTED = [
    Entry("masking, unweighted", samplers.BY_NAME["greedy"], weighted=False),
    Entry("greedy", samplers.BY_NAME["greedy"]),
    Entry("rejection", samplers.BY_NAME["rejection"]),
    Entry("oversampling", samplers.BY_NAME["oversampling"]),
    Entry("lcr", samplers.BY_NAME["lcr"]),
    Entry("lcr-exact", LocallyConstrainedResampling(kernel="exact"), price=exact_price),
    *(Entry(f"lcr-{kernel}", LocallyConstrainedResampling(kernel=kernel)) for kernel in ("window", "forward", "lazy")),
    Entry("lcr-forward, mixture", LocallyConstrainedResampling(kernel="forward", weights="mixture")),
    Entry("swor", WithoutReplacement()),
    Entry("swor, 1 block", WithoutReplacement(blocks=1)),
    Entry("twisted", Twisted()),
    Entry("twisted, 1 block", Twisted(blocks=1)),
    Entry("twisted + table", with_table=lambda table: Twisted(table)),
    Entry("twisted + table, 1 block", with_table=lambda table: Twisted(table, blocks=1)),
]


def all_entries() -> dict[str, Entry]:
    """The listed ones, then every other sampler that has a name."""
    found = {entry.name: entry for entry in LISTED}
    for name, sampler in samplers.BY_NAME.items():
        found.setdefault(name, Entry(name, sampler))
    return found


def choose(names: list[str] | None) -> list[Entry]:
    """Entries by name; None for all."""
    every = all_entries()
    unknown = [name for name in names or [] if name not in every]
    if unknown:
        raise InvalidArgument(f"unknown samplers {', '.join(unknown)}; known are {', '.join(every)}.")
    return [every[name] for name in names or every]


@torch.no_grad()
def make_table(model: LanguageModel, seed: int, positions: int) -> NGramTable:
    """A table of a model's own text, from its empty prompt: made once per model, whatever is asked of it later.

    Args:
        model: without a prompt.
        positions: how many next-token distributions it is made from; what it costs.
    """
    start = model.prompted("")
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    generator = torch.Generator().manual_seed(seed)
    while counts.positions < positions:
        rows = min(64, 1 + (positions - counts.positions) // TABLE_LENGTH)
        drafts = start.sample(rows, TABLE_LENGTH, generator, keep_log_probs=True)
        assert drafts.log_probs is not None
        counts.add_sequences(drafts.tokens, drafts.log_probs)
    return counts.table()
