"""Solutions of Sudoku puzzles, the paper's second experiment: with and without the rules as a constraint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from locore.cli.inputs import MODEL_HELP
from locore.io import Journal, Record, only_writer, write_whole
from locore.kernel.errors import InvalidArgument
from locore_lab.harness import Data, Output, Quick, Seed, Some, experiment, markdown_table, option, write_report
from locore_lab.sudoku.conditional import FALSE_ALARM
from locore_lab.sudoku.dataset import QUICK, Puzzles, SudokuPlan, gather
from locore_lab.sudoku.methods import CANDIDATES, Effort, SavedAnswers, prompt_of
from locore_lab.sudoku.study import COLUMNS, HARD, MAIN, SEVERAL, SudokuStudy, check_names
from locore_lab.sudoku.train import TRAINED, open_models

MODELS = (TRAINED, "tiny")


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
