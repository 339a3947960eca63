"""Sudoku: one token for each cell, and every symbol once in each row, column and box."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from locore.constraints.base import Constraint, Json
from locore.constraints.combinatorial.comparisons import AllDifferent
from locore.constraints.combinatorial.grid import (
    SYMBOLS,
    Shape,
    clashes,
    read_grid,
    shape_of,
    symbol_of,
    written,
)
from locore.constraints.combinatorial.leaf import Combinatorial, Groups, lowered_parts
from locore.constraints.leaves import Literal
from locore.constraints.sequence import TokenizerLike, TokenSequence
from locore.constraints.serial import described, register
from locore.errors import InvalidConstraint


def sudoku(givens: str | Sequence[Any], box: int | tuple[int, int] = 3) -> Sudoku:
    """Position i holds the symbol of cell i of a solution, row by row; after the last cell the text ends.

    Symbols are 1–9, then letters A, B, …; a symbol is any token that spells exactly that. In a vocabulary of bare ids, id v is
    the symbol v + 1.

    Args:
        givens: a string with a character for each cell (`.` or 0: open; white space is ignored), or a list of rows.
        box: 3 for the usual grid of 9 × 9; (2, 3) for boxes of two rows and three columns in a grid of 6 × 6; and so on.

    Raises:
        InvalidConstraint: a grid of another shape, an unknown symbol, or givens that contradict each other.
    """
    shape = shape_of(box)
    return Sudoku(read_grid(givens, shape), (shape.rows, shape.columns))


@dataclass(frozen=True, eq=False)
class Sudoku(Combinatorial):
    """The tokens are the cells of a solution.

    Attributes:
        givens: the value of each cell, 0 where it is open.
        box: rows and columns of a box.
        length: of the sequences, once it is known.
        symbols: ids of each symbol, once the tokenizer is known.
        ends: ids that end the text, likewise.
    """

    givens: tuple[int, ...]
    box: tuple[int, int]
    length: int | None = None
    symbols: Groups = ()
    ends: frozenset[int] = frozenset()

    @property
    def shape(self) -> Shape:
        """Of the grid."""
        return Shape(*self.box)

    def leaf_at(self, length: int) -> Constraint:
        """Itself at a length."""
        return replace(self, length=length)

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """Itself with the ids of the symbols; `InvalidConstraint` when a symbol has none."""
        return replace(self, symbols=_symbols(self.shape.side, tokenizer), ends=frozenset(tokenizer.eos_ids))

    def named_ids(self) -> Iterable[int]:
        """The ids of the symbols."""
        return frozenset().union(*self.symbols)

    def parts(self) -> tuple[Constraint, ...]:
        """A symbol for each cell, the given one where there is one; all different in each unit; then the end."""
        if self.length is None or not self.symbols:
            raise InvalidConstraint("sudoku must be at a length and bound to a tokenizer before it is compiled")
        self._check_length(self.length)
        any_symbol = frozenset().union(*self.symbols)
        cells = [Literal(i, self.symbols[value - 1] if value else any_symbol) for i, value in enumerate(self.givens)]
        units = [AllDifferent(unit, self.symbols) for _, unit in self.shape.units]
        rest = [Literal(self.shape.cells, self.ends)] if self.length > self.shape.cells else []
        return (*cells, *units, *rest)

    def lowered(self, vocab_size: int) -> Constraint:
        """Over literals and counts."""
        return lowered_parts(self.parts(), vocab_size)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The cells are read and compared, unit by unit."""
        return self._fault(sequence) is None

    def why(self, sequence: TokenSequence) -> str:
        """What is wrong first: a cell, a symbol that occurs twice, or text after the last cell."""
        return self._fault(sequence) or ""

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "sudoku", "givens": "53..7…", "box": 3}`."""
        json: Json = {"type": "sudoku", "givens": written(self.givens, self.shape)}
        rows, columns = self.box
        if (rows, columns) != (3, 3):
            json["box"] = rows if rows == columns else [rows, columns]
        return json

    def _check_length(self, length: int) -> None:
        cells, what = self.shape.cells, f"a sudoku of {self.shape.side} × {self.shape.side} cells"
        if length < cells:
            raise InvalidConstraint(f"{what} needs {cells} tokens, one for each cell; ask for at least so many, not {length}")
        if length > cells and not self.ends:
            raise InvalidConstraint(
                f"{what} has {cells} tokens, and this vocabulary has no end of text; ask for {cells} tokens, not {length}"
            )

    def _fault(self, sequence: TokenSequence) -> str | None:
        """What is wrong, in words; None for a solution."""
        shape = self.shape
        if sequence.end < shape.cells:
            return f"the text ends after {sequence.end} of {shape.cells} cells"
        cells = [self._value(sequence, token) for token in sequence.tokens[: shape.cells]]
        for cell, (found, given) in enumerate(zip(cells, self.givens, strict=True)):
            if not found:
                return f"{shape.place(cell)} (token {cell}) is no symbol from 1 to {symbol_of(shape.side)}"
            if given and found != given:
                return f"{shape.place(cell)} (token {cell}) holds {symbol_of(found)}, given is {symbol_of(given)}"
        clash = next(clashes(cells, shape), None)
        if clash is None and sequence.end > shape.cells:
            return f"something follows the last cell, at token {shape.cells}"
        return clash

    def _value(self, sequence: TokenSequence, token: int) -> int:
        """The value of a token, 0 if it is none."""
        tokenizer = sequence.tokenizer
        if tokenizer is None or not any(tokenizer.token_bytes):
            return token + 1 if token < self.shape.side else 0
        content = tokenizer.token_bytes[token]
        symbols = SYMBOLS[: self.shape.side].encode()
        return symbols.find(content) + 1 if content is not None and len(content) == 1 else 0


def _symbols(side: int, tokenizer: TokenizerLike) -> Groups:
    """The ids of each symbol."""
    if not any(tokenizer.token_bytes):
        if tokenizer.vocab_size < side or any(end < side for end in tokenizer.eos_ids):
            raise InvalidConstraint(
                f"a sudoku with {side} symbols needs the ids 0 to {side - 1} for them; this vocabulary has "
                f"{tokenizer.vocab_size} ids with the ends {list(tokenizer.eos_ids)}"
            )
        return tuple(frozenset({value}) for value in range(side))
    if side > len(SYMBOLS):
        raise InvalidConstraint(f"a sudoku with {side} symbols has no text: there are {len(SYMBOLS)} of one character")
    wanted = {symbol.encode(): value for value, symbol in enumerate(SYMBOLS[:side])}
    found: list[set[int]] = [set() for _ in wanted]
    for token, content in enumerate(tokenizer.token_bytes):
        if content in wanted:
            found[wanted[content]].add(token)
    missing = [symbol_of(value + 1) for value, ids in enumerate(found) if not ids]
    if missing:
        raise InvalidConstraint(
            f"no token of this tokenizer spells exactly {', '.join(missing)}, so a sudoku cannot be written with one token for "
            "each cell; use a tokenizer with a token for each digit"
        )
    return tuple(frozenset(ids) for ids in found)


@described({})
def _read_any(value: Any, path: str) -> Any:
    return value


register("sudoku", sudoku, {"givens": _read_any}, {"box": _read_any})
