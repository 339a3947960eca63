"""Constraints between positions: what these can still hold, with everything that follows from it by propagation.

For all-different constraints: a value that is certain at one position is removed from the others (naked singles), and where
there are as many values as positions, a value that only one position can hold is put there (hidden singles).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from locore.constraints import Constant, Constraint, Count, Literal
from locore.kernel.compilers.problem import Ints, Partition
from locore.kernel.compilers.residual import Atom
from locore.puzzles.combinatorial import AllDifferent, AllEqual, TokenSum
from locore.puzzles.combinatorial.propagators import (
    ENTAILED,
    DifferentValues,
    EqualValues,
    Linear,
    Propagator,
    PropagatorState,
    bits,
)

Part = Literal | Count | AllDifferent | AllEqual | TokenSum
# Positions, their domains, and the states of the propagators that join them, by number.
Component = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, PropagatorState], ...]]


@dataclass
class Queue:
    """What propagation has yet to look at.

    Attributes:
        decided: positions that have just got their only value.
        groups: all-different constraints in which a value may have become a hidden single.
        propagators: those whose domains have changed.
    """

    decided: list[int]
    groups: set[int]
    propagators: set[int]


class Network:
    """The constraints between positions, which do not change while values are decided.

    Attributes:
        length: number of positions.
        num_classes: token classes.
        scope: positions that some part of the conjunction speaks about.
    """

    def __init__(self, parts: Iterable[Part], classes: Partition, length: int) -> None:
        self.length = length
        self.num_classes = classes.num_classes
        self._class_of = classes.token_class
        self.domains = [(1 << classes.num_classes) - 1] * length
        self.scope: frozenset[int] = frozenset()
        self._groups: list[tuple[int, ...]] = []
        self._groups_of: list[list[int]] = [[] for _ in range(length)]
        self._peers: list[list[int]] = [[] for _ in range(length)]
        self._propagators: list[Propagator] = []
        self._watching: list[list[int]] = [[] for _ in range(length)]
        for part in sorted(parts, key=lambda part: not isinstance(part, Literal)):
            self._add(part)

    @property
    def num_propagators(self) -> int:
        """Propagators beside the all-different constraints."""
        return len(self._propagators)

    def mask(self, tokens: Iterable[int]) -> int:
        """The classes of tokens."""
        result = 0
        for number in set(self._class_of[list(tokens)].tolist()):
            result |= 1 << number
        return result

    def watch(self, propagator: Propagator) -> None:
        """Add a propagator."""
        for position in propagator.positions:
            self._watching[position].append(len(self._propagators))
        self._propagators.append(propagator)
        self.scope |= set(propagator.positions)

    def start(self) -> tuple[list[int], list[PropagatorState]] | None:
        """Domains and states after the first propagation; None where nothing is possible."""
        domains, states = self.domains.copy(), [propagator.start() for propagator in self._propagators]
        decided = [p for p in range(self.length) if not domains[p] & (domains[p] - 1)]
        queue = Queue(decided, set(range(len(self._groups))), set(range(len(self._propagators))))
        return (domains, states) if all(domains) and self._propagate(domains, states, queue) else None

    def alternatives(self, position: int, domains: list[int], states: list[PropagatorState]) -> list[int]:
        """Masks that divide a position's domain; the classes of one of them make no difference to any other position."""
        shared = 0
        for other in self._peers[position]:
            shared |= domains[other]
        domain = domains[position]
        apart = domain & shared
        cells = list(bits(apart))
        if domain != apart:
            cells.append(domain ^ apart)
        for index in self._watching[position]:
            if states[index] is not ENTAILED and position in states[index][0]:
                parts = self._propagators[index].split(position, domain)
                cells = [cell & part for cell in cells for part in parts if cell & part]
        return cells

    def assign(self, domains: list[int], states: list[PropagatorState], position: int, mask: int) -> bool:
        """Decide a position in place, for one of its alternatives or a part of one; False where that is impossible."""
        domains[position] = mask
        queue = Queue([position], set(self._groups_of[position]), set(self._watching[position]))
        return self._propagate(domains, states, queue)

    def components(self, domains: list[int], states: list[PropagatorState], positions: list[int]) -> Iterator[Component]:
        """Open positions that do not influence each other, apart; domains of decided positions say nothing any more."""
        unseen = set(positions)
        for first in positions:
            if first not in unseen:
                continue
            unseen.discard(first)
            members, pending, used = [first], [first], set()
            while pending:
                position = pending.pop()
                domain = domains[position]
                linked = [q for q in unseen.intersection(self._peers[position]) if domains[q] & domain]
                for index in self._watching[position]:
                    if index not in used and states[index] is not ENTAILED and position in states[index][0]:
                        used.add(index)
                        linked += [q for q in states[index][0] if q in unseen]
                for other in linked:
                    if other in unseen:
                        unseen.discard(other)
                        members.append(other)
                        pending.append(other)
            members.sort()
            yield tuple(members), tuple([domains[p] for p in members]), tuple((i, states[i]) for i in sorted(used))

    def is_free(self, domains: Iterable[int], states: Iterable[PropagatorState]) -> bool:
        """Does nothing restrict the open positions any more, one by one or together?"""
        full, listed = (1 << self.num_classes) - 1, list(domains)
        if any(domain not in (0, full) for domain in listed) or any(state is not ENTAILED for state in states):
            return False
        return all(sum(listed[p] > 0 for p in group) < 2 for group in self._groups)

    def _add(self, part: Constraint) -> None:
        if isinstance(part, Literal):
            self.domains[part.position] &= self.mask(part.tokens)
            self.scope |= {part.position}
        elif isinstance(part, Count):
            hit = self.mask(part.tokens)
            values = {1 << c: int(bool(hit >> c & 1)) for c in range(self.num_classes)}
            if part.positions:
                self.watch(Linear(dict.fromkeys(part.positions, values), part.at_least, part.at_most))
            elif part.at_least > 0 or (part.at_most or 0) < 0:
                self.domains[0] = 0
        elif isinstance(part, TokenSum):
            values = {bit: value for value, ids in part.groups().items() for bit in bits(self.mask(ids))}
            weighted = {w: {bit: w * value for bit, value in values.items()} for w in set(part.factors)}
            pairs = zip(part.positions, part.factors, strict=True)
            self.watch(Linear({p: weighted[w] for p, w in pairs}, part.at_least, part.at_most))
        elif isinstance(part, AllEqual):
            self.watch(EqualValues(part.positions, [self.mask(group) for group in part.values]))
        elif isinstance(part, AllDifferent):
            self._add_different(part)

    def _add_different(self, part: AllDifferent) -> None:
        values = [self.mask(group) for group in part.values]
        valued = sum(values)
        simple = all(not v & (v - 1) for v in values) and not any(self.domains[p] & ~valued for p in part.positions)
        if not simple:
            self.watch(DifferentValues(part.positions, values))
            return
        self.scope |= set(part.positions)
        for position in part.positions:
            self._groups_of[position].append(len(self._groups))
            more = [q for q in part.positions if q != position and q not in self._peers[position]]
            self._peers[position].extend(more)
        self._groups.append(part.positions)

    def _propagate(self, domains: list[int], states: list[PropagatorState], queue: Queue) -> bool:
        """Propagate until nothing changes, in place; False where nothing is possible."""
        while True:
            if queue.decided:
                if not self._remove_decided(domains, queue):
                    return False
            elif queue.groups:
                if not self._place_hidden(domains, self._groups[queue.groups.pop()], queue):
                    return False
            elif queue.propagators:
                index = queue.propagators.pop()
                changed: list[int] = []
                if states[index] is not ENTAILED:
                    after = self._propagators[index].revise(domains, states[index], changed)
                    if after is None:
                        return False
                    states[index] = after
                for position in changed:
                    self._add_changed(queue, position, domains[position])
            else:
                return True

    def _add_changed(self, queue: Queue, position: int, domain: int) -> None:
        queue.groups.update(self._groups_of[position])
        if self._watching[position]:
            queue.propagators.update(self._watching[position])
        if not domain & (domain - 1):
            queue.decided.append(position)

    def _remove_decided(self, domains: list[int], queue: Queue) -> bool:
        """Naked singles. This is the innermost loop of search."""
        peers, groups_of, watching, decided = self._peers, self._groups_of, self._watching, queue.decided
        while decided:
            position = decided.pop()
            bit = domains[position]
            for other in peers[position]:
                domain = domains[other]
                if domain & bit:
                    domain ^= bit
                    if not domain:
                        return False
                    domains[other] = domain
                    queue.groups.update(groups_of[other])
                    if watching[other]:
                        queue.propagators.update(watching[other])
                    if not domain & (domain - 1):
                        decided.append(other)
        return True

    def _place_hidden(self, domains: list[int], group: tuple[int, ...], queue: Queue) -> bool:
        """Hidden singles of one all-different constraint; fewer values than positions are impossible."""
        once = twice = number = 0
        for position in group:
            domain = domains[position]
            if domain:
                number += 1
                twice |= once & domain
                once |= domain
        values = once.bit_count()
        if values != number:
            return values > number
        alone = once & ~twice
        if alone:
            for position in group:
                value = domains[position] & alone
                if value and value != domains[position]:
                    if value & (value - 1):
                        return False
                    domains[position] = value
                    self._add_changed(queue, position, value)
        return True


@dataclass(frozen=True, eq=False)
class Store(Atom):
    """What is left of a conjunction after a prefix, propagated: an atom of residuals.

    Attributes:
        network: the constraints.
        domains: for each position the classes that it can hold; 0 where it has been read, or nothing is said of it.
        states: of the network's propagators.
    """

    network: Network
    domains: tuple[int, ...]
    states: tuple[PropagatorState, ...]

    @classmethod
    def of(cls, parts: Iterable[Part], classes: Partition, length: int) -> Constraint:
        """The store before anything is read; never true where propagation finds that nothing is possible."""
        network = Network(parts, classes, length)
        start = network.start()
        if start is None:
            return Constant(False)
        domains, states = start
        return cls(network, tuple(d if p in network.scope else 0 for p, d in enumerate(domains)), tuple(states))

    def after(self, position: int, token_class: int) -> Constraint:
        """What is left once a token of this class has been read."""
        if not self.domains[position]:
            return self
        if not self.domains[position] >> token_class & 1:
            return Constant(False)
        domains, states = list(self.domains), list(self.states)
        if domains[position] != 1 << token_class and not self.network.assign(domains, states, position, 1 << token_class):
            return Constant(False)
        domains[position] = 0
        if self.network.is_free(domains, states):
            return Constant(True)
        return Store(self.network, tuple(domains), tuple(states))

    def signature(self, position: int) -> Ints:
        """Int64[classes]: classes with equal numbers have the same effect at a position."""
        domain = self.domains[position]
        numbers = [c + 1 if domain >> c & 1 else 0 for c in range(self.network.num_classes)]
        return np.array(numbers, dtype=np.int64)
