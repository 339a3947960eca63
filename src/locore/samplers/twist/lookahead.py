"""The twist: an estimate of how probable the constraint still is, after a prefix.

β_i(s, c) is the probability that the n-gram stand-in completes the constraint from automaton state s and context c at
position i, by one backward pass over the circuit's left-to-right reading. A sampler steers by log β; its weights stay exact
whatever β is.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from locore.circuits import DEAD, LeftToRight
from locore.samplers.twist.ngram import NGramTable

ROW_ENTRIES = 64  # entries of a row that the backward pass reads, beside the tokens that the constraint singles out
RELATIVE_FLOOR = 1e-12  # of the largest β at a position: what the table thinks impossible must stay possible
MOST_SINGLED_OUT = 128  # such tokens
NUMBERS = 40_000_000  # β values kept for all positions


@dataclass(frozen=True, eq=False)
class LookAhead:
    """log β for every position, state and context.

    Attributes:
        table: the contexts.
        reader: the states.
        log_beta: for each position 0..n, f32[contexts, states].
    """

    table: NGramTable
    reader: LeftToRight
    log_beta: tuple[Tensor, ...]

    def by_state(self, position: int, states: Tensor, log_floor: Tensor | None = None) -> Tensor:
        """log β after each possible next token, as if nothing were known of the tokens before it.

        Args:
            position: of the next token.
            states: Long[states], before it.
            log_floor: f32[], log κ, by which β is raised.

        Returns:
            f32[states, vocab]; tokens that cannot be completed have no meaning here.
        """
        target = self.reader.rows[position][states][:, self.reader.token_class].long().clamp_min(0)
        single = self.table.single
        return _raised(self.log_beta[position + 1][single, target], log_floor)

    def of(self, position: int, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """f32[batch], log β of prefixes in Long[batch] states whose last tokens are these; −1 where there is none."""
        context = torch.where(second >= 0, self.table.after(first, second.clamp_min(0)), 0)
        return self.log_beta[position][context, states]

    def known_pairs(
        self, position: int, states: Tensor, last: Tensor, log_floor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What is known better, because the table has seen two tokens in a row.

        Args:
            states: Long[batch], before the next token.
            last: Long[batch], the token before it, −1 where there is none.
            log_floor: as in `by_state`.

        Returns:
            Long[pairs] rows of the batch, Long[pairs] next tokens, and f32[pairs] log β, which replaces `by_state`.
        """
        keys, size = self.table.pair_keys, self.table.vocab_size
        low = torch.searchsorted(keys, last.clamp_min(0) * size)
        high = torch.searchsorted(keys, (last.clamp_min(0) + 1) * size)
        count = torch.where(last >= 0, high - low, 0)
        row = torch.repeat_interleave(torch.arange(len(last)), count)
        pair = low[row] + torch.arange(len(row)) - torch.repeat_interleave(count.cumsum(0) - count, count)
        token = keys[pair] % size
        target = self.reader.rows[position][states[row], self.reader.token_class[token]].long().clamp_min(0)
        context = self.table.first_pair + pair
        return row, token, _raised(self.log_beta[position + 1][context, target], log_floor)


@lru_cache(maxsize=8)
def look_ahead(table: NGramTable, reader: LeftToRight) -> LookAhead:
    """The backward pass, from the last position to the first.

    For constraints with many states the table is limited to its most frequent contexts, so that time and memory are bounded.
    """
    states = max(len(live) for live in reader.live)
    table = table.limited(NUMBERS // (states * (reader.length + 1)))
    rows = _Rows(table, reader)
    beta = reader.live[-1].double().expand(table.num_contexts, -1)
    result = [_log(beta)]
    for position in reversed(range(reader.length)):
        beta = rows.step(position, beta)
        result.append(_log(beta))
    return LookAhead(table, reader, tuple(reversed(result)))


def _raised(log_beta: Tensor, log_floor: Tensor | None) -> Tensor:
    """log (β + κ)."""
    return log_beta if log_floor is None else torch.logaddexp(log_beta, log_floor)


def _log(beta: Tensor) -> Tensor:
    """f32 logs, floored relative to the largest."""
    return (beta + RELATIVE_FLOOR * beta.max().clamp_min(1e-300)).log().float()


class _Rows:
    """The table's rows as one sparse matrix from contexts to the contexts that may follow.

    A context names its last token, so it also names the class that was read: all states share the matrix, and a step is one
    gather and one sparse product. Tokens that the table never saw last have context 0; they get a column for each class
    instead.
    """

    def __init__(self, table: NGramTable, reader: LeftToRight) -> None:
        self.table = table
        self.reader = reader
        last = table.last_token()
        num_classes = int(reader.token_class.max()) + 1
        # The column of each target context, then one for each class with context 0 after it.
        self.column_class = torch.cat([reader.token_class[last.clamp_min(0)], torch.arange(num_classes)])
        self.column_context = torch.cat([torch.arange(len(last)), torch.zeros(num_classes, dtype=torch.long)])
        start, tokens, probs = _kept(table, _singled_out(reader))
        owner = torch.repeat_interleave(torch.arange(len(last)), start[1:] - start[:-1])
        following = table.after(last[owner], tokens)
        columns = torch.where(following > 0, following, len(last) + reader.token_class[tokens])
        size = (len(last), len(self.column_class))
        with warnings.catch_warnings():  # torch warns that its sparse matrices are young
            warnings.simplefilter("ignore", UserWarning)
            self.matrix = torch.sparse_csr_tensor(start, columns, probs, size, check_invariants=False)
        mass = torch.zeros(len(last), dtype=torch.float64).index_add_(0, owner, probs)
        self.backoff = (1 - mass).clamp_min(0.0)

    def step(self, position: int, beta: Tensor) -> Tensor:
        """f64[contexts, states] at `position` from those at the next one."""
        rows = self.reader.rows[position].long()
        padded = torch.cat([beta, beta.new_zeros(len(beta), 1)], 1)  # a last column of zeros stands for DEAD
        targets = torch.where(rows == DEAD, beta.shape[1], rows)[:, self.column_class].T
        result: Tensor = self.matrix @ padded[self.column_context[:, None], targets]
        first_pair, backoff = self.table.first_pair, self.backoff[:, None]
        result[1:first_pair] += backoff[1:first_pair] * result[0]
        # Pairs last: they back off to single tokens, which are finished now.
        result[first_pair:] += backoff[first_pair:] * result[self.table.parent[first_pair:]]
        return result


def _singled_out(reader: LeftToRight) -> Tensor:
    """Bool[vocab]: tokens that the constraint treats almost individually; the rarest classes first, up to a limit."""
    sizes = torch.bincount(reader.token_class)
    size = sizes[reader.token_class]
    limit = int(size.sort().values[min(MOST_SINGLED_OUT, len(size) - 1)])
    return size < max(2, limit)


def _kept(table: NGramTable, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row starts, tokens and probabilities: the unigram row whole, of other rows the largest entries and the wanted tokens."""
    begin, end = table.start[:-1], table.start[1:]
    # +1 where a row begins, −1 behind its largest entries: one byte for each of the millions of entries.
    steps = torch.zeros(len(table.tokens) + 1, dtype=torch.int8)
    ones = torch.ones_like(begin, dtype=torch.int8)
    steps.index_add_(0, begin, ones)
    steps.index_add_(0, torch.minimum(begin + ROW_ENTRIES, end), ones, alpha=-1)
    kept = (steps[:-1].cumsum(0, dtype=torch.int8).bool() | wanted[table.tokens]).nonzero()[:, 0]
    start = torch.searchsorted(kept, table.start) + table.vocab_size  # the row of context 0 has no entries, but all tokens
    start[0] = 0
    tokens = torch.cat([torch.arange(table.vocab_size), table.tokens[kept].long()])
    return start, tokens, torch.cat([table.unigram, table.probs[kept].double()])
