"""`locore reproduce`: the experiments of the paper."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from locore.cli.inputs import MODEL_HELP
from locore.errors import InvalidArgument

reproduce = typer.Typer(help="Run an experiment of the paper.", no_args_is_help=True, rich_markup_mode=None)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of results.json and table.md; a killed run goes on.")]
Quick = Annotated[bool, typer.Option("--quick", help="Every row and column at toy size, in a few minutes, without data.")]
Data = Annotated[Path | None, typer.Option(help="Folder of the real data; docs/reproduce.md says what it holds.")]
Seed = Annotated[int, typer.Option(help="Of everything.")]


@reproduce.callback()
def _group() -> None:
    """Run an experiment of the paper."""


def _run(name: str, output: Path, quick: bool, data: Path | None, seed: int, **options: object) -> None:
    # By name: the experiments stand above the shell, and nothing else should pay for loading them.
    command = import_module(f"locore_lab.{name}.command")
    command.run(output, quick=quick, data=data, seed=seed, **options)
    print((output / "table.md").read_text())


@reproduce.command(name="all", epilog="Example: locore reproduce all --quick -o results")
def everything(output: Output, quick: Quick = False, seed: Seed = 0) -> None:
    """Every experiment at toy size, and each row of the paper's tables beside what was measured: checklist.md."""
    if not quick:
        raise InvalidArgument("all of them run at toy size only: give --quick, or run them one by one, with their data.")
    found = import_module("locore_lab.paper_checklist").run_all(output, seed)
    print(found.text)
    if found.failed:
        raise typer.Exit(1)


@reproduce.command(epilog="Example: locore reproduce warcraft --quick -o results")
def warcraft(
    output: Output,
    quick: Quick = False,
    data: Data = None,
    seed: Seed = 0,
    encoding: Annotated[str, typer.Option(help="How a path is written: edges, as the authors do, or moves.")] = "edges",
    weights: Annotated[list[Path] | None, typer.Option(help="Trained models, one for each training seed.")] = None,
    maps: Annotated[int | None, typer.Option(help="Test maps.")] = None,
    samples: Annotated[list[int] | None, typer.Option(help="Drafts, pairs or particles for each path; several times.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Only these rows, such as lcr; may be given several times.")] = None,
) -> None:
    """Minimum-cost paths on terrain maps, from pictures: a CNN-LSTM with and without the constraint "a simple path"."""
    options = {"weights": weights or [], "maps": maps, "samples": samples or [], "rows": row or []}
    _run("warcraft", output, quick, data, seed, encoding=encoding, **options)


@reproduce.command(epilog="Example: locore reproduce sudoku --quick -o results")
def sudoku(
    output: Output,
    quick: Quick = False,
    data: Data = None,
    seed: Seed = 0,
    model: Annotated[list[str] | None, typer.Option(help=f"trained, or: {MODEL_HELP}")] = None,
    answers: Annotated[list[str] | None, typer.Option(help="NAME=FILE: saved answers of a model that gives text only.")] = None,
    puzzles: Annotated[int | None, typer.Option(help="Puzzles of each set, at most.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of which the best is taken.")] = None,
    costly: Annotated[int | None, typer.Option(help="Puzzles of a set for what is dear, at most.")] = None,
    answer_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer without a constraint.")] = None,
    tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: write the tables of what is there.")] = False,
) -> None:
    """Solutions of Sudoku puzzles, written by a language model with and without the rules as a constraint."""
    _run(
        "sudoku",
        output,
        quick,
        data,
        seed,
        models=model or [],
        answers=_named_files(answers or []),
        puzzles=puzzles,
        samples=samples,
        costly=costly,
        answer_tokens=answer_tokens,
        measure=not tables,
    )


@reproduce.command(epilog="Example: locore reproduce overview -o results")
def overview(output: Output, quick: Quick = False, seed: Seed = 0) -> None:
    """The paper's Figure 1 from a run of the bundled model; entropy and divergence of the local distribution."""
    _run("overview", output, quick, None, seed)


@reproduce.command(epilog="Example: locore reproduce detox --quick -o results")
def detox(
    output: Output,
    quick: Quick = False,
    data: Data = None,
    seed: Seed = 0,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "tiny",
    judge: Annotated[str | None, typer.Option(help="Another model, for perplexity; a small bundled one if not given.")] = None,
    scorer: Annotated[str, typer.Option(help="local, perspective, detoxify, or MODEL:LABEL of a text classifier.")] = "local",
    device: Annotated[str, typer.Option(help="Where models compute.")] = "cpu",
    prompts: Annotated[int | None, typer.Option(help="Prompts, at most.")] = None,
    generations: Annotated[int | None, typer.Option(help="Generations of each prompt by the cheap rows.")] = None,
    costly: Annotated[int | None, typer.Option(help="Prompts of the table that has every row, at most.")] = None,
    tuning: Annotated[int | None, typer.Option(help="Other prompts, on which the paper's τ is chosen, at most.")] = None,
    tau: Annotated[float | None, typer.Option(help="The paper's τ, instead of choosing it.")] = None,
    words: Annotated[bool, typer.Option(help="Ban whole words only, instead of phrases anywhere.")] = False,
    paired: Annotated[
        bool, typer.Option(help="All rows draw with the same seeds; much less to read for a large model.")
    ] = False,
    row: Annotated[list[str] | None, typer.Option(help="Only these rows, such as swor; may be given several times.")] = None,
) -> None:
    """Continuations without banned phrases, their toxicity and perplexity, with and without the constraint."""
    numbers = {"prompts": prompts, "generations": generations, "costly": costly, "tuning": tuning, "tau": tau}
    named = {"model": model, "judge": judge, "scorer": scorer, "device": device}
    _run("detox", output, quick, data, seed, **numbers, **named, words=words, paired=paired, rows=row or [])


def _named_files(pairs: list[str]) -> dict[str, Path]:
    """From NAME=FILE."""
    found: dict[str, Path] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path) or name in found:
            raise InvalidArgument(f"--answers takes NAME=FILE, with another NAME each time; got {pair!r}.")
        found[name] = Path(path)
    return found
