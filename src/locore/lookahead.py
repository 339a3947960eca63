"""The twist: an estimate of how probable the constraint still is, after a prefix.

β_i(s, c) is the probability that the n-gram stand-in completes the constraint from automaton state s and context c at position i,
by one backward pass over the circuit's left-to-right reading. A sampler steers by log β; its weights stay exact whatever β is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import DEAD, LeftToRight
from locore.ngram import NGramTable

ROW_ENTRIES = 64  # entries of a row that the backward pass reads, beside the tokens that the constraint singles out
RELATIVE_FLOOR = 1e-12  # of the largest β at a position: what the table thinks impossible must stay possible
MEMORY_NUMBERS = 40_000_000  # β values kept for all positions


@dataclass(frozen=True, eq=False)
class LookAhead:
    """log β for every position, state and context.

    Attributes:
        table: the contexts.
        reader: the states.
        log_beta: for each position 0..n, f32[states, contexts].
    """

    table: NGramTable
    reader: LeftToRight
    log_beta: tuple[Tensor, ...]

    def children(self, position: int, states: Tensor, last: Tensor) -> Tensor:
        """log β after each possible next token.

        Args:
            position: of the next token.
            states: Long[batch], states before it.
            last: Long[batch], the token before it, −1 where there is none.

        Returns:
            f32[batch, vocab]; tokens that cannot be completed have no meaning here.
        """
        target = self.reader.rows[position][states][:, self.reader.token_class].long().clamp_min(0)
        context = self.table.single.expand(len(states), -1)
        if len(self.table.pair_keys):
            context = self._with_pairs(context.clone(), last)
        return self.log_beta[position + 1][target, context]

    def _with_pairs(self, context: Tensor, last: Tensor) -> Tensor:
        """Write the contexts of known pairs (last, ·) over those of single tokens."""
        keys, size = self.table.pair_keys, self.table.vocab_size
        low = torch.searchsorted(keys, last.clamp_min(0) * size)
        high = torch.searchsorted(keys, (last.clamp_min(0) + 1) * size)
        count = torch.where(last >= 0, high - low, 0)
        row = torch.repeat_interleave(torch.arange(len(last)), count)
        within = torch.arange(len(row)) - torch.repeat_interleave(count.cumsum(0) - count, count)
        pair = low[row] + within
        context[row, keys[pair] % size] = self.table.first_pair + pair
        return context


def look_ahead(table: NGramTable, reader: LeftToRight) -> LookAhead:
    """The backward pass, from the last position to the first."""
    rows = _Rows(table, reader)
    beta = reader.live[-1].double()[:, None].expand(-1, table.num_contexts)
    result = [_log(beta)]
    for position in reversed(range(reader.length)):
        beta = rows.step(position, beta)
        result.append(_log(beta))
    return LookAhead(table, reader, tuple(reversed(result)))


def _log(beta: Tensor) -> Tensor:
    """f32 logs, floored relative to the largest."""
    return (beta + RELATIVE_FLOOR * beta.max().clamp_min(1e-300)).log().float()


class _Rows:
    """The entries of all contexts that the backward pass reads, as rectangles."""

    def __init__(self, table: NGramTable, reader: LeftToRight) -> None:
        self.reader = reader
        self.table = table
        self.tokens, self.probs = _rectangle(table, _singled_out(reader))
        self.backoff = 1 - self.probs.sum(-1)
        last = table.last_token()[:, None].expand_as(self.tokens)
        self.next = table.after(last, self.tokens)
        self.columns = reader.token_class[self.tokens]
        self.seen = table.single.nonzero()[:, 0]
        unseen = table.unigram.clone()
        unseen[self.seen] = 0.0
        num_classes = int(reader.token_class.max()) + 1
        self.unseen = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, reader.token_class, unseen)

    def step(self, position: int, beta: Tensor) -> Tensor:
        """f64[states, contexts] at `position` from those at the next one."""
        rows = self.reader.rows[position].long()
        # A last row of zeros stands for DEAD.
        padded = torch.cat([beta, beta.new_zeros(1, beta.shape[1])])
        rows = torch.where(rows == DEAD, len(beta), rows)
        base = padded[rows, 0] @ self.unseen
        columns = self.reader.token_class[self.seen]
        base = base + padded[rows[:, columns], self.table.single[self.seen]] @ self.table.unigram[self.seen]
        result = beta.new_empty(len(rows), self.table.num_contexts)
        for state, targets in enumerate(rows):
            result[state] = (padded[targets[self.columns], self.next] * self.probs).sum(-1)
        result[:, 0] = base
        first_pair = self.table.first_pair
        singles = slice(1, first_pair)  # lower orders first: pairs back off to finished singles
        result[:, singles] += self.backoff[singles] * base[:, None]
        pairs = slice(first_pair, None)
        result[:, pairs] += self.backoff[pairs] * result[:, self.table.parent[pairs]]
        return result


def _singled_out(reader: LeftToRight) -> Tensor:
    """Bool[vocab]: tokens outside the largest class, which the constraint speaks about."""
    largest = torch.bincount(reader.token_class).argmax()
    return reader.token_class != largest


def _rectangle(table: NGramTable, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Long, f64[contexts, entries]: the largest entries of each row and all entries of wanted tokens; padding has weight 0."""
    sizes = table.start[1:] - table.start[:-1]
    owner = torch.repeat_interleave(torch.arange(table.num_contexts), sizes)
    order = torch.argsort(table.probs, descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]
    rank = torch.arange(len(order)) - table.start[owner[order]]
    keep = order[(rank < ROW_ENTRIES) | wanted[table.tokens[order]]]
    keep_owner = owner[keep]
    count = torch.bincount(keep_owner, minlength=table.num_contexts)
    column = torch.arange(len(keep)) - (count.cumsum(0) - count)[keep_owner]
    tokens = torch.zeros(table.num_contexts, max(1, int(count.max())), dtype=torch.long)
    probs = torch.zeros(tokens.shape, dtype=torch.float64)
    tokens[keep_owner, column] = table.tokens[keep]
    probs[keep_owner, column] = table.probs[keep]
    return tokens, probs
