"""Atoms of residuals: what is left of a leaf after a prefix, if it is neither a literal nor a count."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from locore.automata.lift import fates
from locore.compilers.automata import Lifted
from locore.compilers.problem import CompilerLeaf, Ints, Partition
from locore.constraints import Constant, Constraint


class Atom(CompilerLeaf):
    """A frozen dataclass that knows what reading one more token makes of it.

    Attributes:
        timeless: does it do the same at every position?
    """

    timeless = False

    @abstractmethod
    def after(self, position: int, number: int) -> Constraint:
        """What is left once a token of class `number` has been read at `position`."""

    @abstractmethod
    def signature(self, position: int) -> Ints:
        """Int64[classes], from 0 on: classes with equal numbers have the same effect at a position."""

    def holds_before(self, position: int, classes: list[int]) -> bool:
        """Does it hold if tokens of these classes are read from `position` on, and then none?"""
        residual: Constraint = self
        for offset, number in enumerate(classes):
            if isinstance(residual, Atom):
                residual = residual.after(position + offset, number)
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

    def after(self, position: int, number: int) -> Constraint:
        """The next state; never true after a token that the automaton cannot read."""
        return self.automaton.atom(self.automaton.step(self.state, number))

    def signature(self, position: int) -> Ints:
        """Int64[classes]: by the next state."""
        return self.automaton.successors(self.state) + 1

    def holds_before(self, position: int, classes: list[int]) -> bool:
        """Does it accept them? Of text only what has been read counts: the rest is its end and padding."""
        state = self.state
        for number in () if self.automaton.over_text else classes:
            state = self.automaton.step(state, number)
        return bool(self.automaton.accepting[state])
