"""Regular languages: expressions, Python's regular expressions as such, and their minimal automata over UTF-8 bytes."""

from __future__ import annotations

from locore.constraints.automaton import Automaton
from locore.constraints.regular.budget import Budget
from locore.constraints.regular.determinise import determinise
from locore.constraints.regular.ir import Language
from locore.constraints.regular.utf8 import to_bytes


def byte_automaton(language: Language, budget: Budget | None = None) -> Automaton:
    """The minimal automaton of the UTF-8 encodings of the strings of a language.

    Raises:
        BudgetExceeded: it is too large, or finding it takes too long.
        InvalidConstraint: a look-behind contains a look-ahead that reads past its end.
    """
    known = Budget.in_force() if budget is None else budget
    return to_bytes(determinise(language, known), known)


__all__ = ["Budget", "byte_automaton"]
