"""The subset construction: one deterministic state for each set of threads that can be reached.

A *thread* is a place in the program and a set of promises that the rest of the text has to keep. A look-ahead starts a
*promise*: a set of threads of its own, of which at least one has to come to a match (negative: none may). A look-behind is a
*search*: a set of threads that starts anew at every character; whether one of them is at its match is all that the others need
to know, so one bit for each search is the *context* of a place in the text.

Threads and promises are numbered when they first occur, and what a character does to each is remembered.
"""

from __future__ import annotations

import math

import numpy as np

from locore.automata.byte_machine import Numbered
from locore.automata.regex.dfa import Budget, Dfa, intersection
from locore.automata.regex.language import Both, CharClasses, Complement, Language, partition
from locore.automata.regex.nfa import LookAhead, LookBehind, Match, Nfa, Read, Rest, Split, build_nfa
from locore.kernel.errors import InvalidConstraint

Threads = frozenset[int]
Promises = frozenset[int]
KEPT, BROKEN = -1, -2
COST_OF_ENTERING = 4  # in moves
NO_THREADS: Threads = frozenset()
NO_PROMISES: Promises = frozenset()
State = tuple[tuple[Threads, ...], Threads]  # the searches of look-behinds, and the threads of the text
NOTHING: State = ((), NO_THREADS)  # nothing can follow


def determinise(language: Language, budget: Budget) -> Dfa:
    """The minimal automaton of an expression.

    Raises:
        BudgetExceeded: it is too large, or finding it takes too long.
        InvalidConstraint: a look-behind contains a look-ahead that reads past its end.
    """
    match language:
        case Both(left, right):
            return intersection(determinise(left, budget), determinise(right, budget), budget)
        case Complement(part):
            return determinise(part, budget).complement()
    nfa, classes, members = program_of(language, budget)
    reader = Reader(nfa, members, budget)
    searches, context = reader.first_searches()
    rows, accepting = _explore(reader, (searches, reader.enter(nfa.start, context)), classes.num_classes, budget)
    table = np.array(rows, dtype=np.int32).reshape(len(rows), classes.num_classes)
    return Dfa(table, np.array(accepting, dtype=np.bool_), classes).minimised()


def program_of(language: Language, budget: Budget, open_end: bool = False) -> tuple[Nfa, CharClasses, list[tuple[int, ...]]]:
    """The program of an expression, the classes of characters that it tells apart, and those of each of its sets.

    Raises:
        BudgetExceeded: it is too large.
    """
    read: dict[int, Dfa] = {}  # parts that are read by themselves may be shared

    def by_itself(part: Language) -> Dfa:
        if id(part) not in read:
            read[id(part)] = determinise(part, budget)
        return read[id(part)]

    nfa = build_nfa(language, budget, by_itself, open_end)
    return nfa, *partition(nfa.sets)


def _explore(reader: Reader, start: State, num_classes: int, budget: Budget) -> tuple[list[list[int]], list[bool]]:
    """The rows of the table and which states accept; state 0 is the start, and all can be reached."""
    states = [start]
    number = {start: 0}
    rows: list[list[int]] = []
    accepting: list[bool] = []

    def numbered(state: State) -> int:
        if state not in number:
            number[state] = len(states)
            states.append(state)
        return number[state]

    for searches, threads in states:  # grows while it is read
        readable = reader.readable(threads)
        row = [numbered(NOTHING)] * num_classes if len(readable) < num_classes else [0] * num_classes
        for chars in readable:
            following, context = reader.move_searches(searches, chars)
            moved = reader.move(threads, chars, context)
            row[chars] = numbered((following, moved) if moved else NOTHING)
        rows.append(row)
        accepting.append(reader.accepts(threads))
        budget.require("states", len(states))
    return rows, accepting


class Reader:
    """Moves threads of one program over classes of characters.

    Args:
        nfa: the program.
        members: for each of its sets of characters, the classes in it.
        budget: pays for every thread that is moved.
    """

    def __init__(self, nfa: Nfa, members: list[tuple[int, ...]], budget: Budget) -> None:
        self._code = nfa.code
        self._searches = nfa.searches
        self._members = members
        self._member_sets = [frozenset(classes) for classes in members]
        self._budget = budget
        self._threads: Numbered[tuple[int, Promises]] = Numbered()
        self._promises: Numbered[tuple[bool, Threads]] = Numbered()
        self._entered: dict[tuple[int, int], Threads] = {}
        self._moved: dict[tuple[int, int, int], Threads] = {}
        self._promise_moved: dict[tuple[int, int, int], int] = {}

    # What a place in the text looks like to the look-behinds.

    def first_searches(self) -> tuple[tuple[Threads, ...], int]:
        """The searches at the start of the text, and their context."""
        return self._searched([NO_THREADS] * len(self._searches), None)

    def move_searches(self, searches: tuple[Threads, ...], chars: int) -> tuple[tuple[Threads, ...], int]:
        """The searches after one more character of class `chars`, and their context."""
        return self._searched(list(searches), chars)

    def _searched(self, searches: list[Threads], chars: int | None) -> tuple[tuple[Threads, ...], int]:
        context = 0
        for number, entry in enumerate(self._searches):  # inner searches come first, so their bits are known
            moved = searches[number] if chars is None else self.move(searches[number], chars, context)
            searches[number] = moved | self.enter(entry, context)
            context |= self._ends_here(searches[number]) << number
        return tuple(searches), context

    def _ends_here(self, search: Threads) -> bool:
        matches = [self._threads[thread][1] for thread in search if isinstance(self._code[self._threads[thread][0]], Match)]
        if matches and NO_PROMISES not in matches:
            raise InvalidConstraint("a look-behind whose look-ahead, \\b or $ reads past its end is not supported")
        return bool(matches)

    # Threads.

    def enter(self, entry: int, context: int) -> Threads:
        """The threads that begin at an instruction: at reads, matches and rests that it leads to without reading."""
        key = (entry, context)
        if key not in self._entered:
            self._entered[key] = self._without_weaker(self._followed(entry, context))
        return self._entered[key]

    def _followed(self, entry: int, context: int) -> Threads:
        threads = set()
        pending = [(entry, NO_PROMISES)]
        seen = set(pending)
        while pending:
            place, promises = pending.pop()
            instruction = self._code[place]
            if isinstance(instruction, Split):
                after = [(target, promises) for target in instruction.targets]
            elif isinstance(instruction, LookBehind | LookAhead):
                after = self._looked(instruction, promises, context)
            else:
                threads.add(self._threads.number((place, promises)))
                continue
            fresh = [step for step in after if step not in seen]
            seen.update(fresh)
            pending += fresh
        self._budget.spend(COST_OF_ENTERING * len(seen))
        return frozenset(threads)

    def _looked(self, look: LookBehind | LookAhead, promises: Promises, context: int) -> list[tuple[int, Promises]]:
        """Where a look leads to: on, perhaps with one more promise, or nowhere."""
        if isinstance(look, LookBehind):
            return [(look.next, promises)] if bool(context >> look.search & 1) != look.negative else []
        promise = self._promise(look.negative, self.enter(look.entry, context))
        if promise == BROKEN:
            return []
        return [(look.next, promises if promise == KEPT else promises | {promise})]

    def readable(self, threads: Threads) -> set[int]:
        """The classes of characters that some thread can read."""
        classes: set[int] = set()
        for thread in threads:
            instruction = self._code[self._threads[thread][0]]
            if isinstance(instruction, Read):
                classes.update(self._members[instruction.chars])
        return classes

    def move(self, threads: Threads, chars: int, context: int) -> Threads:
        """The threads after a character of class `chars`; `context` is that of the place after it."""
        self._budget.spend(len(threads))
        cache = self._moved
        moved = []
        for thread in threads:
            key = (thread, chars, context)
            if key not in cache:
                cache[key] = self._move_one(thread, chars, context)
            moved.append(cache[key])
        return self._without_weaker(NO_THREADS.union(*moved))

    def _move_one(self, thread: int, chars: int, context: int) -> Threads:
        place, promises = self._threads[thread]
        instruction = self._code[place]
        if isinstance(instruction, Read):
            if chars not in self._member_sets[instruction.chars]:
                return NO_THREADS
            entered = self.enter(instruction.next, context)
        elif isinstance(instruction, Rest):
            entered = frozenset([self._threads.number((place, NO_PROMISES))])
        else:
            return NO_THREADS
        left = self.move_promises(promises, chars, context)
        if left is None:
            return NO_THREADS
        if not left:
            return entered
        return frozenset(self._threads.number((place, own | left)) for place, own in map(self._threads.__getitem__, entered))

    def accepts(self, threads: Threads) -> bool:
        """May the text end here?"""
        return any(self._accepts_one(*self._threads[thread]) for thread in threads)

    def _accepts_one(self, place: int, promises: Promises) -> bool:
        if not isinstance(self._code[place], Match | Rest):
            return False
        return self.keeps(promises)

    def split(self, threads: Threads) -> tuple[Threads, Threads]:
        """Of a program with an open end: the threads that have come to it, and the others."""
        ended = frozenset(thread for thread in threads if isinstance(self._code[self._threads[thread][0]], Rest))
        return ended, threads - ended

    def has_found(self, threads: Threads) -> bool:
        """Of a program with an open end: has a thread come to it that has no promises left?"""
        return any(
            isinstance(self._code[place], Rest) and not promises for place, promises in map(self._threads.__getitem__, threads)
        )

    def nearest(self, threads: Threads, distance: list[float]) -> float:
        """The least distance of a place where a thread is."""
        return min((distance[self._threads[thread][0]] for thread in threads), default=math.inf)

    def joined(self, threads: Threads, other: Threads) -> Threads:
        """The threads of both."""
        return other if not threads else threads if not other else self._without_weaker(threads | other)

    def _without_weaker(self, threads: Threads) -> Threads:
        """Without threads that promise more than another one at the same place does."""
        by_place: dict[int, list[tuple[Promises, int]]] = {}
        for thread in threads:
            place, promises = self._threads[thread]
            by_place.setdefault(place, []).append((promises, thread))
        if len(by_place) == len(threads):
            return threads
        self._budget.spend(sum(len(rivals) ** 2 for rivals in by_place.values()))
        return frozenset(
            thread
            for rivals in by_place.values()
            for promises, thread in rivals
            if not any(fewer < promises for fewer, _ in rivals)
        )

    # Promises.

    def promise(self, threads: Threads) -> int:
        """The number of the promise that one of these threads comes to a match; KEPT or BROKEN where that is settled."""
        return self._promise(False, threads)

    def move_promises(self, promises: Promises, chars: int, context: int) -> Promises | None:
        """What is left of promises after a character; None if one is broken."""
        moved = {self._move_promise(promise, chars, context) for promise in promises}
        return None if BROKEN in moved else frozenset(moved - {KEPT})

    def keeps(self, promises: Promises) -> bool:
        """Are promises kept if the text ends here?"""
        return all(self.accepts(inner) != negative for negative, inner in map(self._promises.__getitem__, promises))

    def _promise(self, negative: bool, threads: Threads) -> int:
        """The number of a promise; KEPT or BROKEN when no rest of the text can change it any more."""
        is_reached = self.has_found(threads)
        if is_reached or not threads:
            return KEPT if is_reached != negative else BROKEN
        return self._promises.number((negative, threads))

    def _move_promise(self, promise: int, chars: int, context: int) -> int:
        key = (promise, chars, context)
        if key not in self._promise_moved:
            negative, threads = self._promises[promise]
            self._promise_moved[key] = self._promise(negative, self.move(threads, chars, context))
        return self._promise_moved[key]
