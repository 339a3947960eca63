"""The circuit of a simple path over edge indicators: the layers of the frontier method, with token classes and an end.

Beside other constraints, a state of the frontier method is an atom of residuals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.circuits import DEAD, Circuit
from locore.constraints import And, Constant, Constraint, Literal, Not
from locore.kernel.circuits.reading import table_reader
from locore.kernel.compilers.problem import CompilerLeaf, Ints, Partition, Problem, classes_of, unsatisfiable
from locore.kernel.compilers.residual import Atom
from locore.kernel.errors import InvalidConstraint
from locore.puzzles.paths.frontier import Frontier, Targets, path_layers
from locore.puzzles.paths.graph import SimplePath

Rows = NDArray[np.int32]
NEITHER = -1  # beside 0 for "absent" and 1 for "present"


@dataclass(frozen=True, eq=False)
class FixedPath(CompilerLeaf):
    """A simple path of which some edges may be known.

    Attributes:
        path: with the ids of its symbols.
        allowed: of each edge, whether it may be absent, and present; () where constraints beside it say so.
    """

    path: SimplePath
    allowed: tuple[tuple[bool, bool], ...] = ()

    def layers(self) -> list[Targets]:
        """As `path_layers` has them."""
        allowed = np.array(self.allowed, dtype=np.bool_) if self.allowed else None
        return path_layers(Frontier.of(self.path.edges, self.path.source, self.path.target), allowed)

    def token_sets(self) -> Iterable[frozenset[int]]:
        """The sets of tokens that it tells apart."""
        return self.path.symbols or ()

    def circuit(self, problem: Problem) -> Circuit:
        """All paths, by the frontier method."""
        return path_circuit(problem, self)

    def atom(self, classes: Partition, length: int) -> Constraint:
        """The state before the first edge."""
        layers = self.layers()
        return PathState(ClassLayers(layers, _symbols(self.path, classes)), 0) if len(layers[0]) else Constant(False)

    def spelled_out(self, vocab_size: int) -> Constraint:
        """There is no such form."""
        raise InvalidConstraint(
            "simple_path has no variables, so it cannot be compiled for a vtree; leave vtree out and it is compiled from left "
            "to right."
        )


def gathered(constraint: Constraint, vocab_size: int) -> Constraint:
    """A simple path alone, or together with literals that say nothing but which edges are present, is one leaf."""
    alone = _with_literals(constraint)
    if alone is not None:
        return alone
    return constraint.transform(lambda leaf: FixedPath(leaf) if isinstance(leaf, SimplePath) else leaf)


def _with_literals(constraint: Constraint) -> FixedPath | None:
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
    return FixedPath(path, tuple((bool(absent), bool(present)) for absent, present in allowed))


def path_circuit(problem: Problem, leaf: FixedPath) -> Circuit:
    """The circuit of a simple path, a block for each edge; later positions hold anything, the end of the text included.

    Raises:
        Unsatisfiable: no path uses the edges that are known to be present and avoids those known to be absent.
        BudgetExceeded: see `path_layers`.
    """
    layers = leaf.layers()
    if not len(layers[0]):
        raise unsatisfiable(problem.length)
    classes = classes_of(problem, leaf)
    symbol = _symbols(leaf.path, classes)
    is_edge = symbol != NEITHER
    tables = []
    for layer in layers:
        table = np.full((len(layer), classes.num_classes), DEAD, dtype=np.int32)
        table[:, is_edge] = layer[:, symbol[is_edge]]
        tables.append(table)
    ends = classes.token_class[list(problem.tokenizer.eos_ids)]
    tables += [_tail(classes.num_classes, ends, i >= problem.min_length) for i in range(len(layers), problem.length)]
    # The state of a whole path is followed by those of a text that goes on and of one that has ended.
    sizes = [*map(len, tables), len(tables[-1]) if problem.length > len(layers) else 1]
    live = [np.ones(size, dtype=np.bool_) for size in sizes]
    return Circuit(table_reader(classes.token_class, tables, live))


def _tail(num_classes: int, ends: Ints, may_end: bool) -> Rows:
    """Int32[states, classes] after the last edge: state 0 goes on with anything, state 1 has ended and only padding follows.

    Args:
        ends: the classes of all ends, that of the padding first.
    """
    table = np.zeros((2 if len(ends) else 1, num_classes), dtype=np.int32)
    if len(ends):
        table[0, ends] = 1 if may_end else DEAD
        table[1] = DEAD
        table[1, ends[0]] = 1
    return table


def _symbols(path: SimplePath, classes: Partition) -> Ints:
    """Int64[classes]: 0 for "absent", 1 for "present", or NEITHER."""
    assert path.symbols is not None  # the leaf is bound to its vocabulary
    symbol = np.full(classes.num_classes, NEITHER, dtype=np.int64)
    for number, ids in enumerate(path.symbols):
        symbol[classes.token_class[list(ids)]] = number
    return symbol


@dataclass(frozen=True, eq=False)
class ClassLayers:
    """The automaton of a simple path over the classes of a constraint.

    Attributes:
        targets: the layers of `path_layers`.
        symbol: Int64[classes]: 0 for "absent", 1 for "present", or NEITHER.
    """

    targets: list[Targets]
    symbol: Ints


@dataclass(frozen=True, eq=False)
class PathState(Atom):
    """The atom "from this state of the present layer, the remaining edges complete the path"."""

    layers: ClassLayers
    state: int

    def after(self, position: int, token_class: int) -> Constraint:
        """The state of the next layer; a constant where the path is complete or has failed."""
        symbol = int(self.layers.symbol[token_class])
        target = DEAD if symbol == NEITHER else int(self.layers.targets[position][self.state, symbol])
        if target == DEAD or position + 1 == len(self.layers.targets):
            return Constant(target != DEAD)
        return PathState(self.layers, target)

    def signature(self, position: int) -> Ints:
        """Int64[classes]: by symbol."""
        return self.layers.symbol - NEITHER
