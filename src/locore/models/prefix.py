"""Reading on from a prompt that was read once, step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.models.batching import in_batches
from locore.models.causal import CausalLM
from locore.models.cursor import Cursor
from locore.models.keyvalues import KeyValues, Step, Tail, Tails
from locore.models.validation import row_indices, within_context

_UNCOUNTED = 1.5  # activations, and what the allocator cannot use: of 100 and 21 million parameters 1.45 and 1.9 were measured
_ROWS_AT_ONCE = 8  # of a table that is normalised in its place: few enough to stay in a cache


def gathered_scores(logits: Tensor, tokens: Tensor) -> Tensor:
    """f64[..., k], log p of the tokens Long[..., k] under logits Float[..., vocab]."""
    # A second table of the logits' size; `logsumexp` keeps one as well, and takes five times as long on a CPU.
    return logits.log_softmax(-1).gather(-1, tokens.to(logits.device)).double().cpu()


def batch_size(causal: CausalLM, past: int, new: int) -> int:
    """How many rows of `new` tokens after `past` tokens fit into the memory of a batch."""
    # Keys and values are there twice while they are joined, logits while they are normalised.
    keys_and_values = 2 * causal.bytes_per_token * (past + new)
    logits = 2 * 4 * causal.vocab_size * new
    return max(1, fitting(causal.memory_bytes, keys_and_values + logits))


def fitting(free: int, needed: int) -> int:
    """How many parts that need so many bytes, as far as they can be counted, fit into the memory that is free."""
    return int(free / (_UNCOUNTED * needed))


class CachedCursor(Cursor):
    """A cursor that keeps the keys and values of every row."""

    def __init__(self, causal: CausalLM, past: KeyValues, log_probs: Tensor) -> None:
        """Rows that have read `past` and expect `log_probs` next."""
        self._causal = causal
        self._past = past
        self._log_probs = log_probs

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> CachedCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        rows = row_indices(parents, len(tokens), len(self._log_probs))
        within_context(self._past.length, 1, self._causal.context)
        logits, past = self._causal.read_on(tokens[:, None], self._past.rows(rows))
        return CachedCursor(self._causal, past, logits[:, 0].log_softmax(-1).cpu())


class SharingCursor(Cursor):
    """A cursor whose rows share one copy of the prompt's keys and values."""

    def __init__(self, causal: CausalLM, prompt: KeyValues, tails: Tails, log_probs: Tensor) -> None:
        """Rows that have read the prompt and their tails, and expect `log_probs` next."""
        self._causal = causal
        self._prompt = prompt
        self._tails = tails
        self._log_probs = log_probs

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> SharingCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        rows = row_indices(parents, len(tokens), len(self._log_probs))
        within_context(self._prompt.length + self._tails.length, 1, self._causal.context)
        tails = self._tails.rows(rows)
        log_probs, step = next_step(self._causal, self._prompt, tails, tokens)
        return SharingCursor(self._causal, self._prompt, tails.then(step), log_probs)


def next_step(causal: CausalLM, prompt: KeyValues, tail: Tail, tokens: Tensor) -> tuple[Tensor, Step]:
    """Feed one token to each row, in batches that fit into memory.

    Args:
        causal: a model that shares prompts.
        prompt: what all rows have read.
        tail: what each row has read since.
        tokens: Long[batch].

    Returns:
        Float[batch, vocab] on the CPU, log p of the token after, and what the rows have read now.
    """
    steps: list[Step] = []

    def work(rows: slice) -> Tensor:
        logits, step = causal.read_shared(tokens[rows, None], prompt, tail.part(rows), keeps_step=True)
        steps.append(step)
        return normalised(logits[:, 0]).cpu()

    # One layer's tails are gathered at a time.
    size = batch_size(causal, tail.length // len(prompt.layers), 1)
    log_probs = in_batches(len(tokens), size, work)
    return log_probs, Step.joined(steps)


def normalised(logits: Tensor) -> Tensor:
    """log p of Float[batch, vocab] under logits, in their place: a second table would be large."""
    for part in torch.split(logits, _ROWS_AT_ONCE):
        part.copy_(part.log_softmax(-1))
    return logits
