"""Three tables: the paper's, hard puzzles, and puzzles with several solutions; rows are kept in a journal as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from statistics import mean

from locore.io import Journal, Key, Record
from locore.kernel.errors import InvalidArgument
from locore.models import LanguageModel
from locore_lab.shared import seed_of, shown
from locore_lab.sudoku.conditional import FALSE_ALARM, SAMPLERS, Truth, compare, uniform_p_value
from locore_lab.sudoku.dataset import Puzzles, Sets, SudokuPlan
from locore_lab.sudoku.methods import METHODS, Completion, Effort, SavedAnswers, cells_right, grid_in, is_consistent, request_to
from locore_lab.sudoku.puzzles import Puzzle
from locore_lab.sudoku.train import TRAINED

MAIN, HARD, SEVERAL = "test", "hard", "several"
COSTLY = "Locore, the paper's sampler (lcr)"
HARD_METHODS = ("model alone", "Locore, default (auto)")
PUBLISHED = {
    ("Gemini 1.5 Flash", "API, text only"): 26.20,
    ("GPT-4o mini", "API, text only"): 44.90,
    ("Llama3-8B", COSTLY): 100.00,
}
NAMES = ["puzzles of", "model", "row", "puzzles"]
COLUMNS = {
    MAIN: [*NAMES, "exact %", "consistent %", "open cells %", "seconds", "LM tokens", "paper: exact"],
    HARD: [*NAMES, "open cells", "exact %", "consistent %", "seconds", "slowest", "LM tokens"],
    SEVERAL: [*NAMES, "distance", "uniform", "p-value", "log p(α) off", "seconds", "LM tokens"],
}


class SudokuStudy:
    """Fills a journal, and reads the tables from it."""

    def __init__(
        self,
        journal: Journal,
        puzzles: Puzzles,
        models: Mapping[str, LanguageModel],
        plan: SudokuPlan,
        effort: Effort,
        seed: int,
    ) -> None:
        self.journal, self.puzzles, self.models = journal, puzzles, models
        self.plan, self.effort, self.seed = plan, effort, seed

    def run(self, text_models: Iterable[SavedAnswers]) -> None:
        """All that is not in the journal yet."""
        text_models = list(text_models)
        self._fill(self._answer_keys(MAIN, self.puzzles.test, METHODS), self._answer)
        self._fill(self._text_keys(text_models), lambda key: self._text_answer(key, text_models))
        self._fill(self._answer_keys(HARD, self.puzzles.hard, HARD_METHODS), self._answer)
        self._fill(self._several_keys(), self._several)

    def tables(self) -> dict[str, list[Record]]:
        """The rows of the three tables, of what is in the journal."""
        return {MAIN: [*self._published(), *self._rows(MAIN)], HARD: self._rows(HARD), SEVERAL: self._rows(SEVERAL)}

    def _answer_keys(self, table: str, sets: Sets, methods: Iterable[str]) -> list[Key]:
        keys: list[Key] = []
        for name, puzzles in sets.items():
            for model in self.models:
                for method in methods:
                    num = self._limit(model, method, len(puzzles))
                    keys += [(table, name, model, method, i) for i in range(num)]
        return keys

    def _text_keys(self, text_models: Iterable[SavedAnswers]) -> list[Key]:
        puzzles = self.puzzles.test
        return [
            (MAIN, name, model.name, "API, text only", i)
            for model in text_models
            for name in puzzles
            for i in range(len(puzzles[name]))
        ]

    def _several_keys(self) -> list[Key]:
        return [
            (SEVERAL, name, model, row, i)
            for name, puzzles in self.puzzles.several.items()
            for model in self.models
            for row in SAMPLERS
            for i in range(self._limit(model, row, len(puzzles)))
        ]

    def _limit(self, model: str, row: str, num: int) -> int:
        """The first so many of a set: all, where an answer is cheap."""
        return num if model == TRAINED and row != COSTLY else min(num, self.plan.costly)

    def _fill(self, keys: list[Key], measure: Callable[[Key], Record]) -> None:
        todo = [key for key in keys if key not in self.journal]
        for key in shown(todo, f"sudoku, {keys[0][0]}" if keys else ""):
            self.journal.append(key, measure(key))

    def _puzzle(self, key: Key) -> Puzzle:
        sets = {MAIN: self.puzzles.test, HARD: self.puzzles.hard, SEVERAL: self.puzzles.several}[str(key[0])]
        return sets[str(key[1])][int(key[4])]

    def _answer(self, key: Key) -> Record:
        puzzle, model = self._puzzle(key), self.models[str(key[2])]
        return graded(METHODS[str(key[3])](model, puzzle, self.effort, seed_of(self.seed, *key)), puzzle)

    def _text_answer(self, key: Key, text_models: list[SavedAnswers]) -> Record:
        puzzle = self._puzzle(key)
        model = next(model for model in text_models if model.name == key[2])
        return graded(Completion(model.answer(puzzle.givens), 0, 0.0), puzzle) | {"seconds": None, "lm_tokens": None}

    def _several(self, key: Key) -> Record:
        puzzle, model = self._puzzle(key), self.models[str(key[2])]
        truth = Truth.of(model.prompted(request_to(model, puzzle.givens)), puzzle)
        return asdict(compare(model, puzzle, truth, str(key[3]), seed_of(self.seed, *key)))

    def _rows(self, table: str) -> list[Record]:
        """A row for each set, model and method that the journal knows of."""
        groups: dict[Key, list[Record]] = {}
        opened: dict[Key, list[int]] = {}
        for key, record in self.journal.items():
            if key[0] == table:
                groups.setdefault(key[1:4], []).append(record)
                opened.setdefault(key[1:4], []).append(self._puzzle(key).open)
        rows = []
        for (name, model, method), records in groups.items():
            row: Record = {"puzzles of": name, "model": model, "row": method, "puzzles": len(records)}
            row |= _compared(records) if table == SEVERAL else _answered(records)
            seconds = [r["seconds"] for r in records if r["seconds"] is not None]
            row |= {"open cells": _range(opened[name, model, method])}
            if seconds:
                row |= {"seconds": mean(seconds), "slowest": max(seconds)}
                row["LM tokens"] = round(mean(r["lm_tokens"] for r in records))
            rows.append(row)
        return rows

    def _published(self) -> list[Record]:
        """What the paper reports, for comparison."""
        return [
            {"puzzles of": "paper", "model": model, "row": row, "puzzles": 1000, "paper: exact": exact}
            for (model, row), exact in PUBLISHED.items()
        ]


def graded(answer: Completion, puzzle: Puzzle) -> Record:
    """An answer as it came, and what is right about it."""
    grid = grid_in(answer.text or "", puzzle.box)
    return {
        "text": answer.text,
        "exact": grid == puzzle.solution,
        "consistent": is_consistent(grid, puzzle),
        "cells": cells_right(grid, puzzle.givens, puzzle.solution),
        "seconds": round(answer.seconds, 4),
        "lm_tokens": answer.lm_tokens,
    }


def _answered(records: list[Record]) -> Record:
    return {
        "exact %": 100.0 * mean(r["exact"] for r in records),
        "consistent %": 100.0 * mean(r["consistent"] for r in records),
        "open cells %": 100 * mean(r["cells"] for r in records),
        "no answer": sum(r["text"] is None for r in records),
    }


def _compared(records: list[Record]) -> Record:
    p_value = uniform_p_value([r["place"] for r in records])
    off = [abs(r["evidence_error"]) for r in records if r["evidence_error"] is not None]
    return {
        "distance": mean(r["distance"] for r in records),
        "largest distance": max(r["distance"] for r in records),
        "uniform": mean(r["uniform"] for r in records),
        "p-value": p_value,
        "differs": p_value < FALSE_ALARM,
        "log p(α) off": mean(off) if off else None,
    }


def _range(numbers: list[int]) -> str:
    return f"{min(numbers)}–{max(numbers)}" if min(numbers) < max(numbers) else str(numbers[0])


def check_names(text_models: Iterable[SavedAnswers], models: Mapping[str, LanguageModel]) -> None:
    """`InvalidArgument` where two rows would have one name."""
    taken = set(models)
    for model in text_models:
        if model.name in taken:
            raise InvalidArgument(f"two models are called {model.name!r}; give the answers another name.")
        taken.add(model.name)
