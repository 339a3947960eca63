"""`locore reproduce sudoku`: the paper's second experiment."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from locore.errors import InvalidArgument, MissingExtra
from locore.io import Journal, Record, markdown_table, only_writer, write_report, write_whole
from locore.models import LanguageModel
from locore_lab.sudoku.conditional import FALSE_ALARM, Truth
from locore_lab.sudoku.figures import Panel, draw_marginals
from locore_lab.sudoku.methods import CANDIDATES, Effort
from locore_lab.sudoku.model import TRAINED, open_models
from locore_lab.sudoku.plan import QUICK, Puzzles, SudokuPlan, gather
from locore_lab.sudoku.puzzles import Puzzle
from locore_lab.sudoku.study import COLUMNS, HARD, MAIN, SEVERAL, SudokuStudy, check_names
from locore_lab.sudoku.text import SavedAnswers, prompt_of, request_to

MODELS = (TRAINED, "tiny")
DRAWS = 400  # of the model alone, for the marginals of the picture
SHOWN_SOLUTIONS = 12  # of the puzzle with several solutions in the picture, about


def run(
    output: Path,
    quick: bool = False,
    data: Path | None = None,
    seed: int = 0,
    models: Sequence[str] = (),
    answers: Mapping[str, Path] | None = None,
    puzzles: int | None = None,
    samples: int | None = None,
    costly: int | None = None,
    answer_tokens: int | None = None,
    measure: bool = True,
) -> dict[str, list[Record]]:
    """Ask for solutions in every way, and write `results.json`, `table.md`, `marginals.png` and `prompts.jsonl`.

    Args:
        output: folder of the results; a run that was killed goes on where it stopped.
        quick: grids of 4 × 4 and a model trained in seconds; every row and column, no data.
        data: folder of the CSV files, or of SATNet's tensors, that docs/reproduce.md names.
        seed: of the draws.
        models: "trained", or as `locore.load` takes them; "trained" and "tiny" by default.
        answers: name of a row → JSONL file of saved answers of a model that gives text only.
        puzzles: of each set, at most.
        samples: draws of "best of S samples".
        costly: puzzles of a set, at most, for the paper's sampler and for all models but "trained".
        answer_tokens: tokens of an answer without a constraint; by default one for each cell, and an end.
        measure: False: write the tables of what is in the folder.

    Returns:
        The rows of the three tables.

    Raises:
        InvalidArgument: a number below 1, a wrong file, or the folder holds results of other settings.
    """
    for name, number in {"puzzles": puzzles, "samples": samples, "costly": costly, "answer_tokens": answer_tokens}.items():
        if number is not None and number < 1:
            raise InvalidArgument(f"{name} must be at least 1, got {number}.")
    if quick and data is not None:
        raise InvalidArgument("--quick generates grids of 4 × 4 and reads no data; leave out one of the two.")
    plan = QUICK if quick else SudokuPlan()
    plan = replace(plan, puzzles=puzzles or plan.puzzles, samples=samples or plan.samples, costly=costly or plan.costly)
    with only_writer(output):
        asked = gather(plan, data)
        write_whole(output / "prompts.jsonl", _prompts(asked))  # for models that are asked elsewhere
        opened = open_models(tuple(models) or MODELS, plan.box, output, asked.split)
        texts = [SavedAnswers(name, path) for name, path in (answers or {}).items()]
        check_names(texts, opened)
        effort = Effort(samples=plan.samples, answer_tokens=answer_tokens)
        settings: Record = {"seed": seed, "plan": asdict(plan), "effort": asdict(effort), "puzzles": asked.digest()}
        settings |= {"models": {name: model.fingerprint() for name, model in opened.items()}}
        journal = Journal(output / "rows.jsonl", settings)
        study = SudokuStudy(journal, asked, opened, plan, effort, seed)
        if measure:
            study.run(texts)
        tables = study.tables()
        _write(output, tables, asked, plan, settings)
        if measure:
            _picture(output, asked, opened[next(iter(opened))], seed)
    return tables


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
