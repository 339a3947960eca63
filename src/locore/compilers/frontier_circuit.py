"""The circuit of a simple path over edge indicators: the layers of the frontier method, with token classes and an end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.compilers.frontier import path_layers, plan_of
from locore.compilers.layers import SparseRows, block_from_rows
from locore.compilers.left_to_right import no_model
from locore.compilers.problem import Problem
from locore.constraints import And, Constraint, Literal, Not
from locore.constraints.paths import SimplePath
from locore.limits import check_progress

Rows = NDArray[np.int32]
Flags = NDArray[np.bool_]
ABSENT, PRESENT = 0, 1


@dataclass(frozen=True)
class FixedPath:
    """A simple path of which some edges are known to be absent or present.

    Attributes:
        path: the path, with the ids of its symbols.
        allowed: Bool[edges, 2], whether an edge may be absent, and present.
    """

    path: SimplePath
    allowed: Flags


def as_fixed_path(constraint: Constraint) -> FixedPath | None:
    """A simple path alone, or together with literals that say nothing but which edges are present; None for anything else."""
    parts = constraint.of if isinstance(constraint, And) else (constraint,)
    paths = [part for part in parts if isinstance(part, SimplePath)]
    if len(paths) != 1 or paths[0].symbols is None:
        return None
    path, symbols = paths[0], paths[0].symbols
    allowed = np.ones((len(path.edges), 2), dtype=np.bool_)
    for part in parts:
        if part is path:
            continue
        literal = part.of if isinstance(part, Not) else part
        if not isinstance(literal, Literal) or literal.position >= len(path.edges):
            return None
        for symbol, ids in enumerate(symbols):
            inside = ids & literal.tokens
            if inside and inside != ids:
                return None  # it tells tokens of one symbol apart
            allowed[literal.position, symbol] &= bool(inside) != isinstance(part, Not)
    return FixedPath(path, allowed)


def path_circuit(fixed: FixedPath, problem: Problem) -> Circuit:
    """The circuit of a simple path, a block for each edge; later positions hold anything, the end of the text included.

    Raises:
        Unsatisfiable: no path uses the edges that are known to be present and avoids those known to be absent.
        BudgetExceeded: see `path_layers`.
    """
    path = fixed.path
    layers = path_layers(plan_of(path.edges, path.source, path.target), fixed.allowed)
    if not len(layers[0]):
        raise no_model(problem.length)
    classes = _Classes.of(path, problem)
    tables = [classes.head(layer) for layer in layers]
    tables += [classes.tail(position >= problem.min_length) for position in range(len(layers), problem.length)]
    # The state of a whole path is followed by those of a text that goes on and of one that has ended.
    sizes = [*(len(table) for table in tables[1:]), len(tables[-1]) if problem.length > len(layers) else 1]
    blocks = []
    for table, size in zip(tables, sizes, strict=True):
        check_progress("writing the circuit of simple paths", "a smaller graph")
        blocks.append(block_from_rows(SparseRows.from_dense(table), size))
    live = [torch.ones(size, dtype=torch.bool) for size in (len(tables[0]), *sizes)]
    token_class = torch.from_numpy(classes.token_class)
    reader = LeftToRight(token_class, tuple(map(torch.from_numpy, tables)), tuple(live), 0)
    positions = tuple((i,) for i in range(problem.length))
    return Circuit(problem.length, token_class, classes.number, tuple(blocks), positions, live[-1], reader)


@dataclass(frozen=True)
class _Classes:
    """What a path sees of the vocabulary: absent, present, ends where the text may end, and all other tokens.

    Attributes:
        token_class: Int64[vocab].
        number: how many classes.
        padding: the class of the first end; None where no text can end.
        ends: the classes of all ends.
    """

    token_class: NDArray[np.int64]
    number: int
    padding: int | None
    ends: tuple[int, ...]

    @classmethod
    def of(cls, path: SimplePath, problem: Problem) -> _Classes:
        assert path.symbols is not None  # the leaf is bound to its vocabulary
        token_class = np.full(problem.tokenizer.vocab_size, -1, dtype=np.int64)
        for symbol, ids in enumerate(path.symbols):
            token_class[list(ids)] = symbol
        number, ends = 2, []
        eos_ids = problem.tokenizer.eos_ids if problem.length > len(path.edges) else ()
        for some in (list(eos_ids[:1]), list(eos_ids[1:])):
            if some:
                token_class[some] = number
                ends.append(number)
                number += 1
        others = token_class < 0
        token_class[others] = number
        return cls(token_class, number + bool(others.any()), ends[0] if ends else None, tuple(ends))

    def head(self, layer: Rows) -> Rows:
        """Int32[states, classes] of an edge: nothing but absent and present may come."""
        table = np.full((len(layer), self.number), DEAD, dtype=np.int32)
        table[:, [ABSENT, PRESENT]] = layer
        return table

    def tail(self, may_end: bool) -> Rows:
        """The same after the last edge: state 0 goes on with anything, state 1 has ended and is followed by padding."""
        table = np.zeros((1 if self.padding is None else 2, self.number), dtype=np.int32)
        if self.padding is not None:
            table[0, list(self.ends)] = 1 if may_end else DEAD
            table[1] = DEAD
            table[1, self.padding] = 1
        return table
