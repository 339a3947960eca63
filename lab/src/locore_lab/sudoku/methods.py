"""The rows of the table: ways to get one answer to a puzzle out of a model, and the text around a puzzle."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import locore
from locore.constraints import Constraint
from locore.kernel.chat import Prompt
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint, ZeroWeights
from locore.local import TopK
from locore.models import Counted, LanguageModel
from locore.samplers import LocallyConstrainedResampling, Sampler
from locore_lab.shared import lines_of, reading
from locore_lab.sudoku.puzzles import OPEN, Puzzle, is_solved, keeps_givens, solutions

REQUEST = "Give me the solution of the following Sudoku without any extra text or quotes\n"  # the paper's, and a line end
_DECORATION = re.compile(r"[\s|,;:'\"`\[\](){}*_+=<>/\\.\-–—│┃║─━═┌┐└┘├┤┬┴┼╔╗╚╝╠╣╦╩╬]+")


def prompt_of(givens: str) -> str:
    """The request, the puzzle in one line (`.` for an open cell), and a line end; the answer follows."""
    return f"{REQUEST}{givens}\n"


def request_to(model: LanguageModel, givens: str) -> Prompt:
    """What a model is asked: by its chat template if it has one, otherwise as the text `prompt_of`."""
    if model.tokenizer.chat_fingerprint() is None:
        return prompt_of(givens)
    return [{"role": "user", "content": prompt_of(givens).rstrip()}]


def grid_in(answer: str, box: int) -> str | None:
    """The filled grid that an answer of free text contains, the last one if there are several; None if there is none.

    The paper removes "any extraneous text" from answers and does not say how. Here a grid is a line with a digit for each
    cell, or as many lines after each other as the grid has rows, each with a digit for each column. Blanks, commas, brackets,
    quotes and the lines of drawn boxes between digits do not count, nor do lines that hold nothing else. Other words are
    skipped, so "Here is the 9x9 solution:" does no harm.
    """
    side = box * box
    digits = "123456789"[:side]
    grids: list[str] = []
    rows: list[str] = []
    for line in [*answer.splitlines(), "end"]:
        content = _DECORATION.sub("", line)
        if content and not content.strip(digits) and len(content) == side:
            rows.append(content)
        elif content:
            # A repeated puzzle may end in full rows that the solution follows directly.
            grids += ["".join(rows[-side:])] if len(rows) >= side else []
            grids += [content] if len(content) == side * side and not content.strip(digits) else []
            rows = []
    return grids[-1] if grids else None


class SavedAnswers:
    """Answers that were collected elsewhere: a JSONL file with an object `{"puzzle": "53..7…", "answer": "…"}` in each line.

    Nothing is asked over a network here: whoever has a key asks for `prompt_of(puzzle)` and saves what comes back.
    """

    def __init__(self, name: str, path: Path) -> None:
        """Read them."""
        self.name, self._path = name, path
        self._answers: dict[str, str] = {}
        with reading(path):
            for number, line in enumerate(lines_of(path), 1):
                with reading(f"line {number}"):
                    record = json.loads(line)
                    puzzle, answer = "".join(record["puzzle"].split()).replace("0", OPEN), record["answer"]
                    if puzzle in self._answers or not isinstance(answer, str):
                        raise InvalidArgument(f"the puzzle {puzzle} has an answer already, or one that is no text.")
                    self._answers[puzzle] = answer

    def answer(self, givens: str) -> str:
        """The saved answer; `InvalidArgument` if there is none, so that part of the puzzles never pass for all."""
        if givens not in self._answers:
            raise InvalidArgument(f"{self._path} has no answer for the puzzle {givens}; every test puzzle needs one.")
        return self._answers[givens]


def cells_right(grid: str | None, givens: str, solution: str) -> float:
    """Share of the open cells that hold the digit of the solution."""
    cells = [c for c, given in enumerate(givens) if given == OPEN]
    if grid is None or not cells:
        return 0.0
    return sum(grid[c] == solution[c] for c in cells) / len(cells)


MOST_SOLUTIONS = 1000  # that a vocabulary which joins digits may have to spell
CANDIDATES = 2  # of the paper's sampler at each position


@dataclass(frozen=True)
class Effort:
    """What a method may spend on a puzzle."""

    samples: int = 8  # draws of "best of"
    particles: int = 1  # of the constrained samplers
    answer_tokens: int | None = None  # tokens of an answer without a constraint; None for one for each cell, and an end


@dataclass(frozen=True)
class Completion:
    """What a method gives."""

    text: str | None  # as it came; None if there was nothing to return
    lm_tokens: int  # next-token distributions asked for
    seconds: float  # of wall time, compiling included


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
