"""Constraints in which something is counted far, beside a text automaton: they are read, and not multiplied out.

`char_count(hi=199)` has as many states as counts, and with two keywords beside it the product has ten thousand, whose
transitions take ten million nodes. What a token counts does not depend on the count, so the automaton is kept apart.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from locore.automata.machines import Tally, minimised, pushed
from locore.circuits import DEAD, Circuit
from locore.circuits.counted import Control, CountedReader
from locore.constraints import And, AutomatonLeaf, Constraint, Not, conjunction
from locore.constraints.counting import TextLeaf
from locore.kernel.automata.lift import TokenAutomaton, fates, vocabulary_trie
from locore.kernel.automata.tables import number_rows, reachable
from locore.kernel.compilers.problem import Problem, WholeCharacters, as_one_automaton, no_model, with_lifted
from locore.kernel.compilers.ways import nodes_of, register
from locore.kernel.limits import check_states, check_table

FAR = 16  # counts from which it may be worth while not to multiply
MOST_STATES = 4_000  # of a product, from which it is
REMEDY = "lower the bounds, leave out one that no text of the length reaches, or count fewer or shorter strings"
Counter = tuple[TextLeaf, bool]  # and does it stand below a negation?


@register
def counted_circuit(problem: Problem) -> Circuit | None:
    """The reading of a conjunction of text constraints of which one counts far; None of any other, and of a small product.

    Args:
        problem: with whole characters demanded, where they have to be.

    Raises:
        Unsatisfiable: no text is short enough.
    """
    ended = problem.with_end_apart()
    parts = list(ended.constraint.of) if isinstance(ended.constraint, And) else [ended.constraint]
    far, place = max(((_top(part), place) for place, part in enumerate(parts)), default=(0, 0))
    leaves = list(ended.constraint.leaves())
    if far < FAR or not all(isinstance(leaf, AutomatonLeaf) and leaf.is_text and leaf.is_small for leaf in leaves):
        return None
    check_states(far, f"counting up to {far:,}", REMEDY)
    counter = _counter(parts.pop(place))
    rest = with_lifted(conjunction(parts or [WholeCharacters()]), problem.tokenizer.token_bytes)
    automaton = as_one_automaton(rest, problem.tokenizer.eos_ids)
    if automaton is None or counter is None or far * len(automaton.accepting) < MOST_STATES // 8:
        return None
    control = _control(ended, automaton, *counter)
    if control is None or control.num_states * control.num_counts < MOST_STATES:
        return None
    reader = CountedReader(control, ended.length, ended.min_length, ended.must_end, partial(nodes_of, problem))
    if not reader.is_satisfiable:
        raise no_model(ended.length)
    return Circuit(reader)


def _counter(part: Constraint) -> Counter | None:
    leaf = part.of if isinstance(part, Not) else part
    return (leaf, leaf is not part) if isinstance(leaf, TextLeaf) else None


def _top(part: Constraint) -> int:
    """The count from which on the answer is settled; 0 of what does not count."""
    counter = _counter(part)
    if counter is None:
        return 0
    low, high = counter[0].bounds()
    return low if high is None else high + 1


def _control(problem: Problem, automaton: TokenAutomaton, leaf: TextLeaf, negated: bool) -> Control | None:
    """The product of the automaton and of the machine that counts, without counts; None where nothing is accepted."""
    tally, tokenizer = minimised(pushed(leaf.tally())), problem.tokenizer
    after, gain = read_tokens(tally, tokenizer.token_bytes)
    special = problem.blocked_tokens()
    special[list(tokenizer.eos_ids)] = True
    function = np.where(special, -1, automaton.function)
    end = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    end[list(tokenizer.eos_ids)] = 1 + np.arange(len(tokenizer.eos_ids))
    moves = np.where(function >= 0, np.append(after, gain, axis=0), 0)
    token_class, first = number_rows(np.column_stack([function, end, moves.T]))
    num_texts, num_machines = len(automaton.accepting), len(tally.table)
    none = num_texts * num_machines
    check_table(8 * none * len(first), "a constraint that counts, read token by token", REMEDY)
    alive = np.append(fates(automaton) != 0, False)  # the last one: no text
    text = np.where(function[first] >= 0, automaton.functions[function[first]].T, num_texts)
    target = text[:, None] * num_machines + after[:, first]
    table = np.where(alive[text][:, None], target, none).reshape(none, len(first))
    start = automaton.start * num_machines
    if not alive[automaton.start]:
        return None
    low, high = leaf.bounds()
    order, table = reachable(np.append(table, np.full((1, len(first)), none), axis=0).astype(np.int32), start)
    kept = order != none
    number = np.append(np.where(kept, np.cumsum(kept) - 1, DEAD), DEAD).astype(np.int32)
    check_table(len(order) * (2 + (low if high is None else high)) * problem.length, "a constraint that counts", REMEDY)
    states, machines = np.divmod(order[kept], num_machines)
    counts = np.arange(1 + (low if high is None else high + 1))
    right = ((counts >= low) & (True if high is None else counts <= high)) ^ negated
    return Control(
        token_class.astype(np.int64),
        number[table[kept]],
        gain[:, first][machines],
        tally.final[machines].astype(np.int64),
        automaton.accepting[states],
        right,
        tuple(token_class[list(tokenizer.eos_ids)].tolist()),
    )


def read_tokens(tally: Tally, token_bytes: tuple[bytes | None, ...]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Int32[states, vocab] twice: where each token leads in a machine over bytes, and what it counts; 0 of special ones."""
    trie = vocabulary_trie(token_bytes)
    after = np.zeros((len(tally.table), trie.num_nodes), dtype=np.int32)
    gain = np.zeros_like(after)
    after[:, 0] = np.arange(len(after))
    for parents, symbols, children in trie.levels:
        here, columns = after[:, parents], tally.column[symbols]
        after[:, children] = tally.table[here, columns]
        gain[:, children] = gain[:, parents] + tally.gain[here, columns]
    return tuple(np.where(trie.node >= 0, one[:, trie.node], 0) for one in (after, gain))  # type: ignore[return-value]
