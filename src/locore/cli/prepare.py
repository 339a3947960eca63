"""`locore prepare`."""

from __future__ import annotations

from typing import Annotated

import typer

import locore
from locore.cli.inputs import MODEL_HELP
from locore.cli.progress import Progress


def prepare(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)] = "tiny",
) -> None:
    """Make the n-gram table of a model, once; the samplers "auto" and "twisted" are much more exact with it."""
    with Progress("LM tokens") as bar:
        prepared = locore.prepare(locore.load(model), progress=lambda done, all_: bar.show(done, 0, all_))
    table = prepared.table
    print(f"{table.num_contexts:,} contexts, {len(table.tokens):,} entries in {prepared.path}")
    if prepared.lm_tokens:
        print(f"made from {prepared.lm_tokens:,} LM tokens in {prepared.seconds:.1f} s")
    else:
        print("it was there already")
