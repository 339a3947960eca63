"""Constraints that a machine over bytes decides, which may have any number of states; and constraints on text as machines."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np

from locore.automata.composed import AutomatonMachine, Complement, Joined, as_automaton
from locore.automata.lazily import ByteMachine
from locore.automata.pushdown import Follow, PushdownMachine
from locore.kernel.automata.tables import Automaton, product_of
from locore.kernel.constraints.base import And, Constant, Constraint, Not
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.structure import fold
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import BudgetExceeded, InvalidConstraint

SMALL = 250  # states of an automaton that is made as a whole in a moment


class MachineLeaf(AutomatonLeaf):
    """A constraint on the text that a machine decides, reading left to right; its states are made as texts go.

    There may be any number of states. Where there are few, all of them are made, and it is a constraint like any other.
    """

    reads = "bytes"

    def machine(self) -> ByteMachine:
        """The machine that accepts exactly the texts on which the constraint holds; each call gives the same one."""
        return self._machine

    @cached_property
    def _machine(self) -> ByteMachine:
        """As it is made, which a kind says here or in `machine`."""
        raise NotImplementedError

    @property
    def is_small(self) -> bool:
        """Can all states be made in a moment? Not unless a kind knows better."""
        return False

    def automaton(self) -> Automaton:
        """All states of the machine.

        Raises:
            BudgetExceeded: there are too many.
        """
        return self._automaton

    @cached_property
    def _automaton(self) -> Automaton:
        return as_automaton(self.machine())


class NestedLeaf(MachineLeaf):
    """A constraint on nested texts, which can be followed state by state."""

    is_utf8 = True

    @property
    @abstractmethod
    def is_endless(self) -> bool:
        """Does nothing but a bound that the user sets keep it from nesting without end?"""

    @abstractmethod
    def follow(self) -> Follow:
        """Makes an automaton of the texts whose states are made when they are first reached; it can be pickled."""

    @abstractmethod
    def automaton_within(self, most: int) -> Automaton:
        """The minimal automaton, if no more than so many states have to be looked at.

        Raises:
            BudgetExceeded: more.
        """

    @cached_property
    def is_small(self) -> bool:
        """Can its automaton be made as a whole in a moment?"""
        if self.is_endless:
            return False
        try:
            self.automaton_within(SMALL)
        except BudgetExceeded:
            return False
        return True

    @cached_property
    def _machine(self) -> ByteMachine:
        """The automaton as a machine whose states are made when they are reached."""
        return PushdownMachine(self.follow())


class PartOfText(TokenSequence):
    """A stretch of a text, for constraints that speak about text alone."""

    def __init__(self, content: bytes) -> None:
        """The bytes of the stretch."""
        super().__init__((), None)
        self.__dict__["text"] = content


def is_finite(constraint: Constraint) -> bool:
    """Is a constraint on text one that automata decide?"""
    return all(leaf.is_small for leaf in constraint.leaves())


def is_text_leaf(leaf: Constraint) -> bool:
    """Does it speak about the text alone?"""
    return isinstance(leaf, Constant) or (isinstance(leaf, AutomatonLeaf) and leaf.reads == "bytes")


def require_text(constraint: object, where: str) -> Constraint:
    """A constraint that speaks about text alone.

    Raises:
        InvalidConstraint: it is none, or speaks of positions, tokens or the end.
    """
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(f"{where} needs a constraint, got {constraint!r}; such as choice([...]) or regex(...)")
    for leaf in constraint.leaves():
        if leaf.waits_for_prompt() or not is_text_leaf(leaf):
            raise InvalidConstraint(
                f"{where} speaks about a part of the text, in which {type(leaf).__name__} has no meaning; use constraints on "
                "text there (choice, regex, json_schema, ban, contains, grammar, …), and combine others with the whole by &"
            )
    return constraint


def machine_of(constraint: Constraint) -> ByteMachine:
    """The machine of a constraint on text; automata are combined beforehand."""

    def rule(node: Constraint, parts: list[Automaton | ByteMachine]) -> Automaton | ByteMachine:
        if isinstance(node, Constant):
            return Automaton(np.zeros((1, 1), dtype=np.int32), np.array([node.value]), {}, 0)
        if isinstance(node, MachineLeaf) and not node.is_small:
            return node.machine()
        if isinstance(node, AutomatonLeaf):
            return node.automaton()
        if isinstance(node, Not):
            return parts[0].complement() if isinstance(parts[0], Automaton) else Complement(parts[0])
        conjunctive = isinstance(node, And)
        automata = [part for part in parts if isinstance(part, Automaton)]
        merged = [product_of(automata, conjunctive)] if automata else []
        others = [part for part in parts if not isinstance(part, Automaton)]
        return Joined([*others, *map(AutomatonMachine, merged)], conjunctive) if others else merged[0]

    found = fold(constraint, rule)
    return AutomatonMachine(found) if isinstance(found, Automaton) else found
