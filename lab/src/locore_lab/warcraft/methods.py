"""The rows of the table: ways to get one path for a map out of the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

import locore
from locore.constraints import Constraint
from locore.errors import ZeroWeights
from locore.models import Counted
from locore.samplers import Sampler
from locore_lab.warcraft.model import PathModel

MOST_DRAWS = 2_000  # of the rejection that stands for the exact law


@dataclass(frozen=True)
class Task:
    """What is asked of every method.

    Attributes:
        constraint: the moves are a simple path between the corners.
        length: the horizon, in tokens.
        samples: how many each method but the first may draw, particles or drafts.
    """

    constraint: Constraint
    length: int
    samples: int


@dataclass(frozen=True)
class Proposal:
    """One path, or none.

    Attributes:
        tokens: moves, `length` of them with the padding; None if there was nothing to return.
        lm_tokens: next-token distributions asked for.
        seconds: of wall time.
        notes: what else is worth keeping, such as the effective sample size.
    """

    tokens: list[int] | None
    lm_tokens: int
    seconds: float
    notes: dict[str, float] = field(default_factory=dict)


Method = Callable[[PathModel, Task, int], Proposal]


def alone(model: PathModel, task: Task, seed: int) -> Proposal:
    """One draw from the model."""
    start, counted = time.perf_counter(), Counted(model)
    tokens = counted.sample(1, task.length, torch.Generator().manual_seed(seed)).tokens[0].tolist()
    return Proposal(tokens, counted.lm_tokens, time.perf_counter() - start)


def oversampled(model: PathModel, task: Task, seed: int) -> Proposal:
    """The paper's baseline: draws from the model, of which one that holds is taken at random; if none holds, one that does not.

    Its weights are the paper's with the model itself as proposal, p(y) 1[y ⊨ α] / p(y).
    """
    start, counted = time.perf_counter(), Counted(model)
    generator = torch.Generator().manual_seed(seed)
    drafts = counted.sample(task.samples, task.length, generator).tokens.tolist()
    tokenizer = model.tokenizer
    bound = task.constraint.bind(tokenizer)
    good = [tokens for tokens in drafts if bound.evaluate(tokens, tokenizer)]
    pool = good or drafts
    chosen = pool[int(torch.randint(len(pool), (), generator=generator))]
    return Proposal(chosen, counted.lm_tokens, time.perf_counter() - start, {"valid": float(len(good))})


def constrained(sampler: str | Sampler, budget: int | None = None) -> Method:
    """One draw from the particles of a sampler of the library."""

    def draw(model: PathModel, task: Task, seed: int) -> Proposal:
        start = time.perf_counter()
        try:
            found = locore.generate(
                model, [], task.constraint, task.length, num_particles=task.samples, sampler=sampler, budget=budget, seed=seed
            )
        except ZeroWeights:
            return Proposal(None, 0, time.perf_counter() - start)
        tokens = found.resample(1, seed=seed).tokens[0].tolist()
        notes = {"ess": found.ess, "log_evidence": found.log_evidence}
        return Proposal(tokens, found.info["lm_tokens"], time.perf_counter() - start, notes)

    return draw


def exact(model: PathModel, task: Task, seed: int) -> Proposal:
    """A draw from p(y | α): the model's draws are refused until one holds. Nothing can be better but by chance.

    None if nothing was found in `MOST_DRAWS`, which says that the model gives the constraint next to no probability.
    """
    start, counted = time.perf_counter(), Counted(model)
    generator, tokenizer = torch.Generator().manual_seed(seed), model.tokenizer
    bound = task.constraint.bind(tokenizer)
    drawn, batch = 0, 1
    while drawn < MOST_DRAWS:
        for tokens in counted.sample(batch, task.length, generator).tokens.tolist():
            drawn += 1
            if bound.evaluate(tokens, tokenizer):
                return Proposal(tokens, counted.lm_tokens, time.perf_counter() - start, {"draws": float(drawn)})
        batch = min(2 * batch, 64)
    return Proposal(None, counted.lm_tokens, time.perf_counter() - start, {"draws": float(drawn)})


METHODS: dict[str, Method] = {
    "CNN-LSTM": alone,
    "+ oversampling": oversampled,
    "+ Locore, the paper's sampler (lcr)": constrained("lcr-published"),
    "+ Locore, without replacement (swor)": constrained("swor"),
    "+ Locore, default (auto)": constrained("auto"),
    "exact (rejection until accepted)": exact,
}
