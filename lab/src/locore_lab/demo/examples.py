"""The two examples on a real model: what is run on each, what is true, and how far each answer is from it.

Texts are too many to enumerate. log p(α) is pooled from two unbiased samplers that have little in common: SMC, and sampling
without replacement under a learned twist. The probability of a likely text is then what the model itself gives to its
spellings, over p(α).
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

import locore
from locore.kernel.chat import Prompt
from locore.kernel.errors import LocoreError, ZeroWeights
from locore.kernel.evidence.blocks import relative_error
from locore.kernel.evidence.bounds import quantile
from locore.models import HuggingFaceModel, LanguageModel, Remembered, Tempered
from locore.samplers import Sampler, SequentialMonteCarlo, Twisted

REST = "\N{REPLACEMENT CHARACTER}" * 3  # stands for all texts that are not known
QUESTION = "What is the capital of France?"
CHOICES = ("Paris", "London", "Rome", "I don't know", "The capital is unknown")
PROMPT, ENDING = "My favourite animal is", " elephant."
TEMPERATURE = 0.5  # of the open text: at 1 so small a model writes little that one would keep
ANSWER_TOKENS = 8
FREE_TOKENS = 2  # before the ending: few, so that a truth is there within a minute
MASKED = 100  # texts by masking, about as dear as Locore's default call
MORE = 512  # particles, where a default call of 32 is rough
PAPERS = 8  # of the paper's sampler, whose texts cost hundreds of LM tokens each
SHOWN = 3  # texts of masking and of Locore that are printed
REPEATED = 20  # tables of perfect draws
ENUMERATED = 100_000  # sequences, at most
Progress = Callable[[str], None]
BATCHES, BATCH_TOKENS = 4, 2_000  # of each sampler
DOUBTFUL = 0.003  # chance of a disagreement from which there is no truth
LEAST_ERROR = 1e-6
MEMORY = 2**30  # bytes, for contexts that batches share
SAMPLERS: dict[str, Sampler] = {"SMC": SequentialMonteCarlo(blocks=1), "twisted": Twisted(table=None, blocks=1)}


@dataclass(frozen=True)
class Reference:
    """The posterior of an example.

    Attributes:
        posterior: p(text | α) of the texts that are known, most probable first; they need not be all.
        log_evidence: log p(α), nats.
        error: its standard error; 0 where all texts were enumerated.
        sequences: how many were enumerated; 0 where they were too many.
        lm_tokens, seconds: what it cost.
    """

    posterior: dict[str, float]
    log_evidence: float
    error: float
    sequences: int
    lm_tokens: int
    seconds: float

    def rest(self, texts: list[str]) -> float:
        """Probability of all texts but these."""
        return max(0.0, 1 - sum(self.posterior.get(text, 0.0) for text in texts))

    def distance(self, law: dict[str, float]) -> float:
        """Total variation; texts that the truth does not know count as one."""
        known = sum(abs(p - law.get(text, 0.0)) for text, p in self.posterior.items())
        others = sum(p for text, p in law.items() if text not in self.posterior)
        return (known + abs(others - self.rest(list(self.posterior)))) / 2

    def distance_by_chance(self, draws: int) -> float:
        """Mean distance of so many draws from the truth itself: what chance alone does. Unknown texts count as one."""
        texts = list(self.posterior)
        chances, generator = [*self.posterior.values(), self.rest(texts)], random.Random(0)
        tables = [Counter(generator.choices([*texts, REST], chances, k=draws)) for _ in range(REPEATED)]
        return sum(self.distance({text: n / draws for text, n in table.items()}) for table in tables) / REPEATED


@dataclass(frozen=True)
class Answer:
    """What one way of sampling says.

    Attributes:
        name: lines of a column's head.
        draws: sequences drawn.
        satisfying: how many of them satisfy the constraint.
        posterior: probability of each text among these.
        lm_tokens: next-token distributions that were asked for.
        seconds: wall-clock time.
        evidence, margin, ess: its estimate of log p(α), with 95 % of its error, and its effective sample size, in words.
        level: Locore's verdict on its weights, in a word or three.
        verdict: the same with its reason.
        examples: some of its texts: the first, or independent draws where there are weights.
        log_evidence: its estimate of log p(α); nan where it has none.
        in_table: is it a column, or only a line below?
    """

    name: str
    draws: int
    satisfying: int
    posterior: dict[str, float]
    lm_tokens: int
    seconds: float = 0.0
    evidence: str = "unknown"
    margin: str = ""
    ess: str = ""
    level: str = ""
    verdict: str = ""
    examples: tuple[str, ...] = ()
    log_evidence: float = math.nan
    in_table: bool = True


def described(name: str, particles: locore.Particles, examples: int = 0) -> Answer:
    """Particles as an answer."""
    info = particles.info
    drawn = info.get("pairs", info["drawn"])  # the paper's sampler merges equal texts
    satisfying = drawn - info["drawn"] + len(particles)
    common = (name, drawn, satisfying, particles.posterior(), info["lm_tokens"], info["seconds"])
    if info.get("unweighted"):
        return Answer(*common, level=particles.verdict.level, examples=tuple(particles.texts[:examples]))
    low, high = particles.log_evidence_interval
    margin = "" if math.isnan(low) else f"± {(high - low) / 2:.2f}"
    # Sequences that depend on each other have no effective sample size worth showing.
    ess = "" if particles.blocks else f"{particles.ess:.1f}"
    verdict = particles.report().partition("\n")[0]
    chosen = particles.resample(examples, seed=info["seed"]).texts if examples else []
    words = (f"{particles.log_evidence:.2f}", margin, ess, particles.verdict.level, verdict)
    return Answer(*common, *words, tuple(chosen), particles.log_evidence)


def quoted(text: str) -> str:
    """In double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


def percent(probability: float) -> str:
    """With one decimal; a plain 0 is exactly that."""
    return f"{probability:.1%}" if probability else "0"


@dataclass(frozen=True)
class Example:
    """A prompt, a constraint and a length; `hard` asks for more particles and for the paper's sampler, too."""

    prompt: Prompt
    constraint: locore.Constraint
    length: int
    hard: bool = False

    def sample(self, model: LanguageModel, particles: int, sampler: str, seed: int) -> locore.Particles:
        """Ask one sampler."""
        asked = (model, self.prompt, self.constraint, self.length)
        return locore.generate(*asked, num_particles=particles, sampler=sampler, seed=seed, ending="complete")

    def answers(self, model: LanguageModel, seed: int, progress: Progress) -> list[Answer]:
        """Masking as shipped, with Locore's weights, Locore's default call, and more where it is hard."""
        progress(f"masking, {MASKED} texts")
        masked = self.sample(model, MASKED, "masked", seed)
        progress("Locore's default sampler")
        chosen = locore.generate(model, self.prompt, self.constraint, self.length, seed=seed, ending="complete")
        found = [
            described("masking,\nas shipped", masked.unweighted(), SHOWN),
            described("the same,\nweighted", masked),
            described("Locore's\ndefault", chosen, SHOWN),
        ]
        if self.hard:
            progress(f"Locore's default sampler, {MORE} particles")
            found.append(described(f"Locore, {MORE}\nparticles", self.sample(model, MORE, "auto", seed)))
            progress("the paper's sampler")
            found.append(
                replace(described("paper's sampler", self.sample(model, PAPERS, "lcr-published", seed)), in_table=False)
            )
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
    law = Tempered(model, TEMPERATURE)
    progress("2. the open text: the truth, pooled from two samplers")
    truth = pooled_truth(model, example.prompt, example.constraint, example.length, seed, TEMPERATURE)
    return truth, example.answers(law, seed, progress)


@dataclass(frozen=True)
class Problem:
    """What a sampler is asked, over and over."""

    model: LanguageModel
    prompt: str
    constraint: locore.Constraint
    length: int


@dataclass(frozen=True)
class Batch:
    """One estimate of p(α), the sequences that it found with p of each, and its price."""

    evidence: float
    sequences: dict[tuple[int, ...], float]
    lm_tokens: int


def pooled_truth(
    model: HuggingFaceModel, prompt: str, constraint: locore.Constraint, length: int, seed: int, temperature: float = 1.0
) -> Reference:
    """What two samplers agree on.

    Raises:
        LocoreError: they do not, or one of them found nothing.
    """
    start = time.perf_counter()
    problem = Problem(Tempered(Remembered(model, MEMORY), temperature), prompt, constraint, length)
    runs = {name: [_batch(problem, sampler, seed + k) for k in range(1, BATCHES + 1)] for name, sampler in SAMPLERS.items()}
    estimates = {name: _mean_and_error(name, batches) for name, batches in runs.items()}
    (a, da), (b, db) = estimates.values()
    # Few batches may hit upon a small error by chance, which Student's t allows for.
    if abs(math.log(a / b)) > quantile(2 * (BATCHES - 1), 1 - DOUBTFUL) * math.hypot(da, db):
        words = ", ".join(f"{name} {math.log(mean):.2f} ± {error:.2f}" for name, (mean, error) in estimates.items())
        raise LocoreError(f"no truth: two unbiased samplers disagree about log p(constraint): {words}; try a likelier ending.")
    share = db**2 / (da**2 + db**2)
    evidence = share * a + (1 - share) * b
    every = [batch for batches in runs.values() for batch in batches]
    known: dict[str, float] = {}
    for y, probability in {y: p for batch in every for y, p in batch.sequences.items()}.items():
        text = model.tokenizer.decode(list(y))
        known[text] = known.get(text, 0.0) + probability
    evidence = max(evidence, sum(known.values()))  # distinct sequences bound p(α) from below, for certain
    posterior = {text: p / evidence for text, p in sorted(known.items(), key=lambda item: -item[1])}
    error = da * db / math.hypot(da, db)
    return Reference(
        posterior, math.log(evidence), error, 0, sum(batch.lm_tokens for batch in every), time.perf_counter() - start
    )


def _batch(problem: Problem, sampler: Sampler, seed: int) -> Batch:
    asked = (problem.model, problem.prompt, problem.constraint, problem.length)
    try:
        found = locore.generate(
            *asked, num_particles=BATCH_TOKENS, sampler=sampler, budget=BATCH_TOKENS, seed=seed, ending="complete"
        )
    except ZeroWeights:
        return Batch(0.0, {}, BATCH_TOKENS)
    assert found.token_scores is not None  # both samplers score what they return
    probabilities = found.token_scores.sum(-1).exp().tolist()
    sequences = {tuple(y): p for y, p in zip(found.tokens.tolist(), probabilities, strict=True)}
    return Batch(math.exp(found.log_mean_weight), sequences, found.info["lm_tokens"])


def _mean_and_error(name: str, batches: list[Batch]) -> tuple[float, float]:
    """The mean, and its standard error relative to it."""
    estimates = torch.tensor([batch.evidence for batch in batches], dtype=torch.float64)
    mean = float(estimates.mean())
    if not mean:
        raise LocoreError(f"no truth: {name} found no text that satisfies the constraint; try a likelier ending.")
    return mean, max(LEAST_ERROR, relative_error(estimates.log().tolist()))
