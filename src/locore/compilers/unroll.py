"""One automaton over a whole sequence → a circuit whose positions share their transitions.

States that cannot be reached or cannot finish within the length are dropped first; what is left of the token functions gives
the classes. One state more, the last, stands for "the text has ended".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.compilers.layers import SparseRows, block_from_rows
from locore.compilers.lift import TokenAutomaton, spelling_order
from locore.compilers.problem import Problem, blocked_tokens
from locore.errors import BudgetExceeded, Unsatisfiable
from locore.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Arcs = tuple[Ints, Ints]  # sources and targets
MAX_TABLE = 250_000_000  # entries of a transition table, four bytes each
PLAIN_COUNTS = 30_000_000  # pairs that are counted in an array of all pairs; more are sorted


def unroll(automaton: TokenAutomaton, problem: Problem) -> Circuit:
    """The circuit of an automaton that stops at the end of the text.

    Raises:
        Unsatisfiable: no sequence of this length is accepted.
        BudgetExceeded: more states than `max_states`, or a transition table that would not fit.
    """
    tokenizer, length, min_length = problem.tokenizer, problem.length, problem.min_length
    function = np.where(blocked_tokens(problem), -1, automaton.function)
    function[list(tokenizer.eos_ids)] = -1
    arcs = _arcs(automaton, function)
    keep = _kept(arcs, automaton, length)
    if keep.sum() > problem.max_states:
        raise BudgetExceeded(
            f"the constraint has {int(keep.sum()):,} states, more than max_states = {problem.max_states:,}; raise max_states, "
            "or ask for less: fewer phrases, smaller repeat counts, a shorter text."
        )
    end = int(keep.sum())
    order = np.append(automaton.start, np.nonzero(keep & (np.arange(len(keep)) != automaton.start))[0])
    number = np.full(len(keep), DEAD, dtype=np.int64)
    number[order] = np.arange(end)  # the start comes first
    accepting = automaton.accepting[order]
    token_class, columns = _classes(automaton, function, number, accepting, tokenizer)
    inside = keep[arcs[0]] & keep[arcs[1]]
    text_arcs = number[arcs[0][inside]], number[arcs[1][inside]]
    final = np.append(accepting, bool(tokenizer.eos_ids))
    lives = _live(text_arcs, final, length, min_length)
    hopeful = _reached(final, text_arcs[::-1], end)
    rows = [_rows(columns, end, with_end) for with_end in (False, True)]
    return _circuit(torch.from_numpy(token_class), rows, lives, hopeful, min_length)


def _arcs(automaton: TokenAutomaton, function: Ints) -> Arcs:
    """Distinct pairs of a state and a state that some token leads to."""
    num, used = len(automaton.accepting), np.unique(function[function >= 0])
    wanted = np.zeros(len(automaton.base), dtype=np.bool_)
    wanted[used] = True
    owner = np.repeat(np.arange(len(automaton.base)), np.diff(automaton.first))
    here = wanted[owner]
    owner = owner[here]
    states, targets = automaton.states[here].astype(np.int64), automaton.targets[here].astype(np.int64)
    exceptions, _ = _count_pairs(states, targets, num)
    # A state goes to a base unless it is an exception of every function that has this base.
    bases, which, sizes = np.unique(automaton.base[used], return_inverse=True, return_counts=True)
    base_of = np.zeros(len(automaton.base), dtype=np.int64)
    base_of[used] = which
    excepted, counts = _count_pairs(base_of[owner], states, num)
    goes = np.ones(len(bases) * num, dtype=np.bool_)
    goes[excepted[counts == sizes[excepted // num]]] = False
    base, state = np.divmod(np.nonzero(goes)[0], num)
    codes, _ = _count_pairs(np.append(exceptions // num, state), np.append(exceptions % num, bases[base]), num)
    return codes // num, codes % num


def _count_pairs(first: Ints, second: Ints, num: int) -> tuple[Ints, Ints]:
    """The distinct codes first · num + second in increasing order, and how often each comes."""
    codes = first * num + second
    room = (int(first.max(initial=0)) + 1) * num
    if room > PLAIN_COUNTS:
        codes, counts = np.unique(codes, return_counts=True)
        return codes, counts
    counts = np.bincount(codes, minlength=room)
    codes = np.nonzero(counts)[0]
    return codes, counts[codes]


def _kept(arcs: Arcs, automaton: TokenAutomaton, length: int) -> Flags:
    """Bool[states]: can be reached, and can finish, in `length` steps or fewer; the start always."""
    start = np.zeros(len(automaton.accepting), dtype=np.bool_)
    start[automaton.start] = True
    return (_reached(start, arcs, length) & _reached(automaton.accepting, arcs[::-1], length)) | start


def _reached(flags: Flags, arcs: Arcs, steps: int) -> Flags:
    """Bool[states]: those within so many steps of the marked ones."""
    sources, targets = arcs
    flags = flags.copy()
    for _ in range(steps):
        before = int(flags.sum())
        flags[targets[flags[sources]]] = True
        if int(flags.sum()) == before:
            break
    return flags


@dataclass(frozen=True)
class _Columns:
    """What the classes do: where most states go, and the entries of those that go elsewhere.

    Attributes:
        default: Int64[classes].
        state, column, target: Int64[entries].
        padding: the class of the first end, None without one.
        ends: the classes of all ends.
    """

    default: Ints
    state: Ints
    column: Ints
    target: Ints
    padding: int | None
    ends: Ints


def _classes(
    automaton: TokenAutomaton, function: Ints, number: Ints, accepting: Flags, tokenizer: Tokenizer
) -> tuple[Ints, _Columns]:
    """Tokens that do the same among the kept states are one class.

    Classes are ordered by the spelling of their first token: what goes on with a phrase begins alike, so states differ from the
    default in stretches (on ban lists this makes a circuit two to three times smaller than an order by targets).
    """
    end, none = len(accepting), np.zeros(0, dtype=np.int64)
    ending = np.nonzero(accepting)[0]
    names: dict[tuple[int, bytes, bytes, bool], int] = {}
    found: list[tuple[int, Ints, Ints]] = []

    def name(base: int, states: Ints, targets: Ints, is_padding: bool = False) -> int:
        key = (base, states.tobytes(), targets.tobytes(), is_padding)
        result = names.setdefault(key, len(found))
        if result == len(found):
            found.append((base, states, targets))
        return result

    class_of = np.full(len(automaton.base) + 1, -1, dtype=np.int64)  # the last one: tokens that may not occur
    class_of[-1] = name(DEAD, none, none)
    for f, item in _kept_functions(automaton, np.unique(function[function >= 0]), number):
        class_of[f] = name(*item)
    token_class = class_of[function]
    for i, token in enumerate(tokenizer.eos_ids):
        token_class[token] = name(DEAD, ending, np.full(len(ending), end), is_padding=i == 0)
    spelled = np.full(len(found), tokenizer.vocab_size)
    np.minimum.at(spelled, token_class, spelling_order(tokenizer.token_bytes))
    order = np.argsort(spelled, kind="stable")[: int((spelled < tokenizer.vocab_size).sum())].tolist()
    place = np.full(len(found), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    sizes = [len(found[c][1]) for c in order]
    state = np.concatenate([found[c][1] for c in order])
    target = np.concatenate([found[c][2] for c in order])
    column = np.repeat(np.arange(len(order)), sizes)
    token_class = place[token_class]
    ends = token_class[list(tokenizer.eos_ids)]
    default = np.array([found[c][0] for c in order], dtype=np.int64)
    return token_class, _Columns(default, state, column, target, int(ends[0]) if len(ends) else None, ends)


def _kept_functions(automaton: TokenAutomaton, used: Ints, number: Ints) -> Iterator[tuple[int, tuple[int, Ints, Ints]]]:
    """The used functions, restricted to kept states and renumbered: function, (base, states, targets)."""
    bases = number[automaton.base]
    for f in used.tolist():
        part = slice(automaton.first[f], automaton.first[f + 1])
        states, targets = number[automaton.states[part]], number[automaton.targets[part]]
        keep = (states != DEAD) & (targets != bases[f])
        states, targets = states[keep], targets[keep]
        if len(states) and (np.diff(states) < 0).any():  # the start has moved to the front
            order = np.argsort(states)
            states, targets = states[order], targets[order]
        yield f, (int(bases[f]), states, targets)


def _live(arcs: Arcs, final: Flags, length: int, min_length: int) -> list[Flags]:
    """For each position 0..n, Bool[states]: can the rest be completed? The last state is the end of the text."""
    sources, targets = arcs
    lives = [final]
    for position in reversed(range(length)):
        live = np.zeros_like(final)
        live[sources[lives[-1][targets]]] = True
        # The end stays the end; and a text that may end here can be completed.
        live |= final if position >= min_length and final[-1] else False
        live[-1] = final[-1]
        lives.append(live)
    lives.reverse()
    if not lives[0][0]:
        raise Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")
    return lives


def _rows(columns: _Columns, end: int, with_end: bool) -> SparseRows:
    """The transitions of all states, the end of the text last; without an end nothing may end."""
    if (end + 1) * len(columns.default) > MAX_TABLE:
        raise BudgetExceeded(
            f"the constraint has {end:,} states and tells {len(columns.default):,} classes of tokens apart, and a table of "
            "them would need more than 1 GB; ask for less: fewer phrases, words=True, smaller repeat counts."
        )
    state, column, target = columns.state, columns.column, columns.target
    if not with_end:
        text = target != end
        state, column, target = state[text], column[text], target[text]
    closed = np.nonzero(columns.default != DEAD)[0]  # nothing but padding follows the end
    state, column = np.append(state, np.full(len(closed), end)), np.append(column, closed)
    target = np.append(target, np.full(len(closed), DEAD))
    if columns.padding is not None:
        state, column, target = np.append(state, end), np.append(column, columns.padding), np.append(target, end)
    order = np.lexsort((column, state))
    return SparseRows(end + 1, columns.default, state[order], column[order], target[order])


def _circuit(token_class: torch.Tensor, rows: list[SparseRows], lives: list[Flags], hopeful: Flags, min_length: int) -> Circuit:
    length = len(lives) - 1
    early = min(min_length, length)
    kinds = [0] * early + [1] * (length - early)
    tables = {kind: torch.from_numpy(rows[kind].dense()) for kind in set(kinds)}
    blocks = {kind: block_from_rows(rows[kind], rows[kind].num_states) for kind in set(kinds)}
    live = tuple(torch.from_numpy(flags) for flags in lives)
    reader = LeftToRight(token_class, tuple(tables[kind] for kind in kinds), live, 0, torch.from_numpy(hopeful))
    num_classes = len(rows[1].default)
    positions = tuple((i,) for i in range(length))
    return Circuit(length, token_class, num_classes, tuple(blocks[kind] for kind in kinds), positions, live[-1], reader)
