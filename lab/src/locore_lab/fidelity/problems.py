"""The problems: a model, a prompt, a constraint and a length, and how its exact answer is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

import locore
from locore import Constraint, Tokenizer, ban, contains, ends_with
from locore.models import LanguageModel, MarkovModel, TableModel

FIRST_LETTER = 33  # tokens of chains and tables are the printable characters from here on


def open_model(name: str, folder: Path | None = None) -> LanguageModel:
    """The model that a problem names.

    Args:
        name: "tiny"; "markov:VOCAB:SEED:CONCENTRATION"; "table:VOCAB:LENGTH:SEED"; or a model that lies in `folder`.
        folder: where models are that the wheel does not have.
    """
    kind, *numbers = name.split(":")
    if kind == "markov":
        return chain(int(numbers[0]), int(numbers[1]), float(numbers[2]))
    if kind == "table":
        return table(int(numbers[0]), int(numbers[1]), int(numbers[2]))
    if folder is not None and (folder / name).is_dir():
        return locore.load(str(folder / name))
    return locore.load(name)


def letters(vocab: int, ends: tuple[int, ...] = ()) -> Tokenizer:
    """One printable character a token; the ends have no text."""
    spelled = tuple(None if i in ends else bytes([FIRST_LETTER + i]) for i in range(vocab))
    return Tokenizer(vocab, spelled, ends)


def chain(vocab: int, seed: int, concentration: float) -> MarkovModel:
    """A random chain; rows from a symmetric Dirichlet, mixed with 1 % of the uniform so that everything is possible."""
    generator = np.random.default_rng(seed)
    rows = 0.99 * generator.dirichlet(np.full(vocab, concentration), size=vocab + 1) + 0.01 / vocab
    return MarkovModel(torch.from_numpy(rows[0]), torch.from_numpy(rows[1:]), tokenizer=letters(vocab))


def table(vocab: int, length: int, seed: int) -> TableModel:
    """Random conditionals of every prefix; the last token ends a text."""
    generator = np.random.default_rng(seed)
    tables = [torch.from_numpy(generator.dirichlet(np.ones(vocab), size=(vocab,) * step)) for step in range(length)]
    return TableModel(tables, tokenizer=letters(vocab, (vocab - 1,)))


LILY = "Once upon a time, there was a little girl named Lily."
Answer = Literal["enumerate", "dynamic", "pooled"]


@dataclass(frozen=True)
class Problem:
    """One posterior p(y | α) to be sampled."""

    name: str  # unique; results are kept under it
    model: str  # a name that `open_model` knows
    prompt: str | Sequence[int]  # text, or token ids
    constraint: Constraint  # α
    length: int  # n
    # how the truth is found: enumeration, dynamic programming (Markov chains), or pooled estimates
    answer: Answer = "enumerate"
    min_prob: float = 0.0  # prefixes below this are not enumerated; the missing mass is stated
    # total variation that is aimed at, by budget; it says how many runs a measurement needs
    goals: dict[int, float] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, object]:
        """What identifies the problem."""
        prompt = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        return {
            "model": self.model,
            "prompt": prompt,
            "constraint": self.constraint.to_json(),
            "length": self.length,
            "answer": self.answer,
            "min_prob": self.min_prob,
        }

    def key(self) -> str:
        """A fingerprint: an answer that was stored for another problem is not used."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def stories(name: str, constraint: Constraint, length: int, answer: Answer = "enumerate", **more: object) -> Problem:
    """A problem of the real model of 260,000 parameters."""
    return Problem(name, "stories260k", LILY, constraint, length, answer, **more)  # type: ignore[arg-type]


def markov(name: str, vocab: int, seed: int, constraint: Constraint, length: int, peak: float = 0.1) -> Problem:
    """A problem of a random Markov chain; it has an exact answer at any length."""
    return Problem(name, f"markov:{vocab}:{seed}:{peak}", (), constraint, length, "dynamic")


def enumerable() -> list[Problem]:
    """The three of the real model whose posteriors have been enumerated."""
    return [
        stories("happy4", ends_with(" happy."), 4, goals={20: 0.03, 80: 0.03, 400: 0.03}),
        stories("dog4", contains(" dog"), 4, goals={80: 0.03, 400: 0.03, 2000: 0.015, 8000: 0.015}),
        stories("ban6", ban(["ball", "play", "mom", "happy"]), 6, min_prob=1e-8, goals={80: 0.015, 400: 0.015}),
    ]


def long() -> list[Problem]:
    """Longer ones, whose evidence is known from pooled unbiased estimates."""
    dog, happy = contains(" dog"), ends_with(" happy.")
    return [
        *(stories(f"dog{n}", dog, n, "pooled") for n in (8, 16)),
        *(stories(f"happy{n}", happy, n, "pooled") for n in (8, 16, 32)),
    ]


def chains() -> list[Problem]:
    """Markov chains over 48 letters, from a single forced word to half of the letters banned."""
    banned = [chr(33 + i) for i in range(24)]
    return [
        markov("chain5-word", 48, 1, contains("AB"), 5),
        markov("chain12-word", 48, 2, contains("ABA"), 12),
        markov("chain20-end", 48, 3, ends_with("KA"), 20),
        markov("chain32-ban", 48, 4, ban(banned[:8]), 32),
        markov("chain64-both", 48, 5, contains("DA") & ban(banned[:4]), 64),
        markov("flat20-word", 48, 6, contains("ABA"), 20, peak=1.0),
    ]


def tables() -> list[Problem]:
    """Explicit tables whose texts end: a sampler that mishandles the end is found out here."""
    return [
        Problem("table5-end", "table:5:5:1", (), contains("#!"), 5),
        Problem("table6-ban", "table:4:6:2", (), ban(["!!", '"#']), 6),
    ]


def bundled() -> list[Problem]:
    """The model in the wheel, at a length where all its texts can be enumerated in a second."""
    return [
        Problem("tiny-end2", "tiny", "She looked at the", ends_with("ing"), 2),
        Problem("tiny-day2", "tiny", "The weather is", contains(" day"), 2),
    ]


def quick_problems() -> list[Problem]:
    """No data needed, minutes on two cores."""
    return [*bundled(), tables()[0], *(p for p in chains() if p.name in ("chain5-word", "chain20-end"))]


def full_problems() -> list[Problem]:
    """Everything that is listed; those drawn by seed come on top."""
    return [*enumerable(), *long(), *chains(), *tables(), *bundled()]
