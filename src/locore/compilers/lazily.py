"""Constraints with a grammar or a large schema in them: a reading whose states are made when they are reached.

**One large nested text.** A state is that of a `Pushdown`, or the end of the text. Which tokens may come follows from
what the texts behind them cost at least, counted in tokens: a literal piece as few as spell it, any other byte one. In so many
tokens a text can be completed for certain, and one token more on the right way always lowers the number, so no text is cut off.
Where a single token could spell the ends of several pieces at once there may be a way that is shorter still; texts that need it
to fit are left out.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch

from locore.automata.lazily import TokenMachine
from locore.automata.needs import Costs, Needs
from locore.automata.pushdown import Follow, Pushdown
from locore.automata.walking import DEAD, Flags, Walk, walk_of
from locore.circuits import Circuit
from locore.circuits.reached import Reached, Steering
from locore.compilers.explored import Exploration, MachineAtoms
from locore.constraints import And, Constraint, Not, conjunction, disjunction, negation
from locore.constraints.machine import NestedLeaf, is_finite, is_text_leaf, machine_of
from locore.kernel.compilers.left_to_right import with_atoms
from locore.kernel.compilers.problem import Partition, Problem, gathered, no_model, with_lifted
from locore.kernel.compilers.residual import Residuals
from locore.kernel.compilers.ways import register
from locore.kernel.constraints.structure import fold
from locore.kernel.limits import check_progress

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
        """By a vocabulary."""
        self._known: dict[bytes, float] = {}
        self._tokens, self._longest = walk.contents, walk.longest

    def __call__(self, text: bytes) -> float:
        """In tokens; infinite where they cannot be spelled."""
        if text not in self._known:
            least = [math.inf] * len(text) + [0.0]
            for start in reversed(range(len(text))):
                check_progress("finding the tokens of a long text", "use shorter texts")
                ends = range(start + 1, min(len(text), start + self._longest) + 1)
                least[start] = min((1 + least[end] for end in ends if text[start:end] in self._tokens), default=math.inf)
            self._known[text] = least[0]
        return self._known[text]


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
        raise no_model(problem.length)
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
