"""All sequences at Hamming distance 1 from one that was read once: Algorithm 1 of the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.kernel.models.language_model import neighbour_scores
from locore.kernel.numerics import live_lengths
from locore.models.attention import KeyValues
from locore.models.causal import CausalLM, gathered_scores
from locore.models.hardware import how_many_fit, in_batches

# Tokens that are read together: fewer make products of thin matrices, more in one row attend to each other in vain.
_IN_ROWS, _IN_ONE_ROW = 1024, 256
_COPIED = 4  # tokens of the past that may be copied for each token that is read in rows


class Neighbourhood:
    """A sequence read once, and the keys and values with which its neighbours are read.

    Neighbour (i, v) shares y_0 … y_{i−1} with the sequence, so only its tail v, y_{i+1}, … is read, up to its end: at most
    k·n(n−1)/2 + n tokens altogether. The last position is free. Tails of all positions are read together behind a mask if the
    model allows that; else those of one position make a batch.
    """

    def __init__(self, causal: CausalLM, start: Tensor, prompt: KeyValues, tokens: Tensor, eos_ids: tuple[int, ...]) -> None:
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
        own = gathered_scores(self._logits, self._tokens[: self._live, None])[:, 0]
        chosen = gathered_scores(self._logits, candidates[: self._live])
        return neighbour_scores(self._tokens, candidates, own, chosen, self._tail_scores, self._eos_ids)

    def _tail_scores(self, sequences: Tensor, start: Tensor) -> Tensor:
        """f64[batch, time]: scores of the tokens after `start`, up to the end of each row.

        Args:
            sequences: Long[batch, time], neighbours that differ from the sequence at `start`.
            start: Long[batch], ascending.
        """
        ends = live_lengths(sequences, self._eos_ids)
        if self._causal.packs:
            return self._packed_scores(sequences, start, ends)
        sizes = torch.unique_consecutive(start, return_counts=True)[1].tolist()
        groups = zip(*(torch.split(rows, sizes) for rows in (sequences, start, ends)), strict=True)
        return torch.cat([self._group_scores(*rows) for rows in groups])

    def _packed_scores(self, sequences: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        """As `_tail_scores`, all positions together: tails lie one behind the other on strands of one width."""
        lengths = ends - 1 - start
        width = int(lengths.max())
        strand, offset = pack_tails(lengths, width)
        order = strand.argsort(stable=True)
        strand, offset = strand[order], offset[order]
        past = self._past.length
        # In a row of its own each strand needs a copy of the past; side by side they attend to each other in vain.
        apart = past <= _COPIED * width
        # For each token: its logits, once more normalised, its keys and values, once more joined, and the copied past.
        copied = 1 + past // width if apart else 0
        table = 8 * self._causal.vocab_size + self._causal.bytes_per_token * (2 + copied)
        free = self._causal.memory_bytes - (0 if apart else 2 * past * self._causal.bytes_per_token)
        at_once = min(_IN_ROWS if apart else _IN_ONE_ROW, how_many_fit(free, table))

        def work(strands: slice) -> Tensor:
            first, last = torch.searchsorted(strand, torch.tensor([strands.start, strands.stop])).tolist()
            rows = order[first:last]
            line = strand[first:last] - strands.start
            place = (line, offset[first:last]) if apart else (torch.zeros_like(line), line * width + offset[first:last])
            return self._read_packed(sequences[rows], start[rows], ends[rows], *place)

        scores = torch.empty(sequences.shape, dtype=torch.float64)
        scores[order] = in_batches(int(strand[-1]) + 1, max(1, at_once // width), work)
        return scores

    def _read_packed(self, sequences: Tensor, start: Tensor, ends: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Each tail at its place in a table of tokens, where it sees its own prefix and itself."""
        at = torch.arange(sequences.shape[1])
        tail, time = ((at >= start[:, None]) & (at < ends[:, None] - 1)).nonzero(as_tuple=True)
        place = (row[tail], column[tail] + time - start[tail])
        shape = (int(row[-1]) + 1, int(place[1].max()) + 1)
        tokens, following, positions, prefix = torch.zeros(4, *shape, dtype=torch.int64)
        tokens[place], following[place] = sequences[tail, time], sequences[tail, time + 1]
        positions[place], prefix[place] = self._prompt_length + time, self._prompt_length + start[tail]
        owner = torch.full(shape, -1)
        owner[place] = tail
        itself = (owner[:, :, None] == owner[:, None, :]) & (positions[:, None, :] <= positions[:, :, None])
        visible = torch.cat([torch.arange(self._past.length) < prefix[..., None], itself], -1)
        logits = self._causal.read_packed(tokens, self._past.repeated(len(tokens)), positions, visible)
        scores = torch.zeros(sequences.shape, dtype=torch.float64)
        scores[tail, time + 1] = gathered_scores(logits, following[..., None])[..., 0][place]
        return scores

    def _group_scores(self, sequences: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        """As `_tail_scores`, of one position."""
        size = self._causal.batch_size(self._prompt_length + int(start[0]), int(ends[0] - 1 - start[0]))
        return in_batches(len(sequences), size, lambda rows: self._read_batch(sequences[rows], start[rows], ends[rows]))

    def _read_batch(self, sequences: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        """In rows of their own; those of one position go on alike, so they end alike."""
        first, end = int(start[0]), int(ends[0])
        past = self._past.first(self._prompt_length + first).repeated(len(sequences))
        logits = self._causal.read(sequences[:, first : end - 1], past, keep=end - 1 - first)
        following = sequences[:, first + 1 : end]
        scores = torch.zeros(sequences.shape, dtype=torch.float64)
        scores[:, first + 1 : end] = gathered_scores(logits, following[..., None])[..., 0]
        return scores


def pack_tails(lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Lay tails on strands of one width, the longest first, each on the first strand with room for it.

    With as many tails of each length 1 … width, nothing stays empty: lengths l and width − l meet.

    Args:
        lengths: Long[tails], from 1 to `width`.
        width: of a strand.

    Returns:
        Long[tails], the strand of each tail; and Long[tails], where on it the tail begins.
    """
    strand, offset = torch.empty_like(lengths), torch.empty_like(lengths)
    used = lengths.new_zeros(0)
    for length in sorted(set(lengths.tolist()), reverse=True):
        tails = (lengths == length).nonzero()[:, 0]
        fits = (width - used) // length
        missing = max(0, len(tails) - int(fits.sum()))
        more = -(-missing // (width // length))
        used = torch.cat([used, used.new_zeros(more)])
        fits = torch.cat([fits, fits.new_full((more,), width // length)])
        on = torch.arange(len(used)).repeat_interleave(fits)[: len(tails)]
        nth = torch.arange(len(tails)) - (fits.cumsum(0) - fits)[on]
        strand[tails], offset[tails] = on, used[on] + nth * length
        used += torch.bincount(on, minlength=len(used)) * length
    return strand, offset
