"""Atoms of residuals: what is left of a leaf after a prefix, if it is neither a literal, a count nor an automaton state."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints import Constraint
from locore.constraints.base import Json
from locore.constraints.sequence import TokenSequence


class Atom(Constraint):
    """A frozen dataclass that knows what reading one more token makes of it. It lives inside a compiler only."""

    @abstractmethod
    def after(self, position: int, number: int) -> Constraint:
        """What is left once a token of class `number` has been read at `position`."""

    @abstractmethod
    def signature(self, position: int) -> NDArray[np.int64]:
        """Int64[classes], from 0 on: classes with equal numbers have the same effect at a position."""

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Not known here: the classes belong to the compiler."""
        raise NotImplementedError

    def json_of(self, parts: list[Json]) -> Json:
        """None: the classes belong to the compiler."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class State(Constraint):
    """The atom "automaton number `automaton`, from `state`, accepts what follows". It lives inside a compiler only."""

    automaton: int
    state: int

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Not known here: the automata belong to the compiler."""
        raise NotImplementedError

    def json_of(self, parts: list[Json]) -> Json:
        """None: the automata belong to the compiler."""
        raise NotImplementedError
