"""Small truths and chunks, made by hand, for tests of the benchmark."""

from __future__ import annotations

import math

import torch
from locore_lab.fidelity.problems import Problem, table
from locore_lab.fidelity.runs import Chunk, Task
from locore_lab.fidelity.truth import TOP, Truth, enumerated

from locore.compilers import compile
from locore.constraints import Count


def truth_of(law, log_z=0.0, error=0.0, missing=0.0):
    """A truth with p(y | α) given for each sequence."""
    top = sorted(law, key=lambda y: -law[y])[:TOP]
    first = {}
    for y, p in law.items():
        first[str(y[0])] = first.get(str(y[0]), 0.0) + p
    scores = [math.log(law[y]) + log_z if law[y] else -math.inf for y in top]
    return Truth("", log_z, error, missing, [list(y) for y in top], scores, first, "by hand")


def chunk_of(law, runs=1, failed=0):
    """Runs whose normalised weights add up to this law times their number."""
    chunk = Chunk(runs=runs, failed=failed)
    for y, p in law.items():
        chunk.law[y] = p * runs
        chunk.first[y[0]] = chunk.first.get(y[0], 0.0) + p * runs
    return chunk


def scores_of(law, log_z=0.0):
    """log p(y) of rows of tokens."""

    def score(tokens):
        return torch.tensor([law.get(tuple(y), 0.0) for y in tokens.tolist()], dtype=torch.float64).log() + log_z

    return score


def drawn_chunks(law, chunks, draws, generator):
    """Chunks of perfect runs, each of which returns one exact draw."""
    keys, probabilities = list(law), torch.tensor(list(law.values()), dtype=torch.float64)
    result = []
    for _ in range(chunks):
        chosen = torch.multinomial(probabilities, draws, replacement=True, generator=generator).tolist()
        result.append(chunk_of({keys[k]: chosen.count(k) / draws for k in set(chosen)}, draws))
    return result


def small_task(seed=7):
    """A table model of three tokens and a constraint, with its truth."""
    model = table(3, 3, seed)
    alpha = Count((0, 1, 2), frozenset({1}), 1, 2)
    circuit = compile(alpha, model, 3)
    return Task(model, circuit, enumerated(Problem("small", "", (), alpha, 3), model, circuit))


def row(problem, sampler, budget, tv, contexts=None, noise=0.001, rmse=0.5, rmse_error=0.01, **other):
    """One cell as `FidelityStudy.run` returns it."""
    known = rmse is not None
    return {
        "problem": problem, "sampler": sampler, "budget": budget, "goal": 0.03, "runs": 16, "failed": 0.0, "violating": 0.0,
        "tv": tv, "noise": noise, "tv_first": 0.1, "rmse": rmse, "rmse_error": rmse_error if known else None,
        "mean_log_error": 0.1 if known else None, "log_mean_error": 0.1 if known else None,
        "margin_3se": 0.2 if known else None, "unbiased": True if known else None, "lm_tokens": float(budget),
        "lm_contexts": float(budget if contexts is None else contexts), "seconds": 0.2, "model_seconds": 0.1,
        "cpu_seconds": 0.2, "verdicts": {}, "truth_covered": 1.0 if tv is not None else 0.1,
    } | other  # fmt: skip
