"""Combinatorial leaves and what stands beside them become one conjunction, which is compiled by search.

What is known (givens, literals) narrows what the others can be, and a token that no position can hold is never told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from locore.circuits import Circuit
from locore.constraints import And, Constant, Constraint, Count, Literal, Not, Or, conjunction, disjunction, negation
from locore.kernel.compilers.problem import CompilerLeaf, Partition, Problem
from locore.kernel.constraints.structure import fold
from locore.puzzles.combinatorial import AllDifferent, AllEqual, Combinatorial, TokenSum
from locore.puzzles.combinatorial.equality import lowered_parts
from locore.puzzles.combinatorial.network import Part, Store
from locore.puzzles.combinatorial.search import compile_by_search

Domains = dict[int, frozenset[int]]  # tokens that a position can hold; all where it is not named


@dataclass(frozen=True, eq=False)
class Conjunct(CompilerLeaf):
    """A conjunction of literals, counts and combinatorial leaves."""

    parts: tuple[Part, ...]

    def token_sets(self) -> Iterable[frozenset[int]]:
        """The sets of tokens that it tells apart."""
        for part in self.parts:
            if isinstance(part, TokenSum):
                yield from part.groups().values()
            elif isinstance(part, AllDifferent | AllEqual):
                yield from part.values
            else:
                yield part.tokens

    def circuit(self, problem: Problem) -> Circuit:
        """All solutions, by search."""
        return compile_by_search(problem, self, self.parts)

    def atom(self, classes: Partition, length: int) -> Constraint:
        """The network of the parts, propagated."""
        return Store.of(self.parts, classes, length)

    def spelled_out(self, vocab_size: int) -> Constraint:
        """Each part by itself."""
        return lowered_parts(self.parts, vocab_size)


def gathered(constraint: Constraint, vocab_size: int) -> Constraint:
    """The constraint with each conjunction of combinatorial leaves, literals and counts as one `Conjunct`."""
    if not any(isinstance(leaf, Combinatorial) for leaf in constraint.leaves()):
        return constraint

    def rule(node: Constraint, parts: list[Constraint]) -> Constraint:
        if isinstance(node, Combinatorial):
            return Conjunct(tuple(node.parts()))  # type: ignore[arg-type]
        if isinstance(node, Not):
            return negation(parts[0])
        if isinstance(node, Or):
            return disjunction(parts)
        return _joined(parts, vocab_size) if isinstance(node, And) else node

    joined = fold(constraint, rule)
    return joined.transform(lambda leaf: _narrowed(leaf, vocab_size) if isinstance(leaf, Conjunct) else leaf)


def _joined(parts: list[Constraint], vocab_size: int) -> Constraint:
    """A conjunction whose simple parts are one, if there is a combinatorial one among them."""
    if not any(isinstance(part, Conjunct) for part in parts):
        return conjunction(parts)
    simple: list[Part] = []
    others: list[Constraint] = []
    for part in parts:
        if isinstance(part, Conjunct):
            simple += part.parts
        elif isinstance(part, Literal | Count):
            simple.append(part)
        elif isinstance(part, Not) and isinstance(part.of, Literal):
            simple.append(Literal(part.of.position, frozenset(range(vocab_size)) - part.of.tokens))
        else:
            others.append(part)
    return conjunction([Conjunct(tuple(simple)), *others])


def _narrowed(conjunct: Conjunct, vocab_size: int) -> Constraint:
    """The same with the ids that can occur written down wherever ids are compared; never true where none is left."""
    domains: Domains = {}
    for part in conjunct.parts:
        if isinstance(part, Literal):
            domains[part.position] = domains.get(part.position, part.tokens) & part.tokens
    if not all(domains.values()):
        return Constant(False)
    every = frozenset(range(vocab_size))
    parts: list[Part] = []
    for part in conjunct.parts:
        if isinstance(part, AllDifferent | AllEqual) and not part.values:
            join = frozenset.union if isinstance(part, AllDifferent) else frozenset.intersection
            ids = reduce(join, [domains.get(position, every) for position in part.positions])
            if not ids:
                return Constant(False)
            part = replace(part, values=tuple(frozenset({token}) for token in sorted(ids)))
        parts.append(part)
    literals = [Literal(position, tokens) for position, tokens in domains.items()]
    return Conjunct((*literals, *(part for part in parts if not isinstance(part, Literal))))
