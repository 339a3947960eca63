"""Constraints that a machine over bytes decides, which may have any number of states."""

from __future__ import annotations

from abc import abstractmethod

from locore.automata.lazily import ByteMachine
from locore.constraints.base import Constraint


class MachineLeaf(Constraint):
    """A constraint on the text that a machine with any number of states decides, reading left to right."""

    is_text = True

    @abstractmethod
    def machine(self) -> ByteMachine:
        """The machine that accepts exactly the texts on which the constraint holds; each call gives the same one."""
