"""A matcher that takes all ways at once: what a backtracking one would try one after the other, followed side by side.

A *thread* is one way so far: the cell that is still to come, what groups have matched, and what looks ahead have promised or
forbidden. A state is a set of threads and the characters before it that still decide something; it is the subset construction,
but that there may be any number of states. What no cell below asks for is forgotten, so that states are few where they can be.

An atomic group takes the first way that matches. Its ways are followed together, in order; where one has matched, those before
it must never do so, which is a look ahead that forbids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from locore.automata.regex.language import CharSet
from locore.automata.regex.parse import NON_BOUNDARY_NEEDS_TEXT
from locore.automata.regex.pattern import op
from locore.automata.regex.program import (
    Again,
    Anchor,
    Behind,
    Call,
    Close,
    Either,
    First,
    Group,
    IfSet,
    Look,
    Never,
    Node,
    Nodes,
    One,
    Program,
    Reference,
    Written,
)
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import check_progress

MOST_WAYS = 20_000  # to be in one place of a text
END = ""  # in the place of the next character
FOLLOWING = "following a pattern with back-references, conditions or calls", "a simpler pattern"
Values = tuple[tuple[int, str], ...]  # of groups, by number
Kind = tuple[bool, ...]  # of a character: what anchors see of it


class Cell:
    """A node, and what comes after it. Attributes: least: bytes to come at least; reads: groups that may be asked for."""

    __slots__ = ("below", "least", "node", "reads")

    def __init__(self, node: Node, below: Cell | None) -> None:
        self.node, self.below = node, below
        self.least: float = node.least + (0.0 if below is None else below.least)
        self.reads: frozenset[int] = node.reads if below is None else node.reads | below.reads


class Thread(NamedTuple):
    """One way: what is to come (None: nothing), what groups have matched, those that are open, and what was promised."""

    cell: Cell | None
    values: Values
    opened: Values
    looks: frozenset[tuple[bool, frozenset[Thread]]]  # is it forbidden?


class State(NamedTuple):
    """Where a text may be. Attributes: before: the last characters, or what they are like; none at the beginning."""

    threads: frozenset[Thread]
    before: str


@dataclass(frozen=True, eq=False)
class Restore(Node):
    """Behind a call: groups have again what they had matched before it."""

    values: Values


@dataclass(frozen=True, eq=False)
class Done(Node):
    """The end of an atomic group, behind which these groups may be asked for."""


@dataclass(frozen=True, eq=False)
class Trying(Node):
    """The ways of an atomic group that has begun, in their order."""

    threads: tuple[Thread, ...]


class Matcher:
    """Follows a program through a text."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._cells: dict[tuple[Node, Cell | None], Cell] = {}
        self._nodes: dict[object, Node] = {}
        self.words = _words(program)
        first = Thread(self._pushed(program.nodes, None), (), (), frozenset())
        self.start = State(frozenset([first]), "")

    def ready(self, state: State, following: str) -> list[Thread]:
        """The threads that read a character or have ended, before one of the kind of `following`."""
        return self._ready(state.threads, state.before, following)

    def read(self, state: State, ready: Iterable[Thread], character: str) -> State | None:
        """Where a text is after the character before which these threads are ready; None if it cannot match any more."""
        threads = frozenset(self._stepped(ready, state.before, character))
        return State(threads, self.remembered(state.before, character)) if threads else None

    def accepts(self, state: State) -> bool:
        """May the text end here?"""
        return self._ends(state.threads, state.before)

    def least(self, state: State) -> float:
        """Bytes that are to come at least."""
        return min(0.0 if thread.cell is None else thread.cell.least for thread in state.threads)

    def kind(self, following: str) -> Kind:
        """What anchors see of the next character; those of one kind have the same threads ready before them."""
        if not self._program.looks_at_next or following == END:
            return (following == END,)
        return (False, following == "\n", *(ord(following) in word for word in self.words))

    def remembered(self, before: str, character: str) -> str:
        """What has to be known of the characters before the next place, after one more."""
        if self._program.behind and self._program.only_kinds:
            if character == "\n":
                return character
            inside = [ord(character) in word for word in self.words]
            return "a" if all(inside) else "à" if any(inside) else " "  # of ASCII or not
        return (before + character)[-self._program.behind :] if self._program.behind else ""

    def _pushed(self, nodes: Nodes, below: Cell | None) -> Cell | None:
        for node in reversed(nodes):
            key = node, below
            below = self._cells.get(key) or self._cells.setdefault(key, Cell(node, below))
        return below

    def _node(self, key: object, node: Node) -> Node:
        """The same node for the same key."""
        return self._nodes.setdefault(key, node)

    def _thread(self, cell: Cell | None, thread: Thread, values: Values | None = None, opened: Values | None = None) -> Thread:
        """The thread goes on there, without what nobody will ask for."""
        values = thread.values if values is None else values
        opened = thread.opened if opened is None else opened
        reads = frozenset[int]() if cell is None else cell.reads
        return Thread(
            cell, tuple(cap for cap in values if cap[0] in reads), tuple(cap for cap in opened if cap[0] in reads), thread.looks
        )

    def _ready(self, threads: Iterable[Thread], before: str, following: str) -> list[Thread]:
        """In their order, once each: those whose next node reads a character, and those that have ended."""
        check_progress(*FOLLOWING)
        ready: list[Thread] = []
        seen = set[tuple[Thread, frozenset[Cell]]]()
        pending = [(thread, frozenset[Cell]()) for thread in threads][::-1]
        while pending:
            thread, begun = pending.pop()
            if (thread, begun) in seen:
                continue
            seen.add((thread, begun))
            if len(seen) > MOST_WAYS:
                raise BudgetExceeded(
                    f"a pattern can be in more than {MOST_WAYS:,} places of a text at once; let its groups have fewer texts"
                )
            if thread.cell is None or isinstance(thread.cell.node, One | Written | Done):
                ready.append(thread)
            elif isinstance(thread.cell.node, Trying):
                pending.extend(
                    (way, begun) for way in reversed(self._tried(thread, thread.cell.node, before, following, ready))
                )
            elif isinstance(thread.cell.node, Again):
                pending.extend(reversed(self._repeated(thread, thread.cell, begun)))
            else:
                pending.extend((way, begun) for way in reversed(self._expanded(thread, thread.cell, before, following)))
        return list(dict.fromkeys(ready))

    def _expanded(self, thread: Thread, cell: Cell, before: str, following: str) -> list[Thread]:
        """What a thread becomes that reads nothing next."""
        node, below = cell.node, cell.below
        if isinstance(node, Either):
            return [self._thread(self._pushed(way, below), thread) for way in node.ways]
        if isinstance(node, Group | Close | Reference | IfSet | Call | Restore):
            return self._remembering(thread, node, below)
        if isinstance(node, Look):
            body = self._thread(self._pushed(node.nodes, None), Thread(None, thread.values, (), frozenset()))
            looks = thread.looks | {(node.negative, frozenset([body]))}
            return [self._thread(below, thread._replace(looks=looks))]
        if isinstance(node, Behind):
            stands = self._stands_behind(node, thread, before, following)
            return [self._thread(below, thread)] if stands != node.negative else []
        if isinstance(node, Anchor):
            return [self._thread(below, thread)] if self._holds(node, before, following) else []
        if isinstance(node, First):
            done = self._pushed((self._done(below),), None)
            first = self._thread(self._pushed(node.nodes, done), thread._replace(looks=frozenset()))
            return [self._thread(self._pushed((self._trying((first,)),), below), thread, (), ())]
        assert isinstance(node, Never)
        return []

    def _repeated(self, thread: Thread, cell: Cell, begun: frozenset[Cell]) -> list[tuple[Thread, frozenset[Cell]]]:
        """Once more, or not; after a repetition of nothing there is no further one.

        Args:
            begun: where repetitions go on that began here.
        """
        node, below = cell.node, cell.below
        assert isinstance(node, Again)
        ended = self._thread(below, thread), begun
        if node.most == 0 or (cell in begun and not node.fewest):
            return [ended]
        again = self._pushed((node.fewer(),), below)
        assert again is not None
        more = self._thread(self._pushed(node.nodes, again), thread), begun | {again} if node.may_read_nothing else begun
        if node.fewest:
            return [more]
        return [ended, more] if node.is_lazy else [more, ended]

    def _remembering(self, thread: Thread, node: Node, below: Cell | None) -> list[Thread]:
        """What has to do with groups."""
        reads = frozenset[int]() if below is None else below.reads
        values = dict(thread.values)
        if isinstance(node, Group):
            if node.number not in reads | node.reads:
                return [self._thread(self._pushed(node.nodes, below), thread)]
            close = self._node(("close", node.number), Close(node.number))
            cell = self._pushed((*node.nodes, close), below)
            return [self._thread(cell, thread, opened=((node.number, ""), *thread.opened))]
        if isinstance(node, Close):
            at = next((at for at, group in enumerate(thread.opened) if group[0] == node.number), None)
            if at is None:
                return [self._thread(below, thread)]
            values[node.number] = thread.opened[at][1]
            opened = thread.opened[:at] + thread.opened[at + 1 :]
            return [self._thread(below, thread, tuple(sorted(values.items())), opened)]
        if isinstance(node, Reference):
            text = values.get(node.number)
            if not text:
                return [] if text is None else [self._thread(below, thread)]
            return [self._thread(self._pushed((self._written(text, node.flags),), below), thread)]
        if isinstance(node, IfSet):
            return [self._thread(self._pushed(node.yes if node.number in values else node.no, below), thread)]
        if isinstance(node, Call):
            if not reads:
                return [self._thread(self._pushed(self._program.groups[node.number].nodes, below), thread)]
            remembered = tuple(cap for cap in thread.values if cap[0] in reads)
            restore = self._node(("restore", remembered, reads), Restore(remembered))
            return [self._thread(self._pushed((*self._program.groups[node.number].nodes, restore), below), thread)]
        assert isinstance(node, Restore)
        return [self._thread(below, thread, node.values)]

    def _written(self, text: str, flags: int) -> Node:
        return self._node(("written", text, flags), Written(text, flags))

    def _trying(self, threads: tuple[Thread, ...]) -> Node:
        node = Trying(threads)
        reads = frozenset[int]().union(*(thread.cell.reads for thread in threads if thread.cell is not None))
        vars(node).update(reads=reads, least=min(0.0 if thread.cell is None else thread.cell.least for thread in threads))
        return self._node(("trying", threads), node)

    def _done(self, below: Cell | None) -> Node:
        reads = frozenset[int]() if below is None else below.reads
        node = Done()
        vars(node).update(reads=reads)
        return self._node(("done", reads), node)

    def _tried(self, thread: Thread, node: Trying, before: str, following: str, ready: list[Thread]) -> list[Thread]:
        """Go on with an atomic group: those of its ways that read something stay in it, and one that has matched leaves it."""
        assert thread.cell is not None
        below = thread.cell.below
        ways: list[Thread] = []
        left: list[Thread] = []
        for way in self._ready(node.threads, before, following):
            if way.cell is not None and isinstance(way.cell.node, Done):
                forbidden = frozenset((True, frozenset([earlier])) for earlier in ways)
                out = thread._replace(looks=thread.looks | way.looks | forbidden)
                left.append(self._thread(below, out, way.values, way.opened))
            if _is_done(way) and not way.looks:
                break  # it has matched now, or before: none behind it is asked
            # One that has left does not leave once more, where what stays is asked about this place again.
            ways.append(Thread(None, (), (), way.looks) if _is_done(way) else way)
        if not all(map(_is_done, ways)):
            ready.append(thread._replace(cell=self._pushed((self._trying(tuple(ways)),), below)))
        return left

    def _stepped(self, ready: Iterable[Thread], before: str, character: str, stay: bool = False) -> list[Thread]:
        """Threads that are ready, after a character, in their order.

        Args:
            stay: do those that have ended stay for what they have promised? It does not matter to them what comes then.
        """
        stepped: list[Thread] = []
        for thread in ready:
            after = Thread(None, (), (), thread.looks) if stay and _is_done(thread) else self._moved(thread, before, character)
            looks = None if after is None else self._looked(thread.looks, before, character)
            if after is not None and looks is not None:
                stepped.append(after._replace(looks=looks))
        return stepped

    def _moved(self, thread: Thread, before: str, character: str) -> Thread | None:
        cell = thread.cell
        if cell is None or isinstance(cell.node, Done):
            return None
        opened = tuple((number, text + character if number in self._program.texts else "") for number, text in thread.opened)
        node = cell.node
        if isinstance(node, Trying):
            ways = tuple(self._stepped(node.threads, before, character, stay=True))
            return self._thread(self._pushed((self._trying(ways),), cell.below), thread, (), ()) if ways else None
        assert isinstance(node, One | Written)
        if not node.has(ord(character)):
            return None
        rest = cell.below
        if isinstance(node, Written) and len(node.text) > 1:
            rest = self._pushed((self._written(node.text[1:], node.flags),), rest)
        return self._thread(rest, thread, opened=opened)

    def _looked(
        self, looks: frozenset[tuple[bool, frozenset[Thread]]], before: str, character: str
    ) -> frozenset[tuple[bool, frozenset[Thread]]] | None:
        """What is still promised or forbidden after a character; None where it has come otherwise."""
        left = set[tuple[bool, frozenset[Thread]]]()
        for negative, threads in looks:
            ready = self._ready(threads, before, character)
            if any(_is_done(thread) and not thread.looks for thread in ready):
                if negative:
                    return None
                continue
            after = frozenset(self._stepped(ready, before, character, stay=True))
            if after:
                left.add((negative, after))
            elif not negative:
                return None
        return frozenset(left)

    def _ends(self, threads: Iterable[Thread], before: str) -> bool:
        """Has one of them matched, where the text ends?"""
        return any(
            _is_done(thread) and all(self._ends(look, before) != negative for negative, look in thread.looks)
            for thread in self._ready(threads, before, END)
        )

    def _stands_behind(self, node: Behind, thread: Thread, before: str, following: str) -> bool:
        for start in range(max(0, len(before) - node.most), len(before) - node.fewest + 1):
            first = self._thread(self._pushed(node.nodes, None), Thread(None, thread.values, (), frozenset()))
            threads: Iterable[Thread] = [first]
            for at in range(start, len(before)):
                threads = self._stepped(self._ready(threads, before[:at], before[at]), before[:at], before[at])
            if any(_is_done(ready) and not ready.looks for ready in self._ready(threads, before, following)):
                return True
        return False

    @staticmethod
    def _holds(node: Anchor, before: str, following: str) -> bool:
        if node.kind is op.AT_BEGINNING_STRING:
            return not before
        if node.kind is op.AT_BEGINNING:
            return not before or before[-1] == "\n"
        if node.kind is op.AT_END_STRING:
            return following == END
        if NON_BOUNDARY_NEEDS_TEXT and node.kind is op.AT_NON_BOUNDARY and not before and following == END:
            return False
        words = [bool(character) and ord(character) in node.word for character in (before[-1:], following)]
        return (words[0] != words[1]) == (node.kind is op.AT_BOUNDARY)


def _is_done(thread: Thread) -> bool:
    return thread.cell is None or isinstance(thread.cell.node, Done)


def _words(program: Program) -> list[CharSet]:
    """What anchors of the program take for characters of words."""
    return list({node.word: None for node in program.everything if isinstance(node, Anchor)})
