"""How much of a posterior is on unusual tokenisations? On SmolLM2, for the problems of `locore bench tasks`.

Of each problem: the share of p(y | α) on tokenisations that are not the tokenizer's own (mean of runs by their evidence, ± its
standard error), how far the features of canonical texts lie from those of all (total variation, the same runs), the most
probable text in another tokenisation, and LM tokens of a default call with and without `canonical="only"`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import locore
from locore.models import LanguageModel, Remembered, prompt_ids
from locore.stopping import are_canonical
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.problem import Problem, laws_of, mean_distance, prompt_of
from locore_lab.tasks.written import written_problems

BUDGET, PARTICLES = 1_000, 128
BYTES = 2**30


def measured(problem: Problem, runs: int) -> Row:
    """Several runs, pooled by their evidence."""
    model: LanguageModel = Remembered(locore.load(problem.model), BYTES)
    prompt, before = prompt_of(problem), prompt_ids(model.tokenizer, prompt_of(problem))
    call = (model, prompt, problem.constraint, problem.length)
    total, odd, every, own = [], [], {}, {}
    example: tuple[float, str | None] = (0.0, None)
    for seed in range(runs):
        p = locore.generate(*call, num_particles=PARTICLES, budget=BUDGET, seed=seed)
        canonical, mass = are_canonical(p.tokens, p.tokenizer, before), math.exp(p.log_mean_weight)
        total.append(mass)
        odd.append(mass * float(p.weights[~canonical].sum()))
        for text, weight, good, tokens in zip(p.texts, p.weights.tolist(), canonical.tolist(), p.tokens.tolist(), strict=True):
            every[text] = every.get(text, 0.0) + mass * weight
            if good:
                own[text] = own.get(text, 0.0) + mass * weight
            elif mass * weight > example[0]:
                example = (mass * weight, spelled(model, tokens))
    share = sum(odd) / sum(total)
    plain, strict = (locore.generate(*call, seed=0, canonical=mode) for mode in (None, "only"))
    return {
        "family": problem.family,
        "length": problem.length,
        "share": share,
        "error": standard_error(odd, total),
        "features_apart": apart(problem, every, own),
        "example": example[1],
        "lm_tokens": plain.info["lm_tokens"],
        "lm_tokens_canonical": strict.info["lm_tokens"],
    }


def standard_error(odd: list[float], total: list[float]) -> float | None:
    """Of the ratio of two means (delta method)."""
    if len(total) < 2:
        return None
    ratio, mean = sum(odd) / sum(total), sum(total) / len(total)
    residuals = [(a - ratio * b) / mean for a, b in zip(odd, total, strict=True)]
    return math.sqrt(sum(r * r for r in residuals) / (len(total) - 1) / len(total))


def apart(problem: Problem, every: dict[str, float], own: dict[str, float]) -> float:
    """Mean total variation of the features between two unnormalised laws of texts."""
    if not own:
        return 1.0
    laws = [laws_of(problem.features, {text: w / sum(law.values()) for text, w in law.items()}) for law in (own, every)]
    return mean_distance(*laws)


def spelled(model: LanguageModel, tokens: list[int]) -> str:
    """Tokens with bars between them."""
    kept = [t for t in tokens if t not in model.tokenizer.eos_ids]
    return "|".join((model.tokenizer.token_bytes[t] or b"").decode("utf-8", errors="replace") for t in kept)


@measurement(
    "problem | n | on other tokenisations | features apart | LM tokens | canonical only | example",
    "{problem} | {length} | {share:.2%} ± {error:.2%} | {features_apart:.3f} | {lm_tokens:,} "
    "| {lm_tokens_canonical:,} | {example!r}",
)
def run(family: Some = None, runs: int = 4) -> Iterator[Case]:
    for problem in [*written_problems(), *drawn_problems(0)]:
        if not family or problem.family in family:
            yield {"problem": problem.name}, partial(measured, problem, runs)
