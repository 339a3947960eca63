"""One automaton over a whole sequence → a circuit whose positions share their transitions.

States that cannot be reached or cannot finish within the length are dropped first; what is left of the token functions gives
the classes. One state more, the last, stands for "the text has ended".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.lift import TokenAutomaton, spelling_order
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import DEAD, table_reader
from locore.kernel.compilers.problem import Flags, Ints, Problem, unsatisfiable
from locore.kernel.limits import check_progress, check_states, check_table
from locore.kernel.tokenizer import Tokenizer

PLAIN_COUNTS = 30_000_000  # pairs that are counted in an array of all pairs; more are sorted
BYTES_AN_EXCEPTION = 240  # of memory at the peak, measured on 10,000 banned words
Table = NDArray[np.int32]
REMEDY = "fewer phrases, words=True, smaller repeat counts, a shorter text"


def unroll(problem: Problem, automaton: TokenAutomaton) -> Circuit:
    """The circuit of an automaton that stops at the end of the text.

    Raises:
        Unsatisfiable: no sequence of this length is accepted.
        BudgetExceeded: more states, nodes or memory than the limits allow.
    """
    tokenizer, length, min_length = problem.tokenizer, problem.length, problem.min_length
    function = np.where(problem.blocked_tokens(), -1, automaton.function)
    function[list(tokenizer.eos_ids)] = -1
    check_table(BYTES_AN_EXCEPTION * len(automaton.states), "compiling the constraint", REMEDY)
    steps = StepRelation.of(automaton, function)
    keep = steps.reachable(automaton.start, length) & steps.finishing(automaton.accepting, length)
    keep[automaton.start] = True
    check_states(int(keep.sum()), "the constraint", REMEDY)
    end = int(keep.sum())
    order = np.append(automaton.start, np.nonzero(keep & (np.arange(len(keep)) != automaton.start))[0])
    number = np.full(len(keep), DEAD, dtype=np.int64)
    number[order] = np.arange(end)  # the start comes first
    accepting = automaton.accepting[order]
    token_class, text = _classes(automaton, function, number, accepting, tokenizer)
    final = np.append(accepting & (not problem.must_end), bool(tokenizer.eos_ids))
    live = _live(steps, keep, order, np.append(accepting, final[-1]), final, min_length, length)
    coaccessible = np.append(steps.finishing(automaton.accepting & keep, len(keep), keep)[order], final[-1])
    longer = steps.before(steps.finishing(automaton.accepting, len(keep)))[order]  # at any horizon
    may_end = [position >= min_length for position in range(length)]
    complete = [np.append(accepting & ~longer & may, False) for may in (*may_end, True)]
    padding = token_class[list(tokenizer.eos_ids[:1])]
    rows = {may: _with_end(text, padding, may) for may in sorted(set(may_end))}
    return Circuit(table_reader(token_class, [rows[may] for may in may_end], live, complete, coaccessible))


def _classes(
    automaton: TokenAutomaton, function: Ints, number: Ints, accepting: Flags, tokenizer: Tokenizer
) -> tuple[Ints, Table]:
    """Tokens that do the same among the kept states are one class: Int64[vocab], and Int32[kept states, classes], the next.

    Classes are ordered by the spelling of their first token: what goes on with a phrase begins alike, so states differ from the
    default in stretches (on ban lists this makes a circuit two to three times smaller than an order by targets).
    """
    end, none = len(accepting), np.zeros(0, dtype=np.int64)
    ending = np.nonzero(accepting)[0]
    names: dict[tuple[int, bytes, bytes, bool], int] = {}
    columns: list[tuple[int, Ints, Ints]] = []  # default, and what differs from it: states, targets

    def column_of(base: int, states: Ints, targets: Ints, is_padding: bool = False) -> int:
        key = (base, states.tobytes(), targets.tobytes(), is_padding)
        result = names.setdefault(key, len(columns))
        if result == len(columns):
            columns.append((base, states, targets))
        return result

    class_of = np.full(len(automaton.base) + 1, -1, dtype=np.int64)  # the last one: tokens that may not occur
    class_of[-1] = column_of(DEAD, none, none)
    for f, item in _kept_functions(automaton, np.unique(function[function >= 0]), number):
        class_of[f] = column_of(*item)
    token_class = class_of[function]
    for i, token in enumerate(tokenizer.eos_ids):  # the first has a class of its own: only it may follow the end
        token_class[token] = column_of(DEAD, ending, np.full(len(ending), end), is_padding=i == 0)
    spelled = np.full(len(columns), tokenizer.vocab_size)
    np.minimum.at(spelled, token_class, spelling_order(tokenizer.token_bytes))
    order = np.argsort(spelled, kind="stable")[: int((spelled < tokenizer.vocab_size).sum())].tolist()
    place = np.full(len(columns), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    check_table(4 * (end + 1) * len(order), f"a table of {end:,} states and {len(order):,} classes of tokens", REMEDY)
    text = np.repeat(np.array([[columns[c][0] for c in order]], dtype=np.int32), end, axis=0)
    for column, c in enumerate(order):
        text[columns[c][1], column] = columns[c][2]
    return place[token_class], text


def _kept_functions(automaton: TokenAutomaton, used: Ints, number: Ints) -> Iterator[tuple[int, tuple[int, Ints, Ints]]]:
    """The used functions, restricted to kept states and renumbered: function, (base, states, targets)."""
    bases = number[automaton.base]
    for f in used.tolist():
        check_progress("telling classes of tokens apart", REMEDY)
        part = slice(automaton.first[f], automaton.first[f + 1])
        states, targets = number[automaton.states[part]], number[automaton.targets[part]]
        keep = (states != DEAD) & (targets != bases[f])
        states, targets = states[keep], targets[keep]
        if len(states) and (np.diff(states) < 0).any():  # the start has moved to the front
            order = np.argsort(states)
            states, targets = states[order], targets[order]
        yield f, (int(bases[f]), states, targets)


def _live(
    steps: StepRelation, keep: Flags, order: Ints, may_end: Flags, final: Flags, min_length: int, length: int
) -> list[Flags]:
    """For each position 0..n, Bool[states]: can the rest be completed? The last state is the end of the text.

    Args:
        keep: Bool[all states]; order: Int64[kept states], the kept ones as they are numbered now.
        may_end: Bool[kept states + 1], where the text may end or has ended.
        final: Bool[kept states + 1], those that are final after the last position.
    """
    lives = [final]
    for position in reversed(range(length)):
        following = np.zeros_like(keep)
        following[order] = lives[-1][:-1]
        live = np.append(steps.before(following)[order], final[-1])
        # The end stays the end; and a text that may end here can be completed.
        live |= may_end if position >= min_length and final[-1] else False
        lives.append(live)
    lives.reverse()
    if not lives[0][0]:
        raise unsatisfiable(length)
    return lives


def _with_end(text: Table, padding: Ints, may_end: bool) -> Table:
    """Int32[states + 1, classes], the end of the text as the last state; if it may not end, nothing leads there.

    Args:
        padding: the class of the first end, if there is one; nothing but it follows the end.
    """
    end = len(text)
    rows = np.append(text, np.full((1, text.shape[1]), DEAD, dtype=np.int32), 0)
    if not may_end:
        rows[rows == end] = DEAD
    rows[end, padding] = end
    return rows


@dataclass(frozen=True, eq=False)
class StepRelation:
    """The one-step relation of a token automaton, kept as its functions are: a base for most states, and exceptions.

    Attributes:
        sources, targets: Int64[pairs], the distinct steps of exceptions.
        bases: Int64[bases], distinct.
        goes: Bool[bases, states], does some token lead from this state to this base?
    """

    sources: Ints
    targets: Ints
    bases: Ints
    goes: Flags

    @classmethod
    def of(cls, automaton: TokenAutomaton, function: Ints) -> StepRelation:
        """Of the tokens whose function is not -1 in Int64[vocab]."""
        num, used = len(automaton.accepting), np.unique(function[function >= 0])
        wanted = np.zeros(len(automaton.base), dtype=np.bool_)
        wanted[used] = True
        owner = np.repeat(np.arange(len(automaton.base)), np.diff(automaton.first))
        here = wanted[owner]
        owner, states = owner[here], automaton.states[here].astype(np.int64)
        exceptions, _ = _count_pairs(states, automaton.targets[here].astype(np.int64), num)
        # A state goes to a base unless it is an exception of every function that has this base.
        bases, which, sizes = np.unique(automaton.base[used], return_inverse=True, return_counts=True)
        base_of = np.zeros(len(automaton.base), dtype=np.int64)
        base_of[used] = which
        excepted, counts = _count_pairs(base_of[owner], states, num)
        goes = np.ones(len(bases) * num, dtype=np.bool_)
        goes[excepted[counts == sizes[excepted // num]]] = False
        return cls(exceptions // num, exceptions % num, bases.astype(np.int64), goes.reshape(len(bases), num))

    def after(self, flags: Flags) -> Flags:
        """Bool[states]: those that one token leads to from a marked state."""
        result = np.zeros_like(flags)
        result[self.targets[flags[self.sources]]] = True
        result[self.bases[self.goes[:, flags].any(1)]] = True
        return result

    def before(self, flags: Flags) -> Flags:
        """Bool[states]: those from which one token leads to a marked state."""
        result: Flags = np.logical_or.reduce(self.goes[flags[self.bases]], axis=0)
        result[self.sources[flags[self.targets]]] = True
        return result

    def reachable(self, start: int, steps: int) -> Flags:
        """Bool[states]: those that so many tokens or fewer lead to."""
        flags = np.zeros(self.goes.shape[1], dtype=np.bool_)
        flags[start] = True
        new = flags
        for _ in range(steps):
            new = self.after(new) & ~flags
            if not new.any():
                break
            flags |= new
        return flags

    def finishing(self, accepting: Flags, steps: int, within: Flags | None = None) -> Flags:
        """Bool[states]: those from which so many tokens or fewer lead to a marked state, if need be only through `within`."""
        flags = new = accepting
        for _ in range(steps):
            new = self.before(new) & ~flags
            if within is not None:
                new = new & within
            if not new.any():
                break
            flags = flags | new
        return flags


def _count_pairs(first: Ints, second: Ints, num: int) -> tuple[Ints, Ints]:
    """The distinct codes first · num + second in increasing order, and how often each comes."""
    codes = first * num + second
    if (int(first.max(initial=0)) + 1) * num > PLAIN_COUNTS:
        return np.unique(codes, return_counts=True)
    counts = np.bincount(codes)
    codes = np.nonzero(counts)[0]
    return codes, counts[codes]
