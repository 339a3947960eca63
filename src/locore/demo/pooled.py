"""The truth about texts that are too many to enumerate.

log p(α) is pooled from two unbiased samplers that have little in common: SMC, and sampling without replacement under a learned
twist. The probability of a likely text is then what the model itself gives to its spellings, over p(α).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

import locore
from locore.demo.reference import Reference
from locore.errors import LocoreError, ZeroWeights
from locore.evidence.blocks import relative_error
from locore.evidence.bounds import quantile
from locore.models import HuggingFaceModel, LanguageModel, Remembered
from locore.samplers import Sampler, SequentialMonteCarlo, Twisted

BATCHES, BATCH_TOKENS = 4, 2_000  # of each sampler
DOUBTFUL = 0.003  # chance of a disagreement from which there is no truth
LEAST_ERROR = 1e-6
MEMORY = 2**30  # bytes, for contexts that batches share
SAMPLERS: dict[str, Sampler] = {
    "SMC": SequentialMonteCarlo(blocks=1),
    "twisted": Twisted(table=None, blocks=1),
}


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


def pooled_truth(model: HuggingFaceModel, prompt: str, constraint: locore.Constraint, length: int, seed: int) -> Reference:
    """What two samplers agree on.

    Raises:
        LocoreError: they do not, or one of them found nothing.
    """
    start = time.perf_counter()
    problem = Problem(Remembered(model, MEMORY), prompt, constraint, length)
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
            *asked, num_particles=BATCH_TOKENS, sampler=sampler, budget=BATCH_TOKENS, seed=seed, stop="complete"
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
