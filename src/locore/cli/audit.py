"""`locore audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import locore
from locore.cli.inputs import MODEL_HELP, parse_json, read_text, working, write_text
from locore.kernel.errors import InvalidArgument

ABOVE, NOT_SETTLED = 1, 3


def audit(
    prompts: Annotated[Path, typer.Option(help='One prompt a line, as JSON: "text" or {"prompt": …}.')],
    ban_list: Annotated[Path, typer.Option(help="One phrase a line, as it is written, spaces too.")],
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "tiny",
    max_tokens: Annotated[int, typer.Option(help="The horizon.")] = 20,
    limit: Annotated[float | None, typer.Option(help="Of the probability after each prompt.")] = None,
    budget: Annotated[int, typer.Option(help="LM tokens for each prompt.")] = 4_000,
    temperature: Annotated[float, typer.Option(help="Of the model.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Of the random numbers.")] = None,
    show_texts: Annotated[bool, typer.Option("--show-texts", help="Show offending texts.")] = False,
    as_json: Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write the audit as JSON.")] = None,
) -> None:
    """How probable it is that a model writes any of some phrases, after each of many prompts.

    Exit code 1 where a prompt is above the limit, 3 where that is not settled, 0 where all are below, or without a limit.
    """
    asked = [_prompt(line, number) for number, line in enumerate(_lines(prompts), 1)]
    options: dict[str, Any] = {"budget": budget, "temperature": temperature, "seed": seed}
    with working("auditing"):
        found = locore.audit(model, asked, _lines(ban_list), max_tokens, limit, show_texts, **options)
    print(found)
    if as_json is not None:
        write_text(as_json, json.dumps(found.to_json(), ensure_ascii=False, allow_nan=False))
    if found.settled in ("above", "not settled"):
        raise typer.Exit(ABOVE if found.settled == "above" else NOT_SETTLED)


def _lines(path: Path) -> list[str]:
    return [line for line in read_text(str(path)).split("\n") if line.strip()]


def _prompt(line: str, number: int) -> Any:
    read = parse_json(line, f"line {number} of the prompts", 'write "text" or {"prompt": "text"}')
    if isinstance(read, dict):
        if "prompt" not in read:
            raise InvalidArgument(f'line {number} of the prompts has no "prompt"; write {{"prompt": "text"}}.')
        return read["prompt"]
    return read
