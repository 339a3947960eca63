"""What a constraint over finite domains says of them: each propagator removes values that cannot occur.

Domains are bit masks over token classes. A propagator's state is `()` once it says nothing more, and else a tuple that begins
with the positions it still joins together; what it has learned of decided positions is in the rest of the tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

State = tuple[Any, ...]
DONE: State = ()
Spread = tuple[int, int, tuple[tuple[int, int], ...]]  # least value, greatest value, (value, its classes) pairs


class Propagator(Protocol):
    """A constraint over some positions."""

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions it speaks about."""

    def start(self) -> State:
        """Its state before anything is decided."""

    def revise(self, domains: list[int], state: State, changed: list[int]) -> State | None:
        """Narrow `domains` in place.

        Args:
            domains: of all positions.
            state: its state before.
            changed: gets the positions whose domains are narrower now.

        Returns:
            Its state now; None where nothing satisfies it.
        """

    def split(self, position: int, domain: int) -> list[int]:
        """Masks that divide a domain; classes of one mask make no difference to it at this position."""


def bits(mask: int) -> Iterator[int]:
    """The bits of a mask as masks, lowest first."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


class Linear:
    """low ≤ Σ value(class at position) ≤ high, by bounds. A count is the sum of zeros and ones."""

    def __init__(self, values: Mapping[int, Mapping[int, int]], low: int | None, high: int | None) -> None:
        """A sum.

        Args:
            values: for each position the value of each class (a mask of one bit); a class without a value cannot stand there.
        """
        self.positions = tuple(values)
        self._values = values
        self._bounds = low, high
        self._known: dict[tuple[int, int], Spread] = {}

    def start(self) -> State:
        """All positions, and the bounds."""
        least = sum(min(values.values()) for values in self._values.values())
        most = sum(max(values.values()) for values in self._values.values())
        low, high = self._bounds
        return (self.positions, least if low is None else max(low, least), most if high is None else min(high, most))

    def revise(self, domains: list[int], state: State, changed: list[int]) -> State | None:
        """See `Propagator`: the bounds of the others leave room for some values only."""
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
            return DONE
        for position, (smallest, largest, pairs) in open_positions:
            floor, ceiling = low - (most - largest), high - (least - smallest)
            if smallest >= floor and largest <= ceiling:
                continue
            domains[position] = sum(mask for value, mask in pairs if floor <= value <= ceiling)
            if not domains[position]:
                return None
            changed.append(position)
        return tuple(position for position, _ in open_positions), max(low, least), min(high, most)

    def split(self, position: int, domain: int) -> list[int]:
        """By value."""
        return [mask for _, mask in self._spread(position, domain)[2]]

    def _spread(self, position: int, domain: int) -> Spread:
        key = position, domain
        if key not in self._known:
            classes: dict[int, int] = {}
            for bit in bits(domain):
                value = self._values[position][bit]
                classes[value] = classes.get(value, 0) | bit
            self._known[key] = min(classes), max(classes), tuple(classes.items())
        return self._known[key]


class DifferentValues:
    """No value at two positions, where a value may be several classes and a class may have no value."""

    def __init__(self, positions: tuple[int, ...], values: Sequence[int]) -> None:
        """Values are masks of classes."""
        self.positions = positions
        self._values = [value for value in values if value]

    def start(self) -> State:
        """All positions."""
        return (self.positions,)

    def revise(self, domains: list[int], state: State, changed: list[int]) -> State | None:
        """See `Propagator`: a value that is certain at one position is none elsewhere."""
        left = list(state[0])
        pending = list(left)
        while pending:
            position = pending.pop()
            value = next((value for value in self._values if not domains[position] & ~value), 0)
            if not value or position not in left:
                continue
            left.remove(position)
            for other in left:
                if domains[other] & value:
                    domains[other] &= ~value
                    if not domains[other]:
                        return None
                    changed.append(other)
                    pending.append(other)
        valued = sum(self._values)
        left = [position for position in left if domains[position] & valued]
        return (tuple(left),) if len(left) > 1 else DONE

    def split(self, position: int, domain: int) -> list[int]:
        """By value, and what has none."""
        return _divided(domain, self._values)


class EqualValues:
    """One value at all positions; a class without a value cannot stand there."""

    def __init__(self, positions: tuple[int, ...], values: Sequence[int]) -> None:
        """Values are masks of classes."""
        self.positions = positions
        self._values = [value for value in values if value]

    def start(self) -> State:
        """All positions."""
        return (self.positions,)

    def revise(self, domains: list[int], state: State, changed: list[int]) -> State | None:
        """See `Propagator`: what is impossible at one position is impossible at all."""
        common = [v for v in self._values if all(domains[position] & v for position in self.positions)]
        if not common:
            return None
        allowed = sum(common)
        for position in self.positions:
            if domains[position] & ~allowed:
                domains[position] &= allowed
                changed.append(position)
        return state if len(common) > 1 else DONE

    def split(self, position: int, domain: int) -> list[int]:
        """By value."""
        return _divided(domain, self._values)


class Padding:
    """An end at the first position is followed by padding at the second."""

    def __init__(self, position: int, ends: int, padding: int) -> None:
        """Ends and the padding as masks of classes."""
        self.positions = (position, position + 1)
        self._ends = ends
        self._padding = padding

    def start(self) -> State:
        """Both positions."""
        return (self.positions,)

    def revise(self, domains: list[int], state: State, changed: list[int]) -> State | None:
        """See `Propagator`."""
        first, second = self.positions
        if not domains[first] & self._ends or not domains[second] & ~self._padding:
            return DONE
        if not domains[first] & ~self._ends:
            return self._narrowed(domains, second, domains[second] & self._padding, changed)
        if not domains[second] & self._padding:
            return self._narrowed(domains, first, domains[first] & ~self._ends, changed)
        return state

    def split(self, position: int, domain: int) -> list[int]:
        """Ends at the first position, the padding at the second, and the rest."""
        return _divided(domain, [self._ends if position == self.positions[0] else self._padding])

    @staticmethod
    def _narrowed(domains: list[int], position: int, domain: int, changed: list[int]) -> State | None:
        domains[position] = domain
        changed.append(position)
        return DONE if domain else None


def _divided(domain: int, values: Sequence[int]) -> list[int]:
    """The parts of a domain in each of some disjoint masks, and what is in none."""
    parts = [domain & value for value in values if domain & value]
    rest = domain & ~sum(values)
    return [*parts, rest] if rest else parts
