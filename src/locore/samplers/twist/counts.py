"""Foresight of counts: how likely it is that what is counted comes out right, given that the rest of the constraint does.

An automaton and a count beside it are too many states for a table of n-grams. So the n-grams look ahead in the automaton
alone, and the count is looked after by single tokens: were every token drawn by the table's mean distribution, one backward
pass gives the probability of what is accepted from each state, with the right count and with any. Their ratio is what counts
add; a keyword that is still to come needs its characters, and the ratio knows it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.circuits import DEAD
from locore.circuits.counted import CountedReader
from locore.kernel.samplers.sampler import Prefixes
from locore.samplers.twist.ngram import NGramTable

LEAST = 1e-6  # of a ratio: what single tokens think impossible may be possible
AT_ONCE = 2**22  # numbers that are worked on together
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CountsAhead:
    """An `Ahead` of the counts of a `CountedReader`."""

    def __init__(self, reader: CountedReader, unigram: Tensor) -> None:
        """By f64[vocab], how probable each token is taken to be."""
        self._reader = reader
        self._ratios = [torch.from_numpy(ratios.astype(np.float32)) for ratios in _ratios(reader, unigram.numpy())]

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num], as `Ahead.of`."""
        ratios, states = self._ratios[prefixes.position], prefixes.states
        open_ = (states != DEAD) & ~self._reader.ended(states)
        some = torch.where(open_, states, 0)
        logs = ratios[self._reader.outlined(some), self._reader.counts(some)].double().clamp_min(LEAST).log()
        return torch.where(open_, logs, 0.0)


def _ratios(reader: CountedReader, unigram: Floats) -> list[Floats]:
    """For each position 0..n f64[states, counts]: the probability of the right count, given that the rest is accepted."""
    control = reader.control
    classes: Floats = np.bincount(control.token_class, unigram, control.table.shape[1]).astype(np.float64)
    ends = float(classes[list(control.ends)].sum())
    weights, target, gain = _steps(reader, classes)
    right = control.right_at_end.astype(np.float64)
    accepted = control.accepting.astype(np.float64)
    with_right, with_any = (right, accepted) if not reader.must_end else (np.zeros_like(right), np.zeros_like(accepted))
    ratios = []
    for position in reversed(range(reader.length + 1)):
        if position < reader.length:
            may_end = ends * reader.may_end(position)
            with_right = _before(weights, target, gain, with_right) + may_end * right
            with_any = weights @ with_any[target] + may_end * accepted
        ratios.append(np.divide(with_right, with_any[:, None], out=np.ones_like(right), where=with_any[:, None] > 0))
    return ratios[::-1]


def _before(weights: Floats, target: Ints, gain: Ints, after: Floats) -> Floats:
    """f64[states, counts] a token earlier, by so many steps at a time that they need little room."""
    before, counts = np.zeros_like(after), np.arange(after.shape[1])
    for steps in np.array_split(np.arange(len(target)), 1 + len(target) * len(counts) // AT_ONCE):
        counted = np.minimum(counts + gain[steps, None], counts[-1])
        before += weights[:, steps] @ after[target[steps, None], counted]
    return before


def _steps(reader: CountedReader, classes: Floats) -> tuple[Floats, Ints, Ints]:
    """f64[states, steps], how probable each step is from each state; Int64[steps], where it leads and what it counts."""
    control = reader.control
    state, column = np.nonzero(control.table != DEAD)
    steps = np.stack([control.table[state, column], control.gain[state, column]]).astype(np.int64)
    pairs, which = np.unique(steps, axis=1, return_inverse=True)
    weights = np.zeros((control.num_states, pairs.shape[1]))
    np.add.at(weights, (state, which.ravel()), classes[column])
    return weights, pairs[0], pairs[1]


@lru_cache(maxsize=8)
def counts_ahead(table: NGramTable, reader: CountedReader) -> CountsAhead:
    """By what a table takes each token to be worth."""
    return CountsAhead(reader, table.unigram)
