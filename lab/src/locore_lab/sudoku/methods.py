"""The rows of the table: ways to get one answer to a puzzle out of a model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import locore
from locore.constraints import Constraint
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, ZeroWeights
from locore.local import TopK
from locore.models import Counted, LanguageModel
from locore.samplers import LocallyConstrainedResampling, Sampler
from locore_lab.sudoku.puzzles import Puzzle, is_solved, keeps_givens, solutions
from locore_lab.sudoku.text import grid_in, request_to

MOST_SOLUTIONS = 1000  # that a vocabulary which joins digits may have to spell
CANDIDATES = 2  # of the paper's sampler at each position


@dataclass(frozen=True)
class Effort:
    """What a method may spend on a puzzle.

    Attributes:
        samples: draws of "best of".
        particles: of the constrained samplers.
        answer_tokens: tokens of an answer without a constraint; None for one for each cell, and an end.
    """

    samples: int = 8
    particles: int = 1
    answer_tokens: int | None = None


@dataclass(frozen=True)
class Completion:
    """What a method gives.

    Attributes:
        text: as it came; None if there was nothing to return.
        lm_tokens: next-token distributions asked for.
        seconds: of wall time, compiling included.
    """

    text: str | None
    lm_tokens: int
    seconds: float


Method = Callable[[LanguageModel, Puzzle, Effort, int], Completion]


def alone(model: LanguageModel, puzzle: Puzzle, effort: Effort, seed: int) -> Completion:
    """One draw from the model."""
    return _drawn(model, puzzle, effort, 1, seed)


def best_of(model: LanguageModel, puzzle: Puzzle, effort: Effort, seed: int) -> Completion:
    """Several draws from the model: the first that obeys the rules and the givens, else the most probable one."""
    return _drawn(model, puzzle, effort, effort.samples, seed)


def _drawn(model: LanguageModel, puzzle: Puzzle, effort: Effort, num: int, seed: int) -> Completion:
    start, counted = time.perf_counter(), Counted(model.prompted(request_to(model, puzzle.givens)))
    length = effort.answer_tokens or len(puzzle.givens) + 1
    drafts = counted.sample(num, length, torch.Generator().manual_seed(seed))
    texts = [model.tokenizer.decode(tokens) for tokens in drafts.tokens.tolist()]
    likeliest = texts[int(drafts.token_scores.sum(-1).argmax())]
    good = (text for text in texts if is_consistent(grid_in(text, puzzle.box), puzzle))
    return Completion(next(good, likeliest), counted.lm_tokens, time.perf_counter() - start)


def is_consistent(grid: str | None, puzzle: Puzzle) -> bool:
    """Does a grid obey the rules and keep the givens?"""
    return grid is not None and is_solved(grid, puzzle.box) and keeps_givens(grid, puzzle.givens)


def constrained(sampler: str | Sampler, weighted: bool = True) -> Method:
    """One draw from the particles of a sampler of the library; without weights it is what masking engines return."""

    def draw(model: LanguageModel, puzzle: Puzzle, effort: Effort, seed: int) -> Completion:
        start = time.perf_counter()
        alpha, length = answer_constraint(puzzle, model)
        try:
            found = locore.generate(
                model,
                request_to(model, puzzle.givens),
                alpha,
                max_new_tokens=length,
                num_particles=effort.particles,
                sampler=sampler,
                seed=seed,
                ending="complete",
            )
        except ZeroWeights:
            return Completion(None, 0, time.perf_counter() - start)
        chosen = (found if weighted else found.unweighted()).resample(1, seed=seed)
        return Completion(chosen.texts[0], found.info["lm_tokens"], time.perf_counter() - start)

    return draw


def answer_constraint(puzzle: Puzzle, model: LanguageModel) -> tuple[Constraint, int]:
    """What the answer must satisfy, and the horizon in tokens.

    A vocabulary that spells each digit by a token of its own, and no two digits by one token, gets `locore.sudoku`. One that
    joins digits would be kept from its own way of writing by that; it gets the text constraint "one of all solutions", which
    holds for every tokenisation.
    """
    length = len(puzzle.givens)
    if not joins_digits(model):
        return locore.sudoku(puzzle.givens, puzzle.box), length
    found = [text for text, _ in zip(solutions(puzzle.givens), range(MOST_SOLUTIONS + 1), strict=False)]
    if len(found) > MOST_SOLUTIONS:
        raise BudgetExceeded(
            f"this model's tokens join digits, so its constraint is the list of all solutions, and the puzzle {puzzle.givens} "
            f"has more than {MOST_SOLUTIONS:,}; use a puzzle with more givens, or a model with a token for each digit."
        )
    if not found:
        raise InvalidConstraint(f"the puzzle {puzzle.givens} has no solution.")
    return locore.choice(found), length


def joins_digits(model: LanguageModel) -> bool:
    """Does one token spell two digits or more?"""
    return any(re.fullmatch(rb"[0-9]{2,}", token or b"") for token in model.tokenizer.token_bytes)


METHODS: dict[str, Method] = {
    "model alone": alone,
    "best of S samples": best_of,
    "greedy masking": constrained("masked", weighted=False),
    "Locore, the paper's sampler (lcr)": constrained(LocallyConstrainedResampling(kernel=TopK(k=CANDIDATES))),
    "Locore, default (auto)": constrained("auto"),
    "Locore, without replacement (swor)": constrained("swor"),
}
