"""Minimum-cost paths on a grid with weights on its vertices, and the two ways to write a path down as tokens.

A path goes from the upper left to the lower right cell, to one of 8 neighbours (or 4) at a time; its cost is the sum of the
weights of its cells, both ends included. A move is one of 8 directions; the token `STOP` after the last move is the end of
sequence.

A sequence of moves cannot leave its path, one of edge bits can: it may branch, stop, or draw loops beside the path. The
paper's model writes edge bits (Ahmed, Chang, Van den Broeck, NeurIPS 2023, whose network it uses): 2 · 12 · 11 = 264 of them on
its maps.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from locore import Tokenizer, grid, simple_moves, simple_path
from locore.constraints import Constraint
from locore.kernel.errors import InvalidArgument

Cell = tuple[int, int]

# Row and column offsets of the moves, ordered by row, then by column.
MOVES: tuple[Cell, ...] = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
STRAIGHT = tuple(step for step in MOVES if 0 in step)  # to the 4 neighbours that share a side
STOP = len(MOVES)

# Costs are added as integers, hundredths, so that equal costs are equal and not equal up to rounding: three cells of grass
# cost what two of earth cost, also in a file of float16, which holds 0.8 as 0.7998 and 9.2 as 9.2031.
_PER_UNIT = 100


def integer_weights(weights: NDArray[np.floating]) -> NDArray[np.int64]:
    """Weights in hundredths, to which they are rounded, checked."""
    grid = np.asarray(weights, dtype=np.float64)
    if grid.ndim != 2 or min(grid.shape) < 2:
        raise InvalidArgument(f"Vertex weights have the shape {grid.shape}; give a grid of at least 2 × 2.")
    bad = np.argwhere(~np.isfinite(grid) | (grid < 0))
    if len(bad):
        row, column = bad[0]
        raise InvalidArgument(
            f"The weight of cell ({row}, {column}) is {grid[row, column]}; costs are finite and not negative."
        )
    return np.rint(grid * _PER_UNIT).astype(np.int64)


def shortest_path(weights: NDArray[np.floating], steps: Sequence[Cell] = MOVES) -> tuple[Cell, ...]:
    """One path of minimum cost, chosen among equals as the original labels are (Vlastelica et al. 2020).

    Dijkstra's algorithm with a heap on (cost, (row, column)); neighbours in order of row, then column; a predecessor is
    replaced only by a strictly cheaper one.
    """
    grid = integer_weights(weights)
    height, width = grid.shape
    cost = grid.tolist()
    start, goal = (0, 0), (height - 1, width - 1)
    best: dict[Cell, int] = {start: cost[0][0]}
    came_from: dict[Cell, Cell] = {}
    heap = [(best[start], start)]
    done: set[Cell] = set()
    while heap:
        reached, cell = heapq.heappop(heap)
        if cell in done:
            continue
        if cell == goal:
            break
        done.add(cell)
        for row_step, column_step in steps:
            row, column = cell[0] + row_step, cell[1] + column_step
            if 0 <= row < height and 0 <= column < width and (row, column) not in done:
                total = reached + cost[row][column]
                if total < best.get((row, column), total + 1):
                    best[row, column] = total
                    came_from[row, column] = cell
                    heapq.heappush(heap, (total, (row, column)))
    path = [goal]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))


def is_minimum_cost(weights: NDArray[np.floating], cells: Sequence[Cell], steps: Sequence[Cell] = MOVES) -> bool:
    """Whether a valid path (see `is_valid_path`) costs no more than any other that goes by these steps."""
    grid = integer_weights(weights)
    if not is_valid_path(cells, *grid.shape):
        return False
    least = sum(int(grid[cell]) for cell in shortest_path(weights, steps))
    return sum(int(grid[cell]) for cell in cells) == least


def is_valid_path(cells: Sequence[Cell], height: int, width: int) -> bool:
    """Whether these cells are a simple path from the upper left to the lower right cell of a grid."""
    if not cells or cells[0] != (0, 0) or cells[-1] != (height - 1, width - 1) or len(set(cells)) < len(cells):
        return False
    inside = all(0 <= row < height and 0 <= column < width for row, column in cells)
    return inside and all((b[0] - a[0], b[1] - a[1]) in MOVES for a, b in pairwise(cells))


def cells_of(tokens: Iterable[int]) -> tuple[Cell, ...]:
    """Cells that moves visit from the upper left one; they may leave any grid.

    Args:
        tokens: moves up to the first `STOP` or up to the end; what follows is not read.
    """
    cells = [(0, 0)]
    for token in tokens:
        if token == STOP:
            break
        row, column = MOVES[token]
        cells.append((cells[-1][0] + row, cells[-1][1] + column))
    return tuple(cells)


def moves_of(cells: Sequence[Cell], length: int | None = None) -> list[int]:
    """Tokens of a path: its moves and `STOP`, padded with `STOP` to `length` if that is given."""
    tokens = []
    for a, b in pairwise(cells):
        step = (b[0] - a[0], b[1] - a[1])
        if step not in MOVES:
            raise InvalidArgument(f"The cells {a} and {b} follow each other in a path but are no neighbours.")
        tokens.append(MOVES.index(step))
    tokens.append(STOP)
    if length is not None and len(tokens) > length:
        raise InvalidArgument(f"A path of {len(tokens) - 1} moves and its end need {len(tokens)} tokens, not {length}.")
    return tokens + [STOP] * (0 if length is None else length - len(tokens))


def mask_of(cells: Iterable[Cell], height: int, width: int) -> NDArray[np.uint8]:
    """uint8[height, width]: 1 on the path, as labels are stored."""
    mask = np.zeros((height, width), dtype=np.uint8)
    for cell in cells:
        mask[cell] = 1
    return mask


def cells_of_mask(mask: NDArray[np.generic], steps: Sequence[Cell] = MOVES) -> tuple[Cell, ...]:
    """The one path whose cells are those of a 0/1 matrix.

    A path of minimum cost with positive weights has no short cuts, so each of its cells touches its predecessor and its
    successor only, and the order follows from the set.

    Args:
        mask: [height, width] of 0 and 1.
        steps: offsets of a cell's neighbours, `MOVES` or `STRAIGHT`.
    """
    grid = np.asarray(mask)
    if grid.ndim != 2 or not np.isin(grid, (0, 1)).all():
        raise InvalidArgument(f"A path is a matrix of 0 and 1, not {grid.dtype} of the shape {grid.shape} with other numbers.")
    on_path = {(int(row), int(column)) for row, column in np.argwhere(grid)}
    height, width = grid.shape
    path: list[Cell] = [(0, 0)]
    while True:
        row, column = path[-1]
        around = {(row + down, column + right) for down, right in steps} & on_path
        onward = around - set(path[-2:])
        if len(onward) != 1:
            break
        path.append(onward.pop())
        if len(path) > len(on_path):
            break
    if set(path) != on_path or not is_valid_path(path, height, width):
        raise InvalidArgument("The matrix is no single path without short cuts from the upper left to the lower right cell.")
    return tuple(path)


ARROWS = "↖↑↗←→↙↓↘"  # what the moves spell, in the order of `paths.MOVES`; the end spells nothing
SPARE = 4  # moves that a sequence may have beyond the longest label


class Encoding(ABC):
    """Paths of a grid as tokens.

    Attributes:
        name: "edges" or "moves".
        steps: offsets of the neighbours to which a path may go.
        tokenizer: the vocabulary.
        end: the token after which nothing comes but itself; None if sequences have a fixed length.
        begin: what the network reads before the first token.
        read: how many different tokens the network reads, `begin` included.
        token_size: numbers in the network's embedding of a token.
    """

    name: str
    steps: tuple[Cell, ...]
    tokenizer: Tokenizer
    end: int | None
    begin: int
    read: int
    token_size: int

    @property
    def vocab_size(self) -> int:
        """How many different tokens the network writes."""
        return self.tokenizer.vocab_size

    @abstractmethod
    def tokens(self, cells: Sequence[Cell], height: int, width: int, length: int) -> list[int]:
        """Of a path, padded to `length`. Raises `InvalidArgument` where it does not fit."""

    @abstractmethod
    def path(self, tokens: Sequence[int], height: int, width: int) -> tuple[Cell, ...] | None:
        """The simple path between the corners that the tokens write; None if they write none."""

    @abstractmethod
    def length(self, paths: Iterable[Sequence[Cell]], height: int, width: int) -> int:
        """Tokens that the longest of these paths needs, its end included."""

    @abstractmethod
    def horizon(self, paths: Iterable[Sequence[Cell]], height: int, width: int) -> int:
        """Tokens of a sequence where paths like these are sought."""

    @abstractmethod
    def constraint(self, height: int, width: int, memory: int = 2) -> Constraint:
        """The tokens are a simple path between the corners; `memory` is that of `locore.simple_moves`."""


class Moves(Encoding):
    """One of 8 directions at a time, and an end."""

    name = "moves"
    steps = MOVES
    tokenizer = Tokenizer.from_tokens([*ARROWS, None], eos_ids=(STOP,))
    end = STOP
    begin = STOP
    read = STOP + 1
    token_size = 64

    def tokens(self, cells: Sequence[Cell], height: int, width: int, length: int) -> list[int]:
        return moves_of(cells, length)

    def path(self, tokens: Sequence[int], height: int, width: int) -> tuple[Cell, ...] | None:
        cells = cells_of(tokens)
        return cells if is_valid_path(cells, height, width) else None

    def length(self, paths: Iterable[Sequence[Cell]], height: int, width: int) -> int:
        return max(map(len, paths))

    def horizon(self, paths: Iterable[Sequence[Cell]], height: int, width: int) -> int:
        """Room beyond every path: the longest and `SPARE` tokens more."""
        return max(self.length(paths, height, width) + SPARE, height + width)

    def constraint(self, height: int, width: int, memory: int = 2) -> Constraint:
        return simple_moves(height, width, (0, 0), (height - 1, width - 1), memory=memory)


@lru_cache
def _edges(height: int, width: int) -> tuple[tuple[Cell, Cell], ...]:
    return tuple(grid(height, width, 4))


class Edges(Encoding):
    """A bit for each edge of the grid with 4 neighbours, in the order of `locore.grid`."""

    name = "edges"
    steps = STRAIGHT
    tokenizer = Tokenizer.integers(2)
    end = None
    begin = 2
    read = 3
    token_size = 128

    def tokens(self, cells: Sequence[Cell], height: int, width: int, length: int) -> list[int]:
        edges = _edges(height, width)
        used = {frozenset(pair) for pair in pairwise(cells)}
        bits = [int(frozenset(edge) in used) for edge in edges]
        if sum(bits) != len(used):
            raise InvalidArgument("two cells follow each other in a path but are no neighbours; with edges there are four.")
        if length != len(edges):
            raise InvalidArgument(f"a grid of {height} × {width} cells has {len(edges)} edges, not {length}.")
        return bits

    def _trace(self, tokens: Iterable[int], height: int, width: int) -> tuple[Cell, ...]:
        """Along edges that are set, each once, for as long as there is one."""
        left = {frozenset(edge) for edge, bit in zip(_edges(height, width), tokens, strict=True) if bit}
        cells = [(0, 0)]
        while True:
            row, column = cells[-1]
            onward = [(row + down, column + right) for down, right in STRAIGHT]
            onward = [cell for cell in onward if frozenset((cells[-1], cell)) in left]
            if not onward:
                return tuple(cells)
            left.discard(frozenset((cells[-1], onward[-1])))
            cells.append(onward[-1])

    def path(self, tokens: Sequence[int], height: int, width: int) -> tuple[Cell, ...] | None:
        cells = self._trace(tokens, height, width)
        return cells if len(cells) == sum(tokens) + 1 and is_valid_path(cells, height, width) else None

    def length(self, paths: Iterable[Sequence[Cell]], height: int, width: int) -> int:
        """As many as there are edges."""
        return len(_edges(height, width))

    def horizon(self, paths: Iterable[Sequence[Cell]], height: int, width: int) -> int:
        """As many as there are edges."""
        return len(_edges(height, width))

    def constraint(self, height: int, width: int, memory: int = 2) -> Constraint:
        return simple_path(_edges(height, width), (0, 0), (height - 1, width - 1))


EDGES, MOVES_TO_8 = Edges(), Moves()
ENCODINGS: dict[str, Encoding] = {encoding.name: encoding for encoding in (EDGES, MOVES_TO_8)}
