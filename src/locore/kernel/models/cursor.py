"""Cursors: a model read step by step, with its caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.kernel.limits import may_stop
from locore.kernel.models.validation import checked_distributions, row_indices, token_ids
from locore.kernel.numerics import NEG_INF, end_row, is_end
from locore.kernel.plugins import cached_property


class Cursor(ABC):
    """Where a batch of sequences stands. Immutable: `advance` returns a new one.

    What has a number for every token of the vocabulary is on the model's device, what has one for each row on the CPU.
    """

    @property
    @abstractmethod
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far, on the model's device."""

    @abstractmethod
    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Cursor:
        """Feed one token to each row that goes on.

        Args:
            tokens: Long[new], the next tokens.
            parents: Long[new], the row of this cursor that each continues; rows may repeat or stop. By default every row goes
                on, in order.

        Returns:
            A cursor of `new` rows; this one stays valid.
        """


def scores_of(log_probs: Tensor, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
    """f64[batch] on the CPU: log p of Long[batch] tokens by Float[rows, vocab], of which each has its own or the given row."""
    rows = torch.arange(len(tokens)) if rows is None else rows
    device = log_probs.device
    return log_probs[rows.to(device), tokens.to(device)].double().cpu()


@dataclass(frozen=True, eq=False)
class SharedRows(Cursor):
    """Rows of a cursor that others read as well; those that go on from it can go on together, see `advance_together`.

    Attributes:
        whole: the cursor.
        rows: Long[batch], its rows; they may repeat.
    """

    whole: Cursor
    rows: Tensor

    @cached_property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: a view where the rows follow each other."""
        everything, rows = self.whole.log_probs, self.rows
        first = int(rows[0]) if len(rows) else 0
        if torch.equal(rows, torch.arange(first, first + len(rows))):
            return everything[first : first + len(rows)]
        return everything[rows.to(everything.device)]

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Cursor:
        """Feed one token to each row that goes on, by itself; see `Cursor.advance`."""
        return self.whole.advance(tokens, self.rows[row_indices(parents, len(tokens), len(self.rows))])


def advance_together(parts: Sequence[tuple[SharedRows, Tensor, Tensor]]) -> list[SharedRows]:
    """One pass for all: Long[new] tokens after Long[new] rows of cursors that share one. What two of them want is read once.

    Returns:
        For each its own, of which all share one again.
    """
    whole = parts[0][0].whole
    rows = torch.cat([shared.rows[parents] for shared, _, parents in parts])
    tokens = torch.cat([tokens for _, tokens, _ in parts])
    pairs = torch.stack([rows, tokens], 1)
    distinct, which = torch.unique(pairs, dim=0, return_inverse=True) if len(parts) > 1 else (pairs, torch.arange(len(pairs)))
    if len(distinct) == len(pairs):  # in their order, so that nothing has to be copied
        distinct, which = pairs, torch.arange(len(pairs))
    after = whole.advance(distinct[:, 1], distinct[:, 0])
    return [SharedRows(after, part) for part in torch.split(which, [len(tokens) for _, tokens, _ in parts])]


class RecomputingCursor(Cursor):
    """A cursor for models without a cache: it keeps the tokens and asks again when read."""

    def __init__(self, next_log_probs: Callable[[Tensor], Tensor], tokens: Tensor) -> None:
        """`next_log_probs` maps tokens Long[batch, time] to Float[batch, vocab]."""
        self._next_log_probs = next_log_probs
        self._tokens = tokens

    @cached_property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab], computed when first read."""
        return self._next_log_probs(self._tokens)

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> RecomputingCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        rows = row_indices(parents, len(tokens), len(self._tokens))
        return RecomputingCursor(self._next_log_probs, torch.cat([self._tokens[rows], tokens[:, None]], 1))


@dataclass(frozen=True, eq=False)
class AbsorbingCursor(Cursor):
    """Makes the end of sequence absorbing, and looks at what the model gives; rows that ended never reach the inner cursor.

    Attributes:
        inner: the model's own cursor over the rows that go on; None when all have ended.
        slot: Long[batch], the row of `inner` of each sequence, −1 where it has ended.
        ended: Float[vocab], the distribution after an end; −inf where there is no end.
    """

    inner: Cursor | None
    slot: Tensor
    vocab_size: int
    eos_ids: tuple[int, ...]
    ended: Tensor

    @classmethod
    def begin(cls, inner: Cursor, batch: int, vocab_size: int, eos_ids: tuple[int, ...]) -> AbsorbingCursor:
        """At the start nothing has ended."""
        first = inner.log_probs
        ended = end_row(vocab_size, eos_ids, first) if eos_ids else first.new_full((vocab_size,), NEG_INF)
        return cls(inner, torch.arange(batch), vocab_size, eos_ids, ended)

    @cached_property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: the padding is certain in rows that ended."""
        live = self.slot >= 0
        if self.inner is not None and bool(live.all()):
            return checked_distributions(self.inner.log_probs)
        rows = self.ended.repeat(len(self.slot), 1)
        if self.inner is not None:
            rows[live.to(rows.device)] = checked_distributions(self.inner.log_probs)
        return rows

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> AbsorbingCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        may_stop()
        tokens = token_ids(tokens, "new", self.vocab_size)
        before = self.slot[row_indices(parents, len(tokens), len(self.slot))]
        live = (before >= 0) & ~is_end(tokens, self.eos_ids)
        slot = torch.where(live, live.long().cumsum(0) - 1, -1)
        inner = self.inner
        if inner is not None:
            inner = inner.advance(tokens[live], before[live]) if bool(live.any()) else None
        return AbsorbingCursor(inner, slot, self.vocab_size, self.eos_ids, self.ended)
