"""The exact answer to a problem, found once and kept beside the results. Samplers never see it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.io import write_whole
from locore.models import LanguageModel
from locore.testing import Posterior, enumerate_posterior
from locore_lab.fidelity.dynamic import first_tokens, most_probable
from locore_lab.fidelity.problems import Problem

TOP = 100
MAX_CONTEXTS = 4_000_000
SMALL = 1e-9  # first-token probabilities below this are not written down


@dataclass(frozen=True)
class Truth:
    """What is known about p(y | α).

    Attributes:
        key: of the problem.
        log_z: log p(α).
        log_z_error: its standard error; 0 where it is exact.
        missing: probability (not conditioned on α) of what was not enumerated, an upper bound of the evidence that is missing.
        tokens, log_probs: the most probable sequences and their log p(y), not conditioned.
        first: token -> p(y_0 | α).
        source: in words, how it was found.
    """

    key: str
    log_z: float
    log_z_error: float
    missing: float
    tokens: list[list[int]]
    log_probs: list[float]
    first: dict[str, float]
    source: str

    @property
    def top(self) -> dict[tuple[int, ...], float]:
        """p(y | α) of the most probable sequences."""
        return {tuple(y): math.exp(s - self.log_z) for y, s in zip(self.tokens, self.log_probs, strict=True)}


Pool = Callable[[Problem, LanguageModel, Circuit], Truth]


def find_truth(problem: Problem, model: LanguageModel, circuit: Circuit, folders: list[Path], pool: Pool) -> Truth:
    """The answer stored in one of the folders, or found now and stored in the first of them.

    Args:
        model: prompted.
        pool: how to estimate an answer that can be neither enumerated nor calculated.
    """
    for folder in folders:
        path = folder / f"{problem.name}.json"
        if path.exists():
            stored = Truth(**json.loads(path.read_text()))
            if stored.key == problem.key():
                return stored
    found = {"enumerate": enumerated, "dynamic": calculated, "pooled": pool}[problem.answer](problem, model, circuit)
    folders[0].mkdir(parents=True, exist_ok=True)
    write_truth(found, folders[0] / f"{problem.name}.json")
    return found


def write_truth(truth: Truth, path: Path) -> None:
    """Write an answer, one sequence a line."""
    record: dict[str, Any] = asdict(truth)
    rows = [json.dumps(y) for y in record.pop("tokens")]
    text = json.dumps(record, indent=1)
    write_whole(path, text[:-2] + ',\n "tokens": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n")


def enumerated(problem: Problem, model: LanguageModel, circuit: Circuit, found: Posterior | None = None) -> Truth:
    """By walking every prefix, if that was not done yet."""
    found = found or enumerate_posterior(model, circuit, MAX_CONTEXTS, problem.min_prob)
    best = found.log_joint.topk(min(TOP, len(found.tokens))).indices
    first = torch.zeros(model.vocab_size, dtype=torch.float64)
    first.index_add_(0, found.tokens[:, 0], found.probabilities)
    source = f"enumeration of {len(found.tokens):,} sequences, {found.contexts:,} contexts"
    return _truth(problem, found.log_evidence, 0.0, found.pruned, found.tokens[best], found.log_joint[best], first, source)


def calculated(problem: Problem, model: LanguageModel, circuit: Circuit) -> Truth:
    """By dynamic programming over a Markov chain."""
    log_z, first = first_tokens(circuit, model)
    tokens, scores = most_probable(circuit, model, TOP)
    return _truth(problem, log_z, 0.0, 0.0, tokens, scores, first, "dynamic programming over the chain")


def _truth(
    problem: Problem, log_z: float, error: float, missing: float, tokens: Tensor, scores: Tensor, first: Tensor, source: str
) -> Truth:
    return Truth(
        problem.key(),
        log_z,
        error,
        missing,
        tokens.tolist(),
        [round(s, 9) for s in scores.tolist()],
        {str(v): p for v, p in enumerate(first.tolist()) if p > SMALL},
        source,
    )


def pooled(problem: Problem, log_z: float, error: float, tokens: Tensor, scores: Tensor, first: Tensor, source: str) -> Truth:
    """An answer put together from estimates; `tokens` are all sequences that were seen."""
    best = scores.topk(min(TOP, len(scores))).indices
    return _truth(problem, log_z, error, 0.0, tokens[best], scores[best], first, source)
