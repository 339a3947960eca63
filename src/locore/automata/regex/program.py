r"""A regular expression as steps that a matcher takes, for patterns that say more than a regular language does.

`(a|b)\1`, `(a)?(?(1)b|c)` and `\((?R)*\)` speak of what a group has matched, or call a group from within itself. Their tree
becomes a sequence of *nodes*, which `automata.regex.threads` follows through a text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from locore.automata.regex.language import CharSet
from locore.automata.regex.parse import MAX_DEPTH
from locore.automata.regex.pattern import CHARACTERS, Item, Pattern, Tree, chars_of, op, same_letter, with_local_flags, word_of
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import cached_property

NEWLINE = CharSet.from_text("\n")


class Node:
    """What comes next. Attributes: least: bytes that it reads at least; reads: the groups that it may ask for."""

    least: float = 0.0
    reads: frozenset[int] = frozenset()


Nodes = tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class One(Node):
    """One character of a set."""

    chars: CharSet
    least = 1.0

    @cached_property
    def ascii(self) -> tuple[bool, ...]:
        """Bool[128]: those of ASCII."""
        return tuple(code in self.chars for code in range(128))

    def has(self, code: int) -> bool:
        """Is this character one of them?"""
        return self.ascii[code] if code < 128 else code in self.chars

    def meets(self, first: int, last: int) -> bool:
        """Is one of them between these, which count?"""
        return self.chars.meets(first, last)


@dataclass(frozen=True, eq=False)
class Written(Node):
    """This text, which is what a group has matched."""

    text: str
    flags: int  # 0, or those by which case is ignored

    @property
    def least(self) -> float:  # type: ignore[override]
        """Its bytes; in another case it may have others."""
        return float(len(self.text) if self.flags else len(self.text.encode()))

    def has(self, code: int) -> bool:
        """May it begin with this character?"""
        return same_letter(self.text[0], chr(code), self.flags) if self.flags else ord(self.text[0]) == code

    def meets(self, first: int, last: int) -> bool:
        """May it begin with one between these?"""
        return bool(self.flags) or first <= ord(self.text[0]) <= last


@dataclass(frozen=True, eq=False)
class Either(Node):
    """One of several ways, the first ones before the others."""

    ways: tuple[Nodes, ...]


@dataclass(frozen=True, eq=False)
class Group(Node):
    """What is matched is remembered under a number."""

    number: int
    nodes: Nodes


@dataclass(frozen=True, eq=False)
class Close(Node):
    """The group of this number ends here."""

    number: int


@dataclass(frozen=True, eq=False)
class Again(Node):
    """So many times at least and at most; None: any number."""

    fewest: int
    most: int | None
    is_lazy: bool
    nodes: Nodes
    _fewer: dict[tuple[int, int | None], Again] = field(default_factory=dict)

    @cached_property
    def may_read_nothing(self) -> bool:
        """May what is repeated be nothing?"""
        return not sum(node.least for node in self.nodes)

    def fewer(self) -> Again:
        """Once less; each is made once."""
        key = max(0, self.fewest - 1), None if self.most is None else self.most - 1
        if key == (self.fewest, self.most):
            return self
        again = self._fewer.get(key)
        if again is None:
            again = self._fewer[key] = Again(*key, self.is_lazy, self.nodes, self._fewer)
            measure(again)
        return again


@dataclass(frozen=True, eq=False)
class Reference(Node):
    """What the group of this number has matched, once more."""

    number: int
    flags: int  # 0, or those by which case is ignored


@dataclass(frozen=True, eq=False)
class IfSet(Node):
    """One way if the group of this number has matched something, else another."""

    number: int
    yes: Nodes
    no: Nodes


@dataclass(frozen=True, eq=False)
class Look(Node):
    """This comes next, or must not; nothing is read."""

    nodes: Nodes
    negative: bool


@dataclass(frozen=True, eq=False)
class Behind(Node):
    """This comes before, or must not; so many characters at least and at most."""

    nodes: Nodes
    negative: bool
    fewest: int
    most: int


@dataclass(frozen=True, eq=False)
class First(Node):
    """An atomic group: the first way to match it, and no other."""

    nodes: Nodes


@dataclass(frozen=True, eq=False)
class Anchor(Node):
    """A place in the text: its very beginning or end, a boundary of words, the beginning of a line."""

    kind: Any
    word: CharSet


@dataclass(frozen=True, eq=False)
class Call(Node):
    """The group of this number is matched here as well; what groups have matched in it is forgotten behind it."""

    number: int


class Never(Node):
    """Nothing matches."""

    least = math.inf


def inner(node: Node) -> tuple[Nodes, ...]:
    """The sequences that a node is made of."""
    if isinstance(node, Either):
        return node.ways
    if isinstance(node, IfSet):
        return node.yes, node.no
    return (node.nodes,) if isinstance(node, Group | Again | Look | Behind | First) else ()


def measure(node: Node, groups: dict[int, Group] | None = None) -> None:
    """Say what a node reads at least, and of which groups; of its parts this is known."""
    parts = inner(node)
    reads = frozenset[int]().union(*(child.reads for part in parts for child in part))
    if isinstance(node, Reference | IfSet):
        reads |= {node.number}
    lengths = [sum(child.least for child in part) for part in parts]
    least = min(lengths, default=node.least)
    if isinstance(node, Again):
        least = node.fewest * least if node.fewest else 0.0
    elif isinstance(node, Look | Behind):
        least = 0.0
    elif isinstance(node, Call) and groups is not None:
        reads, least = groups[node.number].reads, groups[node.number].least
    vars(node).update(least=least, reads=reads)


@dataclass(frozen=True)
class Program:
    """A whole pattern.

    Attributes:
        nodes: one after the other.
        everything: they and what they are made of.
        groups: those that are asked for or called, by number; 0 is the whole.
        texts: of which the text is asked for, and not only whether they matched.
        behind: characters before a place that decide what matches there.
        only_kinds: is it only which kind of character stands there that decides?
        looks_at_next: does the kind of the next character decide what matches before it?
    """

    nodes: Nodes
    everything: Nodes
    groups: dict[int, Group]
    texts: frozenset[int]
    behind: int
    only_kinds: bool
    looks_at_next: bool


def program_of(pattern: Pattern) -> Program:
    """The program of a pattern.

    Raises:
        InvalidConstraint: what a group in a look-around has matched is asked for outside of it; a look-behind of any length, or
            one that looks ahead; a group that calls itself before anything is read; or it is nested too deeply.
    """
    compiler = _Compiler(pattern)
    nodes = compiler.sequence(pattern.tree, pattern.flags)
    whole = Group(0, nodes)
    everything = [*within(nodes), whole]
    groups = {node.number: node for node in everything if isinstance(node, Group)}
    calls = {node.number for node in everything if isinstance(node, Call)}
    if missing := calls - set(groups):
        raise InvalidConstraint(
            f"the regular expression {pattern.text!r} calls the group {min(missing)}, which it does not have"
        )
    _check_scopes(pattern, nodes)
    _measured(everything, groups)
    _check_progress(pattern, groups, calls)
    behinds = [node.most + 1 for node in everything if isinstance(node, Behind)]
    anchors = any(isinstance(node, Anchor) for node in everything)
    texts = frozenset(node.number for node in everything if isinstance(node, Reference))
    return Program(nodes, tuple(everything), groups, texts, max([*behinds, int(anchors)]), not behinds, anchors)


def within(nodes: Nodes) -> list[Node]:
    """All nodes, inner ones first."""
    ordered = []
    for node in nodes:
        for part in inner(node):
            ordered.extend(within(part))
        ordered.append(node)
    return ordered


def _measured(nodes: list[Node], groups: dict[int, Group]) -> None:
    """Least lengths and groups asked for, until nothing changes: calls may go in circles, of which no text comes to an end."""
    for group in groups.values():
        vars(group).update(least=math.inf)
    while True:
        before = [(node.least, node.reads) for node in nodes]
        for node in nodes:
            measure(node, groups)
        if before == [(node.least, node.reads) for node in nodes]:
            return


def _check_scopes(pattern: Pattern, nodes: Nodes) -> None:
    """What matched in a look-around stays there: of several ways, a matcher takes the first one only."""
    asked = Counter(node.number for node in within(nodes) if isinstance(node, Reference | IfSet))
    for look in within(nodes):
        if isinstance(look, Look | Behind):
            body = within(look.nodes)
            here = Counter(node.number for node in body if isinstance(node, Reference | IfSet))
            for group in body:
                if isinstance(group, Group) and asked[group.number] > here[group.number]:
                    raise InvalidConstraint(
                        f"the regular expression {pattern.text!r} asks outside of a look-around what its group {group.number} "
                        "has matched in it, which is not supported; write the group outside of it"
                    )


def _check_progress(pattern: Pattern, groups: dict[int, Group], calls: set[int]) -> None:
    """No group may call itself before it has read something: it would do so without end."""
    following = {number: _called_first(groups[number].nodes) for number in calls}
    for number in calls:
        reached, pending = set[int](), [number]
        while pending:
            for called in following[pending.pop()] - reached:
                reached.add(called)
                pending.append(called)
        if number in reached:
            raise InvalidConstraint(
                f"in the regular expression {pattern.text!r} the group {number} calls itself before it has read anything; "
                "let it begin with something else"
            )


def _called_first(nodes: Nodes) -> set[int]:
    """The groups that may be called before a character is read."""
    called = set[int]()
    for node in nodes:
        if isinstance(node, Call):
            called.add(node.number)
        called.update(*map(_called_first, inner(node)))
        if node.least > 0:
            break
    return called


class _Compiler:
    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._depth = 0

    def sequence(self, tree: Tree, flags: int) -> Nodes:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidConstraint(f"a regular expression is nested deeper than {MAX_DEPTH}; make it flatter")
        nodes = tuple(node for item in tree for node in self._item(item, flags))
        self._depth -= 1
        return nodes

    def _item(self, item: Item, flags: int) -> Nodes:
        code, argument = item
        if code is op.LITERAL and argument in self._pattern.calls:
            return (Call(self._pattern.calls[argument]),)
        if code in CHARACTERS:
            return (One(chars_of(item, flags)),)
        if code is op.BRANCH:
            return (Either(tuple(self.sequence(branch, flags) for branch in argument[1])),)
        if code is op.SUBPATTERN:
            number, added, removed, tree = argument
            nodes = self.sequence(tree, with_local_flags(flags, added, removed))
            return nodes if number is None else (Group(number, nodes),)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            fewest, most, tree = argument
            limit = None if most == op.MAXREPEAT else int(most)
            again = Again(int(fewest), limit, code is op.MIN_REPEAT, self.sequence(tree, flags))
            return (First((again,)),) if code is op.POSSESSIVE_REPEAT else (again,)
        if code is op.ATOMIC_GROUP:
            return (First(self.sequence(argument, flags)),)
        if code is op.GROUPREF:
            ignoring = flags & (re.IGNORECASE | re.ASCII | re.UNICODE) if flags & re.IGNORECASE else 0
            return (Reference(argument, ignoring),)
        if code is op.GROUPREF_EXISTS:
            number, yes, no = argument
            return (IfSet(number, self.sequence(yes, flags), self.sequence(no or (), flags)),)
        if code in (op.ASSERT, op.ASSERT_NOT):
            return (self._look(argument, flags, code is op.ASSERT_NOT),)
        if code is op.AT:
            return (self._anchor(argument, flags),)
        if code is op.FAILURE:
            return (Never(),)
        raise InvalidConstraint(f"the regular expression {self._pattern.text!r} contains {code}, which is not supported")

    def _look(self, argument: Any, flags: int, negative: bool) -> Node:
        direction, tree = argument
        nodes = self.sequence(tree, flags)
        if direction > 0:
            return Look(nodes, negative)
        fewest, most = map(int, tree.getwidth())
        if most >= int(op.MAXREPEAT) or any(isinstance(node, Look | Call) for node in within(nodes)):
            raise InvalidConstraint(
                f"the regular expression {self._pattern.text!r} has a look-behind of any length, or one that looks ahead, "
                "beside back-references, conditions or calls, which is not supported"
            )
        return Behind(nodes, negative, fewest, most)

    def _anchor(self, kind: Any, flags: int) -> Node:
        word = word_of(flags)
        lines = bool(flags & re.MULTILINE)
        if kind is op.AT_BEGINNING and not lines:
            kind = op.AT_BEGINNING_STRING
        if kind is not op.AT_END:
            return Anchor(kind, word)
        end = Anchor(op.AT_END_STRING, word)
        following: Nodes = (One(NEWLINE),) if lines else (One(NEWLINE), end)
        return Either(((end,), (Look(following, negative=False),)))
