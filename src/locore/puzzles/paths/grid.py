"""Simple paths as sequences of moves on a grid, which end at the goal; and the edges of a grid, for paths over its edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.tables import Automaton, minimise
from locore.kernel.constraints.constraint import Constraint, Json
from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.serial import as_integer, id_list, list_of, read_integer, register
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import InvalidConstraint
from locore.kernel.limits import check_progress, check_states
from locore.kernel.lists import items_of

Ints = NDArray[np.int32]
NOWHERE, GOAL = -1, -2  # no cells
WHERE = "simple_moves"
DEFAULT_MEMORY = 2
WHAT, REMEDY = "the automaton of simple_moves", "a smaller memory, a smaller grid or more blocked cells"
Cell = tuple[int, int]  # row and column
Direction = tuple[int, int]

# By row offset, then by column offset; the number of a direction is its token id.
DIRECTIONS: dict[int, tuple[Direction, ...]] = {
    4: ((-1, 0), (0, -1), (0, 1), (1, 0)),
    8: ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)),
}


def grid(rows: int, columns: int, neighbours: int = 4) -> list[tuple[Cell, Cell]]:
    """The edges between neighbouring cells of a grid; cells are pairs (row, column), counted from 0.

    Cells come one after the other along the shorter side, each with its edges to cells that come later; so a cut through the
    list meets hardly more cells than the shorter side has. Position i of a `simple_path` speaks about edge i of this list.

    Args:
        neighbours: 4, or 8 with diagonals.

    Raises:
        InvalidConstraint: a size below 1, or another number of neighbours.
    """
    size = grid_size(rows, columns, "grid")
    directions = directions_of(neighbours, "grid")
    by_rows = size[1] <= size[0]
    cells = [(row, column) for row in range(size[0]) for column in range(size[1])]
    if not by_rows:
        cells.sort(key=lambda cell: cell[::-1])
    place = {cell: number for number, cell in enumerate(cells)}
    edges = []
    for row, column in cells:
        later = [(row + down, column + right) for down, right in directions]
        later = [cell for cell in later if place.get(cell, -1) > place[row, column]]
        edges += [((row, column), cell) for cell in sorted(later, key=place.__getitem__)]
    return edges


def grid_size(rows: Any, columns: Any, where: str) -> tuple[int, int]:
    """Numbers of rows and columns, at least 1 each."""
    size = as_integer(rows, f"rows of {where}"), as_integer(columns, f"columns of {where}")
    if min(size) < 1:
        raise InvalidConstraint(f"{where} got {size[0]} rows and {size[1]} columns; a grid has at least one of each")
    return size


def directions_of(neighbours: Any, where: str) -> tuple[Direction, ...]:
    """The steps to the neighbours of a cell, as (rows down, columns right)."""
    number = as_integer(neighbours, f"neighbours of {where}")
    if number not in DIRECTIONS:
        raise InvalidConstraint(f"neighbours of {where} must be 4 or 8, got {number}")
    return DIRECTIONS[number]


def simple_moves(
    rows: int,
    columns: int,
    source: Cell,
    target: Cell,
    neighbours: int = 8,
    memory: int = DEFAULT_MEMORY,
    blocked: Iterable[Cell] = (),
    tokens: Iterable[int] | None = None,
) -> SimpleMoves:
    """Each token is a step to a neighbouring cell; the steps form a path from `source` to `target` that visits no cell twice.

    The path ends where it reaches the target: there the text ends, or the last position has been read (always so where the
    vocabulary has no end). Whether a finished sequence holds is decided exactly. A circuit of all such paths would be too
    large, so the circuit remembers the last `memory` cells only, and the source: it allows walks that come back to cells they
    left longer ago. `generate` refuses those (weight zero), and says how many there were.

    Args:
        rows: of the grid.
        columns: of the grid.
        source: the cell (row, column), counted from 0, where the path begins.
        target: the cell where it ends.
        neighbours: 4, or 8 with diagonals.
        memory: cells before the present one that the circuit remembers. 0: it is that of all walks, 1: without turning back
            at once. More memory means fewer refusals and a larger circuit, see docs/paths.md.
        blocked: cells that no path enters.
        tokens: the id of each direction, ordered by row offset, then by column offset. Default: 0, 1, 2, …; with 8 neighbours 0
            is up and left, 1 up, 2 up and right, 3 left, 4 right, 5 down and left, 6 down, 7 down and right.

    Raises:
        InvalidConstraint: a cell outside the grid, a blocked or equal source and target, no way from one to the other, or
            tokens that are not as many different ids as there are directions.
    """
    size = grid_size(rows, columns, WHERE)
    directions = directions_of(neighbours, WHERE)
    ids = tuple(range(len(directions))) if tokens is None else id_list(tokens, f"tokens of {WHERE}")
    if len(set(ids)) != len(directions) or len(ids) != len(directions):
        raise InvalidConstraint(f"tokens of {WHERE} must be {len(directions)} different ids, one for each direction; got {ids}")
    remembered = as_integer(memory, f"memory of {WHERE}")
    if remembered < 0:
        raise InvalidConstraint(f"memory of {WHERE} must be at least 0, got {remembered}")
    closed = tuple(
        sorted({_cell(cell, size, "a blocked cell") for cell in items_of(blocked, WHERE, "a list of blocked cells")})
    )
    start, goal = _cell(source, size, "the source"), _cell(target, size, "the target")
    if start == goal:
        raise InvalidConstraint(f"source and target of {WHERE} are both {start}; they must be two cells")
    for name, cell in (("source", start), ("target", goal)):
        if cell in closed:
            raise InvalidConstraint(f"the {name} {cell} of {WHERE} is blocked")
    moves = SimpleMoves(*size, start, goal, len(directions), remembered, closed, ids)
    if moves.distance is None:
        raise InvalidConstraint(f"no path of {WHERE} leads from {start} to {goal}: blocked cells are in the way")
    return moves


@dataclass(frozen=True, eq=False)
class SimpleMoves(AutomatonLeaf):
    """Steps from source to target that visit no cell twice; `ends` are the ids that end the text, once they are known."""

    reads = "tokens"
    rows: int
    columns: int
    source: Cell
    target: Cell
    neighbours: int
    memory: int
    blocked: tuple[Cell, ...]
    tokens: tuple[int, ...]
    ends: tuple[int, ...] = ()

    @property
    def board(self) -> Board:
        """The grid as numbers."""
        return Board.of((self.rows, self.columns), directions_of(self.neighbours, WHERE), self.blocked)

    @property
    def distance(self) -> int | None:
        """Moves of a shortest path; None if there is no path."""
        return self.board.distance(self.source, self.target)

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """With the ids that end this tokenizer's texts."""
        ends = tuple(tokenizer.eos_ids)
        both = [token for token in self.tokens if token in ends]
        if both:
            raise InvalidConstraint(f"token {both[0]} is a move of {WHERE} and ends the text; name other ids with tokens=[...]")
        return replace(self, ends=ends)

    def named_ids(self) -> Iterable[int]:
        """The ids of the moves."""
        return self.tokens

    def exact_with(self, length: int) -> str:
        """A longer memory."""
        return f", or use memory={length - 2} or more, with which the circuit of {length} tokens is exact"

    def is_relaxed_at(self, length: int) -> bool:
        """Can a walk of so many moves come back to a cell that the automaton has forgotten?"""
        return length > self.memory + 2  # the source is never forgotten

    def automaton(self) -> Automaton:
        """Accepts the walks that come back neither to the source nor to one of the last cells, and end at the target."""
        return walks(self.board, self.source, self.target, self.memory, self.tokens, self.ends)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The moves are made one by one, exactly."""
        return not self._fault(sequence)

    def why(self, sequence: TokenSequence) -> str:
        """The first thing that goes wrong, or how long the path is."""
        return self._fault(sequence) or f"a path of {sequence.end} moves"

    def cells(self, tokens: Iterable[int]) -> list[Cell]:
        """The cells that moves lead to, the source first; other tokens end the walk."""
        directions = dict(zip(self.tokens, directions_of(self.neighbours, WHERE), strict=True))
        cells = [self.source]
        for token in tokens:
            if token not in directions:
                break
            down, right = directions[token]
            cells.append((cells[-1][0] + down, cells[-1][1] + right))
        return cells

    def _fault(self, sequence: TokenSequence) -> str:
        """Why the tokens before the end are no path, in words; "" if they are one."""
        moves = sequence.tokens[: sequence.end]
        cells = self.cells(moves)
        seen: set[Cell] = set()
        for number, cell in enumerate(cells):
            if not (0 <= cell[0] < self.rows and 0 <= cell[1] < self.columns):
                return f"move {number - 1} leaves the grid at {cells[number - 1]}"
            if cell in self.blocked:
                return f"move {number - 1} enters the blocked cell {cell}"
            if cell in seen:
                return f"move {number - 1} comes back to {cell}"
            if number and cells[number - 1] == self.target:
                return f"move {number - 1} goes on from the target"
            seen.add(cell)
        if len(cells) <= len(moves):
            return f"token {len(cells) - 1} is {moves[len(cells) - 1]}, which is no move"
        return "" if cells[-1] == self.target else f"the path ends at {cells[-1]}, not at the target {self.target}"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "simple_moves", "rows": ..., "columns": ..., "source": [r, c], "target": [r, c], ...}`."""
        json: Json = {
            "type": WHERE,
            "rows": self.rows,
            "columns": self.columns,
            "source": list(self.source),
            "target": list(self.target),
        }
        if self.neighbours != 8:
            json["neighbours"] = self.neighbours
        if self.memory != DEFAULT_MEMORY:
            json["memory"] = self.memory
        if self.blocked:
            json["blocked"] = [list(cell) for cell in self.blocked]
        if self.tokens != tuple(range(self.neighbours)):
            json["tokens"] = list(self.tokens)
        return json


def _cell(value: Any, size: tuple[int, int], what: str) -> Cell:
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise InvalidConstraint(f"{what} of {WHERE} must be a pair (row, column), got {value!r}")
    cell = as_integer(value[0], f"the row of {what} of {WHERE}"), as_integer(value[1], f"the column of {what} of {WHERE}")
    if not (0 <= cell[0] < size[0] and 0 <= cell[1] < size[1]):
        raise InvalidConstraint(f"{what} {cell} of {WHERE} is outside a grid of {size[0]} rows and {size[1]} columns")
    return cell


@dataclass(frozen=True)
class Board:
    """A grid whose cells are numbered row by row.

    Attributes:
        columns: how many.
        after: Int32[cells, directions], the cell after a step; NOWHERE off the grid and into blocked cells.
        apart: Int32[cells, cells], the least number of steps if nothing were blocked.
    """

    columns: int
    after: Ints
    apart: Ints

    @classmethod
    def of(cls, size: tuple[int, int], directions: Sequence[Direction], blocked: Iterable[Cell]) -> Board:
        """The board of a grid."""
        row, column = np.divmod(np.arange(size[0] * size[1]), size[1])
        closed = np.zeros(len(row), dtype=np.bool_)
        closed[[r * size[1] + c for r, c in blocked]] = True
        after = np.full((len(row), len(directions)), NOWHERE, dtype=np.int32)
        for number, (down, right) in enumerate(directions):
            r, c = row + down, column + right
            inside = (r >= 0) & (r < size[0]) & (c >= 0) & (c < size[1])
            cell = np.where(inside, r * size[1] + c, 0)
            after[:, number] = np.where(inside & ~closed[cell], cell, NOWHERE)
        vertical, horizontal = abs(row[:, None] - row), abs(column[:, None] - column)
        apart = np.maximum(vertical, horizontal) if len(directions) == 8 else vertical + horizontal
        return cls(size[1], after, apart.astype(np.int32))

    def number(self, cell: Cell) -> int:
        """The number of a cell."""
        return cell[0] * self.columns + cell[1]

    def distance(self, source: Cell, target: Cell) -> int | None:
        """Steps of a shortest way; None if there is none."""
        steps = {self.number(source): 0}
        queue = deque(steps)
        while queue:
            cell = queue.popleft()
            for following in self.after[cell].tolist():
                if following != NOWHERE and following not in steps:
                    steps[following] = steps[cell] + 1
                    queue.append(following)
        return steps.get(self.number(target))


def walks(board: Board, source: Cell, target: Cell, memory: int, tokens: Sequence[int], ends: Sequence[int]) -> Automaton:
    """Accepts the walks from source to target, ended there, that come back neither to the source nor to a remembered cell.

    A state is a cell and the `memory` cells before it, or the target, where only ends may follow.

    Raises:
        BudgetExceeded: more states than the limits allow.
    """
    moves, count = _explored(board, board.number(source), board.number(target), memory)
    goal, dead = count, count + 1
    moves = np.where(moves == GOAL, goal, np.where(moves == NOWHERE, dead, moves))
    table = np.full((count + 2, len(tokens) + 2), dead, dtype=np.int32)
    table[:count, : len(tokens)] = moves
    end, other = len(tokens), len(tokens) + 1
    table[goal, end] = goal
    accepting = np.zeros(count + 2, dtype=np.bool_)
    accepting[goal] = True
    column = {token: number for number, token in enumerate(tokens)} | dict.fromkeys(ends, end)
    return minimise(Automaton(table, accepting, column, other))


def _explored(board: Board, source: int, target: int, memory: int) -> tuple[Ints, int]:
    """Int32[states, directions], the next state, GOAL or NOWHERE, and how many states there are; state 0 is the start."""
    start = np.full((1, 1 + memory), NOWHERE, dtype=np.int32)
    start[0, 0] = source
    number = {start.tobytes(): 0}
    frontier, rows = start, []
    while len(frontier):
        check_progress(WHAT, REMEDY)
        cells = board.after[frontier[:, 0]]
        allowed = (cells != NOWHERE) & (cells != source)
        for lag in range(1, memory + 1):
            allowed &= cells != frontier[:, lag, None]
        moves = np.where(allowed & (cells == target), GOAL, NOWHERE).astype(np.int32)
        state, direction = np.nonzero(allowed & (cells != target))
        walk = np.column_stack([cells[state, direction], frontier[state, :memory]])
        walk = _forgetful(walk, board, source)
        first_new = len(number)
        numbers = [number.setdefault(row.tobytes(), len(number)) for row in walk]
        check_states(len(number), WHAT, REMEDY)
        moves[state, direction] = numbers
        rows.append(moves)
        _, first = np.unique(numbers, return_index=True)
        frontier = walk[first[np.array(numbers, dtype=np.int64)[first] >= first_new]]
    return np.concatenate(rows), len(number)


def _forgetful(walk: Ints, board: Board, source: int) -> Ints:
    """Walks without the remembered cells that they cannot come back to while they are remembered.

    A cell left j steps ago is remembered for the next memory + 1 − j steps, and a step covers a distance of 1.
    """
    memory = walk.shape[1] - 1
    for lag in range(1, memory + 1):
        far = board.apart[walk[:, 0], walk[:, lag]] > memory + 1 - lag  # NOWHERE reads the last cell, and stays NOWHERE
        walk[far | (walk[:, lag] == source), lag] = NOWHERE
    return walk


register(
    WHERE,
    simple_moves,
    {"rows": read_integer, "columns": read_integer, "source": list_of(read_integer), "target": list_of(read_integer)},
    {
        "neighbours": read_integer,
        "memory": read_integer,
        "blocked": list_of(list_of(read_integer)),
        "tokens": list_of(read_integer),
    },
)
