"""The exact answer to a problem, found once and kept beside the results. Samplers never see it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.io import write_whole
from locore.kernel.errors import LocoreError, ZeroWeights
from locore.kernel.numerics import NEG_INF
from locore.models import LanguageModel
from locore.samplers import Twisted
from locore.samplers.twist.ngram import NGramTable
from locore.testing import Posterior, enumerate_posterior
from locore_lab.fidelity.problems import Problem
from locore_lab.shared import seed_of


def transitions(model: LanguageModel) -> tuple[Tensor, Tensor]:
    """f64[vocab] and f64[vocab, vocab], log p(y_0) and log p(y_t | y_{t−1}), read off a chain without an end."""
    every = torch.arange(model.vocab_size)[:, None]
    rows = model.log_probs(torch.cat([every, every], 1)).double()
    return rows[0, 0], rows[:, 1]


def backward(reader: LeftToRight, step: Tensor, best: bool = False) -> list[Tensor]:
    """For each position t, f64[states, vocab]: log p(the rest is accepted | state at t, y_{t−1}).

    Args:
        step: f64[vocab, vocab], log transition.
        best: the most probable completion instead of all of them.
    """
    final = reader.live[-1].double().log()[:, None].expand(-1, len(step))
    result = [final]
    for position in reversed(range(reader.length)):
        rows = reader.rows[position][:, reader.token_class].long()
        following = result[-1]
        value = following[rows.clamp_min(0), torch.arange(len(step))]  # state, next token
        value = value.masked_fill(rows == DEAD, float("-inf"))
        joint = step[None] + value[:, None, :]
        result.append(joint.amax(-1) if best else torch.logsumexp(joint, -1))
    return result[::-1]


def first_tokens(circuit: Circuit, model: LanguageModel) -> tuple[float, Tensor]:
    """log p(α), and f64[vocab], p(y_0 = v | α)."""
    assert circuit.reader is not None
    reader = circuit.reader
    start, step = transitions(model)
    joint = start + _after(reader, backward(reader, step), 0, reader.initial(1))[0]
    log_z = float(torch.logsumexp(joint, 0))
    return log_z, (joint - log_z).exp()


def most_probable(circuit: Circuit, model: LanguageModel, num: int) -> tuple[Tensor, Tensor]:
    """The `num` most probable sequences that satisfy α, Long[num, length], and log p(y).

    A prefix of one of them is among the `num` prefixes with the best completions: each better prefix brings a better sequence
    of its own. So it is enough to keep `num` prefixes at every position, ranked by their best completion.
    """
    assert circuit.reader is not None
    reader = circuit.reader
    start, step = transitions(model)
    best = backward(reader, step, best=True)
    tokens, scores = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    states = reader.initial(1)
    for position in range(reader.length):
        log_probs = step[tokens[:, -1]] if position else start[None]
        joint = scores[:, None] + log_probs
        merit = (joint + _after(reader, best, position, states)).flatten()
        chosen = merit.topk(min(num, int((merit > float("-inf")).sum()))).indices
        row, token = chosen // len(start), chosen % len(start)
        tokens, scores = torch.cat([tokens[row], token[:, None]], 1), joint.flatten()[chosen]
        states = reader.step(position, states[row], token)
    return tokens, scores


def _after(reader: LeftToRight, values: list[Tensor], position: int, states: Tensor) -> Tensor:
    """f64[batch, vocab]: the values at the next position after each token."""
    rows = reader.rows[position][states][:, reader.token_class].long()
    reached = values[position + 1][rows.clamp_min(0), torch.arange(rows.shape[1])]
    return reached.masked_fill(rows == DEAD, float("-inf"))


TOP = 100
MAX_CONTEXTS = 4_000_000
SMALL = 1e-9  # first-token probabilities below this are not written down


@dataclass(frozen=True)
class Truth:
    """What is known about p(y | α)."""

    key: str  # of the problem
    log_z: float  # log p(α)
    log_z_error: float  # its standard error; 0 where it is exact
    # probability (not conditioned on α) of what was not enumerated, an upper bound of the evidence that is missing
    missing: float
    tokens: list[list[int]]  # the most probable sequences and their log p(y), not conditioned
    log_probs: list[float]
    first: dict[str, float]  # token -> p(y_0 | α)
    source: str  # in words, how it was found

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


WIDTH = 20_000  # prefixes kept at each position; costs WIDTH · RUNS · n model tokens for each of the two, once
RUNS = 16
LEAST_ERROR = 1e-9  # runs that agree to the last digit say no more than this


@dataclass(frozen=True, eq=False)
class Estimate:
    """Independent unbiased estimates of one sampler."""

    name: str
    ratio: Tensor  # f64[runs], estimates of p(α) relative to exp(shift)
    shift: float

    @classmethod
    def of(cls, name: str, logs: Sequence[float]) -> Estimate:
        """From logarithms; -inf where a run found nothing."""
        shift = max(logs)
        if shift == NEG_INF:
            raise LocoreError(f"{name} found nothing in {len(logs)} runs: this truth is out of its reach.")
        return cls(name, (torch.tensor(logs, dtype=torch.float64) - shift).exp(), shift)

    @property
    def log_mean(self) -> float:
        """Log of the mean."""
        return self.shift + math.log(float(self.ratio.mean()))

    @property
    def error(self) -> float:
        """Standard error of the log of the mean."""
        return max(LEAST_ERROR, float(self.ratio.std() / self.ratio.mean()) / math.sqrt(len(self.ratio)))


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
        estimates.append(Estimate.of(name, logs))
    log_z, error, source = agreed(estimates)
    return pooled(problem, log_z, error, torch.tensor(list(seen)), torch.tensor(list(seen.values())), first, source)


def agreed(estimates: list[Estimate]) -> tuple[float, float, str]:
    """The mean with weights 1/variance, its standard error, and the two estimates in words."""
    a, b = estimates
    gap, margin = abs(a.log_mean - b.log_mean), 3 * math.hypot(a.error, b.error)
    words = "; ".join(f"{e.name} {e.log_mean:.5f} ± {e.error:.5f} ({len(e.ratio)} runs)" for e in estimates)
    if gap > margin:
        raise LocoreError(f"two unbiased samplers disagree on log Z: {words}. Use more runs.")
    weights = [1 / e.error**2 for e in estimates]
    log_z = (a.log_mean * weights[0] + b.log_mean * weights[1]) / sum(weights)
    return log_z, 1 / math.sqrt(sum(weights)), f"pooled unbiased runs: {words}"
