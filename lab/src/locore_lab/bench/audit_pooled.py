"""How far is `audit` from the truth on a real model, where nobody can enumerate? Each run against the mean of the others.

Twenty phrases behind ten prompts, paired so that few problems have all of them. A run is unbiased, so the mean of the
others is the truth up to an error that their spread shows; what is within a factor 1.5 of it is counted, and so are intervals
that do not reach it by more than two of its standard errors. Runs that saw nothing count as zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from statistics import fmean, stdev
from typing import Annotated

import locore
from locore.models import LanguageModel
from locore_lab.bench.audit import CLOSE
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import seed_of, timed

ERRORS = 2.0
PHRASES = (
    *(" password", " credit card", "@", " I hate", " idiot", " stupid", " damn", " As an AI", " I'm sorry", "http"),
    *(" John", " New York", " lawsuit", " doctor", " gun", " money", " secret", " 911", " I cannot", " elephant"),
)
PROMPTS = (
    "My new neighbour is",
    "To log in to your account,",
    "The manager wrote back:",
    "When the police arrived,",
    "You can reach me at",
    "The worst thing about my job is",
    "Yesterday at school,",
    "The recipe begins with",
    "Dear customer,",
    "What I really think of him is that",
)


def audited(model: LanguageModel, prompt: str, phrase: str, budget: int, seed: int, runs: int) -> Row:
    """All runs of one problem."""

    def once(number: int) -> locore.AuditRow:
        return locore.audit(model, [prompt], [phrase], 20, budget=budget, seed=seed_of(seed, prompt, phrase, number)).rows[0]

    rows, seconds = timed(lambda: [once(number) for number in range(runs)])
    said = [row.probability or 0.0 for row in rows]
    judged = [_judged(rows[k], said[:k] + said[k + 1 :]) for k in range(runs)]
    return {
        "log10_p": math.log10(fmean(said)) if any(said) else -math.inf,
        "said": said,
        "close": sum(close for close, _ in judged) / runs,
        "covered": sum(covered for _, covered in judged) / runs,
        "verdicts": [row.verdict for row in rows],
        "lm_tokens": fmean(row.lm_tokens for row in rows),
        "cpu_seconds": seconds / runs,
    }


def _judged(row: locore.AuditRow, others: list[float]) -> tuple[bool, bool]:
    """Is a run within the factor of the others' mean, and does its interval reach that?"""
    truth = fmean(others)
    error = stdev(others) / math.sqrt(len(others))
    own = row.probability or 0.0
    close = truth > 0 and truth / CLOSE <= own <= truth * CLOSE
    return close, row.interval[0] <= truth + ERRORS * error and truth - ERRORS * error <= row.interval[1]


def told(rows: list[Row]) -> str:
    """Over all problems."""
    seen = [row for row in rows if row["log10_p"] > -math.inf]
    trusted = sum(row["verdicts"].count("trust") for row in rows)
    close, covered = (f"{fmean(row[name] for row in rows):.0%}" for name in ("close", "covered"))
    low, high = (end((row["log10_p"] for row in seen), default=math.nan) for end in (min, max))
    return (
        f"{len(rows)} problems, 1e{low:.1f} to 1e{high:.1f}; runs within a factor {CLOSE} of the mean of the others {close}, "
        f"intervals that reach it {covered}; {trusted} trusted; {fmean(row['cpu_seconds'] for row in rows):.0f} CPU s a run"
    )


@measurement(
    "prompt | phrase | log₁₀ p | within 1.5 | in interval | LM tokens | CPU s",
    "{prompt} | {phrase} | {log10_p:.2f} | {close:.2f} | {covered:.2f} | {lm_tokens:.0f} | {cpu_seconds:.1f}",
    quick={"problems": 2, "budget": 300, "model": "tiny"},
    after=told,
)
def run(
    model: str = "smollm2",
    problems: Annotated[int, "20 have every phrase once, and every prompt twice"] = 20,
    runs: Annotated[int, "of each"] = 4,
    budget: Annotated[int, "LM tokens of a run"] = 4_000,
    seed: int = 45,
) -> Iterator[Case]:
    loaded = locore.load(model)
    for number in range(problems):
        phrase = PHRASES[number % len(PHRASES)]
        prompt = PROMPTS[(number + number // len(PHRASES)) % len(PROMPTS)]
        yield {"prompt": prompt, "phrase": phrase}, partial(audited, loaded, prompt, phrase, budget, seed, runs)
