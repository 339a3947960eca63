"""Text around a puzzle: the paper's prompt, answers without their extraneous text, and models that give text only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from locore.kernel.chat import Prompt
from locore.kernel.errors import InvalidArgument
from locore.models import LanguageModel
from locore_lab.sudoku.puzzles import OPEN

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


class TextModel(Protocol):
    """A model that gives text and no probabilities, such as one behind an API."""

    @property
    def name(self) -> str:
        """What its row is called."""

    def answer(self, givens: str) -> str:
        """Its answer to `prompt_of(givens)`, as it came."""


class SavedAnswers:
    """Answers that were collected elsewhere: a JSONL file with an object `{"puzzle": "53..7…", "answer": "…"}` in each line.

    Nothing is asked over a network here: whoever has a key asks for `prompt_of(puzzle)` and saves what comes back.
    """

    def __init__(self, name: str, path: Path) -> None:
        """Read them."""
        self._name = name
        self._path = path
        self._answers: dict[str, str] = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{path} cannot be read: {error}") from None
        for number, line in enumerate(lines, 1):
            puzzle, answer = _pair(line, f"{path}, line {number}")
            if puzzle in self._answers:
                raise InvalidArgument(f"{path}, line {number}: the puzzle {puzzle} has an answer already.")
            self._answers[puzzle] = answer

    @property
    def name(self) -> str:
        """What its row is called."""
        return self._name

    def answer(self, givens: str) -> str:
        """The saved answer; `InvalidArgument` if there is none, so that part of the puzzles never pass for all."""
        if givens not in self._answers:
            raise InvalidArgument(f"{self._path} has no answer for the puzzle {givens}; every test puzzle needs one.")
        return self._answers[givens]


def _pair(line: str, where: str) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{where} is no JSON: {error}") from None
    if not isinstance(record, Mapping) or not all(isinstance(record.get(key), str) for key in ("puzzle", "answer")):
        raise InvalidArgument(f'{where} must be an object with the texts "puzzle" and "answer".')
    return "".join(record["puzzle"].split()).replace("0", OPEN), record["answer"]


def cells_right(grid: str | None, givens: str, solution: str) -> float:
    """Share of the open cells that hold the digit of the solution."""
    cells = [c for c, given in enumerate(givens) if given == OPEN]
    if grid is None or not cells:
        return 0.0
    return sum(grid[c] == solution[c] for c in cells) / len(cells)
