"""What is asked of every method, and independent runs of one prompt that are drawn side by side.

A token that arrives after an exponential time of rate p(v) is the first one with probability p(v). Rows that read the same
times and differ in their laws draw the same token wherever the first to arrive under one law is the first under the other. So
a ban changes a draw only where what it bans would have been drawn, and the texts of two rows differ as little as their laws do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import NoBadWordsLogitsProcessor

import locore
from locore import Tokenizer
from locore.circuits import Circuit
from locore.constraints import Constraint
from locore.kernel.numerics import NEG_INF, categorical, live_lengths
from locore.models import LanguageModel
from locore.models.wrappers import nucleus
from locore_lab.shared import seed_of


def generator_of(seed: int) -> torch.Generator:
    """The source of randomness of one run."""
    return torch.Generator().manual_seed(seed)


class Races:
    """Times at which tokens arrive, made once for each seed and step, whichever row asks first."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Tensor] = {}

    def log_times(self, seed: int, step: int, size: int) -> Tensor:
        """Float[size], logarithms of exponential times of rate 1: a function of seed, step and size alone."""
        if (seed, step) not in self._known:
            generator = generator_of(seed_of(seed, step))
            # In 64 bits: the first of 50,000 arrives at 2e-5, where 32 bits of a uniform number have two digits.
            times = torch.rand(size, generator=generator, dtype=torch.float64).log_().neg_()
            self._known[seed, step] = times.log_().float()
        return self._known[seed, step]


class Source:
    """The randomness of one run.

    Attributes:
        seed: of it.
        races: where its tokens are drawn by races; None if by uniform numbers of its own.
    """

    def __init__(self, seed: int, races: Races | None = None) -> None:
        self.seed, self.races = seed, races
        self._generator = generator_of(seed)
        self._step = 0

    def uniforms(self, number: int) -> Tensor:
        """f64[number], the next ones of its own."""
        return torch.rand(number, generator=self._generator, dtype=torch.float64)

    def log_times(self, size: int) -> Tensor:
        """Float[size], of its next race."""
        assert self.races is not None
        self._step += 1
        return self.races.log_times(self.seed, self._step, size)


def sources(seeds: Sequence[int], races: Races | None) -> list[Source]:
    """One for each seed."""
    return [Source(seed, races) for seed in seeds]


Level = Literal["text", "tokens"]
Law = Literal["plain", "nucleus"]  # p: the model, or the model with the nucleus of each of its next-token distributions


@dataclass(frozen=True)
class Task:
    """What is asked of every method."""

    phrases: tuple[str, ...]  # what is banned
    length: int  # new tokens, at most
    particles: int  # of the library's samplers; one of them is drawn
    pairs: int  # S of the paper's sampler
    words: bool = False  # ban whole words only, in the constraint on the text
    # rows that are given the same seeds draw by these, so that they differ as little as their laws do; None if each row draws
    # for itself
    races: Races | None = None

    def constraint(self, level: Level) -> Constraint:
        """No phrase in the text, or not as the token ids of the phrase."""
        if level == "tokens":
            return locore.ban(self.phrases, level="tokens")
        return locore.ban(self.phrases, words=self.words)


@dataclass(frozen=True)
class Continuation:
    """One generation."""

    tokens: list[int] | None  # without what follows the end; None if nothing was found
    lm_tokens: int  # next-token distributions asked for
    seconds: float  # of wall time; of those that were drawn side by side the mean
    notes: dict[str, float] = field(default_factory=dict)  # more numbers, such as how many draws it took


Method = Callable[[LanguageModel, str, Task, Sequence[int]], list[Continuation]]  # one answer for each seed


def live(tokens: Sequence[int], model: LanguageModel) -> list[int]:
    """The tokens before the first end."""
    ends = model.tokenizer.eos_ids
    stop = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    return list(tokens[:stop])


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
