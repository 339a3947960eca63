"""All sequences at Hamming distance 1 from one that was read once: Algorithm 1 of the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.ending import absorb_scores, is_end, live_lengths
from locore.models.base import substituted
from locore.models.batching import in_batches
from locore.models.causal import CausalLM, KeyValues
from locore.models.prefix import batch_size, gathered_scores

# More tokens in a row make attention dearer, fewer make products of thin matrices.
_PACK = 256


class Neighbourhood:
    """A sequence read once, and the keys and values with which its neighbours are read.

    Neighbour (i, v) shares y_0 … y_{i−1} with the sequence, so only its tail v, y_{i+1}, … is
    read, up to its end. Tails of all positions are packed into rows if the model allows that;
    else those of one position make a batch.
    """

    def __init__(
        self,
        causal: CausalLM,
        start: Tensor,
        prompt: KeyValues,
        tokens: Tensor,
        eos_ids: tuple[int, ...],
    ) -> None:
        """Read the sequence.

        Args:
            causal: the model.
            start: Float[vocab], its logits after the prompt.
            prompt: its keys and values of the prompt.
            tokens: Long[time], the sequence.
            eos_ids: tokens that end a text.
        """
        self._causal = causal
        self._tokens = tokens
        self._eos_ids = eos_ids
        self._prompt_length = prompt.length
        self._live = int(live_lengths(tokens[None], eos_ids))
        self._logits, self._past = start[None], prompt
        if self._live > 1:
            read = tokens[None, : self._live - 1]
            logits, self._past = causal.read_on(read, prompt, keep=self._live - 1)
            self._logits = torch.cat([self._logits, logits[0]])

    def scores(self, candidates: Tensor) -> Tensor:
        """f64[time, k]: log p of the sequence with y_i replaced by candidates[i, j]."""
        n, k = candidates.shape
        live, at = self._live, torch.arange(n)
        sequences = substituted(self._tokens, candidates)
        scores = torch.zeros(n, k, n, dtype=torch.float64)
        own = gathered_scores(self._logits, self._tokens[:live, None])[:, 0]
        scores[:, :, :live] = own
        scores[at[:live], :, at[:live]] = gathered_scores(self._logits, candidates[:live])

        other = (candidates != self._tokens[:, None]) & ~is_end(candidates, self._eos_ids)
        reads_on = other & (at < min(live, n - 1))[:, None]
        if bool(reads_on.any()):
            start = reads_on.nonzero()[:, 0]
            tails = self._tail_scores(sequences[reads_on], start)
            scores[reads_on] = torch.where(at > start[:, None], tails, scores[reads_on])
        flat = absorb_scores(scores.flatten(0, 1), sequences.flatten(0, 1), self._eos_ids)
        return flat.sum(-1).view(n, k)

    def _tail_scores(self, sequences: Tensor, start: Tensor) -> Tensor:
        """f64[batch, time]: scores of the tokens after `start`, up to the end of each row.

        Args:
            sequences: Long[batch, time], neighbours that differ from the sequence at `start`.
            start: Long[batch], ascending.
        """
        ends = live_lengths(sequences, self._eos_ids)
        group = start
        if self._causal.packs:
            room = max(1, self._causal.memory_bytes // (8 * self._causal.vocab_size))
            group = (ends - 1 - start).cumsum(0) // min(_PACK, room)
        sizes = torch.unique_consecutive(group, return_counts=True)[1].tolist()
        groups = zip(*(torch.split(rows, sizes) for rows in (sequences, start, ends)), strict=True)
        return torch.cat([self._group_scores(*rows) for rows in groups])

    def _group_scores(self, sequences: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        """As `_tail_scores`, of one pack or of one position."""

        def work(rows: slice) -> Tensor:
            read = self._read_packed if self._causal.packs else self._read_batch
            return read(sequences[rows], start[rows], ends[rows])

        size = len(sequences)
        if not self._causal.packs:
            new = int(ends[0] - 1 - start[0])
            size = batch_size(self._causal, self._prompt_length + int(start[0]), new)
        return in_batches(len(sequences), size, work)

    def _read_packed(self, sequences: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        """One after the other in one row; each sees its own prefix and itself."""
        at = torch.arange(sequences.shape[1])
        read = (at >= start[:, None]) & (at < ends[:, None] - 1)
        owner, column = read.nonzero(as_tuple=True)
        prefix = self._prompt_length + start[owner]
        visible = torch.cat(
            [
                torch.arange(self._past.length) < prefix[:, None],
                (owner == owner[:, None]) & (column <= column[:, None]),
            ],
            1,
        )
        positions = self._prompt_length + column
        tokens = sequences[owner, column]
        logits = self._causal.read_packed(tokens, self._past, positions, visible)
        scores = torch.zeros(sequences.shape, dtype=torch.float64)
        following = sequences[owner, column + 1]
        scores[owner, column + 1] = gathered_scores(logits, following[:, None])[:, 0]
        return scores

    def _read_batch(self, sequences: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        """In rows of their own; those of one position go on alike, so they end alike."""
        first, end = int(start[0]), int(ends[0])
        past = self._past.first(self._prompt_length + first).repeated(len(sequences))
        logits = self._causal.read(sequences[:, first : end - 1], past, keep=end - 1 - first)
        following = sequences[:, first + 1 : end]
        scores = torch.zeros(sequences.shape, dtype=torch.float64)
        scores[:, first + 1 : end] = gathered_scores(logits, following[..., None])[..., 0]
        return scores
