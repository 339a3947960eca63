"""Two ways to write a path down as tokens: as moves, or as one bit for each edge of the grid.

A sequence of moves cannot leave its path, one of edge bits can: it may branch, stop, or draw loops beside the path. The
paper's model writes edge bits (Ahmed, Chang, Van den Broeck, NeurIPS 2023, whose network it uses): 2 · 12 · 11 = 264 of them on
its maps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from locore import Tokenizer, grid, simple_moves, simple_path
from locore.constraints import Constraint
from locore.kernel.errors import InvalidArgument
from locore_lab.warcraft.paths import MOVES, STOP, STRAIGHT, Cell, cells_of, is_valid_path, moves_of

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
    def trace(self, tokens: Iterable[int], height: int, width: int) -> tuple[Cell, ...]:
        """The cells to draw for any tokens, from the upper left one on; they may leave the grid or end anywhere."""

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

    def trace(self, tokens: Iterable[int], height: int, width: int) -> tuple[Cell, ...]:
        return cells_of(tokens)

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

    def trace(self, tokens: Iterable[int], height: int, width: int) -> tuple[Cell, ...]:
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
        cells = self.trace(tokens, height, width)
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
