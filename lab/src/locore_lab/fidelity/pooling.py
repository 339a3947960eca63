"""Answers that can be neither enumerated nor calculated: unbiased estimates of two different samplers, which must agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.kernel.errors import LocoreError, ZeroWeights
from locore.kernel.numerics import NEG_INF
from locore.models import LanguageModel
from locore.samplers import Twisted
from locore.samplers.twist.ngram import NGramTable
from locore_lab.fidelity.problems import Problem
from locore_lab.fidelity.runs import seed_of
from locore_lab.fidelity.truth import Truth, pooled

WIDTH = 20_000  # prefixes kept at each position; costs WIDTH · RUNS · n model tokens for each of the two, once
RUNS = 16
LEAST_ERROR = 1e-9  # runs that agree to the last digit say no more than this


@dataclass(frozen=True, eq=False)
class Estimate:
    """Independent unbiased estimates of one sampler."""

    name: str
    ratio: Tensor  # f64[runs], estimates of p(α) relative to exp(shift)
    shift: float

    @property
    def log_mean(self) -> float:
        """Log of the mean."""
        return self.shift + math.log(float(self.ratio.mean()))

    @property
    def error(self) -> float:
        """Standard error of the log of the mean."""
        return float(self.ratio.std() / self.ratio.mean()) / math.sqrt(len(self.ratio))


@torch.no_grad()
def pool_estimates(
    problem: Problem, model: LanguageModel, circuit: Circuit, table: NGramTable, seed: int, width: int = WIDTH
) -> Truth:
    """Pool a sampler whose twist is learned in each run with one that is steered by the table of the model.

    Without any twist, a rare ending is missed by most runs at n = 16 and the error of the mean says nothing.
    """
    seen: dict[tuple[int, ...], float] = {}
    first = torch.zeros(model.vocab_size, dtype=torch.float64)
    estimates = []
    samplers = {"learned": Twisted(table=None, blocks=1), "table": Twisted(table, blocks=1)}
    for name, sampler in samplers.items():
        logs = []
        for number in range(RUNS):
            generator = torch.Generator().manual_seed(seed_of(seed, problem.name, "truth", name, number))
            try:
                draws = sampler(model, circuit, width, None, generator)
            except ZeroWeights:
                logs.append(NEG_INF)
                continue
            logs.append(float(torch.logsumexp(draws.log_weights, 0)) - math.log(len(draws.log_weights)))
            assert draws.token_scores is not None
            if name == "table":  # the more accurate one
                first.index_add_(0, draws.tokens[:, 0], torch.softmax(draws.log_weights, 0) / RUNS)
            best = draws.token_scores.sum(-1).topk(min(200, len(draws.tokens)))
            seen |= dict(zip(map(tuple, draws.tokens[best.indices].tolist()), best.values.tolist(), strict=True))
        shift = max(logs)
        estimates.append(Estimate(name, (torch.tensor(logs, dtype=torch.float64) - shift).exp(), shift))
    log_z, error, source = agreed(estimates)
    return pooled(problem, log_z, error, torch.tensor(list(seen)), torch.tensor(list(seen.values())), first, source)


def agreed(estimates: list[Estimate]) -> tuple[float, float, str]:
    """The mean with weights 1/variance, its standard error, and the two estimates in words."""
    a, b = estimates
    gap, margin = abs(a.log_mean - b.log_mean), 3 * math.hypot(a.error, b.error)
    words = "; ".join(f"{e.name} {e.log_mean:.5f} ± {e.error:.5f} ({len(e.ratio)} runs)" for e in estimates)
    if gap > margin:
        raise LocoreError(f"two unbiased samplers disagree on log Z: {words}. Use more runs.")
    weights = [1 / max(e.error, LEAST_ERROR) ** 2 for e in estimates]
    log_z = (a.log_mean * weights[0] + b.log_mean * weights[1]) / sum(weights)
    return log_z, 1 / math.sqrt(sum(weights)), f"pooled unbiased runs: {words}"
