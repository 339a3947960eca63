"""The texts of names: byte by byte, among those that are listed and those that patterns tell apart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from locore.automata.pushdown import NEVER, Choice, Row, Sequence, Symbol, Texts, cost_of
from locore.automata.regex.scanner import DEAD
from locore.constraints.json_schema.json_characters import BACKSLASH, QUOTE, alike, bytes_behind, read_on, ways_on
from locore.constraints.json_schema.properties import Label, State
from locore.constraints.json_schema.value_symbols import string_at
from locore.kernel.plugins import cached_property

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


def words_below(node: TrieNode) -> list[int]:
    """The names that end at a place or below."""
    below = [] if node.word is None else [node.word]
    return below + [number for child in node.children.values() for number in words_below(child)]


def name_at(
    objects: Objects, state: State, beginning: bytes, node: TrieNode | None, scanned: int, written: str = ""
) -> tuple[Sequence, ...]:
    """The ways to go on with a name behind its first quote, and with all that follows in the object.

    Args:
        beginning: what has been read of a character that is not complete.
        node: the place among the listed names; None: it is another one.
        scanned: a state of the scanner of other names; DEAD: it is a listed one.
        written: what has been read, where names are remembered; or NEW.
    """
    remembered = objects.plan.remembers(state) and written != NEW
    if beginning:
        node, beginning = _simplified(objects, beginning, node, scanned, remembered)
    if node is None and not remembered:
        return _others_at(objects, state, beginning, scanned) if scanned != DEAD else ()
    key = NameRest, objects, state, beginning, node and id(node), scanned, written
    rest: NameRest = objects.reading.once(key, NameRest, objects, state, beginning, node, scanned, written)
    return () if rest.cost == NEVER else ((rest,),)


def _others_at(objects: Objects, state: State, beginning: bytes, scanned: int) -> tuple[Sequence, ...]:
    """A name that is not listed is a string, of one label or another."""
    scalars, ways = objects.reading.scalars, []
    for label, strings in objects.plan.others.items():
        key = OtherMember, objects, state, label
        following: OtherMember = objects.reading.once(key, OtherMember, objects, state, label)
        way = string_at(scalars, strings, beginning, scanned, 0), following
        if cost_of(way) != NEVER:
            ways.append(way)
    return tuple(ways)


class OtherMember(Choice):
    """What follows a name that is not listed: a colon, its value, and the rest of the object."""

    def __init__(self, objects: Objects, state: State, label: Label) -> None:
        """Behind the properties of a state; the name has a label."""
        self._objects, self._state, self._label = objects, state, label

    @cached_property
    def ways(self) -> tuple[Sequence, ...]:
        """By what its value may be."""
        return self._objects.members(None, self._label, self._state, NEW)


def _simplified(
    objects: Objects, beginning: bytes, node: TrieNode | None, scanned: int, remembered: bool
) -> tuple[TrieNode | None, bytes]:
    """Without names that the beginning of a character excludes, and without telling characters apart needlessly."""
    if beginning[0] != BACKSLASH and node is not None:
        node = node if any(letter.encode().startswith(beginning) for letter in node.children) else None
    if node is not None and not node.children:
        node = None
    if node is None:
        plan = objects.plan
        scanner = plan.scanner(plan.labels) if scanned != DEAD and plan.tells_others else None
        alone = scanner is None or (beginning[0] != BACKSLASH and not scanner.tells_beyond_ascii)
        if alone and not remembered:
            beginning = alike(beginning, objects.reading.minimal)
    return node, beginning


class NameRest(Symbol):
    """The rest of a name, its value, and the rest of the object."""

    is_broad = True

    def __init__(
        self, objects: Objects, state: State, beginning: bytes, node: TrieNode | None, scanned: int, written: str
    ) -> None:
        """What has been read of it: a place among the listed names (None: it is another one), and a state of their scanner.

        Args:
            written: what has been read, where names are remembered; or NEW.
        """
        self._objects, self._state, self._beginning, self._node, self._scanned = objects, state, beginning, node, scanned
        self._written, self._remembers = written, objects.plan.remembers(state) and written != NEW

    def _may_become(self, name: str) -> bool:
        """Can what has been read be the beginning of this name?"""
        if name == NEW or not name.startswith(self._written):
            return False
        following, beginning = name[len(self._written) : len(self._written) + 1], self._beginning
        return not beginning or bool(following and (beginning[0] == BACKSLASH or following.encode().startswith(beginning)))

    @cached_property
    def usual(self) -> tuple[Sequence, ...]:
        """A name that is not listed, and none of those before."""
        if self._scanned == DEAD:
            return ()
        return name_at(self._objects, self._state, self._beginning, None, self._scanned, NEW)

    @property
    def listed(self) -> tuple[Texts, list[float]] | None:
        """The listed names, where they alone are told apart, and all are of plain characters."""
        spelled = None if self._beginning or self._remembers or self._node is None else self._objects.spelled(self._node)
        if spelled is None:
            return None
        costs = self._objects.listed_costs(self._state)
        return spelled[0], [costs.get(number, NEVER) for number in spelled[1]]

    def ways_behind(self, number: int) -> tuple[Sequence, ...]:
        """The value of a listed name, and the rest of the object."""
        assert self._node is not None
        spelled = self._objects.spelled(self._node)
        return self._ways_of(spelled[1][number]) if spelled is not None else ()

    @cached_property
    def own_bytes(self) -> Collection[int]:
        """The bytes behind which it may become one that is listed, or one of those before."""
        if self._beginning:
            return bytes_behind(self._beginning)
        names = [name for name in self._state[3] if self._may_become(name)] if self._remembers else []
        letters = {name[len(self._written) :][:1] for name in names} | set(() if self._node is None else self._node.children)
        return {letter.encode()[0] if letter not in ('"', "") else BACKSLASH for letter in letters} | {BACKSLASH, QUOTE}

    @cached_property
    def cost(self) -> float:
        """Of the cheapest name and what follows."""
        node, tells = self._node, self._objects.plan.tells_others
        before = [name for name in self._state[3] if self._may_become(name)] if self._remembers else []
        if self._beginning:  # of a character that may have to be another one
            more = float(not tells and (node is not None or bool(before)))
        else:  # one letter more always makes another name
            more = float(self._written in before or (not tells and node is not None and node.word is not None))
        cheapest = min((cost_of(way) + more for way in self.usual), default=NEVER)
        if not self._beginning:
            return min(cheapest, self._listed_cost(self._node))
        for missing, low, high in ways_on(self._beginning, self._objects.reading.minimal):
            for letter, child in self._node.children.items() if self._node is not None else ():
                if low <= ord(letter) <= high:
                    cheapest = min(cheapest, missing + self._listed_cost(child))
        return cheapest

    def _listed_cost(self, node: TrieNode | None) -> float:
        if node is None or not node.below:
            return NEVER
        objects, costs = self._objects, self._objects.listed_costs(self._state)
        return min((objects.name_cost(word, node.depth) + costs[word] for word in node.below if word in costs), default=NEVER)

    @cached_property
    def row(self) -> Row:
        """Byte by byte."""
        return {byte: ways for byte in bytes_behind(self._beginning) if (ways := self.ways_after(byte))}

    def ways_after(self, byte: int) -> tuple[Sequence, ...]:
        """What may come in its place behind one byte."""
        if byte == QUOTE and not self._beginning:
            return self._ends()
        read = read_on(self._beginning, byte, self._objects.reading.minimal)
        return self._after(read) if isinstance(read, int) else () if read is None else self._begun(read)

    def _begun(self, beginning: bytes) -> tuple[Sequence, ...]:
        return name_at(self._objects, self._state, beginning, self._node, self._scanned, self._written)

    def _after(self, code: int) -> tuple[Sequence, ...]:
        plan, scanned = self._objects.plan, self._scanned
        scanner = plan.scanner(plan.labels)
        node = None if self._node is None else self._node.children.get(chr(code))
        if scanner is not None and scanned != DEAD:
            scanned = scanner.after(scanned, code)
        written = self._written + chr(code) if self._remembers else self._written
        return name_at(self._objects, self._state, b"", node, scanned, written)

    def _ends(self) -> tuple[Sequence, ...]:
        objects = self._objects
        word = None if self._node is None else self._node.word
        if word is not None:
            return self._ways_of(word)
        scanner = objects.plan.scanner(objects.plan.labels)
        is_name = self._scanned != DEAD and (scanner is None or scanner.accepting[self._scanned])
        label = objects.plan.label_at(self._scanned) if is_name else None
        is_taken = self._remembers and self._written in self._state[3]
        return () if label is None or is_taken else objects.members(None, label, self._state, self._written)

    def _ways_of(self, number: int) -> tuple[Sequence, ...]:
        objects = self._objects
        return objects.members(number, (), self._state) if number in objects.listed_costs(self._state) else ()
