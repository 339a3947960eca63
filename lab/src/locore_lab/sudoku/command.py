"""Solutions of Sudoku puzzles, the paper's second experiment: with and without the rules as a constraint."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from locore.cli.inputs import MODEL_HELP
from locore.io import Journal, Record, only_writer, write_whole
from locore.kernel.errors import InvalidArgument, MissingExtra
from locore.models import LanguageModel
from locore_lab import shared
from locore_lab.harness import Data, Output, Quick, Seed, Some, experiment, markdown_table, option, write_report
from locore_lab.sudoku.conditional import FALSE_ALARM, Truth
from locore_lab.sudoku.dataset import QUICK, Puzzles, SudokuPlan, gather
from locore_lab.sudoku.methods import CANDIDATES, Effort, SavedAnswers, prompt_of, request_to
from locore_lab.sudoku.puzzles import OPEN, Puzzle
from locore_lab.sudoku.study import COLUMNS, HARD, MAIN, SEVERAL, SudokuStudy, check_names
from locore_lab.sudoku.train import TRAINED, open_models

MODELS = (TRAINED, "tiny")
DRAWS = 400  # of the model alone, for the marginals of the picture
SHOWN_SOLUTIONS = 12  # of the puzzle with several solutions in the picture, about


@experiment("locore reproduce sudoku --quick -o results")
def run(
    output: Output,
    quick: Quick = False,
    data: Data = None,
    seed: Seed = 0,
    models: Annotated[Some, option(f"trained, or: {MODEL_HELP}", "--model")] = None,
    answers: Annotated[Some, option("NAME=FILE: saved answers of a model that gives text only.")] = None,
    puzzles: Annotated[int | None, option("Puzzles of each set, at most.")] = None,
    samples: Annotated[int | None, option("Samples of which the best is taken.")] = None,
    costly: Annotated[int | None, option("Puzzles of a set for what is dear, at most.")] = None,
    answer_tokens: Annotated[int | None, option("Tokens of an answer without a constraint.")] = None,
    only_tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: write the tables of what is there.")] = False,
) -> dict[str, list[Record]]:
    """Solutions of Sudoku puzzles, written by a language model with and without the rules as a constraint."""
    for name, number in {"puzzles": puzzles, "samples": samples, "costly": costly, "answer_tokens": answer_tokens}.items():
        if number is not None and number < 1:
            raise InvalidArgument(f"{name} must be at least 1, got {number}.")
    if quick and data is not None:
        raise InvalidArgument("--quick generates grids of 4 × 4 and reads no data; leave out one of the two.")
    texts = [SavedAnswers(name, path) for name, path in _named_files(answers or ())]
    plan = QUICK if quick else SudokuPlan()
    plan = replace(plan, puzzles=puzzles or plan.puzzles, samples=samples or plan.samples, costly=costly or plan.costly)
    with only_writer(output):
        asked = gather(plan, data)
        write_whole(output / "prompts.jsonl", _prompts(asked))  # for models that are asked elsewhere
        opened = open_models(tuple(models or MODELS), plan.box, output, asked.split)
        check_names(texts, opened)
        effort = Effort(samples=plan.samples, answer_tokens=answer_tokens)
        settings: Record = {"seed": seed, "plan": asdict(plan), "effort": asdict(effort), "puzzles": asked.digest()}
        settings |= {"models": {name: model.fingerprint() for name, model in opened.items()}}
        journal = Journal(output / "rows.jsonl", settings)
        study = SudokuStudy(journal, asked, opened, plan, effort, seed)
        if not only_tables:
            study.run(texts)
        tables = study.tables()
        _write(output, tables, asked, plan, settings)
        if not only_tables:
            _picture(output, asked, opened[next(iter(opened))], seed)
    return tables


def _named_files(pairs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """From NAME=FILE."""
    names = [pair.partition("=")[0] for pair in pairs]
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path) or names.count(name) > 1:
            raise InvalidArgument(f"--answers takes NAME=FILE, with another NAME each time; got {pair!r}.")
        yield name, Path(path)


def _prompts(asked: Puzzles) -> str:
    """A line for each test puzzle: what a model that gives text only is to be asked."""
    puzzles = dict.fromkeys(p.givens for puzzles in asked.test.values() for p in puzzles)
    return "".join(json.dumps({"puzzle": givens, "prompt": prompt_of(givens)}) + "\n" for givens in puzzles)


def _write(output: Path, tables: dict[str, list[Record]], asked: Puzzles, plan: SudokuPlan, settings: Record) -> None:
    text = (
        f"One answer to each puzzle of {plan.box**2} × {plan.box**2} cells; the generated ones have {plan.blanks} open cells "
        "and one solution. Exact: the solution. Consistent: rows, columns and boxes obey the rules, and the givens stand. "
        f"Open cells: how many of them are right. Best of S: {plan.samples} samples, the first consistent one. The paper's "
        f"sampler looks at {CANDIDATES} candidates at each place; it runs on the first {plan.costly} puzzles of a set at most, "
        "and so do all rows of models that are not the small one trained for the task. Seconds (wall time, one thread, "
        "compiling included) and LM tokens are for one puzzle. With one solution the constraint alone decides, so every row "
        "that obeys it has 100 %; the model matters in the last table."
    )
    hard = f"## Hard puzzles\n\nEvery one has a single solution.\n\n{markdown_table(tables[HARD], COLUMNS[HARD])}"
    several = (
        "## Puzzles with several solutions\n\nDistance: total variation of the weighted particles (of masked decoding: of its "
        "law) from the model's own conditional p(y | α), known by listing all solutions, mean over puzzles; uniform: that of "
        "the uniform distribution, which knows no model. p-value: one draw for each puzzle, against that conditional "
        "(Kolmogorov and Smirnov on randomised distribution functions); a row differs if it is below "
        f"{FALSE_ALARM}, the false-alarm rate. log p(α) off: error of the estimate, in nats.\n\n"
        f"{markdown_table(tables[SEVERAL], COLUMNS[SEVERAL])}"
    )
    left_out = f"Not in the data folder, and so left out: {', '.join(asked.missing)}." if asked.missing else ""
    after = "\n\n".join(part for part in (hard, several, left_out) if part)
    facts = {"settings": settings, HARD: tables[HARD], SEVERAL: tables[SEVERAL]}
    write_report(output, "Sudoku: the solution of a puzzle", text, tables[MAIN], COLUMNS[MAIN], after=after, **facts)


def _picture(output: Path, asked: Puzzles, model: LanguageModel, seed: int) -> None:
    """Marginals before and after conditioning; without matplotlib a line that says so."""
    some = [p for puzzles in asked.several.values() for p in puzzles if p.solutions]
    shown = [asked.split["test"][0], *sorted(some, key=lambda p: abs((p.solutions or 0) - SHOWN_SOLUTIONS))[:1]]
    try:
        draw_marginals([_panels(model, puzzle, seed) for puzzle in shown], output / "marginals.png")
    except (MissingExtra, InvalidArgument) as error:
        print(f"no picture: {error}", file=sys.stderr)


def _panels(model: LanguageModel, puzzle: Puzzle, seed: int) -> list[Panel]:
    prompted = model.prompted(request_to(model, puzzle.givens))
    truth = Truth.of(prompted, puzzle)
    drafts = prompted.sample(DRAWS, len(puzzle.givens), torch.Generator().manual_seed(seed)).tokens
    before = (drafts[..., None] == truth.digits).double().mean(0)
    solutions = f"{len(truth.grids)} solutions" if len(truth.grids) > 1 else "one solution"
    return [
        Panel("the model alone\n", puzzle, before),
        Panel(f"given the rules: {solutions}\nlog p(α) = {truth.log_evidence:.1f}", puzzle, truth.marginals),
    ]


GIVEN, RIGHT, WRONG = "#222222", "#0072b2", "#d55e00"
FAINTEST, ALONE = 0.01, 0.99  # less probable digits are not drawn; one that is more probable stands for the cell
CELL_INCHES = 0.42


@dataclass(frozen=True, eq=False)
class Panel:
    """Marginals of one puzzle: f64[cells, digits], each cell's sum at most 1 (the rest is for what is no digit)."""

    title: str
    puzzle: Puzzle
    marginals: Tensor


def draw_marginals(rows: Sequence[Sequence[Panel]], path: Path) -> Path:
    """One grid for each panel: given cells in black, in each open cell every digit as large as it is probable.

    A digit that some solution of the panel's last column has in that cell is blue, any other orange.
    """
    pyplot = shared.pyplot()
    side = max(panel.puzzle.box for row in rows for panel in row) ** 2
    size = (len(rows[0]) * (side + 1) * CELL_INCHES, len(rows) * (side + 1.8) * CELL_INCHES)
    figure, axes = pyplot.subplots(len(rows), len(rows[0]), squeeze=False, figsize=size, layout="constrained")
    for row, line in zip(rows, axes, strict=True):
        possible = row[-1].marginals > 0
        for panel, axis in zip(row, line, strict=True):
            _draw(axis, panel, possible)
    figure.supxlabel("size: probability; blue: some solution has it, orange: none does", fontsize=8)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
    return path


def _draw(axis: Any, panel: Panel, possible: Tensor) -> None:
    box = panel.puzzle.box
    side = box * box
    axis.set(xlim=(0, side), ylim=(side, 0), aspect="equal", xticks=[], yticks=[])
    axis.set_title(panel.title, fontsize=9)
    for line in range(side + 1):
        width = 1.6 if line % box == 0 else 0.4
        axis.plot([line, line], [0, side], color=GIVEN, linewidth=width, clip_on=False)
        axis.plot([0, side], [line, line], color=GIVEN, linewidth=width, clip_on=False)
    for cell, given in enumerate(panel.puzzle.givens):
        row, column = divmod(cell, side)
        if given != OPEN:
            axis.text(column + 0.5, row + 0.53, given, ha="center", va="center", fontsize=11, color=GIVEN)
            continue
        axis.fill([column, column + 1, column + 1, column], [row, row, row + 1, row + 1], color="#f2f2f2", linewidth=0)
        for digit in range(side):
            probability = float(panel.marginals[cell, digit])
            if probability >= FAINTEST:
                x, y = _place(column, row, digit, box, probability)
                colour = RIGHT if possible[cell, digit] else WRONG
                axis.text(x, y, str(digit + 1), ha="center", va="center", fontsize=_size(probability), color=colour)


def _place(column: int, row: int, digit: int, box: int, probability: float) -> tuple[float, float]:
    """Each digit has a place of its own in the cell, as pencil marks do; one that is alone there stands in the middle."""
    if probability >= ALONE:
        return column + 0.5, row + 0.53
    down, right = divmod(digit, box)
    return column + 0.08 + 0.84 * (right + 0.5) / box, row + 0.11 + 0.84 * (down + 0.5) / box


def _size(probability: float) -> float:
    """In points; the area goes with the probability."""
    return 11.0 if probability >= ALONE else 2.5 + 7.5 * math.sqrt(probability)
