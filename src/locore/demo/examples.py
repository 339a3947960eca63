"""The two examples on a real model, and what is run on each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import locore
from locore.chat import Prompt
from locore.demo.answers import Answer, described
from locore.demo.pooled import pooled_truth
from locore.demo.reference import Reference
from locore.models import HuggingFaceModel

QUESTION = "What is the capital of France?"
CHOICES = ("Paris", "London", "Rome", "I don't know", "The capital is unknown")
PROMPT, ENDING = "My favourite animal is", " elephant."
ANSWER_TOKENS = 8
FREE_TOKENS = 2  # before the ending: few, so that a truth is there within a minute
MASKED = 100  # texts by masking, about as dear as Locore's default call
MORE = 512  # particles, where a default call of 32 is rough
PAPERS = 8  # of the paper's sampler, whose texts cost hundreds of LM tokens each
SHOWN = 3  # texts of masking and of Locore that are printed
ENUMERATED = 100_000  # sequences, at most

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Example:
    """A prompt, a constraint and a length; `hard` asks for more particles and for the paper's sampler, too."""

    prompt: Prompt
    constraint: locore.Constraint
    length: int
    hard: bool = False

    def sample(self, model: HuggingFaceModel, particles: int, sampler: str, seed: int) -> locore.Particles:
        """Ask one sampler."""
        asked = (model, self.prompt, self.constraint, self.length)
        return locore.generate(*asked, num_particles=particles, sampler=sampler, seed=seed, stop="complete")

    def answers(self, model: HuggingFaceModel, seed: int, progress: Progress) -> list[Answer]:
        """Masking as shipped, with Locore's weights, Locore's default call, and more where it is hard."""
        progress(f"masking, {MASKED} texts")
        masked = self.sample(model, MASKED, "masked", seed)
        progress("Locore's default sampler")
        chosen = locore.generate(model, self.prompt, self.constraint, self.length, seed=seed, stop="complete")
        found = [
            described("masking,\nas shipped", masked.unweighted(), SHOWN),
            described("the same,\nweighted", masked),
            described("Locore's\ndefault", chosen, SHOWN),
        ]
        if self.hard:
            progress(f"Locore's default sampler, {MORE} particles")
            found.append(described(f"Locore, {MORE}\nparticles", self.sample(model, MORE, "auto", seed)))
            progress("the paper's sampler")
            found.append(replace(described("paper's sampler", self.sample(model, PAPERS, "lcr", seed)), in_table=False))
        return found


def chat_example() -> Example:
    """A question of which the model knows the answer, and five answers."""
    return Example([{"role": "user", "content": QUESTION}], locore.choice(list(CHOICES)), ANSWER_TOKENS)


def text_example(model: HuggingFaceModel, prompt: str, ending: str) -> Example:
    """A text that must end in a given way soon."""
    length = len(model.tokenizer.encode(ending)) + FREE_TOKENS
    return Example(prompt, locore.ends_with(ending), length, hard=True)


def enumerated_truth(model: HuggingFaceModel, example: Example) -> Reference:
    """All sequences that satisfy the constraint."""
    start = time.perf_counter()
    found = example.sample(model, ENUMERATED, "exact", 0)
    seconds = time.perf_counter() - start
    return Reference(found.posterior(), found.log_evidence, 0.0, len(found), found.info["lm_tokens"], seconds)


def run_chat(model: HuggingFaceModel, seed: int, progress: Progress) -> tuple[Reference, list[Answer]]:
    """The first example."""
    example = chat_example()
    progress("1. the question in a chat: the truth, by enumeration")
    truth = enumerated_truth(model, example)
    return truth, example.answers(model, seed, progress)


def run_text(model: HuggingFaceModel, example: Example, seed: int, progress: Progress) -> tuple[Reference, list[Answer]]:
    """The second example, or one of the user's own."""
    assert isinstance(example.prompt, str)
    progress("2. the open text: the truth, pooled from two samplers")
    truth = pooled_truth(model, example.prompt, example.constraint, example.length, seed)
    return truth, example.answers(model, seed, progress)
