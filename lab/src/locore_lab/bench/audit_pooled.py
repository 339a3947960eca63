"""How far is `audit` from the truth on a real model, where nobody can enumerate? Each run against the mean of the others.

Each phrase is asked about behind several prompts, as audits are, so that rows learn from those before them. A run is unbiased,
so the mean of the others, those of larger budgets among them, is the truth up to an error that their spread shows; what is
within a factor 1.5 of it is counted, and so are intervals that do not reach it by more than two of its standard errors. Runs
that saw nothing count as zero. Each budget is spent as often as makes the same number of LM tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import fmean, variance
from typing import Annotated

import locore
from locore.models import LanguageModel
from locore_lab.bench.audit import CLOSE
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.shared import check_known, seed_of, timed

ERRORS = 2.0
BUDGETS = [4_000]
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


def audited(model: LanguageModel, phrase: str, prompts: list[str], budget: int, seed: int, runs: int) -> list[Row]:
    """All runs of one phrase at one budget: a row for each prompt."""

    def once(number: int) -> list[locore.AuditRow]:
        own = seed_of(seed, phrase, budget, number)
        return sorted(locore.audit(model, prompts, [phrase], 20, budget=budget, seed=own).rows, key=lambda row: row.index)

    found, seconds = timed(lambda: [once(number) for number in range(runs)])
    return [
        {
            "prompt": prompt,
            "place": place,
            "said": [row.probability or 0.0 for row in rows],
            "intervals": [row.interval for row in rows],
            "verdicts": [row.verdict for row in rows],
            "lm_tokens": fmean(row.lm_tokens for row in rows),
            "cpu_seconds": seconds / runs / len(prompts),
        }
        for place, (prompt, rows) in enumerate(zip(prompts, zip(*found, strict=True), strict=True))
    ]


@dataclass(frozen=True)
class Judged:
    """A run, and what the others of its problem say."""

    budget: int
    said: float
    interval: tuple[float, float]
    truth: float
    error: float  # one standard error of the truth

    @property
    def is_close(self) -> bool:
        """Is it within the factor?"""
        return 0 < self.truth / CLOSE <= self.said <= self.truth * CLOSE

    @property
    def is_covered(self) -> bool:
        """Does the interval come near the truth?"""
        low, high = self.interval
        return low <= self.truth + ERRORS * self.error and self.truth - ERRORS * self.error <= high


def judged(rows: list[Row]) -> list[Judged]:
    """All runs of one problem; the variance of one goes with one over its LM tokens."""
    runs = [(row["budget"], *run) for row in rows for run in zip(row["said"], row["intervals"], strict=True)]
    found = []
    for number, (budget, said, interval) in enumerate(runs):
        others = runs[:number] + runs[number + 1 :]
        total = sum(each[0] for each in others)
        truth = sum(each[0] * each[1] for each in others) / total
        squares = sum(each[0] * (each[1] - truth) ** 2 for each in others) / max(1, len(others) - 1)
        found.append(Judged(budget, said, tuple(interval), truth, math.sqrt(squares / total)))
    return found


def told(rows: list[Row]) -> str:
    """Over all problems, by budget."""
    problems: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        problems.setdefault((row["prompt"], row["phrase"]), []).append(row)
    runs = [run for of_one in problems.values() for run in judged(of_one)]
    lines = []
    for budget in dict.fromkeys(row["budget"] for row in rows):
        here, own = [run for run in runs if run.budget == budget], [row for row in rows if row["budget"] == budget]
        close = fmean(run.is_close for run in here)
        spread, covered = _spread(own), fmean(run.is_covered for run in here)
        trusted, seconds = sum(row["verdicts"].count("trust") for row in own), fmean(row["cpu_seconds"] for row in own)
        lines.append(
            f"{budget:,} LM tokens, {len(here)} runs: standard deviation of a log {spread:.2f}; {close:.0%} within a factor "
            f"{CLOSE} of the others, intervals that reach these {covered:.0%}; {trusted} trusted; {seconds:.0f} CPU s a run"
        )
    return "\n".join(lines)


def _spread(rows: list[Row]) -> float:
    """Root of the mean variance of the logs of what runs of one problem say, of problems that were seen more than once."""
    logs = [[math.log(p) for p in row["said"] if p > 0] for row in rows]
    return math.sqrt(fmean([variance(each) for each in logs if len(each) > 1] or [math.nan]))


@measurement(
    "prompt | phrase | LM tokens | said | CPU s",
    "{prompt} | {phrase} | {lm_tokens:.0f} | {shown} | {cpu_seconds:.1f}",
    quick={"phrase": [" John"], "prompts": 2, "budget": [300], "model": "tiny"},
    fields={"shown": lambda row: ", ".join(f"{p:.1e}" for p in row["said"])},
    after=told,
)
def run(
    model: str = "smollm2",
    phrase: Annotated[Some, "only these"] = None,
    prompts: Annotated[int, "of ten, each phrase behind others of them first"] = len(PROMPTS),
    runs: Annotated[int, "of each at the smallest budget, and of others in proportion"] = 2,
    budget: Annotated[list[int], "LM tokens of a run"] = BUDGETS,
    seed: int = 45,
) -> Iterator[Case]:
    check_known("phrases", phrase, PHRASES)
    loaded = locore.load(model)
    for tokens in budget:
        times = max(1, runs * min(budget) // tokens)
        for asked in phrase or PHRASES:
            last = PHRASES.index(asked)
            behind = [PROMPTS[(last - k) % len(PROMPTS)] for k in reversed(range(prompts))]
            yield {"phrase": asked, "budget": tokens}, partial(audited, loaded, asked, behind, tokens, seed, times)
