"""Problems drawn by a seed, so that no sampler is tuned on the listed ones only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from locore import Constraint, ban, contains, count, ends_with, starts_with, word_count
from locore.constraints import conjunction
from locore.models import LanguageModel
from locore_lab.fidelity.problems import Problem, open_model
from locore_lab.shared import seed_of

PROMPT_TOKENS = (4, 24)
DRAFTS = 64
MIN_PROB = 1e-8  # of prefixes of the real model
Generator = torch.Generator


@dataclass(frozen=True)
class Source:
    """What a family draws its constraint from."""

    texts: Sequence[str]  # what the model wrote after the prompt
    elsewhere: Sequence[str]  # words that it wrote after other prompts, which are rare here
    generator: Generator  # the randomness

    def pick(self, items: Sequence[str]) -> str:
        """One of them."""
        return items[int(torch.randint(len(items), (), generator=self.generator))]

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    @property
    def words(self) -> list[str]:
        """Of the texts, with the space before them."""
        return words_of(self.texts)


def words_of(texts: Sequence[str]) -> list[str]:
    """The words, each once, with the space before it."""
    return sorted({word for text in texts for word in re.findall(r" ?[^\s\ufffd]+", text)} or {texts[0]})


def _ending(source: Source) -> Constraint:
    return ends_with(source.pick(source.texts)[-source.number(2, 6) :])


def _infilling(source: Source) -> Constraint:
    begin, end = source.pick(source.texts), source.pick(source.texts)
    return conjunction([starts_with(begin[: source.number(1, 4)]), ends_with(end[-source.number(2, 4) :])])


def _rare_word(source: Source) -> Constraint:
    return contains(source.pick(source.elsewhere)[:6])


def _word(source: Source) -> Constraint:
    return contains(source.pick(source.words)[:6])


def _two_words(source: Source) -> Constraint:
    return conjunction(contains(source.pick(source.words)[:3]) for _ in range(2))


def _ban(source: Source) -> Constraint:
    return ban([source.pick(source.words)[:4] for _ in range(4)])


def _letters(source: Source) -> Constraint:
    letters = sorted({letter for text in source.texts for letter in text})
    return count([source.pick(letters)], at_least=2)


def _length(source: Source) -> Constraint:
    if not any(" " in text for text in source.texts):  # letters alone are one word
        letters = sorted({letter for text in source.texts for letter in text})
        return count([source.pick(letters), source.pick(letters)], at_least=1, at_most=2)
    return conjunction([word_count(lo := source.number(1, 3), lo + 1), ban([source.pick(source.words)[:3]])])


# Half of the problems are endings, infilling and rare words.
FAMILIES: dict[str, tuple[int, Callable[[Source], Constraint]]] = {
    "endings": (5, _ending),
    "infilling": (5, _infilling),
    "rare words": (5, _rare_word),
    "words": (3, _word),
    "two words": (3, _two_words),
    "bans": (3, _ban),
    "letters": (3, _letters),
    "lengths": (3, _length),
}


def in_families(seed: int, number: int, models: Path | None) -> list[tuple[str, Problem]]:
    """About `number` problems with the names of their families; a third are of chains, if the real model is there.

    Every problem is drawn by itself, so that more of them begin with the same.
    """
    real = models is not None and (models / "stories260k").is_dir()
    parts = sum(share for share, _ in FAMILIES.values())
    found = []
    for family, (share, draw) in FAMILIES.items():
        for i in range(max(1, round(number * share / parts))):
            generator = torch.Generator().manual_seed(seed_of(seed, family, i))
            make = _of_stories if real and i % 3 else _of_chains
            found.append((family, make(f"{family.replace(' ', '-')}-{seed}-{i}", draw, generator, models)))
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


def _of_stories(name: str, draw: Callable[[Source], Constraint], generator: Generator, models: Path | None) -> Problem:
    """After a prompt that the real model wrote itself."""
    model = open_model("stories260k", models)
    length = 3 + int(torch.randint(2, (), generator=generator))
    start = model.tokenizer.encode_prompt("")
    ids = [*start, *beginning(model, generator)]
    elsewhere = words_of(_texts(model.prompted([*start, *beginning(model, generator)]), length, generator))
    source = Source(_texts(model.prompted(ids), length, generator), elsewhere, generator)
    return Problem(name, "stories260k", ids, draw(source), length, "enumerate", MIN_PROB)


def _of_chains(name: str, draw: Callable[[Source], Constraint], generator: Generator, models: Path | None) -> Problem:
    """A chain over 48 letters; pairs of any letters are rare words."""
    peak = (0.05, 0.1, 0.3, 1.0)[int(torch.randint(4, (), generator=generator))]
    length = (5, 10, 20, 40)[int(torch.randint(4, (), generator=generator))]
    named = f"markov:48:{int(torch.randint(10**6, (), generator=generator))}:{peak}"
    model = open_model(named)
    texts = [text[i : i + 2] for text in _texts(model, 40, generator) for i in range(0, 40, 2)]
    letters = [chr(33 + i) for i in range(48)]
    rare = [a + letters[int(torch.randint(48, (), generator=generator))] for a in letters]
    return Problem(name, named, (), draw(Source(texts, rare, generator)), length, "dynamic")


def _texts(model: LanguageModel, length: int, generator: Generator) -> list[str]:
    texts = (model.tokenizer.decode(y) for y in model.sample(DRAFTS, length, generator).tokens.tolist())
    return [text for text in texts if text.strip() and "\ufffd" not in text] or ["a"]
