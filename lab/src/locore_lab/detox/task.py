"""What is asked of every method, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import locore
from locore.constraints import Constraint
from locore.models import LanguageModel
from locore_lab.detox.randomness import Races

Level = Literal["text", "tokens"]
Law = Literal["plain", "nucleus"]  # p: the model, or the model with the nucleus of each of its next-token distributions


@dataclass(frozen=True)
class Task:
    """What is asked of every method.

    Attributes:
        phrases: what is banned.
        length: new tokens, at most.
        particles: of the library's samplers; one of them is drawn.
        pairs: S of the paper's sampler.
        words: ban whole words only, in the constraint on the text.
        races: rows that are given the same seeds draw by these, so that they differ as little as their laws do; None if each
            row draws for itself.
    """

    phrases: tuple[str, ...]
    length: int
    particles: int
    pairs: int
    words: bool = False
    races: Races | None = None

    def constraint(self, level: Level) -> Constraint:
        """No phrase in the text, or not as the token ids of the phrase."""
        if level == "tokens":
            return locore.ban(self.phrases, level="tokens")
        return locore.ban(self.phrases, words=self.words)


@dataclass(frozen=True)
class Continuation:
    """One generation.

    Attributes:
        tokens: without what follows the end; None if nothing was found.
        lm_tokens: next-token distributions asked for.
        seconds: of wall time; of those that were drawn side by side the mean.
        notes: more numbers, such as how many draws it took.
    """

    tokens: list[int] | None
    lm_tokens: int
    seconds: float
    notes: dict[str, float] = field(default_factory=dict)


Method = Callable[[LanguageModel, str, Task, Sequence[int]], list[Continuation]]  # one answer for each seed


def live(tokens: Sequence[int], model: LanguageModel) -> list[int]:
    """The tokens before the first end."""
    ends = model.tokenizer.eos_ids
    stop = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    return list(tokens[:stop])
