"""Sudoku: one token for each cell, and every symbol once in each row, column and box; grids of any box size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from locore.kernel.constraints.constraint import Constraint, Json
from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.serial import as_integer, described, register
from locore.kernel.constraints.tokens import Literal
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import cached_property
from locore.puzzles.combinatorial.equality import AllDifferent, Combinatorial, Groups

SYMBOLS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the values 1, 2, …
BLANKS = ".0"


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
        for cell, (entry, given) in enumerate(zip(cells, self.givens, strict=True)):
            if not entry:
                return f"{shape.place(cell)} (token {cell}) is no symbol from 1 to {symbol_of(shape.side)}"
            if given and entry != given:
                return f"{shape.place(cell)} (token {cell}) holds {symbol_of(entry)}, given is {symbol_of(given)}"
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
    groups: list[set[int]] = [set() for _ in wanted]
    for token, content in enumerate(tokenizer.token_bytes):
        if content in wanted:
            groups[wanted[content]].add(token)
    missing = [symbol_of(value + 1) for value, ids in enumerate(groups) if not ids]
    if missing:
        raise InvalidConstraint(
            f"no token of this tokenizer spells exactly {', '.join(missing)}, so a sudoku cannot be written with one token for "
            "each cell; use a tokenizer with a token for each digit"
        )
    return tuple(frozenset(ids) for ids in groups)


@described({})
def _read_any(value: Any, path: str) -> Any:
    return value


@dataclass(frozen=True)
class Shape:
    """Boxes of `rows` × `columns` cells in a grid whose side is their product."""

    rows: int
    columns: int

    @property
    def side(self) -> int:
        """Cells of a row, a column or a box, and the number of symbols."""
        return self.rows * self.columns

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return self.side**2

    @cached_property
    def units(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Rows, columns and boxes, each with its name; a cell is row · side + column."""
        n = self.side
        rows = [(f"row {r + 1}", tuple(r * n + c for c in range(n))) for r in range(n)]
        columns = [(f"column {c + 1}", tuple(r * n + c for r in range(n))) for c in range(n)]
        boxes = []
        for number in range(n):
            top, left = divmod(number, self.rows)
            inside = [(top * self.rows + i, left * self.columns + j) for i in range(self.rows) for j in range(self.columns)]
            boxes.append((f"box {number + 1}", tuple(r * n + c for r, c in inside)))
        return (*rows, *columns, *boxes)

    def place(self, cell: int) -> str:
        """A cell in words, counted from 1."""
        return f"row {cell // self.side + 1}, column {cell % self.side + 1}"


def shape_of(box: Any) -> Shape:
    """From a box size, 3 for boxes of 3 × 3, or (rows, columns)."""
    sizes = (box, box) if not isinstance(box, Sequence) or isinstance(box, str) else tuple(box)
    if len(sizes) != 2:
        raise InvalidConstraint(f"box of sudoku is a number, or (rows, columns) of a box, got {box!r}")
    rows, columns = (as_integer(size, "box of sudoku") for size in sizes)
    if rows < 1 or columns < 1 or rows * columns < 2:
        raise InvalidConstraint(f"box of sudoku must hold at least two cells, got {rows} × {columns}")
    return Shape(rows, columns)


def read_grid(givens: Any, shape: Shape) -> tuple[int, ...]:
    """The values of all cells, 0 for an open one.

    Args:
        givens: a string with a character for each cell, white space left out; a list of such rows; or a list of lists of
            numbers (0 or None: open).

    Raises:
        InvalidConstraint: another shape, an unknown symbol, or two equal symbols in a row, column or box.
    """
    if isinstance(givens, str):
        lines = givens.split()
        rows: list[Any] = lines if len(lines) > 1 else _cut("".join(lines), shape)
    elif isinstance(givens, Sequence):
        rows = list(givens)
        if rows and not any(isinstance(row, Sequence) for row in rows):
            rows = _cut(rows, shape)
    else:
        raise InvalidConstraint(f"sudoku needs its givens as a string or a list of rows, got {type(givens).__name__}")
    n = shape.side
    if len(rows) != n:
        raise InvalidConstraint(f"sudoku with boxes of {shape.rows} × {shape.columns} has {n} rows, got {len(rows)}")
    for number, row in enumerate(rows):
        if not isinstance(row, Sequence):
            raise InvalidConstraint(f"row {number + 1} of sudoku is no row: {row!r}")
        if len(row) != n:
            raise InvalidConstraint(f"row {number + 1} of sudoku has {len(row)} cells, not {n}: {row!r}")
    cells = tuple(
        _value(symbol, n, f"row {r + 1}, column {c + 1}") for r, row in enumerate(rows) for c, symbol in enumerate(row)
    )
    for clash in clashes(cells, shape):
        raise InvalidConstraint(f"the givens of sudoku contradict each other: {clash}; change one of them")
    return cells


def clashes(cells: Sequence[int], shape: Shape) -> Iterator[str]:
    """Every symbol that a row, column or box holds twice, in words."""
    for name, unit in shape.units:
        seen: dict[int, int] = {}
        for cell in unit:
            if cells[cell] and cells[cell] in seen:
                first = seen[cells[cell]]
                yield f"two {symbol_of(cells[cell])}s in {name} ({shape.place(first)} and {shape.place(cell)})"
            seen.setdefault(cells[cell], cell)


def symbol_of(value: int) -> str:
    """1–9, then letters; beyond them the number itself."""
    return SYMBOLS[value - 1] if value <= len(SYMBOLS) else str(value)


def written(cells: Sequence[int], shape: Shape) -> str | list[list[int]]:
    """The givens as `read_grid` reads them: a string where there are symbols enough."""
    if shape.side <= len(SYMBOLS):
        return "".join(symbol_of(value) if value else "." for value in cells)
    n = shape.side
    return [list(cells[r * n : (r + 1) * n]) for r in range(n)]


def _cut(cells: Any, shape: Shape) -> list[Any]:
    """One line of all cells as rows."""
    n = shape.side
    if len(cells) != shape.cells:
        raise InvalidConstraint(
            f"sudoku with boxes of {shape.rows} × {shape.columns} has {shape.cells} cells, got {len(cells)}; write every cell, "
            "`.` or 0 for an open one, or give box"
        )
    return [cells[r * n : (r + 1) * n] for r in range(n)]


def _value(symbol: Any, side: int, place: str) -> int:
    if symbol is None:
        return 0
    if isinstance(symbol, str):
        if len(symbol) == 1 and symbol in BLANKS:
            return 0
        value = SYMBOLS.find(symbol.upper()) + 1 if len(symbol) == 1 else 0
        if not value:
            raise InvalidConstraint(f"{place} of sudoku holds {symbol!r}; symbols are 1–9 and then letters, `.` or 0 is open")
    else:
        value = as_integer(symbol, f"{place} of sudoku")
    if not 0 <= value <= side:
        raise InvalidConstraint(f"{place} of sudoku holds {symbol!r}; this grid has the symbols 1 to {symbol_of(side)}")
    return value


register("sudoku", sudoku, {"givens": _read_any}, {"box": _read_any})
