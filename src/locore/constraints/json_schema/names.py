"""The texts of names: byte by byte, among those that are listed and those that patterns tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from locore.automata.pushdown import NEVER, Row, Sequence, Symbol, cost_of
from locore.automata.regex.scanner import DEAD, Scanner
from locore.constraints.json_schema.characters import ASCII, BACKSLASH, LEADS, QUOTE, alike, read_on, ways_on
from locore.constraints.json_schema.properties import Label, State

if TYPE_CHECKING:
    from locore.constraints.json_schema.objects import Objects

NEW = "\ud800"  # in the place of any name that is none of those before; no text spells it


@dataclass(eq=False)
class TrieNode:
    """A place in the trie of the listed names."""

    children: dict[str, TrieNode]
    below: list[int]  # the names that go through it
    depth: int  # letters so far
    word: int | None = None


def trie(names: list[str]) -> TrieNode:
    """Its root."""
    root = TrieNode({}, [], 0)
    for number, name in enumerate(names):
        node = root
        node.below.append(number)
        for letter in name:
            node = node.children.setdefault(letter, TrieNode({}, [], node.depth + 1))
            node.below.append(number)
        node.word = number
    return root


def name_at(
    objects: Objects, state: State, beginning: bytes, node: TrieNode | None, scanned: int, written: str = ""
) -> NameRest:
    """The rest of a name behind its first quote, and of all that follows in the object."""
    if beginning:
        node, beginning = _simplified(objects, beginning, node, scanned, objects.plan.remembers(state) and written != NEW)
    key = NameRest, objects, state, beginning, node and id(node), scanned, written
    found: NameRest = objects.reading.once(key, NameRest, objects, state, beginning, node, scanned, written)
    return found


def _simplified(
    objects: Objects, beginning: bytes, node: TrieNode | None, scanned: int, remembered: bool
) -> tuple[TrieNode | None, bytes]:
    """Without names that the beginning of a character excludes, and without telling characters apart needlessly."""
    if beginning[0] != BACKSLASH and node is not None:
        node = node if any(letter.encode().startswith(beginning) for letter in node.children) else None
    if node is None:
        plan = objects.plan
        scanner = plan.scanner(plan.labels) if scanned != DEAD and (plan.patterns or plan.name_goals) else None
        alone = scanner is None or (beginning[0] != BACKSLASH and not scanner.tells_beyond_ascii)
        if alone and not remembered:
            beginning = alike(beginning, objects.reading.minimal)
    return node, beginning


@dataclass(frozen=True)
class _Others:
    """Names that are not listed.

    Attributes:
        scanner: of all that can come; None for any name.
        ways: what may have to be paid behind a name, and the scanner of the names for which it is that.
    """

    scanner: Scanner | None
    ways: tuple[tuple[float, Scanner | None], ...]


class NameRest(Symbol):
    """The rest of a name, its value, and the rest of the object."""

    def __init__(
        self, objects: Objects, state: State, beginning: bytes, node: TrieNode | None, scanned: int, written: str
    ) -> None:
        """What has been read of it: a place among the listed names (None: it is another one), and a state of their scanner.

        Args:
            written: what has been read, where names are remembered; or NEW.
        """
        self._objects, self._state, self._beginning, self._node, self._scanned = objects, state, beginning, node, scanned
        self._written, self._remembers = written, objects.plan.remembers(state) and written != NEW
        self.is_wide = scanned != DEAD and self._remembers and not any(map(self._may_become, state[3]))
        if node is None and scanned != DEAD and not beginning and not self._remembers and self._others.scanner is None:
            self.plain_room = NEVER

    def _may_become(self, name: str) -> bool:
        """Can what has been read be the beginning of this name?"""
        if not name.startswith(self._written):
            return False
        following, beginning = name[len(self._written) : len(self._written) + 1], self._beginning
        return not beginning or bool(following and (beginning[0] == BACKSLASH or following.encode().startswith(beginning)))

    @property
    def stand_in(self) -> Symbol:
        """A name that can become none of those before is as good as any other one."""
        if not self.is_wide:
            return self
        return name_at(self._objects, self._state, self._beginning, self._node, self._scanned, NEW)

    @cached_property
    def _others(self) -> _Others:
        """The names that are not listed, by what the rest of the object costs behind them."""
        key = "others", self._objects, self._state
        found: _Others = self._objects.reading.once(key, self._find_others)
        return found

    def _find_others(self) -> _Others:
        objects, plan = self._objects, self._objects.plan
        labels: dict[float, set[Label]] = {}
        for label in plan.labels:
            labels.setdefault(objects.member_cost(None, label, self._state), set()).add(label)
        labels.pop(NEVER, None)
        whole: frozenset[Label] = frozenset().union(*labels.values())
        return _Others(
            plan.scanner(whole) if whole else None,
            tuple((cost, plan.scanner(frozenset(some))) for cost, some in labels.items()),
        )

    @cached_property
    def cost(self) -> float:
        """Of the cheapest name and what follows."""
        if not self._beginning:
            return min(self._listed_cost(self._node), self._other_cost())
        found = NEVER
        for missing, low, high in ways_on(self._beginning, self._objects.reading.minimal):
            for letter, child in self._node.children.items() if self._node is not None else ():
                if low <= ord(letter) <= high:
                    found = min(found, missing + self._listed_cost(child))
            found = min(found, missing + self._other_cost_through(low, high))
        return found

    def _listed_cost(self, node: TrieNode | None) -> float:
        objects = self._objects
        if node is None or not node.below:
            return NEVER
        return min(
            (
                objects.name_cost(number, node.depth) + objects.member_cost(number, (), self._state)
                for number in node.below
                if objects.may_come(number, self._state)
            ),
            default=NEVER,
        )

    def _other_cost(self) -> float:
        if self._scanned == DEAD:
            return NEVER
        is_taken = self._written in self._state[3] and self._remembers
        # Of any name that is not listed; one letter more always makes one.
        more = float(is_taken or (self._node is not None and self._node.word is not None))
        return min(
            (
                after + 1 + (more if scanner is None else (scanner.cost(self._scanned) or float(is_taken)))
                for after, scanner in self._others.ways
            ),
            default=NEVER,
        )

    def _other_cost_through(self, low: int, high: int) -> float:
        if self._scanned == DEAD:
            return NEVER
        return min(
            (
                after + 2 if scanner is None else scanner.cost_through(self._scanned, low, high, 0, None) + 1 + after
                for after, scanner in self._others.ways
            ),
            default=NEVER,
        )

    @cached_property
    def row(self) -> Row:
        """Byte by byte."""
        found: dict[int, tuple[Sequence, ...]] = {}
        minimal = self._objects.reading.minimal
        if self._beginning:
            for byte in range(0x80, 0xC0) if self._beginning[0] != BACKSLASH else range(0x22, 0x80):
                read = read_on(self._beginning, byte, minimal)
                symbol = self._after(read) if isinstance(read, int) else None if read is None else self._begun(read)
                self._put(found, byte, symbol)
            return found
        told = set(ASCII)  # letters behind which the name is not as behind any other
        if self._others.scanner is None and not self._remembers:
            told = set() if self._node is None else {ord(letter) for letter in self._node.children} & told
            other = next(byte for byte in (*ASCII, QUOTE) if byte not in told)
            if other != QUOTE:
                self._put(found, other, self._after(other))
                found.update({byte: found[other] for byte in ASCII if byte not in told} if other in found else {})
        for byte in sorted(told):
            self._put(found, byte, self._after(byte))
        for byte in (BACKSLASH, *LEADS):
            self._put(found, byte, self._begun(bytes([byte])))
        if ends := self._ends():
            found[QUOTE] = ends
        return found

    def ways_after(self, byte: int) -> tuple[Sequence, ...]:
        """Of the row, without the rest of it."""
        if byte == QUOTE and not self._beginning:
            return self._ends()
        symbol: NameRest | None = None
        if self._beginning:
            if (0x80 <= byte < 0xC0) if self._beginning[0] != BACKSLASH else (0x22 <= byte < 0x80):
                read = read_on(self._beginning, byte, self._objects.reading.minimal)
                symbol = self._after(read) if isinstance(read, int) else None if read is None else self._begun(read)
        elif byte in ASCII:
            symbol = self._after(byte)
        elif byte == BACKSLASH or byte in LEADS:
            symbol = self._begun(bytes([byte]))
        return () if symbol is None or symbol.cost == NEVER else ((symbol,),)

    def _put(self, found: dict[int, tuple[Sequence, ...]], byte: int, symbol: NameRest | None) -> None:
        if symbol is not None and symbol.cost != NEVER:
            found[byte] = self._objects.reading.once(("ways", symbol), lambda: ((symbol,),))

    def _begun(self, beginning: bytes) -> NameRest:
        return name_at(self._objects, self._state, beginning, self._node, self._scanned, self._written)

    def _after(self, code: int) -> NameRest | None:
        scanner = self._others.scanner
        node = None if self._node is None else self._node.children.get(chr(code))
        scanned = self._scanned
        if not self._others.ways:
            scanned = DEAD
        elif scanner is not None and scanned != DEAD:
            scanned = scanner.after(scanned, code)
        if node is None and scanned == DEAD:
            return None
        written = self._written + chr(code) if self._remembers else self._written
        return name_at(self._objects, self._state, b"", node, scanned, written)

    def _ends(self) -> tuple[Sequence, ...]:
        objects = self._objects
        word = None if self._node is None else self._node.word
        if word is not None:
            if word not in self._node.below or not objects.may_come(word, self._state):  # type: ignore[union-attr]
                return ()
            ways = objects.after(word, (), self._state)
        else:
            scanner = self._others.scanner
            is_name = self._others.ways and self._scanned != DEAD and (scanner is None or scanner.accepting[self._scanned])
            label = objects.plan.label_at(self._scanned) if is_name else None
            is_taken = self._remembers and self._written in self._state[3]
            ways = [] if label is None or is_taken else objects.after(None, label, self._state, self._written)
        found = [(*objects.colon, value, objects.rest(state, False)) for value, state in ways]
        return tuple(way for way in found if cost_of(way) != NEVER)
