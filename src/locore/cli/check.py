"""`locore check`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

import locore
from locore.cli.inputs import read_constraint, read_text
from locore.errors import InvalidArgument

if TYPE_CHECKING:
    from locore.constraints import Constraint
    from locore.tokenizer import Tokenizer

WIDTH = 72  # characters of a part of the constraint


def check(
    constraint: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What the text should satisfy.")],
    text: Annotated[str, typer.Option(metavar="TEXT|-", help="The finished text; - reads stdin, nothing is stripped.")],
    model: Annotated[str | None, typer.Option(help="Whose tokens to use; needed for constraints on token ids only.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what was found in the text, and where.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Does a finished text satisfy a constraint? Exit code 0 if it does, 1 if not."""
    parsed = read_constraint(constraint)
    content = read_text("-") if text == "-" else text
    tokenizer = _bytes_tokenizer(parsed) if model is None else locore.load(model).tokenizer
    if explain or as_json:
        explanation = locore.explain(parsed, content, tokenizer)
        satisfied = explanation.holds
        print(json.dumps(explanation.to_json(), ensure_ascii=False) if as_json else explanation)
    else:
        satisfied = locore.holds(parsed, content, tokenizer)
        _show(parsed, content, tokenizer, satisfied)
    if satisfied:
        return
    if content.endswith("\n") and locore.holds(parsed, content.removesuffix("\n"), tokenizer):
        print("note: the text ends with a line break; without it the constraint holds.", file=sys.stderr)
    raise typer.Exit(1)


def _show(parsed: Constraint, content: str, tokenizer: Tokenizer, satisfied: bool) -> None:
    """The answer, and that of each part."""
    print("yes" if satisfied else "no")
    for part in parsed.children():
        answer = "yes" if locore.holds(part, content, tokenizer) else "no"
        print(f"  {answer:3}  {_shortened(part)}")


def _bytes_tokenizer(constraint: Constraint) -> Tokenizer:
    """One token for each byte: constraints on the text mean the same for every tokenizer that can spell it."""
    if not all(leaf.is_text or leaf.to_json()["type"] in ("true", "false") for leaf in constraint.leaves()):
        raise InvalidArgument("the constraint speaks about token ids; add --model to say whose tokens they are.")
    return locore.Tokenizer.from_tokens([*(bytes([byte]) for byte in range(256)), None], eos_ids=[256])


def _shortened(part: Constraint) -> str:
    written = json.dumps(part.to_json(), ensure_ascii=False)
    return written if len(written) <= WIDTH else written[: WIDTH - 1] + "…"
