"""What is left of a constraint after a prefix: memoised restriction, for formulas and automata alike.

A residual is a Boolean expression over literals and counts of later positions and over atoms, such as states of automata.
Reading a token replaces literals by constants and atoms by their successors; equal residuals are one state. The decision
diagram of a formula and the product of automata are both special cases, so mixtures need no rule of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.lift import fates
from locore.kernel.automata.tables import number_rows
from locore.kernel.compilers.problem import CompilerLeaf, Ints, Lifted, Partition
from locore.kernel.constraints.constraint import And, Constant, Constraint, Not, Or, decided, negation
from locore.kernel.constraints.structure import postorder
from locore.kernel.constraints.tokens import Count, Literal
from locore.kernel.plugins import cached_property

Row = tuple[list[Constraint], Ints]


class Atom(CompilerLeaf):
    """A frozen dataclass that knows what reading one more token makes of it.

    Attributes:
        timeless: does it do the same at every position?
    """

    timeless = False

    @abstractmethod
    def after(self, position: int, token_class: int) -> Constraint:
        """What is left once a token of class `token_class` has been read at `position`."""

    @abstractmethod
    def signature(self, position: int) -> Ints:
        """Int64[classes], from 0 on: classes with equal numbers have the same effect at a position."""

    def holds_after(self, position: int, classes: list[int]) -> bool:
        """Does it hold if tokens of these classes are read from `position` on, and then none?"""
        residual: Constraint = self
        for offset, token_class in enumerate(classes):
            if isinstance(residual, Atom):
                residual = residual.after(position + offset, token_class)
        return isinstance(residual, Constant) and residual.value


class ClassAutomaton:
    """An automaton over the token classes of a constraint. Its states are atoms, each made once, so that they compare fast."""

    def __init__(self, leaf: Lifted, classes: Partition) -> None:
        self.over_text = leaf.over_text
        self.accepting = leaf.automaton.accepting
        function = leaf.automaton.function[classes.representative]
        self._readable = function >= 0
        self._function = np.maximum(function, 0)
        self._targets = leaf.automaton.functions
        self._fates = fates(leaf.automaton)
        self._atoms: dict[int, Constraint] = {}

    @cached_property
    def distance(self) -> NDArray[np.float64]:
        """f64[states]: how many tokens acceptance takes at least; inf where it is out of reach."""
        distance = np.where(self.accepting, 0.0, np.inf)
        targets = self._targets[np.unique(self._function[self._readable])]
        while True:
            nearer = np.minimum(distance, 1 + distance[targets].min(0, initial=np.inf))
            if (nearer == distance).all():
                return distance
            distance = nearer

    def step(self, state: int, number: int) -> int:
        """The state after a class; -1 where it cannot be read."""
        return int(self._targets[self._function[number], state]) if self._readable[number] else -1

    def successors(self, state: int) -> Ints:
        """Int64[classes]: the state after each class."""
        return np.where(self._readable, self._targets[self._function, state].astype(np.int64), -1)

    def atom(self, state: int) -> Constraint:
        """The atom of a state; a constant where nothing that follows changes the answer, which keeps products small."""
        if state not in self._atoms:
            fate = int(self._fates[state]) if state >= 0 else 0
            self._atoms[state] = AutomatonState(self, state) if fate < 0 else Constant(bool(fate))
        return self._atoms[state]


@dataclass(frozen=True, eq=False)
class AutomatonState(Atom):
    """The atom "the automaton, from this state, accepts what follows"."""

    automaton: ClassAutomaton
    state: int
    timeless = True

    def after(self, position: int, token_class: int) -> Constraint:
        """The next state; never true after a token that the automaton cannot read."""
        return self.automaton.atom(self.automaton.step(self.state, token_class))

    def signature(self, position: int) -> Ints:
        """Int64[classes]: by the next state."""
        return self.automaton.successors(self.state) + 1

    def holds_after(self, position: int, classes: list[int]) -> bool:
        """Does it accept them? Of text only what has been read counts: the rest is its end and padding."""
        state = self.state
        for number in () if self.automaton.over_text else classes:
            state = self.automaton.step(state, number)
        return bool(self.automaton.accepting[state])


class Residuals:
    """Restriction of residuals, token class by token class.

    Attributes:
        root: the residual before anything is read, over literals, counts and atoms.
        classes: the token classes.
        length: number of positions.
        eos_ids: ids that end the text; the first is the padding.
    """

    def __init__(self, root: Constraint, classes: Partition, length: int, eos_ids: tuple[int, ...]) -> None:
        self.root = root
        self.classes = classes
        self.length = length
        self.eos_ids = eos_ids
        self._sets: dict[int, dict[frozenset[int], None]] = {}  # that literals and counts tell apart, by position
        for leaf in _leaves(root):
            positions = leaf.positions if isinstance(leaf, Count) else (leaf.position,) if isinstance(leaf, Literal) else ()
            for position in positions:
                self._sets.setdefault(position, {})[leaf.tokens] = None  # type: ignore[attr-defined]
        self._restricted: dict[tuple[object, ...], dict[Constraint, Constraint]] = {}
        self._signatures: dict[int, Ints] = {}
        self._rows: dict[Constraint, Row] = {}
        self._one_object: dict[Constraint, Constraint] = {}  # which makes comparing residuals fast
        self._timeless: dict[Constraint, bool] = {}

    def row(self, residual: Constraint, position: int) -> Row:
        """The distinct residuals after each class at `position`, and Int64[classes], which of them a class leads to."""
        if not self.is_timeless(residual):
            return self.fresh_row(residual, position)
        if residual not in self._rows:
            self._rows[residual] = self.fresh_row(residual, position)
        return self._rows[residual]

    def is_timeless(self, residual: Constraint) -> bool:
        """Does the residual do the same at every position (no literals, no counts)?"""
        if residual not in self._timeless:
            self._timeless[residual] = all(isinstance(leaf, Atom) and leaf.timeless for leaf in _leaves(residual))
        return self._timeless[residual]

    def holds_at_end(self, residual: Constraint, position: int, token: int) -> bool:
        """Does a residual hold if the token at `position` is this end of sequence and only padding follows?"""
        return self._value(residual, position, [token, *self.eos_ids[:1] * (self.length - position - 1)])

    def holds_now(self, residual: Constraint) -> bool:
        """Does a residual hold when all positions have been read?"""
        return self._value(residual, self.length, [])

    def _value(self, residual: Constraint, position: int, later: list[int]) -> bool:
        """The truth of a residual once all later tokens are known: the end and its padding."""
        value: dict[Constraint, bool] = {}
        for node in postorder(residual):
            if isinstance(node, Constant):
                value[node] = node.value
            elif isinstance(node, Literal):
                value[node] = later[node.position - position] in node.tokens
            elif isinstance(node, Count):
                held = sum(later[p - position] in node.tokens for p in node.positions)
                value[node] = node.at_least <= held and (node.at_most is None or held <= node.at_most)
            elif isinstance(node, Atom):
                value[node] = node.holds_after(position, self.classes.token_class[later].tolist() if later else [])
            elif isinstance(node, Not):
                value[node] = not value[node.of]
            elif isinstance(node, And):
                value[node] = all(value[child] for child in node.of)
            elif isinstance(node, Or):
                value[node] = any(value[child] for child in node.of)
        return value[residual]

    def fresh_row(self, residual: Constraint, position: int) -> Row:
        """As `row`, without keeping it."""
        atoms = [leaf for leaf in _leaves(residual) if isinstance(leaf, Atom)]
        signatures = [atom.signature(position) for atom in atoms]
        columns = signatures if self.is_timeless(residual) else [self._signature(position), *signatures]
        if not columns:  # nothing that is left looks at tokens
            columns = [np.zeros(self.classes.num_classes, dtype=np.int64)]
        effect, first = number_rows(np.stack(columns, 1))
        outcomes = []
        for number in first.tolist():
            if isinstance(residual, Atom):
                outcome = residual.after(position, number)
            else:
                effects = frozenset((atom, int(column[number])) for atom, column in zip(atoms, signatures, strict=True))
                outcome = self._restrict(residual, position, number, effects)
            outcomes.append(self._one_object.setdefault(outcome, outcome))
        return outcomes, effect.astype(np.int64)

    def _signature(self, position: int) -> Ints:
        """Int64[classes]: classes with equal numbers are in the same token sets of literals and counts at this position."""
        if position not in self._signatures:
            sets = list(self._sets.get(position, ()))
            names: dict[tuple[bool, ...], int] = {}
            tokens = self.classes.representative.tolist()
            numbers = [names.setdefault(tuple(t in s for s in sets), len(names)) for t in tokens]
            self._signatures[position] = np.array(numbers, dtype=np.int64)
        return self._signatures[position]

    def _restrict(self, residual: Constraint, position: int, number: int, effects: frozenset[tuple[Atom, int]]) -> Constraint:
        """The residual after a token class. Parts restricted before, to the same effect, are not walked again."""
        restricted = self._restricted.setdefault((position, int(self._signature(position)[number]), effects), {})
        stack = [residual]
        while stack:
            node = stack[-1]
            todo = [child for child in node.children() if child not in restricted]
            if todo and node not in restricted:
                stack.extend(todo)
                continue
            if node not in restricted:
                restricted[node] = self._rebuilt(node, restricted, position, number)
            stack.pop()
        return restricted[residual]

    def _rebuilt(self, node: Constraint, restricted: dict[Constraint, Constraint], position: int, number: int) -> Constraint:
        token = int(self.classes.representative[number])
        if isinstance(node, Literal):
            return Constant(token in node.tokens) if node.position == position else node
        if isinstance(node, Count):
            return _restricted_count(node, position, token)
        if isinstance(node, Atom):
            return node.after(position, number)
        if isinstance(node, Not):
            return negation(restricted[node.of])
        if isinstance(node, And | Or):
            return decided(type(node), [restricted[child] for child in node.of])
        return node


def _leaves(residual: Constraint) -> list[Constraint]:
    return [node for node in postorder(residual) if isinstance(node, Literal | Count | Atom)]


def _restricted_count(count: Count, position: int, token: int) -> Constraint:
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
