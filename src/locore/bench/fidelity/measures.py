"""From runs to numbers: the law of one draw against the truth, the evidence, and what chance alone would give."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from locore.bench.fidelity.runs import Chunk, Law
from locore.bench.fidelity.truth import TOP, Truth
from locore.numerics import NEG_INF

SPLITS = 40  # random halves of the chunks, to measure the noise
COVERED = 0.25  # below this share of the truth on its top sequences, TV on top sequences says nothing
Score = Callable[[Tensor], Tensor]  # log p(y) of Long[num, length]


def merged(chunks: Iterable[Chunk]) -> Chunk:
    """Chunks added up."""
    total = Chunk()
    for chunk in chunks:
        for name in ("runs", "failed", "lm_tokens", "lm_contexts", "seconds", "model_seconds", "cpu_seconds"):
            setattr(total, name, getattr(total, name) + getattr(chunk, name))
        total.log_z += chunk.log_z
        total.verdicts += chunk.verdicts
        for y, w in chunk.law.items():
            total.law[y] = total.law.get(y, 0.0) + w
        for v, w in chunk.first.items():
            total.first[v] = total.first.get(v, 0.0) + w
    return total


def one_draw(chunk: Chunk) -> Law:
    """The law of one draw: normalised weights averaged over the runs; runs that returned nothing leave mass missing."""
    return {y: w / chunk.runs for y, w in chunk.law.items()}


def tv_top(first: Law, second: Law, keys: Iterable[tuple[int, ...]]) -> float:
    """Total variation on these sequences and "other"."""
    keys = set(keys)
    gaps = [first.get(y, 0.0) - second.get(y, 0.0) for y in keys]
    other = sum(second.get(y, 0.0) for y in keys) - sum(first.get(y, 0.0) for y in keys)
    return 0.5 * (sum(map(abs, gaps)) + abs(other))


def largest(law: Law) -> list[tuple[int, ...]]:
    """The sequences of most weight."""
    return sorted(law, key=lambda y: -law[y])[:TOP]


def true_law(truth: Truth, law: Law, score: Score) -> Law:
    """p(y | α) of the most probable sequences in truth and in a law."""
    known = truth.top
    unknown = [y for y in largest(law) if y not in known]
    if unknown:
        scores = score(torch.tensor(unknown)) - truth.log_z
        known |= dict(zip(unknown, scores.exp().tolist(), strict=True))
    return known


def total_variation(chunk: Chunk, truth: Truth, score: Score) -> float:
    """TV of one draw on the 100 top sequences of both laws and "other". A run that returns nothing counts as wrong."""
    law = one_draw(chunk)
    known = true_law(truth, law, score)
    nothing = chunk.failed / chunk.runs
    # Failed mass is outside every sequence, "other" included.
    inside = tv_top(law | {(): nothing}, known, [*known, ()])
    return inside


def first_token_tv(chunk: Chunk, truth: Truth) -> float:
    """TV of the first token."""
    law = {v: w / chunk.runs for v, w in chunk.first.items()}
    exact = {int(v): p for v, p in truth.first.items()}
    gap = sum(abs(law.get(v, 0.0) - exact.get(v, 0.0)) for v in law.keys() | exact.keys())
    return 0.5 * (gap + chunk.failed / chunk.runs)


def noise_floor(chunks: list[Chunk], truth: Truth) -> float:
    """TV that chance alone gives: half of the TV between two halves of the runs.

    Each half has twice the variance of the whole, their difference four times.
    """
    if len(chunks) < 2:
        return math.nan
    rng, found = random.Random(0), []
    keys = list(truth.top)
    for _ in range(SPLITS):
        order = rng.sample(chunks, len(chunks))
        half = len(order) // 2
        a, b = merged(order[:half]), merged(order[half : 2 * half])
        laws = one_draw(a), one_draw(b)
        found.append(tv_top(*laws, [*keys, *largest(laws[0]), *largest(laws[1])]) / 2)
    return sum(found) / SPLITS


def evidence(log_z: list[float], truth: Truth) -> dict[str, Any]:
    """RMSE and mean error of log Ẑ over the runs that returned something; is mean Ẑ within 3 standard errors of Z?"""
    if not log_z:
        return {"rmse": None, "mean_log_error": None, "unbiased": None}
    gaps = torch.tensor([z - truth.log_z for z in log_z], dtype=torch.float64)
    alive = gaps[gaps > NEG_INF]
    ratio = gaps.exp()
    error = float(ratio.std()) / math.sqrt(len(ratio)) if len(ratio) > 1 else math.inf
    # The delta method for log of the mean; the truth may have an error of its own.
    mean = float(ratio.mean())
    margin = 3 * math.hypot(error / mean, truth.log_z_error) if mean else math.inf
    return {
        "rmse": float(alive.square().mean().sqrt()) if len(alive) else None,
        "mean_log_error": float(alive.mean()) if len(alive) else None,
        "log_mean_error": math.log(mean) if mean else None,
        "margin_3se": margin if math.isfinite(margin) else None,
        "unbiased": bool(abs(math.log(mean)) <= margin + _pruned(truth)) if mean else None,
    }


def _pruned(truth: Truth) -> float:
    """How far log Z may lie above what was enumerated, in nats."""
    return math.log1p(truth.missing / math.exp(truth.log_z)) if truth.missing else 0.0


def summarise(chunks: list[Chunk], truth: Truth, score: Score) -> dict[str, Any]:
    """All the columns of one sampler on one problem at one budget."""
    total = merged(chunks)
    runs = total.runs
    covered = sum(truth.top.values())
    tv = total_variation(total, truth, score) if covered >= COVERED else None
    return {
        "runs": runs,
        "failed": total.failed / runs,
        "tv": tv,
        "noise": noise_floor(chunks, truth),
        "tv_first": first_token_tv(total, truth),
        **evidence(total.log_z, truth),
        "lm_tokens": total.lm_tokens / runs,
        "lm_contexts": total.lm_contexts / runs,
        "seconds": total.seconds / runs,
        "model_seconds": total.model_seconds / runs,
        "cpu_seconds": total.cpu_seconds / runs,
        "verdicts": dict(Counter(total.verdicts)),
        "truth_covered": covered,
    }
