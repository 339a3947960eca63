"""Which texts are sentences of a grammar whose terminals are single characters: read plainly, item by item (Earley 1970).

It shares nothing with the machine but the productions, so that it can check what the machine makes. Where productions have to
end one after the other, the last of them is looked up (Leo 1991), so that right recursion takes no longer than left recursion.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from locore.automata.grammar.productions import START, Productions
from locore.kernel.limits import may_stop

Item = tuple[int, int]  # a place in a production, and the column where the production began


@dataclass(eq=False)
class _Column:
    """What may come after some characters.

    Attributes:
        is_sentence: is what was read all of a sentence?
        waiting: the items that need a nonterminal next.
        reading: the same for terminals.
        top: for a nonterminal that one item waits for, whose production ends with it: what has ended once it has.
    """

    is_sentence: bool = False
    waiting: dict[int, list[Item]] = field(default_factory=dict)
    reading: dict[int, list[Item]] = field(default_factory=dict)
    top: dict[int, Item] = field(default_factory=dict)


class Sentences:
    """The sentences of a grammar whose terminals are single characters."""

    def __init__(self, grammar: Productions) -> None:
        self._grammar, self._dots = grammar, grammar.dots
        self._terminals_of: dict[str, frozenset[int]] = {}

    def read(self, content: bytes) -> tuple[int, bool]:
        """With how many bytes of the text some sentence begins; and is all of it one?"""
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            text = content[: error.start].decode()
        read, is_sentence = self._characters(text)
        size = len(text[:read].encode())
        return size, is_sentence and size == len(content)

    def _characters(self, text: str) -> tuple[int, bool]:
        columns: list[_Column] = []
        items = [(dot, 0) for dot in self._dots.first[START]]
        for place in range(len(text) + 1):
            may_stop()
            columns.append(_Column(not place and START in self._grammar.nullable))
            self._complete(columns, items)
            if place == len(text):
                break
            terminals = self._of_character(text[place])
            readers = ((t, dot, origin) for t, waiting in columns[-1].reading.items() for dot, origin in waiting)
            items = [(self._dots.following[dot], origin) for t, dot, origin in readers if t in terminals]
            if not items:
                return place, False
        return len(text), columns[-1].is_sentence

    def _of_character(self, character: str) -> frozenset[int]:
        if character not in self._terminals_of:
            pairs, code = enumerate(self._grammar.terminals), ord(character)
            self._terminals_of[character] = frozenset(t for t, term in pairs if term.chars is not None and code in term.chars)
        return self._terminals_of[character]

    def _complete(self, columns: list[_Column], items: list[Item]) -> None:
        """Fill in the last column: the items, and those that follow from them before another character is read."""
        dots, nullable, here, column = self._dots, self._grammar.nullable, len(columns) - 1, columns[-1]
        pending, seen = list(items), set(items)
        while pending:
            dot, origin = item = pending.pop()
            symbol = dots.symbol[dot]
            new: list[Item] = []
            if symbol is None:
                side = dots.side[dot]
                if side == START:
                    column.is_sentence = True
                elif origin != here:  # what is empty is stepped over where it is waited for
                    top = self._top(columns, side, origin)
                    waiting = columns[origin].waiting.get(side, ())
                    new = [(dots.following[parent], back) for parent, back in waiting] if top is None else [top]
            elif symbol < 0:
                column.reading.setdefault(~symbol, []).append(item)
            else:
                if symbol not in column.waiting:
                    new = [(first, here) for first in dots.first[symbol]]
                column.waiting.setdefault(symbol, []).append(item)
                if symbol in nullable:
                    new.append((dots.following[dot], origin))
            for follower in new:
                if follower not in seen:
                    seen.add(follower)
                    pending.append(follower)

    def _top(self, columns: list[_Column], side: int, origin: int) -> Item | None:
        """The last production that has ended once this nonterminal has, where one after the other has to; or None."""
        path: dict[Item, None] = {}
        top: Item | None = None
        while (side, origin) not in path:
            column = columns[origin]
            if side in column.top:
                top = column.top[side]
                break
            waiting = column.waiting.get(side, [])
            if len(waiting) != 1 or self._dots.symbol[self._dots.following[waiting[0][0]]] is not None:
                break
            path[side, origin] = None
            dot, back = waiting[0]
            top = self._dots.following[dot], back
            side, origin = self._dots.side[dot], back
        if top is not None:
            for side, origin in path:
                columns[origin].top[side] = top
        return top
