"""Searching a text for a regular expression, character by character: is there a match, and how many are there?

States are made when they are first reached, so that the number of all of them does not matter. A search for ` not .{1,25} but`
has tens of thousands, of which a text meets a few.

Counted are matches that do not overlap: the leftmost, of those that begin there the longest, then the same behind it (POSIX).
Where a match ends may depend on what follows, so all answers are kept as *hypotheses*: that no match begins at this place, that
one does, that it ends here, that it goes on. What a hypothesis takes for granted of the rest of the text are threads of which
none may come to a match, and promises. Just one hypothesis stands at the end of every text.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from locore.automata.byte_machine import Numbered
from locore.automata.regex.determinise import BROKEN, KEPT, NO_PROMISES, NO_THREADS, Promises, Reader, Threads, program_of
from locore.automata.regex.dfa import Budget, Dfa
from locore.automata.regex.language import ANYTHING, CharClasses, Language, concat
from locore.automata.regex.nfa import distances
from locore.automata.walking import DEAD
from locore.kernel.plugins import cached_property

MOVES = 200  # of threads for a state, when all are made
S = TypeVar("S")
Searches = tuple[Threads, ...]  # of look-behinds


class CharMachine(ABC, Generic[S]):
    """A deterministic machine over classes of characters; states are numbers, made when they are first reached; 0 is the start.

    Args:
        language: what is sought.
        open_end: may anything follow what is sought?
    """

    def __init__(self, language: Language, open_end: bool = True) -> None:
        """Nothing has been read.

        Raises:
            BudgetExceeded: repetitions, written out, are too large.
        """
        nfa, self.classes, members = program_of(language, Budget.in_force(), open_end)
        self._budget = replace(Budget.in_force(), moves=sys.maxsize)  # what is made as a text goes ends with the text
        self._reader = Reader(nfa, members, self._budget)
        self._entry, self._distance = nfa.start, distances(nfa)
        self._meanings: Numbered[S] = Numbered()
        self._after: dict[tuple[int, int], int] = {}

    classes: CharClasses

    def step(self, state: int, chars: int) -> int:
        """The state after a character of this class; DEAD where nothing that follows is accepted."""
        key = state, chars
        if key not in self._after:
            meaning = self.following(self._meanings[state], chars)
            self._after[key] = DEAD if meaning is None else self._meanings.number(meaning)
        return self._after[key]

    @abstractmethod
    def following(self, meaning: S, chars: int) -> S | None:
        """What a state becomes; None where nothing that follows is accepted."""

    @abstractmethod
    def accepts(self, state: int) -> bool:
        """May the text end here?"""

    @abstractmethod
    def least(self, state: int) -> float:
        """Characters that a text needs at least from here on."""

    def whole(self, most: int) -> Dfa | None:
        """All of it, minimal; None if there are more than so many states.

        Raises:
            BudgetExceeded: making them takes too long.
        """
        self._budget.moves = MOVES * most
        rows: list[list[int]] = []
        while len(rows) < len(self._meanings):
            if len(self._meanings) > most:
                return None
            rows.append([self.step(len(rows), chars) for chars in range(self.classes.num_classes)])
        dead = len(rows)
        table = np.array([*rows, [dead] * self.classes.num_classes], dtype=np.int32)
        table[table == DEAD] = dead
        accepting = np.array([*map(self.accepts, range(dead)), False])
        return Dfa(table, accepting, self.classes).minimised()


class Place(NamedTuple):
    """Where a search is.

    Attributes:
        searches: those of look-behinds.
        threads: of what is sought.
        settled: is the answer known, whatever follows?
    """

    searches: Searches
    threads: Threads
    settled: bool = False


class Search(CharMachine[Place]):
    """Accepts a text that the language matches up to somewhere; with `absent`, one that it does not.

    Args:
        language: what is sought, with whatever may stand before it.
        open_end: may anything follow?
        absent: is it that it must not be found?
    """

    def __init__(self, language: Language, open_end: bool = True, absent: bool = False) -> None:
        super().__init__(language, open_end)
        self._absent = absent
        searches, context = self._reader.first_searches()
        self._meanings.number(Place(searches, self._reader.enter(self._entry, context)))

    def following(self, meaning: Place, chars: int) -> Place | None:
        """The threads read the character."""
        if meaning.settled:
            return meaning
        searches, context = self._reader.move_searches(meaning.searches, chars)
        threads = self._reader.move(meaning.threads, chars, context)
        is_found = self._reader.has_found(threads)
        if threads and not is_found:
            return Place(searches, threads)
        return None if is_found == self._absent else Place((), NO_THREADS, True)

    def begun(self, text: str) -> int | None:
        """The first character with which a match may begin that the text ends within; what is sought begins anywhere."""
        chars = [self.classes.of(ord(character)) for character in text]
        searches, context = self._reader.first_searches()
        contexts = [context]
        for char_class in chars:
            searches, context = self._reader.move_searches(searches, char_class)
            contexts.append(context)
        for start in range(len(chars)):
            threads = self._reader.enter(self._entry, contexts[start])
            for place in range(start, len(chars)):
                threads = self._reader.move(threads, chars[place], contexts[place + 1])
                if not threads:
                    break
            if threads and not self._reader.split(threads)[0]:
                return start
        return None

    def accepts(self, state: int) -> bool:
        """May the text end here?"""
        place = self._meanings[state]
        return place.settled or self._reader.accepts(place.threads) != self._absent

    def least(self, state: int) -> float:
        """Characters that a text needs at least from here on."""
        place = self._meanings[state]
        if place.settled or self._absent:
            return 0.0 if self.accepts(state) else 1.0
        return self._reader.nearest(place.threads, self._distance)


class Hypothesis(NamedTuple):
    """What may be true at a place.

    Attributes:
        matches: that have ended, up to a top.
        inside: the threads of the match that has begun; None between matches.
        none: threads of which none may come to a match, as no match begins, or goes on, there.
        promises: that have to be kept.
    """

    matches: int
    inside: Threads | None
    none: Threads
    promises: Promises


Standing = tuple[Searches, frozenset[Hypothesis]]


class Matches(CharMachine[Standing]):
    """Accepts texts with so many matches of a language, which must not match the empty text.

    Args:
        language: of one match.
        low, high: bounds of their number; None: no upper bound.
    """

    def __init__(self, language: Language, low: int, high: int | None) -> None:
        super().__init__(language)
        self._low, self._high, self._top = low, high, low if high is None else high + 1
        searches, context = self._reader.first_searches()
        first = Hypothesis(0, None, NO_THREADS, NO_PROMISES)
        self._meanings.number((searches, frozenset(self._beginning(first, context))))

    @cached_property
    def width(self) -> float:
        """Characters of a match, at least."""
        return self._distance[self._entry]

    def following(self, meaning: Standing, chars: int) -> Standing | None:
        """Every hypothesis reads the character; those that have become wrong are dropped."""
        searches, context = self._reader.move_searches(meaning[0], chars)
        hypotheses: set[Hypothesis] = set()
        for hypothesis in meaning[1]:
            none = self._reader.move(hypothesis.none, chars, context)
            promises = self._reader.move_promises(hypothesis.promises, chars, context)
            if promises is None or self._reader.has_found(none):
                continue
            if hypothesis.inside is None:
                hypotheses.update(self._beginning(hypothesis._replace(none=none, promises=promises), context))
            else:
                inside = self._reader.move(hypothesis.inside, chars, context)
                hypotheses.update(self._inside(Hypothesis(hypothesis.matches, inside, none, promises), context))
        allowed = frozenset(hypothesis for hypothesis in hypotheses if self._high is None or hypothesis.matches <= self._high)
        return (searches, allowed) if allowed else None

    def _beginning(self, hypothesis: Hypothesis, context: int) -> Iterator[Hypothesis]:
        """Between matches: a match begins here, or none does."""
        if hypothesis.matches >= self._top:  # more are not counted
            yield hypothesis
            return
        begun = self._reader.enter(self._entry, context)
        yield hypothesis._replace(none=self._reader.joined(hypothesis.none, begun))
        if begun:
            yield hypothesis._replace(inside=begun)

    def _inside(self, hypothesis: Hypothesis, context: int) -> Iterator[Hypothesis]:
        """In a match: it ends here for good, or it goes on."""
        assert hypothesis.inside is not None
        ended, others = self._reader.split(hypothesis.inside)
        if others:
            yield hypothesis._replace(inside=others)
        promise = self._reader.promise(ended) if ended else BROKEN
        if promise != BROKEN:
            promises = hypothesis.promises if promise == KEPT else hypothesis.promises | {promise}
            none = self._reader.joined(hypothesis.none, others)
            yield from self._beginning(Hypothesis(min(hypothesis.matches + 1, self._top), None, none, promises), context)

    def floor(self, state: int) -> int:
        """No text that goes on from here has fewer matches."""
        return min(hypothesis.matches for hypothesis in self._meanings[state][1])

    def count(self, state: int) -> int | None:
        """How many matches there are if the text ends here; None if it was no text."""
        return next(
            (
                answer.matches
                for answer in self._meanings[state][1]
                if answer.inside is None and not self._reader.accepts(answer.none) and self._reader.keeps(answer.promises)
            ),
            None,
        )

    def accepts(self, state: int) -> bool:
        """Are there as many as there have to be, and no more than there may be?"""
        count = self.count(state)
        return count is not None and self._low <= count and (self._high is None or count <= self._high)

    def least(self, state: int) -> float:
        """Characters that a text needs at least from here on."""
        lacking = min(map(self._lacking, self._meanings[state][1]))
        return lacking if lacking or self.accepts(state) else 1.0

    def _lacking(self, hypothesis: Hypothesis) -> float:
        """Characters that are needed at least until there are enough matches, if a hypothesis is right."""
        missing = max(0, self._low - hypothesis.matches)
        if hypothesis.inside is None:
            return missing * self.width if missing else 0.0
        rest = missing - 1
        return self._reader.nearest(hypothesis.inside, self._distance) + (rest * self.width if rest > 0 else 0.0)


def anywhere(*languages: Language) -> Language:
    """Each of these, one after the other, with anything before each."""
    return concat(*(part for language in languages for part in (ANYTHING, language)))


__all__ = ["CharMachine", "Matches", "Search", "anywhere"]
