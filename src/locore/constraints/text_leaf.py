"""Constraints on the text: those that count something, and those that a machine with any number of states decides."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from locore.automata.byte_machine import ByteMachine
from locore.automata.composed import AutomatonMachine, Complement, Joined, as_automaton
from locore.automata.machines import Tally, bounded
from locore.automata.pushdown import Follow, PushdownMachine
from locore.kernel.automata.tables import Automaton, product_of
from locore.kernel.constraints.constraint import And, Constant, Constraint, Json, Not
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import form_of
from locore.kernel.constraints.spelling import called
from locore.kernel.constraints.structure import fold
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from locore.kernel.plugins import cached_property

SMALL = 250  # states of an automaton that is made as a whole in a moment


class TextLeaf(AutomatonLeaf):
    """Something is counted in the text, and the count is bounded.

    It is counted twice: by a machine over bytes, and plainly. A kind is a frozen dataclass whose fields are the parameters of
    the public function that makes it.
    """

    reads = "bytes"
    kind: ClassVar[str]  # the name of that function

    @abstractmethod
    def tally(self) -> Tally:
        """The machine over bytes that counts."""

    @abstractmethod
    def number(self, content: bytes) -> int:
        """The count, plainly."""

    @abstractmethod
    def reason(self, content: bytes) -> str:
        """What was found in a text, in words; it explains why the constraint holds or not."""

    def bounds(self) -> tuple[int, int | None]:
        """Least and greatest count that is allowed; None: any."""
        return 1, None

    def automaton(self) -> Automaton:
        """Accepts when the count of the machine is within the bounds."""
        return bounded(self.tally(), *self.bounds())

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The plain count is within the bounds."""
        low, high = self.bounds()
        number = self.number(sequence.text)
        return low <= number and (high is None or number <= high)

    def why(self, sequence: TokenSequence) -> str:
        """What was found in the text of a sequence."""
        return self.reason(sequence.text)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": kind, field: value, ...}` without the fields that have their default value."""
        return form_of(self)

    def __repr__(self) -> str:
        return called(self.json_of([]))


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

    combined = fold(constraint, rule)
    return AutomatonMachine(combined) if isinstance(combined, Automaton) else combined
