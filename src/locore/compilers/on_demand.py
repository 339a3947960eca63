"""Constraints that are read, not written down: a reading whose states are made when they are reached, and one that counts
beside.

**One large nested text**, that of a JSON Schema. A state is that of a `Pushdown`, or the end of the text. Which tokens
may come follows from what the texts behind them cost at least, counted in tokens: a literal piece as few as spell it, any other
byte one. In so many tokens a text can be completed for certain, and one token more on the right way always lowers the number,
so no text is cut off. Where a single token could spell the ends of several pieces at once there may be a way that is shorter
still; texts that need it to fit are left out.

**Something counted far, beside a text automaton.** `char_count(hi=199)` has as many states as counts, and with two keywords
beside it the product has ten thousand, whose transitions take ten million nodes. What a token counts does not depend on the
count, so the automaton is kept apart.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from locore.automata.byte_machine import TokenMachine
from locore.automata.machines import Tally, minimised, pushed
from locore.automata.needs import Costs, Needs
from locore.automata.pushdown import Follow, Pushdown
from locore.automata.walking import DEAD, Flags, Walk, walk_of
from locore.circuits import Circuit
from locore.circuits.counted import Control, CountedReader
from locore.circuits.reached import Reached, Steering
from locore.compilers.explored import Exploration, MachineAtoms
from locore.constraints import And, AutomatonLeaf, Constraint, Not, conjunction, disjunction, negation
from locore.constraints.text_leaf import NestedLeaf, TextLeaf, is_finite, is_text_leaf, machine_of
from locore.kernel.automata.lift import TokenAutomaton, fates, vocabulary_trie
from locore.kernel.automata.tables import number_rows, reachable
from locore.kernel.compilers.problem import (
    Partition,
    Problem,
    WholeCharacters,
    as_one_automaton,
    gathered,
    unsatisfiable,
    with_lifted,
)
from locore.kernel.compilers.residual import Residuals
from locore.kernel.compilers.restriction import with_atoms
from locore.kernel.compilers.ways import nodes_of, register
from locore.kernel.constraints.structure import fold
from locore.kernel.limits import check_progress, check_states, check_table
from locore.kernel.plugins import cached_property

SHORT = 64  # bytes of a text
ENDED, FIRST = 0, 1  # the state of a finished text, and that of the empty one; state s of the automaton is s + FIRST


def following(problem: Problem) -> Following | None:
    """Of a constraint that is one large nested leaf, with nothing beside it; None of any other."""
    ended, tokenizer = problem.with_end_apart(), problem.tokenizer
    leaf = ended.constraint
    if not isinstance(leaf, NestedLeaf) or leaf.is_small or problem.min_length:
        return None
    if not walk_of(tokenizer.token_bytes).spells_every_byte:  # costs take it that a byte can be written by one token
        return None
    return Following(leaf.follow(), tokenizer.token_bytes, tokenizer.eos_ids, ended.length, ended.must_end)


class Following(Steering):
    """The texts of a `Pushdown`; token classes are single tokens."""

    start = FIRST

    def __init__(
        self, follow: Follow, token_bytes: tuple[bytes | None, ...], eos_ids: tuple[int, ...], length: int, must_end: bool
    ) -> None:
        """Nothing has been read yet.

        Args:
            follow: makes the automaton.
            must_end: has the text to end within the length?
        """
        self._given = follow, token_bytes, eos_ids, length, must_end
        self._token_bytes, self._eos_ids, self._must_end = token_bytes, list(eos_ids), must_end
        self.length, self.num_classes = length, len(token_bytes)
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[object, ...]:
        return Following, self._given  # without the states that were made

    @cached_property
    def automaton(self) -> Pushdown:
        """Whose states are read."""
        return self._given[0](Spelling(self._walk))

    @cached_property
    def _needs(self) -> Needs:
        return Needs(self.automaton, self._walk)

    @cached_property
    def _walk(self) -> Walk:
        return walk_of(self._token_bytes)

    @property
    def num_bytes(self) -> int:
        """About what the automaton's states and what is needed behind them take."""
        return self.automaton.num_bytes + self._needs.num_bytes

    @property
    def is_satisfiable(self) -> bool:
        """Is there a text of this length?"""
        return bool(self.automaton.costs[0] + self._must_end <= self.length)

    def after(self, position: int, state: int, number: int) -> int:
        """The state after one token; DEAD where nothing can be completed any more."""
        if number in self._eos_ids:
            if state == ENDED:
                return ENDED if number == self._eos_ids[0] else DEAD
            return ENDED if self._may_end(state) else DEAD
        content = self._token_bytes[number]
        if state == ENDED or content is None:
            return DEAD
        after = state - FIRST
        with self._lock:
            for byte in content:
                after = self.automaton.after(after, byte)
                if after == DEAD:
                    return DEAD
        return after + FIRST if self.automaton.costs[after] <= self._left(position) else DEAD

    def allowed(self, position: int, state: int) -> Flags:
        """Bool[vocab]: the tokens that may come."""
        if state == ENDED:
            flags = np.zeros(self.num_classes, dtype=np.bool_)
            flags[self._eos_ids[0]] = True
            return flags
        left = self._left(position)
        flags = self._needed(state - FIRST) <= left if left >= 0 else np.zeros(self.num_classes, dtype=np.bool_)
        if self._may_end(state):
            flags[self._eos_ids] = True
        return flags

    def accepts(self, state: int) -> bool:
        """Has the text ended, or may it end where the horizon is?"""
        return state == ENDED or (not self._must_end and self._may_end(state))

    def is_complete(self, position: int, state: int) -> bool:
        """Can nothing but the end come?"""
        return state != ENDED and self._may_end(state) and self.automaton.is_over(state - FIRST)

    def _left(self, position: int) -> int:
        """Tokens behind the one at a position."""
        return self.length - position - 1 - self._must_end

    def _may_end(self, state: int) -> bool:
        return self.automaton.accepts_at(state - FIRST)

    def _needed(self, state: int) -> Costs:
        """UInt16[vocab]: how many more tokens it takes after each token, at most; NEVER where nothing can be completed."""
        with self._lock:
            return self._needs.behind(state)


class Spelling:
    """The measure of literal pieces: how many tokens spell them at least."""

    def __init__(self, walk: Walk) -> None:
        self._costs: dict[bytes, float] = {}
        self._tokens, self._longest = walk.contents, walk.longest

    def __call__(self, text: bytes) -> float:
        """In tokens; infinite where they cannot be spelled."""
        if text not in self._costs:
            least = [math.inf] * len(text) + [0.0]
            for start in reversed(range(len(text))):
                check_progress("finding the tokens of a long text", "use shorter texts")
                ends = range(start + 1, min(len(text), start + self._longest) + 1)
                least[start] = min((1 + least[end] for end in ends if text[start:end] in self._tokens), default=math.inf)
            endings = len(text) if len(text) <= SHORT else 1  # what a text ends with is asked for as well
            self._costs.update((text[start:], least[start]) for start in range(endings))
        return self._costs[text]


@register
def read_on_demand(problem: Problem) -> Circuit | None:
    """The reading of a constraint whose states are made when they are first reached; None of one whose states are few.

    One large nested text is followed by what it costs to its end; of anything else the end is searched.

    Raises:
        Unsatisfiable: no text of this length satisfies the constraint.
        BudgetExceeded: of parts that are compiled beforehand.
    """
    if is_finite(problem.constraint):
        return None
    steering: Following | Exploration | None = following(problem)
    if steering is None or not steering.is_satisfiable:  # what is followed costs at most so much, and may cost less
        steering = exploration(problem)
    if not steering.is_satisfiable:
        raise unsatisfiable(problem.length)
    return Circuit(Reached(steering, torch.arange(problem.tokenizer.vocab_size)))


def exploration(given: Problem) -> Exploration:
    """What is left of a constraint after each prefix, of which nothing has been read."""
    tokenizer = given.tokenizer
    root = gathered(given.constraint, tokenizer.vocab_size)
    problem = replace(given, constraint=root).with_end_apart()
    every = np.arange(tokenizer.vocab_size)
    classes = Partition(every, every)
    lifted = with_lifted(with_machines(problem.constraint, tokenizer.token_bytes), tokenizer.token_bytes)
    residuals = Residuals(with_atoms(lifted, classes, problem.length), classes, problem.length, tokenizer.eos_ids)
    return Exploration(residuals, problem, partial(exploration, given))


def with_machines(constraint: Constraint, token_bytes: tuple[bytes | None, ...]) -> Constraint:
    """The constraint with an atom for each maximal combination of text leaves that no automaton of all states decides.

    Combining over 256 bytes is cheaper than over the vocabulary, as in `with_lifted`.
    """

    def read(part: Constraint) -> Constraint:
        return part if is_finite(part) else MachineAtoms(TokenMachine(machine_of(part), token_bytes)).atom(0)

    def rule(node: Constraint, parts: list[tuple[Constraint, bool]]) -> tuple[Constraint, bool]:
        if not parts:
            return node, is_text_leaf(node)
        if all(text for _, text in parts):
            return node, True
        if isinstance(node, Not):
            return negation(parts[0][0]), False
        joined = conjunction if isinstance(node, And) else disjunction
        texts = [part for part, text in parts if text]
        others = [part for part, text in parts if not text]
        return joined([*others, read(joined(texts))] if texts else others), False

    whole, text = fold(constraint, rule)
    return read(whole) if text else whole


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
        raise unsatisfiable(ended.length)
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
    useful = order != none
    number = np.append(np.where(useful, np.cumsum(useful) - 1, DEAD), DEAD).astype(np.int32)
    check_table(len(order) * (2 + (low if high is None else high)) * problem.length, "a constraint that counts", REMEDY)
    states, machines = np.divmod(order[useful], num_machines)
    counts = np.arange(1 + (low if high is None else high + 1))
    right = ((counts >= low) & (True if high is None else counts <= high)) ^ negated
    return Control(
        token_class.astype(np.int64),
        number[table[useful]],
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
    return tuple(np.where(trie.node >= 0, rows[:, trie.node], 0) for rows in (after, gain))  # type: ignore[return-value]
