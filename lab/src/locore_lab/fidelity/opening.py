"""Models by name: the bundled one, folders, and random chains and tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import locore
from locore import Tokenizer
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
