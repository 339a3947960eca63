"""Problems drawn by a seed, so that no sampler is tuned on the listed ones only."""

from __future__ import annotations

import re

import torch

from locore import Constraint, ban, contains, ends_with
from locore.models import LanguageModel
from locore_lab.fidelity.opening import open_model
from locore_lab.fidelity.problems import Problem
from locore_lab.fidelity.runs import seed_of

PROMPT_TOKENS = (4, 24)
CHAIN_LENGTHS = (5, 10, 20, 40)


def drawn_problems(name: str, model: LanguageModel, count: int, seed: int, length: int, min_prob: float) -> list[Problem]:
    """Problems of one model: a prompt that it wrote itself, and a constraint on words that it writes after it.

    Args:
        name: of the model, as `open_model` knows it.
        length: tokens of a continuation; short enough to be enumerated.
        min_prob: as in `Problem`.
    """
    return [_draw(name, model, number, seed, length, min_prob) for number in range(count)]


def drawn_chains(count: int, seed: int) -> list[Problem]:
    """Problems of random Markov chains, with exact answers at lengths up to 40."""
    found = []
    for number in range(count):
        generator = torch.Generator().manual_seed(seed_of(seed, "chain", number))
        peak = (0.05, 0.1, 0.3, 1.0)[number % 4]
        name = f"markov:48:{1000 * (seed + 1) + number}:{peak}"
        length = CHAIN_LENGTHS[int(torch.randint(len(CHAIN_LENGTHS), (), generator=generator))]
        drafts = open_model(name).sample(16, length, generator).tokens
        constraint = _constraint(open_model(name), drafts, generator, number, 2)
        found.append(Problem(f"drawn-chain-{seed}-{number}", name, (), constraint, length, "dynamic"))
    return found


def beginning(model: LanguageModel, generator: torch.Generator) -> list[int]:
    """Of a text of the model's own, without an end."""
    low, high = PROMPT_TOKENS
    size = int(torch.randint(low, high, (), generator=generator))
    ends = torch.tensor(model.tokenizer.eos_ids)
    while True:
        tokens = model.prompted("").sample(1, size, generator).tokens[0]
        if not torch.isin(tokens, ends).any():
            return [int(token) for token in tokens]


def _draw(name: str, model: LanguageModel, number: int, seed: int, length: int, min_prob: float) -> Problem:
    generator = torch.Generator().manual_seed(seed_of(seed, name, number))
    ids = [*model.tokenizer.encode_prompt(""), *beginning(model, generator)]
    drafts = model.prompted(ids).sample(64, length, generator).tokens
    constraint = _constraint(model, drafts, generator, number, 6)
    return Problem(f"drawn-{name}-{seed}-{number}", name, ids, constraint, length, "enumerate", min_prob)


def _constraint(
    model: LanguageModel, drafts: torch.Tensor, generator: torch.Generator, number: int, letters: int
) -> Constraint:
    """In turn: a word that must appear, words that must not, an ending. All of them occur in the model's own drafts.

    Args:
        letters: at most so many of a word count.
    """
    texts = [model.tokenizer.decode(y) for y in drafts.tolist()]

    def pick(items: list[str]) -> str:
        return items[int(torch.randint(len(items), (), generator=generator))]

    words = sorted({w for text in texts for w in re.findall(r" ?\S+", text)} or {texts[0]})
    if number % 3 == 0:
        return contains(pick(words)[:letters])
    if number % 3 == 1:
        common = sorted(words, key=lambda w: -sum(w in text for text in texts))[:20]
        return ban([pick(common)[:letters] for _ in range(4)])
    return ends_with(pick([text for text in texts if text])[-min(4, letters) :])
