"""Regular languages: expressions, Python's regular expressions as such, and their minimal automata over UTF-8 bytes."""

from __future__ import annotations

from locore.automata.regex.determinise import determinise
from locore.automata.regex.dfa import Budget
from locore.automata.regex.language import Language
from locore.kernel.automata.tables import Automaton


def byte_automaton(language: Language, budget: Budget | None = None) -> Automaton:
    """The minimal automaton of the UTF-8 encodings of the strings of a language.

    Raises:
        BudgetExceeded: it is too large, or finding it takes too long.
        InvalidConstraint: a look-behind contains a look-ahead that reads past its end.
    """
    allowed = Budget.in_force() if budget is None else budget
    return determinise(language, allowed).over_bytes(allowed)


__all__ = ["Budget", "byte_automaton"]
