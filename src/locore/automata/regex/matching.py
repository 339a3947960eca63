"""The matcher of `automata.regex.threads` as a machine over the bytes of UTF-8."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine, Numbered
from locore.automata.characters import NUM_CODE_POINTS
from locore.automata.regex.dfa import Dfa
from locore.automata.regex.language import FIRST_SURROGATE, LAST_SURROGATE, CharClasses, CharSet, partition
from locore.automata.regex.pattern import chars_of, op, same_letter
from locore.automata.regex.program import NEWLINE, Anchor, Call, Group, One, Program, Reference, Written, within
from locore.automata.regex.threads import FOLLOWING, Kind, Matcher, State, Thread, Trying
from locore.automata.walking import DEAD, Int32
from locore.kernel.limits import check_states

LEADS = ((0xC2, 0xE0, 1, 0x80), (0xE0, 0xF0, 2, 0x800), (0xF0, 0xF5, 3, 0x10000))  # first bytes, more bytes, lowest character
SETTLED = -1
SURROGATES = range(FIRST_SURROGATE, LAST_SURROGATE + 1)
LAST = NUM_CODE_POINTS - 1
MOST_LETTERS = 200  # that are told apart because a group remembers them
MOST_THREADS = 50  # of a state that is one of few
OTHERS = " é\n"  # characters of all kinds that anchors tell apart, but for ASCII words


def few_states(program: Program, most: int) -> Dfa | None:
    """The minimal automaton of the texts that a program matches, if it has no more states than `most` and remembers little.

    Characters that no node tells apart are one class, but for those that a group may remember.
    """
    nodes = program.everything
    remembered = [
        node for group in nodes if isinstance(group, Group) and group.number in program.texts for node in within(group.nodes)
    ]
    letters = [span for node in remembered if isinstance(node, One) for span in node.chars.ranges]
    if any(isinstance(node, Call) for node in nodes) or sum(last - first + 1 for first, last in letters) > MOST_LETTERS:
        return None
    single = [chr(code) for first, last in letters for code in range(first, last + 1)]
    ignoring = {node.flags for node in nodes if isinstance(node, Reference) and node.flags}
    cases = [_any_case(letter, flags) for flags in ignoring for letter in single]
    words = [node.word for node in nodes if isinstance(node, Anchor)]
    told_apart = [node.chars for node in nodes if isinstance(node, One)]
    classes, _ = partition([*told_apart, *map(CharSet.from_text, single), *cases, *words, NEWLINE])
    return _explored(Matcher(program), classes, most)


def _any_case(letter: str, flags: int) -> CharSet:
    """What a back-reference to a letter matches, which is not all that the letter itself does."""
    similar = chars_of((op.LITERAL, ord(letter)), flags).ranges
    return CharSet.from_text(
        chr(code) for first, last in similar for code in range(first, last + 1) if same_letter(letter, chr(code), flags)
    )


def _explored(matcher: Matcher, classes: CharClasses, most: int) -> Dfa | None:
    """All states of a matcher, if there are no more than so many."""
    characters = [next((chr(first) for first, _ in chars.ranges), None) for chars in classes.sets]
    states: Numbered[State | None] = Numbered([matcher.start])
    rows = list[list[int]]()
    while len(rows) < len(states) <= most:
        state = states[len(rows)]
        if state is not None and len(state.threads) > MOST_THREADS:
            return None
        reading = None if state is None else _Reading(matcher, state)
        following = [None if reading is None or sample is None else reading.after(ord(sample)) for sample in characters]
        rows.append([states.number(after) for after in following])
    if len(states) > most:
        return None
    accepting = np.array([state is not None and matcher.accepts(state) for state in states])
    return Dfa(np.array(rows, dtype=np.int32), accepting, classes).minimised()


class _Place(NamedTuple):
    """Between two bytes: the state before a character, what has been read of it, and how many bytes are to come.

    Where it does not matter any more which bytes these are, it is the state after the character, and `begun` is SETTLED.
    """

    state: State
    begun: int = 0
    left: int = 0
    lowest: int = 0  # character that may be written in so many bytes


class PatternMachine(ByteMachine):
    """The texts that a program matches; threads may share it."""

    has_dear_rows = True

    def __init__(self, program: Program) -> None:
        self._matcher = Matcher(program)
        self._places = Numbered([_Place(self._matcher.start)])
        self._targets: dict[int, int] = {}  # where a byte leads, by 256 times the state and the byte

    def row(self, state: int) -> Int32:
        """Int32[256]: the state after each byte."""
        return self.after_each(np.full(256, state, dtype=np.int32), np.arange(256))

    def after_each(self, states: Int32, symbols: NDArray[np.int64]) -> Int32:
        """Int32[pairs]: the state after one byte, for many states and bytes."""
        keys = (states.astype(np.int64) << 8) + symbols
        targets = self._targets
        reading, read = None, -1
        for key in sorted({key for key in keys.tolist() if key not in targets}):
            state, byte = key >> 8, key & 0xFF
            if reading is None or state != read:
                reading, read = _Reading(self._matcher, self._places[state].state), state
                check_states(len(self._places), *FOLLOWING)
            targets[key] = self._after(reading, self._places[state], byte)
        return np.array([targets[key] for key in keys.tolist()], dtype=np.int32)

    def _after(self, reading: _Reading, place: _Place, byte: int) -> int:
        if place.left and not 0x80 <= byte < 0xC0:
            return DEAD
        if place.begun == SETTLED:
            return self._places.number(_Place(place.state, SETTLED * (place.left > 1), place.left - 1))
        if place.left:
            return self._continued(reading, place, byte)
        if byte < 0x80:
            return self._number(reading.after(byte))
        for first, after, left, lowest in LEADS:
            if first <= byte < after:
                return self._begun(reading, _Place(place.state, byte & (0x3F >> left), left, lowest))
        return DEAD

    def accepts(self, state: int) -> bool:
        """May the text end here?"""
        place = self._places[state]
        return not place.left and self._matcher.accepts(place.state)

    def least(self, state: int) -> float:
        """Bytes that a text needs at least from here on."""
        place = self._places[state]
        return max(float(place.left), self._matcher.least(place.state) - (1 if place.left else 0))

    def _number(self, state: State | None) -> int:
        return DEAD if state is None else self._places.number(_Place(state))

    def _continued(self, reading: _Reading, place: _Place, byte: int) -> int:
        after = place._replace(begun=place.begun << 6 | byte & 0x3F, left=place.left - 1)
        if after.left:
            return self._begun(reading, after)
        return self._number(reading.after(after.begun)) if after.begun >= place.lowest else DEAD

    def _begun(self, reading: _Reading, place: _Place) -> int:
        """Behind a byte that is not the last one of its character."""
        first = max(place.begun << 6 * place.left, place.lowest)
        last = min((place.begun + 1 << 6 * place.left) - 1, LAST)
        if first > last or (first in SURROGATES and last in SURROGATES) or not reading.meets(first, last):
            return DEAD
        if first == place.begun << 6 * place.left and last - first == (1 << 6 * place.left) - 1 and reading.is_one(first, last):
            after = reading.after(first)
            return DEAD if after is None else self._places.number(_Place(after, SETTLED, place.left))
        return self._places.number(place)


class _Reading:
    """The characters that may come in one state; those that the same threads read lead to the same."""

    def __init__(self, matcher: Matcher, state: State) -> None:
        self._matcher, self._state = matcher, state
        self._ready: dict[Kind, list[Thread]] = {}
        self._states: dict[tuple[object, ...], State | None] = {}

    def after(self, code: int) -> State | None:
        """The state after a character."""
        if code in SURROGATES or code > LAST:
            return None
        character = chr(code)
        kind = self._matcher.kind(character)
        ready = self._before(kind, character)
        reading = tuple(thread for thread in ready if _reads(thread, code))
        if not reading:
            return None
        if any(thread.looks or thread.opened or _tries(thread) for thread in reading):
            return self._matcher.read(self._state, reading, character)
        key = kind, reading, self._matcher.remembered(self._state.before, character)
        if key not in self._states:
            self._states[key] = self._matcher.read(self._state, reading, character)
        return self._states[key]

    def meets(self, first: int, last: int) -> bool:
        """May one of these characters come? Looks ahead are not asked."""
        return any(
            _tries(thread) or (thread.cell is not None and thread.cell.node.meets(first, last))  # type: ignore[attr-defined]
            for character in OTHERS
            for thread in self._before(self._matcher.kind(character), character)
        )

    def is_one(self, first: int, last: int) -> bool:
        """Does it not matter which of the characters between these comes, which count?"""
        if first <= SURROGATES[-1] and last >= SURROGATES[0]:
            return False
        if any(word.tells_apart(first, last) for word in self._matcher.words):
            return False
        character = chr(first)
        for thread in self._before(self._matcher.kind(character), character):
            node = None if thread.cell is None else thread.cell.node
            if _tries(thread) or (isinstance(node, Written) and node.meets(first, last)):
                return False
            if not isinstance(node, One) or not node.meets(first, last):
                continue
            if thread.opened or thread.looks or node.chars.tells_apart(first, last):
                return False
        return True

    def _before(self, kind: Kind, character: str) -> list[Thread]:
        ready = self._ready.get(kind)
        if ready is None:
            ready = self._ready[kind] = self._matcher.ready(self._state, character)
        return ready


def _reads(thread: Thread, code: int) -> bool:
    """Does it read this character, as far as its next node says?"""
    node = None if thread.cell is None else thread.cell.node
    return node.has(code) if isinstance(node, One | Written) else _tries(thread)


def _tries(thread: Thread) -> bool:
    return thread.cell is not None and isinstance(thread.cell.node, Trying)
