"""What one way of sampling says, and what it cost."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import locore


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
