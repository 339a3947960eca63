"""The subset construction: one deterministic state for each set of threads that can be reached."""

from __future__ import annotations

import numpy as np

from locore.constraints.regular.budget import Budget
from locore.constraints.regular.charset import partition
from locore.constraints.regular.dfa import Dfa, intersection
from locore.constraints.regular.ir import Both, Complement, Language
from locore.constraints.regular.nfa import build_nfa
from locore.constraints.regular.threads import NO_THREADS, Reader, Threads

State = tuple[tuple[Threads, ...], Threads]  # the searches of look-behinds, and the threads of the text itself
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
    read: dict[int, Dfa] = {}  # parts that are read by themselves may be shared

    def by_itself(part: Language) -> Dfa:
        if id(part) not in read:
            read[id(part)] = determinise(part, budget)
        return read[id(part)]

    nfa = build_nfa(language, budget, by_itself)
    classes, members = partition(nfa.sets)
    reader = Reader(nfa, members, budget)
    searches, context = reader.first_searches()
    rows, accepting = _explore(reader, (searches, reader.enter(nfa.start, context)), classes.num_classes, budget)
    table = np.array(rows, dtype=np.int32).reshape(len(rows), classes.num_classes)
    return Dfa(table, np.array(accepting, dtype=np.bool_), classes).minimised()


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
