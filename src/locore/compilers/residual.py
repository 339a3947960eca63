"""What is left of a constraint after a prefix: memoised restriction, for formulas and automata alike.

A residual is a Boolean expression over literals and counts of later positions and over automaton states. Reading a token
replaces literals by constants and states by their successors; equal residuals are one state. The decision diagram of a formula
and the product of automata are both special cases, so mixtures need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from locore.compilers.atom import Atom, State
from locore.compilers.lift import TokenAutomaton, fates
from locore.compilers.partition import Partition
from locore.constraints import (
    And,
    Constant,
    Constraint,
    Count,
    Literal,
    Not,
    Or,
    decided,
    negation,
)
from locore.constraints.structure import postorder

Ints = NDArray[np.int64]
Row = tuple[list[Constraint], Ints]


@dataclass
class Residuals:
    """Restriction of residuals, token class by token class.

    Attributes:
        length: number of positions.
        classes: the token classes.
        automata: the automata that `State` atoms number, in lifted form.
        ends_with_text: for each automaton, whether the end of the text stops it (it reads bytes).
        eos_ids: ids that end the text; the first is the padding.
    """

    length: int
    classes: Partition
    automata: list[TokenAutomaton]
    ends_with_text: list[bool]
    eos_ids: tuple[int, ...]
    _cache: dict[tuple[object, ...], dict[Constraint, Constraint]] = field(default_factory=dict)
    _fate: dict[int, NDArray[np.int8]] = field(default_factory=dict)
    _signatures: dict[int, Ints] = field(default_factory=dict)
    _sets: dict[int, list[frozenset[int]]] = field(default_factory=dict)
    _rows: dict[Constraint, Row] = field(default_factory=dict)
    _one_object: dict[Constraint, Constraint] = field(default_factory=dict)
    _after_state: dict[tuple[int, int], Constraint] = field(default_factory=dict)
    _timeless: dict[Constraint, bool] = field(default_factory=dict)

    def prepare(self, root: Constraint) -> Constraint:
        """Learn which token sets matter at which position; must be called once, with the whole constraint."""
        for atom in _atoms(root):
            positions = atom.positions if isinstance(atom, Count) else ()
            if isinstance(atom, Literal):
                positions = (atom.position,)
            for position in positions:
                self._sets.setdefault(position, []).append(atom.tokens)  # type: ignore[attr-defined]
        return self._settle(root)

    def row(self, residual: Constraint, position: int) -> Row:
        """The distinct residuals after each class at `position`, and Int64[classes], which of them a class leads to."""
        if not self.is_timeless(residual):
            return self._row(residual, position)
        if residual not in self._rows:
            self._rows[residual] = self._row(residual, position)
        return self._rows[residual]

    def is_timeless(self, residual: Constraint) -> bool:
        """Does the residual do the same at every position (no literals, no counts)?"""
        known = self._timeless.get(residual)
        if known is None:
            known = all(isinstance(atom, State) for atom in _atoms(residual))
            self._timeless[residual] = known
        return known

    def _row(self, residual: Constraint, position: int) -> Row:
        states = [atom for atom in _atoms(residual) if isinstance(atom, State)]
        columns = [self._signature(position)] if not self.is_timeless(residual) else []
        columns += [self._successors(atom) for atom in states]
        columns += [atom.signature(position) for atom in _atoms(residual) if isinstance(atom, Atom)]
        code = np.zeros(self.classes.num_classes, dtype=np.int64)
        for column in columns:
            code = np.unique(code * (int(column.max()) + 2) + column + 1, return_inverse=True)[1].ravel()
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        if isinstance(residual, State):  # a lone automaton: its successors are the residuals
            targets = columns[0][first].tolist()
            return [self._after(residual, target) for target in targets], inverse.ravel()
        outcomes = []
        for representative in first:
            successor = {atom: int(self._successors(atom)[representative]) for atom in states}
            outcome = self._restrict(residual, position, int(representative), successor)
            outcomes.append(self._one_object.setdefault(outcome, outcome))
        return outcomes, inverse.ravel()

    def _after(self, atom: State, target: int) -> Constraint:
        """The residual of an automaton in its next state; always the same object, which makes comparing residuals fast."""
        key = (atom.automaton, target)
        if key not in self._after_state:
            known = Constant(False) if target < 0 else self._settle(State(atom.automaton, target))
            self._after_state[key] = known
        return self._after_state[key]

    def at_end(self, residual: Constraint, position: int, token: int) -> bool:
        """Does a residual hold if the token at `position` is this end of sequence and only padding follows?"""
        if isinstance(residual, State) and self.ends_with_text[residual.automaton]:
            return bool(self.automata[residual.automaton].accepting[residual.state])
        return self._fold_constant(residual, position, token)

    def finished(self, residual: Constraint) -> bool:
        """Does a residual hold when all positions have been read?"""
        return self._fold_constant(residual, self.length, None)

    def _fold_constant(self, residual: Constraint, position: int, token: int | None) -> bool:
        """The truth of a residual once all later tokens are known to be the end and its padding."""
        later = [token, *self.eos_ids[:1] * (self.length - position - 1)] if token is not None else []
        value: dict[Constraint, bool] = {}
        for node in postorder(residual):
            if isinstance(node, Constant):
                value[node] = node.value
            elif isinstance(node, Literal):
                value[node] = later[node.position - position] in node.tokens
            elif isinstance(node, Count):
                held = sum(later[p - position] in node.tokens for p in node.positions)
                value[node] = node.at_least <= held and (node.at_most is None or held <= node.at_most)
            elif isinstance(node, State):
                value[node] = self._accepts(node, later)
            elif isinstance(node, Atom):
                value[node] = self._solved(node, position, later)
            elif isinstance(node, Not):
                value[node] = not value[node.of]
            elif isinstance(node, And):
                value[node] = all(value[child] for child in node.of)
            elif isinstance(node, Or):
                value[node] = any(value[child] for child in node.of)
        return value[residual]

    def _accepts(self, atom: State, later: list[int]) -> bool:
        automaton = self.automata[atom.automaton]
        state = atom.state
        if not self.ends_with_text[atom.automaton]:
            for token in later:
                state = int(automaton.functions[automaton.function[token], state])
        return bool(automaton.accepting[state])

    def _solved(self, atom: Atom, position: int, later: list[int]) -> bool:
        """Does an atom hold when these tokens are read from `position` on?"""
        residual: Constraint = atom
        for offset, token in enumerate(later):
            if isinstance(residual, Atom):
                residual = residual.after(position + offset, int(self.classes.token_class[token]))
        return isinstance(residual, Constant) and residual.value

    def _signature(self, position: int) -> Ints:
        """Int64[classes]: classes with equal numbers are in the same token sets at this position."""
        if position not in self._signatures:
            sets = list(dict.fromkeys(self._sets.get(position, [])))
            names: dict[tuple[bool, ...], int] = {}
            tokens = self.classes.representative.tolist()
            numbers = [names.setdefault(tuple(t in s for s in sets), len(names)) for t in tokens]
            self._signatures[position] = np.array(numbers, dtype=np.int64)
        return self._signatures[position]

    def _successors(self, atom: State) -> Ints:
        """Int64[classes]: the automaton's next state; -1 after a token that it cannot read."""
        automaton = self.automata[atom.automaton]
        function = automaton.function[self.classes.representative]
        target = automaton.functions[np.maximum(function, 0), atom.state].astype(np.int64)
        return np.where(function < 0, -1, target)

    def _restrict(self, residual: Constraint, position: int, representative: int, successor: dict[State, int]) -> Constraint:
        """The residual after a token class. Parts restricted before, with the same outcome, are not walked again."""
        token = int(self.classes.representative[representative])
        signature = int(self._signature(position)[representative])
        moves = sorted((atom.automaton, atom.state, target) for atom, target in successor.items())
        # An atom distinguishes classes on its own account; nothing else tells apart what has one signature.
        column = representative if any(isinstance(atom, Atom) for atom in _atoms(residual)) else -1
        known = self._cache.setdefault((position, signature, column, *moves), {})
        stack = [residual]
        while stack:
            node = stack[-1]
            todo = [child for child in node.children() if child not in known]
            if todo and node not in known:
                stack.extend(todo)
                continue
            if node not in known:
                known[node] = self._rebuild(node, known, position, token, successor)
            stack.pop()
        return known[residual]

    def _rebuild(
        self, node: Constraint, known: dict[Constraint, Constraint], position: int, token: int, successor: dict[State, int]
    ) -> Constraint:
        if isinstance(node, Literal):
            return Constant(token in node.tokens) if node.position == position else node
        if isinstance(node, Count):
            return _restrict_count(node, position, token)
        if isinstance(node, State):
            return self._after(node, successor[node])
        if isinstance(node, Atom):
            return node.after(position, int(self.classes.token_class[token]))
        if isinstance(node, Not):
            return negation(known[node.of])
        if isinstance(node, And):
            return decided(And, [known[child] for child in node.of])
        if isinstance(node, Or):
            return decided(Or, [known[child] for child in node.of])
        return node

    def _settle(self, residual: Constraint) -> Constraint:
        """A state whose fate is sealed is a constant; this keeps products of automata small."""
        if not isinstance(residual, State):
            return residual
        fate = self._fate.get(residual.automaton)
        if fate is None:
            fate = self._fate[residual.automaton] = fates(self.automata[residual.automaton])
        return residual if fate[residual.state] < 0 else Constant(bool(fate[residual.state]))


def _atoms(residual: Constraint) -> Iterator[Constraint]:
    return (node for node in postorder(residual) if isinstance(node, Literal | Count | State | Atom))


def _restrict_count(count: Count, position: int, token: int) -> Constraint:
    """A count with one position less, and its bounds lowered if the token is counted."""
    if position not in count.positions:
        return count
    rest = tuple(p for p in count.positions if p != position)
    hit = int(token in count.tokens)
    at_least = max(0, count.at_least - hit)
    at_most = None if count.at_most is None or count.at_most - hit >= len(rest) else count.at_most - hit
    if at_least > len(rest) or (at_most is not None and at_most < at_least):
        return Constant(False)
    if at_least == 0 and at_most is None:
        return Constant(True)
    return Count(rest, count.tokens, at_least, at_most)
