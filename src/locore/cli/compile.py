"""`locore compile`."""

from __future__ import annotations

import math
import sys
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

import locore
from locore.cli.inputs import MODEL_HELP, LimitList, parse_json, read_constraint, read_limits, write_atomically
from locore.cli.show import working
from locore.errors import InvalidArgument

if TYPE_CHECKING:
    from locore.compilers.stored import Compiled
    from locore.tokenizer import Tokenizer

LONG_DIGITS = 12


def compile(
    constraint: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What to compile; @- reads stdin.")],
    length: Annotated[int, typer.Option(help="Number of tokens.")],
    model: Annotated[str | None, typer.Option(help=f"Whose tokens: {MODEL_HELP}")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Instead of a model: so many bare token ids.")] = None,
    min_length: Annotated[int, typer.Option(help="The text has at least so many tokens.")] = 0,
    vtree: Annotated[str | None, typer.Option(metavar="JSON", help="Nested pairs of positions, as [[0, 1], [2, 3]].")] = None,
    cache: Annotated[bool, typer.Option(help="Look for a kept circuit, and keep this one if it took long.")] = True,
    limit: LimitList = None,
    dot: Annotated[str | None, typer.Option(metavar="FILE|-", help="Write a Graphviz drawing; - prints it.")] = None,
) -> None:
    """Compile a constraint to a circuit and print its size."""
    parsed = read_constraint(constraint)
    pairs = None if vtree is None else parse_json(vtree, "option --vtree", "write nested pairs such as [[0, 1], [2, 3]]")
    limits = read_limits(limit or [])
    tokenizer = _tokenizer(model, vocab_size)
    from locore.compilers.compile import compile_and_tell  # importing it takes seconds, which are not those of the compiler

    start = time.perf_counter()
    with working("compiling"):
        compiled = compile_and_tell(
            parsed, tokenizer, length, min_length=min_length, vtree=pairs, use_cache=cache, limits=limits
        )
    seconds = time.perf_counter() - start
    if dot is not None:
        from locore.circuits.draw import to_dot

        write_atomically(dot, to_dot(compiled.circuit, tokenizer))
    _show(compiled, seconds, err=dot == "-")


def _tokenizer(model: str | None, vocab_size: int | None) -> Tokenizer:
    if (model is None) == (vocab_size is None):
        raise InvalidArgument("give either --model or --vocab-size: a circuit is compiled for one vocabulary.")
    if model is not None:
        return locore.load(model).tokenizer
    return locore.Tokenizer.integers(vocab_size or 0)


def _show(compiled: Compiled, seconds: float, err: bool) -> None:
    circuit = compiled.circuit
    rows = {
        "classes": f"{circuit.num_classes:,} of {circuit.vocab_size:,} tokens",
        "nodes": f"{circuit.num_nodes:,}",
        "edges": f"{circuit.num_edges:,}",
        "models": _count(circuit.count()) + (" of a relaxation, at most so many of the constraint" if circuit.relaxed else ""),
        "structured": "yes" if circuit.structured else "no",
        "seconds": f"{seconds:.3f}",
        "origin": "compiled" if compiled.origin == "compiled" else f"cache ({compiled.origin})",
    }
    for name, value in rows.items():
        print(f"{name:10}  {value}", file=sys.stderr if err else sys.stdout)


def _count(number: int) -> str:
    """All digits, and the order of magnitude where they are many. Decimal writes any number of digits, str does not."""
    digits = str(Decimal(number))
    return digits if len(digits) <= LONG_DIGITS else f"{digits} (≈ 10^{math.log10(number):.1f})"
