"""Which states one token can lead to from which, and so what can be reached and what can finish."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.compilers.lift import TokenAutomaton

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
PLAIN_COUNTS = 30_000_000  # pairs that are counted in an array of all pairs; more are sorted


@dataclass(frozen=True, eq=False)
class Steps:
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
    def of(cls, automaton: TokenAutomaton, function: Ints) -> Steps:
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
    room = (int(first.max(initial=0)) + 1) * num
    if room > PLAIN_COUNTS:
        codes, counts = np.unique(codes, return_counts=True)
        return codes, counts
    counts = np.bincount(codes, minlength=room)
    codes = np.nonzero(counts)[0]
    return codes, counts[codes]
