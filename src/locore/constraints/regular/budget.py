"""What turning one expression into an automaton may cost. Counts, not seconds: a pattern is refused everywhere or nowhere."""

from __future__ import annotations

from dataclasses import dataclass, fields

from locore.errors import BudgetExceeded
from locore.limits import Limits, check_progress, limits_in_force


@dataclass
class Budget:
    """Limits, of which `moves` are used up while they last.

    Attributes:
        positions: positions of the non-deterministic automaton, repetitions written out.
        states: states of a deterministic automaton over characters.
        byte_states: states of the automaton over UTF-8 bytes.
        moves: steps of single positions while subsets are built; a million take about a second.
    """

    positions: int = 100_000
    states: int = 20_000
    byte_states: int = 150_000
    moves: int = 3_000_000

    @classmethod
    def in_force(cls) -> Budget:
        """In proportion to the states that the limits of the running compile allow."""
        scale = limits_in_force().states / Limits().states
        usual = cls()
        return cls(*(max(1, int(scale * getattr(usual, field.name))) for field in fields(cls)))

    def require(self, kind: str, needed: int) -> None:
        """`BudgetExceeded` when `needed` is more than the limit of this kind."""
        limit = getattr(self, kind)
        if needed > limit:
            what = _NAMES[kind]
            raise BudgetExceeded(f"it needs more than {limit} {what}" + (f" (about {needed})" if kind == "positions" else ""))

    def spend(self, moves: int) -> None:
        """Use up some moves; `BudgetExceeded` when there are no more."""
        self.moves -= moves
        check_progress("finding the states of a regular expression", "repeat less often, or something simpler")
        if self.moves < 0:
            raise BudgetExceeded("finding its states takes too long: it can be in too many places at once")


_NAMES = {
    "positions": "positions once its repetitions are written out",
    "states": "states",
    "byte_states": "states over UTF-8 bytes",
}
