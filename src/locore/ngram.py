"""An n-gram table of a model's own next-token distributions: a cheap stand-in for the model in look-aheads.

Rows are means of *distributions*, not counts of tokens, so a few thousand positions of the model's own text go far. Contexts
are the last two tokens, backing off to the last one, backing off to the mean of all distributions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

SMOOTHING = 2.0  # κ, pseudo-positions of the lower order in every row
ENTRIES_PER_ROW = 512  # largest probabilities kept of each recorded distribution


@dataclass(frozen=True, eq=False)
class NGramTable:
    """Back-off rows over contexts. Context 0 is "anything"; then the single tokens, then the pairs.

    Attributes:
        unigram: f64[vocab], the mean distribution.
        single: Long[vocab], the context of a last token, 0 where it was never seen.
        pair_keys: Long[pairs], first · vocab + second, increasing; their contexts are the last ones, in this order.
        start: Long[contexts + 1], where the entries of each context begin.
        tokens, probs: Long, f64[entries]: the largest entries of each context's row.
        backoff: f64[contexts], the mass that a row leaves to its parent's distribution.
        parent: Long[contexts], the context of the next lower order.
    """

    unigram: Tensor
    single: Tensor
    pair_keys: Tensor
    start: Tensor
    tokens: Tensor
    probs: Tensor
    backoff: Tensor
    parent: Tensor

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.unigram)

    @property
    def num_contexts(self) -> int:
        """Contexts, context 0 included."""
        return len(self.parent)

    @property
    def first_pair(self) -> int:
        """The context of pair 0."""
        return self.num_contexts - len(self.pair_keys)

    def after(self, first: Tensor, second: Tensor) -> Tensor:
        """Long like the arguments: the context of two last tokens; first is −1 where there is none."""
        context = self.single[second]
        if not len(self.pair_keys):
            return context
        key = first * self.vocab_size + second
        place = torch.searchsorted(self.pair_keys, key).clamp_max(len(self.pair_keys) - 1)
        known = (self.pair_keys[place] == key) & (first >= 0)
        return torch.where(known, self.first_pair + place, context)

    def last_token(self) -> Tensor:
        """Long[contexts]: the last token of each context, −1 for context 0."""
        result = torch.full((self.num_contexts,), -1)
        seen = self.single.nonzero()[:, 0]
        result[self.single[seen]] = seen
        result[self.first_pair :] = self.pair_keys % self.vocab_size
        return result


@dataclass
class NGramCounts:
    """Collects next-token distributions with the tokens before them.

    Attributes:
        vocab_size: number of tokens.
        eos_ids: ends; after one, the padding is certain.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    positions: int = 0
    _first: list[Tensor] = field(default_factory=list)
    _second: list[Tensor] = field(default_factory=list)
    _tokens: list[Tensor] = field(default_factory=list)
    _probs: list[Tensor] = field(default_factory=list)
    _total: Tensor | None = None

    def add(self, first: Tensor, second: Tensor, log_probs: Tensor) -> None:
        """Record Float[rows, vocab] distributions after Long[rows] last tokens; −1 where there is none."""
        live = torch.ones_like(second, dtype=torch.bool)
        for end in self.eos_ids:
            live &= second != end
        probs = log_probs[live].double().exp()
        total = probs.sum(0)
        self._total = total if self._total is None else self._total + total
        self.positions += len(probs)
        top = probs.topk(min(ENTRIES_PER_ROW, self.vocab_size))
        self._first.append(first[live])
        self._second.append(second[live])
        self._tokens.append(top.indices)
        self._probs.append(top.values)

    def add_sequences(self, tokens: Tensor, log_probs: Tensor) -> None:
        """Record all positions of Long[num, time] sequences with Float[num, time, vocab] distributions."""
        none = torch.full_like(tokens[:, :1], -1)
        second = torch.cat([none, tokens[:, :-1]], 1)
        first = torch.cat([none, second[:, :-1]], 1)
        self.add(first.flatten(), second.flatten(), log_probs.flatten(0, 1))

    def table(self, pairs: bool = True) -> NGramTable:
        """The back-off table of what was recorded."""
        first, second = torch.cat(self._first), torch.cat(self._second)
        tokens, probs = torch.cat(self._tokens), torch.cat(self._probs)
        total = self._total if self._total is not None else torch.ones(self.vocab_size).double()
        unigram = total / total.sum()
        singles = [torch.empty(0, dtype=torch.long), *_distinct(second[second >= 0])]
        ends = torch.tensor(sorted(self.eos_ids), dtype=torch.long)
        seen = torch.cat([singles[-1], ends]).unique()
        single = torch.zeros(self.vocab_size, dtype=torch.long)
        single[seen] = 1 + torch.arange(len(seen))
        keys = torch.empty(0, dtype=torch.long)
        has_two = first >= 0
        if pairs and bool(has_two.any()):
            keys = (first * self.vocab_size + second)[has_two].unique()
        context_of_key = 1 + len(seen)
        rows = [single[second[second >= 0]]]
        picked = [(second >= 0).nonzero()[:, 0]]
        if len(keys):
            where = has_two.nonzero()[:, 0]
            key = (first * self.vocab_size + second)[where]
            rows.append(context_of_key + torch.searchsorted(keys, key))
            picked.append(where)
        num_contexts = context_of_key + len(keys)
        parent = torch.zeros(num_contexts, dtype=torch.long)
        parent[context_of_key:] = single[keys % self.vocab_size]
        entries = _merge(torch.cat(rows), torch.cat(picked), tokens, probs, num_contexts, self.vocab_size)
        start, entry_tokens, entry_probs, backoff = entries
        if self.eos_ids:
            start, entry_tokens, entry_probs, backoff = _certain_end(
                start, entry_tokens, entry_probs, backoff, single[ends], self.eos_ids[0]
            )
        return NGramTable(unigram, single, keys, start, entry_tokens, entry_probs, backoff, parent)


def _distinct(values: Tensor) -> list[Tensor]:
    return [values.unique()]


def _merge(
    context: Tensor, position: Tensor, tokens: Tensor, probs: Tensor, num_contexts: int, vocab_size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum the recorded distributions of each context: row starts, tokens, probabilities, back-off mass."""
    size = torch.bincount(context, minlength=num_contexts).double()
    key = (context[:, None] * vocab_size + tokens[position]).flatten()
    distinct, inverse = key.unique(return_inverse=True)
    mass = torch.zeros(len(distinct), dtype=torch.float64)
    mass.index_add_(0, inverse, probs[position].flatten())
    owner = distinct // vocab_size
    share = mass / (size[owner] + SMOOTHING)
    kept = torch.zeros(num_contexts, dtype=torch.float64).index_add_(0, owner, share)
    start = torch.zeros(num_contexts + 1, dtype=torch.long)
    start[1:] = torch.bincount(owner, minlength=num_contexts).cumsum(0)
    return start, distinct % vocab_size, share, (1 - kept).clamp_min(0.0)


def _certain_end(
    start: Tensor, tokens: Tensor, probs: Tensor, backoff: Tensor, ends: Tensor, padding: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give the contexts that end a text a row that is certain of the padding."""
    sizes = start[1:] - start[:-1]  # these contexts were never recorded, so their rows are empty
    sizes[ends] = 1
    new_start = torch.cat([start[:1], sizes.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    is_end = torch.isin(owner, ends)
    new_tokens = torch.full((len(owner),), padding)
    new_probs = torch.ones(len(owner), dtype=torch.float64)
    new_tokens[~is_end], new_probs[~is_end] = tokens, probs
    backoff = backoff.clone()
    backoff[ends] = 0.0
    return new_start, new_tokens, new_probs, backoff
