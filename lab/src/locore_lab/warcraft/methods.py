"""The rows of the table: ways to get one path for a map out of the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

import locore
from locore.constraints import Constraint
from locore.kernel.errors import ZeroWeights
from locore.local import Exact
from locore.models import Counted
from locore.samplers import LocallyConstrainedResampling, Sampler, Twisted
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.training import draw

MOST_DRAWS = 2_000  # of the rejection that stands for the exact law


@dataclass(frozen=True)
class Task:
    """What is asked of every method."""

    constraint: Constraint  # the tokens are a simple path between the corners
    length: int  # the horizon, in tokens
    samples: int  # how many each method but the first may draw, particles or drafts


@dataclass(frozen=True)
class Proposal:
    """One path, or none."""

    tokens: list[int] | None  # `length` of them with the padding; None if there was nothing to return
    lm_tokens: int  # next-token distributions asked for
    seconds: float  # of wall time
    notes: dict[str, float] = field(default_factory=dict)  # what else is worth keeping, such as the effective sample size


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


def rounded(model: PathModel, task: Task, seed: int) -> Proposal:
    """The likelier token at each place, as the precursor's code evaluates."""
    start = time.perf_counter()
    tokens = draw(model.network, model.embedding, task.length, None)[0].tolist()
    return Proposal(tokens, task.length - 1, time.perf_counter() - start)


def most_probable(model: PathModel, task: Task, seed: int) -> Proposal:
    """The mode of the local distribution around the rounded answer ỹ, given the constraint: argmax of p̃_ỹ(y | α)."""
    start, counted = time.perf_counter(), Counted(model)
    around = torch.tensor([rounded(model, task, seed).tokens])
    circuit = locore.compile(task.constraint, model.tokenizer, task.length)
    tokens, _ = circuit.most_probable(Exact(floor=0.0).distributions(counted, around))
    return Proposal(tokens[0].tolist(), counted.lm_tokens + task.length - 1, time.perf_counter() - start)


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str  # of the row
    method: Method  # how it gets a path
    samples: bool = True  # whether it draws several, so that it is repeated for each number of them
    costly: bool = False  # whether it asks for every neighbour of a draft, and gets fewer maps
    few_edges: bool = False  # whether the path has to have fewer edges than about 1.5 of the fewest, as in the precursor's code


PAIRS = LocallyConstrainedResampling(kernel=Exact(floor=0.0), as_published=True)
COMMON = (
    Row("CNN-LSTM", alone, samples=False),
    Row("CNN-LSTM, likeliest tokens", rounded, samples=False),
    Row("+ oversampling", oversampled),
)
REST = (
    Row("+ Locore, from left to right (lcr)", constrained("lcr")),
    Row("+ Locore, guided by n-grams (twisted)", constrained(Twisted(None))),
    Row("+ Locore, without replacement (swor)", constrained("swor")),
    Row("+ Locore, default (auto)", constrained("auto")),
    Row("+ masked decoding with its weight (masked)", constrained("masked")),
    Row("+ sequential Monte Carlo (smc)", constrained("smc")),
    Row("+ exact (rejection until accepted)", exact, samples=False),
)
ROWS: dict[str, tuple[Row, ...]] = {
    "edges": (
        *COMMON,
        Row("+ the paper's sampler (lcr-published)", constrained(PAIRS), costly=True),
        Row("+ most probable path around the likeliest tokens (mpe)", most_probable, samples=False, costly=True),
        *REST,
        Row("+ fewer edges: default (auto)", constrained("auto"), costly=True, few_edges=True),
    ),
    "moves": (*COMMON, Row("+ the paper's sampler (lcr-published)", constrained("lcr-published")), *REST),
}


def few_edges(task: Task, height: int, width: int) -> Task:
    """The task with fewer edges than 1.5 times the fewest: 33 on maps of 12 × 12 cells, as in Ahmed et al. (NeurIPS 2022)."""
    most = (height + width - 2) * 3 // 2 - 1
    return replace(task, constraint=task.constraint & locore.count_tokens(1, range(task.length), at_most=most))
