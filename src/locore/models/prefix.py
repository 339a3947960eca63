"""Reading on from a shared prefix: step by step, and into all neighbours of a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.models.batching import in_batches
from locore.models.causal import CausalLM, KeyValues
from locore.models.cursor import Cursor
from locore.models.ending import absorb_scores, is_end, live_lengths
from locore.models.validation import row_indices, within_context


def gathered_scores(logits: Tensor, tokens: Tensor) -> Tensor:
    """f64[...], log p of the tokens Long[...] under logits Float[..., vocab].

    Gathers before it normalises, so that no second table of the logits' size is made.
    """
    chosen = logits.gather(-1, tokens.to(logits.device)[..., None])[..., 0]
    return (chosen - logits.logsumexp(-1)).double().cpu()


def batch_size(causal: CausalLM, past: int, new: int) -> int:
    """How many rows of `new` tokens after `past` tokens fit into the memory of a batch."""
    # Keys and values are there twice while they are joined, logits while they are normalised.
    keys_and_values = 2 * causal.bytes_per_token * (past + new)
    logits = 2 * 4 * causal.vocab_size * new
    return max(1, causal.memory_bytes // (keys_and_values + logits))


class CachedCursor(Cursor):
    """A cursor that keeps the keys and values of every row."""

    def __init__(self, causal: CausalLM, past: KeyValues, log_probs: Tensor) -> None:
        """Rows that have read `past` and expect `log_probs` next."""
        self._causal = causal
        self._past = past
        self._log_probs = log_probs

    @property
    def log_probs(self) -> Tensor:
        """Float32[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> CachedCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        rows = row_indices(parents, len(tokens), len(self._log_probs))
        within_context(self._past.length, 1, self._causal.context)
        logits, past = self._causal.read_on(tokens[:, None], self._past.rows(rows))
        return CachedCursor(self._causal, past, logits[:, 0].log_softmax(-1).cpu())


class Neighbourhood:
    """A sequence read once, and the keys and values with which its neighbours are read.

    Neighbour (i, v) shares y_0 … y_{i−1} with the sequence, so only v, y_{i+1}, … is read for it.
    """

    def __init__(
        self,
        causal: CausalLM,
        start: Tensor,
        past: KeyValues,
        tokens: Tensor,
        eos_ids: tuple[int, ...],
    ) -> None:
        """Read the sequence.

        Args:
            causal: the model.
            start: Float[vocab], its logits after the prompt.
            past: its keys and values of the prompt.
            tokens: Long[time], the sequence.
            eos_ids: tokens that end a text.
        """
        self._causal = causal
        self._tokens = tokens
        self._eos_ids = eos_ids
        self._prompt_length = past.length
        self._live = int(live_lengths(tokens[None], eos_ids))
        self._logits, self._past = start[None], past
        if self._live > 1:
            read = tokens[None, : self._live - 1]
            logits, self._past = causal.read_on(read, past, keep=self._live - 1)
            self._logits = torch.cat([self._logits, logits[0]])
        self._own = torch.zeros(len(tokens), dtype=torch.float64)
        self._own[: self._live] = gathered_scores(self._logits, tokens[: self._live])

    def scores(self, candidates: Tensor) -> Tensor:
        """f64[time, k]: log p of the sequence with y_i replaced by candidates[i, j]."""
        return torch.stack([self._scores_at(i, row) for i, row in enumerate(candidates)])

    def _scores_at(self, position: int, values: Tensor) -> Tensor:
        """f64[k]: log p of the sequence with each of these values at this position."""
        sequences = self._tokens.repeat(len(values), 1)
        sequences[:, position] = values
        scores = self._own.repeat(len(values), 1)
        if position < self._live:
            logits = self._logits[position].expand(len(values), -1)
            scores[:, position] = gathered_scores(logits, values)
            reads_on = (values != self._tokens[position]) & ~is_end(values, self._eos_ids)
            if position + 1 < len(self._tokens) and bool(reads_on.any()):
                scores[reads_on, position + 1 :] = self._tail_scores(position, sequences[reads_on])
        return absorb_scores(scores, sequences, self._eos_ids).sum(-1)

    def _tail_scores(self, position: int, sequences: Tensor) -> Tensor:
        """f64[batch, time−position−1] of sequences that differ from ours here only."""
        # They go on alike, so they end alike.
        live = int(live_lengths(sequences[:1], self._eos_ids))
        tails = sequences[:, position:live]
        past = self._past.first(self._prompt_length + position)

        def work(rows: slice) -> Tensor:
            part = tails[rows]
            shared = past.repeated(len(part))
            logits = self._causal.read(part[:, :-1], shared, keep=part.shape[1] - 1)
            return gathered_scores(logits, part[:, 1:])

        size = batch_size(self._causal, past.length, tails.shape[1] - 1)
        scores = sequences.new_zeros(sequences[:, position + 1 :].shape, dtype=torch.float64)
        scores[:, : live - position - 1] = in_batches(len(tails), size, work)
        return scores
