"""From runs to numbers: the law of one draw against the truth, the evidence, and what chance alone would give."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF
from locore_lab.fidelity.runs import COSTS, Chunk, Law
from locore_lab.fidelity.truth import TOP, Truth

SPLITS = 40  # random pairs of sets of chunks, to measure the noise
COVERED = 0.25  # below this share of the truth on its top sequences, TV on top sequences says nothing
MISSING = 0.01  # a truth that may miss more of p(α) than this is good for no TV
ROUNDING = 1e-5  # nats by which float32 models differ when they score the same sequences in other batches
SUMS = ("runs", "failed", "violating", *COSTS)
NOTHING: tuple[int, ...] = ()  # stands for what is no sequence of the truth: runs that failed, texts that violate α
Score = Callable[[Tensor], Tensor]  # log p(y) of Long[num, length]


def merged(chunks: Iterable[Chunk]) -> Chunk:
    """Chunks added up."""
    total = Chunk()
    for chunk in chunks:
        for name in SUMS:
            setattr(total, name, getattr(total, name) + getattr(chunk, name))
        total.log_z += chunk.log_z
        total.verdicts += chunk.verdicts
        for y, w in chunk.law.items():
            total.law[y] = total.law.get(y, 0.0) + w
        for v, w in chunk.first.items():
            total.first[v] = total.first.get(v, 0.0) + w
    return total


def one_draw(chunk: Chunk) -> Law:
    """The law of one draw: normalised weights averaged over the runs; what fails or violates α is the sequence `NOTHING`."""
    law = {y: w / chunk.runs for y, w in chunk.law.items()}
    return law | {NOTHING: (chunk.failed + chunk.violating) / chunk.runs}


def tv_top(first: Law, second: Law, keys: Iterable[tuple[int, ...]]) -> float:
    """Total variation on these sequences and "other"."""
    keys = set(keys)
    gaps = [first.get(y, 0.0) - second.get(y, 0.0) for y in keys]
    other = sum(second.get(y, 0.0) for y in keys) - sum(first.get(y, 0.0) for y in keys)
    return 0.5 * (sum(map(abs, gaps)) + abs(other))


def largest(law: Law) -> list[tuple[int, ...]]:
    """The sequences of most weight."""
    return sorted((y for y in law if y != NOTHING), key=lambda y: -law[y])[:TOP]


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
    return tv_top(law, known, [*known, NOTHING])


def first_token_tv(chunk: Chunk, truth: Truth) -> float:
    """TV of the first token."""
    law = {v: w / chunk.runs for v, w in chunk.first.items()}
    exact = {int(v): p for v, p in truth.first.items()}
    gap = sum(abs(law.get(v, 0.0) - exact.get(v, 0.0)) for v in law.keys() | exact.keys())
    return 0.5 * (gap + one_draw(chunk)[NOTHING])


def noise_floor(chunks: list[Chunk], truth: Truth) -> float:
    """TV that chance alone gives; nan for fewer than two chunks.

    Two halves of the runs differ by twice the noise of the whole if every sequence is drawn often: each half has twice the
    variance, their difference four times. If most sequences are drawn once or never, twice the runs are hardly any better,
    and two halves differ as much as the whole differs from the truth. How the distance falls from quarters to halves, by √2
    in the first case and by 1 in the second, tells how it goes on.
    """
    if len(chunks) < 2:
        return math.nan
    half = len(chunks) // 2
    halves = _apart(chunks, half, truth)
    if not halves or half < 2:
        return halves / 2
    step = _apart(chunks, half // 2, truth) / halves
    return halves / min(max(step, 1.0), math.sqrt(2)) ** 2


def _apart(chunks: list[Chunk], size: int, truth: Truth) -> float:
    """Mean TV between disjoint random sets of so many chunks."""
    rng, found = random.Random(0), []
    keys = [*truth.top, NOTHING]
    for _ in range(SPLITS):
        chosen = rng.sample(chunks, 2 * size)
        laws = one_draw(merged(chosen[:size])), one_draw(merged(chosen[size:]))
        found.append(tv_top(*laws, [*keys, *largest(laws[0]), *largest(laws[1])]))
    return sum(found) / SPLITS


def evidence(log_z: list[float], truth: Truth) -> dict[str, Any]:
    """How good the estimates Ẑ are.

    Returns:
        `rmse` of log Ẑ in nats and its standard error `rmse_error`; a run that returned nothing knows as much as Ẑ = 1 says.
        `mean_log_error`, of the runs that returned something. `log_mean_error`, log mean Ẑ − log Z, with `margin_3se`, three
        of its standard errors; `unbiased`, whether it lies within: None where nothing varies because nothing was found, or
        where there is only one run.
    """
    names = ("rmse", "rmse_error", "mean_log_error", "log_mean_error", "margin_3se", "unbiased")
    found: dict[str, Any] = dict.fromkeys(names)
    if not log_z:
        return found
    gaps = torch.tensor(log_z, dtype=torch.float64) - truth.log_z
    alive = gaps > NEG_INF
    squares = torch.where(alive, gaps, -truth.log_z).square()
    found["rmse"] = float(squares.mean().sqrt())
    if len(gaps) > 1:
        # The delta method, here for a root and below for a logarithm.
        found["rmse_error"] = _standard_error(squares) / (2 * found["rmse"]) if found["rmse"] else 0.0
    if alive.any():
        found["mean_log_error"] = float(gaps[alive].mean())
        found["log_mean_error"] = float(torch.logsumexp(gaps, 0)) - math.log(len(gaps))
    if alive.any() and len(gaps) > 1:
        relative = _standard_error((gaps - found["log_mean_error"]).exp())
        found["margin_3se"] = 3 * math.hypot(relative, truth.log_z_error)
        allowed = found["margin_3se"] + _pruned(truth) + ROUNDING
        found["unbiased"] = bool(abs(found["log_mean_error"]) <= allowed)
    return found


def _standard_error(values: Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values))


def _pruned(truth: Truth) -> float:
    """How far log Z may lie above what was enumerated, in nats."""
    return float(np.logaddexp(0.0, math.log(truth.missing) - truth.log_z)) if truth.missing else 0.0


def summarise(chunks: list[Chunk], truth: Truth, score: Score) -> dict[str, Any]:
    """All the columns of one sampler on one problem at one budget.

    Args:
        score: log p(y) of sequences, −inf where they violate α.
    """
    total = merged(chunks)
    runs = total.runs
    covered = sum(truth.top.values())
    known = covered >= COVERED and truth.missing <= MISSING * math.exp(truth.log_z)
    tv = total_variation(total, truth, score) if known else None
    return {
        "runs": runs,
        "failed": total.failed / runs,
        "violating": total.violating / runs,
        "tv": tv,
        "noise": noise_floor(chunks, truth),
        "tv_first": first_token_tv(total, truth),
        **evidence(total.log_z, truth),
        **{name: getattr(total, name) / runs for name in COSTS},
        "verdicts": dict(Counter(total.verdicts)),
        "truth_covered": covered,
    }
