"""`locore bench`: the benchmarks that ship with Locore."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(help="Measure Locore.", no_args_is_help=True, rich_markup_mode=None)


@bench.callback()
def _group() -> None:
    """Measure Locore."""


@bench.command()
def fidelity(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.json and table.md; a killed run goes on.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few runs on models that need no data, in a few minutes.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of models that the package does not have.")] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Only these problems.")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help="Only these samplers.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs in every cell.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything.")] = 0,
) -> None:
    """Who samples from p(y | constraint), at what price: distance from the truth against LM tokens."""
    # By name: the benchmarks stand above the shell, and nothing else should pay for loading them.
    command = import_module("locore.bench.fidelity.command")
    command.run(output, quick, None, problem or None, sampler or None, runs, seed, models=data)
    print((output / "table.md").read_text())
