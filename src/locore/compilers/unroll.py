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
from locore.compilers.steps import Steps
from locore.errors import Unsatisfiable
from locore.limits import check_progress, check_states, check_table
from locore.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
BYTES_AN_EXCEPTION = 240  # of memory at the peak, measured on 10,000 banned words
REMEDY = "fewer phrases, words=True, smaller repeat counts, a shorter text"


def unroll(automaton: TokenAutomaton, problem: Problem) -> Circuit:
    """The circuit of an automaton that stops at the end of the text.

    Raises:
        Unsatisfiable: no sequence of this length is accepted.
        BudgetExceeded: more states, nodes or memory than the limits allow.
    """
    tokenizer, length, min_length = problem.tokenizer, problem.length, problem.min_length
    function = np.where(blocked_tokens(problem), -1, automaton.function)
    function[list(tokenizer.eos_ids)] = -1
    check_table(BYTES_AN_EXCEPTION * len(automaton.states), "compiling the constraint", REMEDY)
    steps = Steps.of(automaton, function)
    keep = steps.reachable(automaton.start, length) & steps.finishing(automaton.accepting, length)
    keep[automaton.start] = True
    check_states(int(keep.sum()), "the constraint", REMEDY)
    end = int(keep.sum())
    order = np.append(automaton.start, np.nonzero(keep & (np.arange(len(keep)) != automaton.start))[0])
    number = np.full(len(keep), DEAD, dtype=np.int64)
    number[order] = np.arange(end)  # the start comes first
    accepting = automaton.accepting[order]
    token_class, columns = _classes(automaton, function, number, accepting, tokenizer)
    final = np.append(accepting & (not problem.must_end), bool(tokenizer.eos_ids))
    lives = _live(steps, keep, order, np.append(accepting, final[-1]), final, min_length, length)
    hopeful = np.append(steps.finishing(automaton.accepting & keep, len(keep), keep)[order], final[-1])
    kinds = [position >= min_length for position in range(length)]  # may the text end here?
    longer = steps.before(steps.finishing(automaton.accepting, len(keep)))[order]  # at any horizon
    complete = [np.append(accepting & ~longer & may_end, False) for may_end in (*kinds, True)]
    rows = {with_end: _rows(columns, end, with_end) for with_end in sorted(set(kinds))}
    return _circuit(torch.from_numpy(token_class), rows, kinds, lives, hopeful, complete)


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
        check_progress("telling classes of tokens apart", REMEDY)
        part = slice(automaton.first[f], automaton.first[f + 1])
        states, targets = number[automaton.states[part]], number[automaton.targets[part]]
        keep = (states != DEAD) & (targets != bases[f])
        states, targets = states[keep], targets[keep]
        if len(states) and (np.diff(states) < 0).any():  # the start has moved to the front
            order = np.argsort(states)
            states, targets = states[order], targets[order]
        yield f, (int(bases[f]), states, targets)


def _live(steps: Steps, keep: Flags, order: Ints, may_end: Flags, final: Flags, min_length: int, length: int) -> list[Flags]:
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
        raise Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")
    return lives


def _rows(columns: _Columns, end: int, with_end: bool) -> SparseRows:
    """The transitions of all states, the end of the text last; without an end nothing may end."""
    what = f"a table of {end:,} states and {len(columns.default):,} classes of tokens"
    check_table(4 * (end + 1) * len(columns.default), what, REMEDY)
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


def _circuit(
    token_class: torch.Tensor,
    rows: dict[bool, SparseRows],
    kinds: list[bool],
    lives: list[Flags],
    hopeful: Flags,
    complete: list[Flags],
) -> Circuit:
    """`kinds` says for each position which rows it has."""
    length = len(kinds)
    tables = {kind: torch.from_numpy(table.dense()) for kind, table in rows.items()}
    blocks = {kind: block_from_rows(table, table.num_states) for kind, table in rows.items()}
    live = tuple(torch.from_numpy(flags) for flags in lives)
    reader = LeftToRight(
        token_class,
        tuple(tables[kind] for kind in kinds),
        live,
        0,
        torch.from_numpy(hopeful),
        tuple(torch.from_numpy(flags) for flags in complete),
    )
    num_classes = len(rows[kinds[-1]].default)
    positions = tuple((i,) for i in range(length))
    return Circuit(length, token_class, num_classes, tuple(blocks[kind] for kind in kinds), positions, live[-1], reader)
