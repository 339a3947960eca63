"""Puzzles with several solutions: is what is sampled distributed as the model's own conditional?

All solutions are listed and scored, so the truth is p(y) / Σ p(solutions), and nothing of it comes from a circuit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

import locore
from locore.kernel.errors import InvalidArgument
from locore.local import TopK
from locore.models import LanguageModel
from locore.samplers import LocallyConstrainedResampling, Sampler
from locore_lab.sudoku.methods import CANDIDATES, request_to
from locore_lab.sudoku.puzzles import Puzzle, solutions

FALSE_ALARM = 0.001  # of the test of a row


@dataclass(frozen=True, eq=False)
class Truth:
    """All solutions of a puzzle under a prompted model that has a token for each digit."""

    grids: tuple[str, ...]  # the solutions
    tokens: Tensor  # Long[solutions, cells]
    log_probs: Tensor  # f64[solutions, cells, digits], the model's log-probabilities of each digit in each place
    digits: Tensor  # Long[digits], their tokens

    @classmethod
    def of(cls, model: LanguageModel, puzzle: Puzzle) -> Truth:
        """List and score."""
        grids = tuple(sorted(solutions(puzzle.givens)))
        if puzzle.solutions not in (None, len(grids)):
            raise InvalidArgument(f"{puzzle.givens} has {len(grids)} solutions, not {puzzle.solutions}.")
        digits = torch.tensor([_token_of(str(d), model) for d in range(1, puzzle.box**2 + 1)])
        tokens = digits[torch.tensor([[int(d) - 1 for d in grid] for grid in grids])]
        rows = [model.log_probs(part)[..., digits].double() for part in torch.split(tokens, 64)]
        return cls(grids, tokens, torch.cat(rows), digits)

    @cached_property
    def values(self) -> Tensor:
        """Long[solutions, cells]: digits, from 0."""
        return torch.tensor([[int(d) - 1 for d in grid] for grid in self.grids])

    @cached_property
    def scores(self) -> Tensor:
        """f64[solutions, cells]: log p of each token after those before it."""
        return self.log_probs.gather(2, self.values[..., None])[..., 0]

    @cached_property
    def posterior(self) -> Tensor:
        """f64[solutions]: p(y | α)."""
        return self.scores.sum(-1).softmax(0)

    @property
    def log_evidence(self) -> float:
        """log p(α)."""
        return float(self.scores.sum(-1).logsumexp(0))

    @cached_property
    def masked(self) -> Tensor:
        """f64[solutions]: what masked decoding without weights samples from, Π p(y_t | y_<t) / p(some allowed token | y_<t)."""
        masses = torch.zeros_like(self.scores)
        for place in range(self.values.shape[1]):
            begin = torch.nn.functional.pad(self.values[:, :place], (1, 0))  # an empty prefix is one, too
            prefixes = torch.unique(begin, dim=0, return_inverse=True)[1]
            digits = self.log_probs.shape[2]
            allowed = torch.zeros(int(prefixes.max()) + 1, digits, dtype=torch.bool)
            allowed[prefixes, self.values[:, place]] = True
            rows = self.log_probs[:, place].masked_fill(~allowed[prefixes], -math.inf)
            masses[:, place] = rows.logsumexp(-1)
        return (self.scores - masses).sum(-1).exp()


@dataclass(frozen=True)
class Comparison:
    """A sampler on one puzzle, against the truth."""

    distance: float  # total variation of its weighted particles from p(y | α); for masked decoding of its law itself
    place: float  # where one draw from the particles lies in p(y | α): a number that is uniform in 0..1 if the draw is from it
    evidence_error: float | None  # log of the estimated p(α) minus the truth, in nats; None where there is no estimate
    uniform: float  # total variation of the uniform distribution over all solutions, which knows nothing of the model
    lm_tokens: int  # of the sampler
    seconds: float


SAMPLERS: dict[str, tuple[str | Sampler, bool, int]] = {
    # the sampler, whether its weights are used, particles
    "greedy masking": ("masked", False, 1),
    "greedy masking, weighted": ("masked", True, 64),
    "Locore, the paper's sampler (lcr)": (LocallyConstrainedResampling(kernel=TopK(k=CANDIDATES)), True, 4),
    "Locore, default (auto)": ("auto", True, 1024),
    "Locore, without replacement (swor)": ("swor", True, 64),
}


def compare(model: LanguageModel, puzzle: Puzzle, truth: Truth, row: str, seed: int) -> Comparison:
    """Run the sampler of a row on one puzzle, and draw once from its particles."""
    sampler, weighted, num = SAMPLERS[row]
    start = time.perf_counter()
    found = locore.generate(
        model,
        request_to(model, puzzle.givens),
        locore.sudoku(puzzle.givens, puzzle.box),
        max_new_tokens=len(puzzle.givens),
        num_particles=num,
        sampler=sampler,
        seed=seed,
    )
    seconds = time.perf_counter() - start
    index = {grid: i for i, grid in enumerate(truth.grids)}
    if weighted:
        law = torch.zeros(len(index), dtype=torch.float64)
        for text, weight in found:
            law[index[text]] += weight
    else:
        found, law = found.unweighted(), truth.masked
    drawn = index[found.resample(1, seed=seed).texts[0]]
    uniform = torch.full_like(truth.posterior, 1 / len(index))
    return Comparison(
        distance=total_variation(law, truth.posterior),
        place=place_of(truth.posterior, drawn, seed),
        evidence_error=found.log_evidence - truth.log_evidence if weighted else None,
        uniform=total_variation(uniform, truth.posterior),
        lm_tokens=found.info["lm_tokens"],
        seconds=seconds,
    )


def _token_of(digit: str, model: LanguageModel) -> int:
    found = [i for i, content in enumerate(model.tokenizer.token_bytes) if content == digit.encode()]
    if len(found) != 1:
        raise InvalidArgument(f"{len(found)} tokens of this model spell {digit!r}; this comparison needs exactly one.")
    return found[0]


def total_variation(one: Tensor, other: Tensor) -> float:
    """Half the sum of absolute differences."""
    return float((one - other).abs().sum()) / 2


def place_of(law: Tensor, drawn: int, seed: int) -> float:
    """The randomised distribution function at a draw, outcomes in the order of their probability (Rosenblatt 1952).

    Uniform in 0..1 exactly if the draw is from the law, whatever the law; so draws from different laws can be tested together.
    """
    order = torch.argsort(law, stable=True)
    below = float(law[order[: int((order == drawn).nonzero())]].sum())
    return below + float(np.random.default_rng([seed, 1]).random()) * float(law[drawn])


def uniform_p_value(places: Sequence[float]) -> float:
    """How probable so large a distance from the uniform distribution is by chance (Kolmogorov and Smirnov, asymptotic)."""
    values, num = np.sort(places), len(places)
    above = np.arange(1, num + 1) / num - values
    distance = max(float(above.max()), float((1 / num - above).max()))
    scaled = (math.sqrt(num) + 0.12 + 0.11 / math.sqrt(num)) * distance  # Stephens 1970
    if scaled < 0.2:  # the series converges slowly there, and its value is 1 to ten digits
        return 1.0
    terms = [math.exp(-2 * (k * scaled) ** 2) * (1.0 if k % 2 else -1.0) for k in range(1, 101)]
    return min(1.0, max(0.0, 2 * sum(terms)))
