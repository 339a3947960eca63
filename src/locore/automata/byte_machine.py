"""Machines over bytes with any number of states, which are made when they are first reached; and the tokens they read.

What a grammar, a counter without a limit, or another program that reads text from left to right has to say to be a constraint:
where it begins, where each byte leads, whether the text may end, and how many more bytes it needs at least.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from locore.automata.walking import DEAD, PLAIN, Flags, Int32, Nodes, walk_of
from locore.kernel.automata.tables import Trie

T = TypeVar("T")


class Numbered(list[T]):
    """Distinct values, each with a number: its place in the order in which they were first met. Threads may share it."""

    def __init__(self, values: Iterable[T] = ()) -> None:
        super().__init__(values)
        self._number_of = {value: number for number, value in enumerate(self)}
        self._lock = threading.Lock()

    def number(self, value: T) -> int:
        """Its number, a new one where it is new."""
        number = self._number_of.get(value)
        if number is None:
            with self._lock:
                number = self._number_of.get(value)
                if number is None:
                    number = len(self)
                    self.append(value)  # before anybody can know the number
                    self._number_of[value] = number
        return number


class ByteMachine(ABC):
    """A deterministic machine over bytes. States are numbers from 0 on, given when they are first reached; 0 is the start.

    Attributes:
        has_dear_rows: are there so many states that single steps are asked for, and no rows?
    """

    has_dear_rows = False

    @abstractmethod
    def row(self, state: int) -> Int32:
        """Int32[256]: the state after each byte, DEAD where no text goes on like that."""

    @abstractmethod
    def accepts(self, state: int) -> bool:
        """May the text end here?"""

    @abstractmethod
    def least(self, state: int) -> float:
        """Bytes that a text needs at least from here on: a lower bound, 0 where nothing is known, inf where no text ends."""

    def far(self, state: int) -> float:
        """How far the end seems to be, in bytes: what a search for it goes by. By default, `least`."""
        return self.least(state)

    def progress(self, trie: Trie) -> float:
        """By how many bytes one token of a vocabulary lowers `least` at most; by default, all of the longest one."""
        return float(len(trie.levels))

    def after_each(self, states: Int32, symbols: Nodes) -> Int32:
        """Int32[pairs]: the state after one byte, for many states and bytes."""
        rows = {state: self.row(state) for state in np.unique(states).tolist()}
        return np.array(
            [rows[state][byte] for state, byte in zip(states.tolist(), symbols.tolist(), strict=True)], dtype=np.int32
        )

    def after(self, text: bytes, state: int = 0) -> int:
        """The state after some bytes."""
        for byte in text:
            if state == DEAD:
                break
            if self.has_dear_rows:
                state = int(self.after_each(np.array([state], dtype=np.int32), np.array([byte]))[0])
            else:
                state = int(self.row(state)[byte])
        return state


class TokenMachine:
    """A machine over bytes, read token by token.

    Args:
        machine: over bytes.
        token_bytes: of the vocabulary; None for special tokens, which no machine reads.
    """

    def __init__(self, machine: ByteMachine, token_bytes: tuple[bytes | None, ...]) -> None:
        self.machine = machine
        self._walk = walk_of(token_bytes)
        self._progress = max(1.0, machine.progress(self._walk.trie))
        self._rows = np.zeros((16, 256), dtype=np.int32)
        self._has_row = np.zeros(16, dtype=np.bool_)

    def row(self, state: int) -> Int32:
        """Int32[vocab]: the state after each token, DEAD where it cannot come."""
        row = np.full(self._walk.size, DEAD, dtype=np.int32)
        row[self._walk.tokens] = self._walk.after(state, self._after, self._stays)
        return row

    def tokens_needed(self, state: int) -> float:
        """Tokens that a text needs at least from here on."""
        return float(np.ceil(self.machine.least(state) / self._progress))

    def _after(self, states: Int32, symbols: Nodes) -> Int32:
        if self.machine.has_dear_rows:
            return self.machine.after_each(states, symbols)
        self._make(states)
        after: Int32 = self._rows[states, symbols]
        return after

    def _stays(self, states: Int32) -> Flags:
        """Bool[states]: those that plain characters do not change, as far as it is looked at."""
        if self.machine.has_dear_rows:
            return np.zeros(len(states), dtype=np.bool_)
        self._make(states)
        distinct, which = np.unique(states, return_inverse=True)
        flags: Flags = (self._rows[distinct][:, PLAIN] == distinct[:, None]).all(1)[which]
        return flags

    def _make(self, states: Int32) -> None:
        """The rows of these states."""
        if not len(states):
            return
        wanted = np.unique(states)
        size = len(self._rows)
        if wanted[-1] >= size:
            more = max(size, int(wanted[-1]) + 1 - size)
            self._rows = np.concatenate([self._rows, np.zeros((more, 256), dtype=np.int32)])
            self._has_row = np.concatenate([self._has_row, np.zeros(more, dtype=np.bool_)])
        for state in wanted[~self._has_row[wanted]].tolist():
            self._rows[state] = self.machine.row(state)
            self._has_row[state] = True
