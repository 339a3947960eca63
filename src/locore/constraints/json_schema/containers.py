"""What the texts of arrays and objects share: members between brackets, with commas between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from locore.automata.pushdown import Choice, Sequence
from locore.constraints.json_schema.value_symbols import Goals, Reading, Value
from locore.kernel.plugins import cached_property


class Container(ABC):
    """The symbols of the arrays, or objects, of a plan at one depth.

    Attributes:
        first, next: what stands before a member.
        end, empty: the last bracket, behind members and behind none.
    """

    def __init__(self, reading: Reading, plan: Any, depth: int, level: int, close: bytes, lead: Sequence = ()) -> None:
        self.reading, self.plan, self._depth, self._level = reading, plan, depth, level
        self._costs: dict[tuple[Any, bool], float] = {}
        self.close = reading.literal(close)
        self.first = (*reading.gap(level + 1), *lead)
        self.next = (*reading.gap(), reading.literal(b","), *reading.gap(level + 1, ","), *lead)
        self.end = (*reading.gap(level), self.close)
        self.empty = (*reading.gap(), self.close)

    def rest(self, state: Any, is_first: bool) -> Rest:
        """What stands after some members."""
        rest: Rest = self.reading.once((Rest, self, state, is_first), Rest, self, state, is_first)
        return rest

    def value(self, goals: Goals) -> Value:
        """Of a member."""
        return self.reading.value(goals, self._depth, self._level + 1)

    def rest_cost(self, state: Any, is_first: bool) -> float:
        """Of the cheapest way to go on to the last bracket."""
        key = state, is_first
        if key not in self._costs:
            self._costs[key] = self._rest_cost(state, is_first)
        return self._costs[key]

    @abstractmethod
    def is_complete(self, state: Any) -> bool:
        """May it end here?"""

    @abstractmethod
    def more(self, state: Any) -> Iterable[Sequence]:
        """The ways to go on with one more, up to the last bracket; those that there are."""

    @abstractmethod
    def _rest_cost(self, state: Any, is_first: bool) -> float:
        """As `rest_cost`, counted or searched."""


class Rest(Choice):
    """The rest of an array or an object, with its last bracket."""

    def __init__(self, container: Container, state: Any, is_first: bool) -> None:
        self._container, self._state, self._is_first = container, state, is_first

    @cached_property
    def cost(self) -> float:
        """Counted, where nothing has to be searched."""
        return self._container.rest_cost(self._state, self._is_first)

    @cached_property
    def ways(self) -> tuple[Sequence, ...]:
        """Its end, or one more member."""
        container, is_first = self._container, self._is_first
        before = container.first if is_first else container.next
        ends = [container.empty if is_first else container.end] if container.is_complete(self._state) else []
        return (*ends, *((*before, *way) for way in container.more(self._state)))
