"""Independent runs of one prompt that are drawn side by side: each has its own source of randomness and its own bill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import NoBadWordsLogitsProcessor

from locore import Tokenizer
from locore.circuits import Circuit
from locore.kernel.ending import live_lengths
from locore.kernel.numerics import NEG_INF, categorical
from locore.models import LanguageModel
from locore.models.wrappers import nucleus
from locore_lab.detox.randomness import Source

NUCLEUS = 0.9  # of the paper and of the earlier code

Mask = Callable[[Tensor, Tensor], Tensor]  # (tokens Long[runs, time], their next distributions) → Float[runs, vocab]


def then_nucleus(mask: Mask | None) -> Mask:
    """The nucleus of what a mask leaves: in this order transformers' generation changes distributions."""

    def both(tokens: Tensor, log_probs: Tensor) -> Tensor:
        changed = log_probs if mask is None else mask(tokens, log_probs).log_softmax(-1)
        return nucleus(changed, NUCLEUS)

    return both


def draw(model: LanguageModel, length: int, runs: Sequence[Source], mask: Mask | None = None) -> Tensor:
    """Long[runs, length]: one sequence for each source of randomness, by races or by inversion, all in the same way.

    Args:
        model: the prompted model.
        length: tokens of each.
        runs: what a run draws depends on its own source only (up to rounding in another batch).
        mask: changes the next-token distributions; they need not be normalised.
    """
    race = any(run.races is not None for run in runs)
    uniforms = None if race else torch.stack([run.uniforms(length) for run in runs])
    tokens = torch.zeros(len(runs), 0, dtype=torch.long)
    cursor = model.begin(len(runs))
    for step in range(length):
        log_probs = cursor.log_probs if mask is None else mask(tokens, cursor.log_probs)
        token = _winners(log_probs, runs) if uniforms is None else categorical(log_probs, uniforms[:, step])
        tokens = torch.cat([tokens, token[:, None]], 1)
        if step + 1 < length:
            cursor = cursor.advance(token)
    return tokens


def _winners(log_probs: Tensor, runs: Sequence[Source]) -> Tensor:
    """Long[runs]: the first arrival of each run's race."""
    times = torch.stack([run.log_times(log_probs.shape[-1]) for run in runs])
    return (log_probs.cpu() - times).argmax(-1)


def bill(tokens: Tensor, tokenizer: Tokenizer) -> list[int]:
    """LM tokens of each sequence: distributions after at least one token and before the end, as `Counted` counts."""
    return [length - 1 for length in live_lengths(tokens, tokenizer.eos_ids).tolist()]


def token_sequences(phrases: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The ids of each phrase, plain and after a space, each once."""
    return list(dict.fromkeys(tuple(tokenizer.encode(text)) for phrase in phrases for text in (phrase, " " + phrase)))


def banning(phrases: Sequence[str], prompt_ids: Sequence[int], tokenizer: Tokenizer) -> Mask:
    """Word banning as `generate(bad_words_ids=...)` of transformers does it, by its own processor, prompt included."""
    sequences = [list(ids) for ids in token_sequences(phrases, tokenizer)]
    processor: Any = NoBadWordsLogitsProcessor(sequences, list(tokenizer.eos_ids) or None)
    prompt = torch.tensor(list(prompt_ids), dtype=torch.long)

    def mask(tokens: Tensor, log_probs: Tensor) -> Tensor:
        banned: Tensor = processor(torch.cat([prompt.expand(len(tokens), -1), tokens], 1), log_probs)
        return banned

    return mask


def first_tokens(phrases: Sequence[str], tokenizer: Tokenizer) -> Mask:
    """Word banning of the authors' earlier code: the first token of each phrase, put after a space, never occurs."""
    ids = torch.tensor(sorted({tokenizer.encode(" " + phrase.strip())[0] for phrase in phrases}))

    def mask(_: Tensor, log_probs: Tensor) -> Tensor:
        return log_probs.index_fill(-1, ids, NEG_INF)

    return mask


def masking(circuit: Circuit) -> Mask:
    """Only tokens after which the constraint can still be satisfied within the length."""
    reader = circuit.reader
    assert reader is not None  # compiled without a vtree

    def mask(tokens: Tensor, log_probs: Tensor) -> Tensor:
        allowed = reader.allowed_tokens(tokens.shape[1], reader.read(tokens))
        return log_probs.masked_fill(~allowed, NEG_INF)

    return mask
