"""Constraints on nested texts, whose automata are too large to be made as a whole: they are read state by state.

A state is that of a `Pushdown`, or the end of the text. Which tokens may come at a position follows from what the texts behind
them cost at least, counted in tokens: a literal piece as few as spell it, any other byte one. In so many tokens a text can be
completed for certain, and one token more on the right way always lowers the number, so no text is cut off. Where a single token
could spell the ends of several pieces at once there may be a way that is shorter still; texts that need it to fit are left out.
"""

from __future__ import annotations

import math
import threading
from functools import cached_property

import numpy as np
import torch

from locore.automata.needs import Costs, Needs
from locore.automata.pushdown import Follow, Pushdown
from locore.automata.walking import DEAD, Flags, Walk, walk_of
from locore.circuits import Circuit
from locore.circuits.reached import Reached, Steering
from locore.compilers.problem import Problem, no_model
from locore.constraints.machine import NestedLeaf
from locore.limits import check_progress

LONG_PIECE = 256  # bytes of a literal piece of which not all ends are kept
ENDED, FIRST = 0, 1  # the state of a finished text, and that of the empty one; state s of the automaton is s + FIRST


def is_followed(problem: Problem) -> bool:
    """Is the constraint one large nested leaf, with nothing beside it?"""
    leaf = problem.with_end_apart().constraint
    return (
        isinstance(leaf, NestedLeaf)
        and not problem.min_length
        and walk_of(problem.tokenizer.token_bytes).spells_every_byte  # costs take it that a byte can be written by one token
        and not leaf.is_small
    )


def followed(problem: Problem) -> Circuit:
    """The reading of a constraint that is one large nested leaf.

    Raises:
        Unsatisfiable: no text is short enough.
    """
    problem = problem.with_end_apart()
    leaf, tokenizer = problem.constraint, problem.tokenizer
    assert isinstance(leaf, NestedLeaf)
    following = Following(leaf.follow(), tokenizer.token_bytes, tokenizer.eos_ids, problem.length, problem.must_end)
    if not following.is_satisfiable:
        raise no_model(problem.length)
    return Circuit(Reached(following, torch.arange(tokenizer.vocab_size)))


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
        self._known = {b"": 0.0}
        self._tokens, self._longest = walk.contents, walk.longest

    def __call__(self, text: bytes) -> float:
        """In tokens; infinite where they cannot be spelled."""
        if len(text) > LONG_PIECE:
            return self._of_long(text)
        for start in reversed(range(len(text))):  # from the end on, so that what follows is known
            rest = text[start:]
            if rest not in self._known:
                ends = range(1, min(len(rest), self._longest) + 1)
                ways = (1 + self._known[rest[end:]] for end in ends if rest[:end] in self._tokens)
                self._known[rest] = min(ways, default=math.inf)
        return self._known[text]

    def _of_long(self, text: bytes) -> float:
        """The same, without keeping all of its ends, which together would be as large as its length squared."""
        if text not in self._known:
            least = [math.inf] * len(text) + [0.0]
            for start in reversed(range(len(text))):
                check_progress("finding the tokens of a long text", "use shorter texts")
                ends = range(start + 1, min(len(text), start + self._longest) + 1)
                least[start] = min((1 + least[end] for end in ends if text[start:end] in self._tokens), default=math.inf)
            self._known[text] = least[0]
        return self._known[text]
