"""What a constraint over finite domains says of them: each propagator removes values that cannot occur.

Domains are bit masks over token classes. A propagator's state is `ENTAILED` once it says nothing more, and else a tuple that
begins with the positions it still joins together; what it has learned of decided positions is in the rest of the tuple.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PropagatorState = tuple[Any, ...]
ENTAILED: PropagatorState = ()
Spread = tuple[int, int, tuple[tuple[int, int], ...]]  # least value, greatest value, (value, its classes) pairs


class Propagator(ABC):
    """A constraint over some positions.

    Attributes:
        positions: the positions it speaks about.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = tuple(positions)

    def start(self) -> PropagatorState:
        """Its state before anything is decided."""
        return (self.positions,)

    @abstractmethod
    def revise(self, domains: list[int], state: PropagatorState, changed: list[int]) -> PropagatorState | None:
        """Narrow `domains` in place.

        Args:
            domains: of all positions.
            state: its state before.
            changed: gets the positions whose domains are narrower now.

        Returns:
            Its state now; None where nothing satisfies it.
        """

    @abstractmethod
    def split(self, position: int, domain: int) -> list[int]:
        """Masks that divide a domain; classes of one mask make no difference to it at this position."""


class Linear(Propagator):
    """low ≤ Σ value(class at position) ≤ high, by bounds. A count is the sum of zeros and ones."""

    def __init__(self, values: Mapping[int, Mapping[int, int]], low: int | None, high: int | None) -> None:
        """A sum.

        Args:
            values: for each position the value of each class (a mask of one bit); a class without a value cannot stand there.
        """
        super().__init__(tuple(values))
        self._values = values
        self._bounds = low, high
        self._spreads: dict[tuple[int, int], Spread] = {}

    def start(self) -> PropagatorState:
        """All positions, and the bounds."""
        least = sum(min(values.values()) for values in self._values.values())
        most = sum(max(values.values()) for values in self._values.values())
        low, high = self._bounds
        return (self.positions, least if low is None else max(low, least), most if high is None else min(high, most))

    def revise(self, domains: list[int], state: PropagatorState, changed: list[int]) -> PropagatorState | None:
        """The bounds of the others leave a range of values."""
        positions, low, high = state
        open_positions: list[tuple[int, Spread]] = []
        least = most = 0
        for position in positions:
            spread = self._spread(position, domains[position])
            if spread[0] == spread[1]:
                low -= spread[0]
                high -= spread[0]
            else:
                open_positions.append((position, spread))
                least += spread[0]
                most += spread[1]
        if least > high or most < low:
            return None
        if least >= low and most <= high:
            return ENTAILED
        for position, (smallest, largest, pairs) in open_positions:
            floor, ceiling = low - (most - largest), high - (least - smallest)
            if smallest >= floor and largest <= ceiling:
                continue
            if not _narrow(domains, position, sum(mask for value, mask in pairs if floor <= value <= ceiling), changed):
                return None
        return tuple(position for position, _ in open_positions), max(low, least), min(high, most)

    def split(self, position: int, domain: int) -> list[int]:
        """By value."""
        return [mask for _, mask in self._spread(position, domain)[2]]

    def _spread(self, position: int, domain: int) -> Spread:
        key = position, domain
        if key not in self._spreads:
            classes: dict[int, int] = {}
            for bit in bits(domain):
                value = self._values[position][bit]
                classes[value] = classes.get(value, 0) | bit
            self._spreads[key] = min(classes), max(classes), tuple(classes.items())
        return self._spreads[key]


class _Comparison(Propagator):
    """Values are disjoint masks of classes, for a value may be several classes; a class may have no value."""

    def __init__(self, positions: Sequence[int], values: Sequence[int]) -> None:
        super().__init__(positions)
        self._values = [value for value in values if value]

    def split(self, position: int, domain: int) -> list[int]:
        """By value, and what has none."""
        return _divided(domain, self._values)


class DifferentValues(_Comparison):
    """No value at two positions."""

    def revise(self, domains: list[int], state: PropagatorState, changed: list[int]) -> PropagatorState | None:
        """A value that is certain at one position is none elsewhere."""
        joined = list(state[0])
        pending = list(joined)
        while pending:
            position = pending.pop()
            value = next((value for value in self._values if not domains[position] & ~value), 0)
            if not value or position not in joined:
                continue
            joined.remove(position)
            for other in joined:
                if domains[other] & value:
                    if not _narrow(domains, other, ~value, changed):
                        return None
                    pending.append(other)
        valued = sum(self._values)
        joined = [position for position in joined if domains[position] & valued]
        return (tuple(joined),) if len(joined) > 1 else ENTAILED


class EqualValues(_Comparison):
    """One value at all positions; a class without a value cannot stand there."""

    def revise(self, domains: list[int], state: PropagatorState, changed: list[int]) -> PropagatorState | None:
        """What is impossible at one position is impossible at all."""
        common = [v for v in self._values if all(domains[position] & v for position in self.positions)]
        for position in self.positions:
            if not _narrow(domains, position, sum(common), changed):
                return None
        return state if len(common) > 1 else ENTAILED


class Padding(Propagator):
    """An end at a position is followed by padding."""

    def __init__(self, position: int, ends: int, padding: int) -> None:
        """Ends and the padding as masks of classes."""
        super().__init__((position, position + 1))
        self._ends = ends
        self._padding = padding

    def revise(self, domains: list[int], state: PropagatorState, changed: list[int]) -> PropagatorState | None:
        """Certain ends are followed by padding, and no end comes before what is no padding."""
        first, second = self.positions
        if not domains[first] & self._ends or not domains[second] & ~self._padding:
            return ENTAILED
        if not domains[first] & ~self._ends:
            return ENTAILED if _narrow(domains, second, self._padding, changed) else None
        if not domains[second] & self._padding:
            return ENTAILED if _narrow(domains, first, ~self._ends, changed) else None
        return state

    def split(self, position: int, domain: int) -> list[int]:
        """Ends at the first position, the padding at the second, and the rest."""
        return _divided(domain, [self._ends if position == self.positions[0] else self._padding])


def bits(mask: int) -> Iterator[int]:
    """The bits of a mask as masks, lowest first."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


def _narrow(domains: list[int], position: int, allowed: int, changed: list[int]) -> bool:
    """Keep what is allowed at a position; False where that is nothing."""
    domain = domains[position] & allowed
    if domain != domains[position]:
        domains[position] = domain
        changed.append(position)
    return domain != 0


def _divided(domain: int, values: Sequence[int]) -> list[int]:
    """The parts of a domain in each of some disjoint masks, and what is in none."""
    parts = [domain & value for value in values if domain & value]
    rest = domain & ~sum(values)
    return [*parts, rest] if rest else parts
