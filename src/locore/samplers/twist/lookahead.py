"""The twist: an estimate of how probable the constraint still is, after a prefix, by its state and the last tokens.

β_i(s, c) is the probability that the n-gram stand-in completes the constraint from automaton state s and context c at
position i, by one backward pass over the circuit's left-to-right reading. A sampler steers by log β; its weights stay exact
whatever β is.
"""

from __future__ import annotations

import math
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

import torch
from torch import Tensor

from locore.cache import Kept
from locore.circuits import DEAD, LeftToRight
from locore.kernel.samplers.sampler import Prefixes
from locore.samplers.ahead import Children, last_tokens, log_floor
from locore.samplers.swor import rarity
from locore.samplers.twist.ngram import ROW_ENTRIES, NGramTable

RELATIVE_FLOOR = 1e-12  # of the largest β at a position: what the table thinks impossible must stay possible
MOST_SINGLED_OUT = 128  # such tokens
NUMBERS = 40_000_000  # β values that are kept
CPU = torch.device("cpu")
SETTLED = 0.01  # nats by which β may be off where it is no longer computed, far less than what a table says wrong
STEP_NUMBERS = 2**15  # of each position, where there are too many positions to keep them all
STATES_AT_ONCE = 8192  # of a step, so that what is summed stays near the processor
DENSE = 0.1  # share of entries from which a dense product is faster, measured
SHORT = 128  # positions
SMALLEST = 1e-300  # a scale that may be divided by


class Twist(ABC):
    """An estimate β of how probable the constraint still is after a prefix: an `AheadByToken` where all states are known."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where β is."""

    @abstractmethod
    def by_state(self, position: int, states: Tensor, log_floor: Tensor | None = None) -> Tensor:
        """log β after each possible next token, as if nothing were known of the tokens before it.

        Args:
            position: of the next token.
            states: Long[states], before it.
            log_floor: f32[states after it], log κ, by which β of each is raised.

        Returns:
            f32[states, vocab] on the device; tokens that cannot be completed have no meaning here.
        """

    @abstractmethod
    def of_states(self, position: int, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """f32[batch], log β of prefixes in Long[batch] states whose last tokens are these; −1 where there is none."""

    def known_pairs(
        self, position: int, states: Tensor, last: Tensor, log_floor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """What is known better than by state, for some next tokens; None where nothing is.

        Args:
            position: of the next token.
            states: Long[batch], before it.
            last: Long[batch], the token before it, −1 where there is none.
            log_floor: as in `by_state`.

        Returns:
            Long[pairs] rows of the batch, Long[pairs] next tokens, and f32[pairs] log β on the device, which replaces
            `by_state`.
        """
        return None

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num], as `Ahead.of`."""
        states = prefixes.reader.outlined(prefixes.states)
        return self.of_states(prefixes.position, states, *last_tokens(prefixes.tokens)).double()

    def after(self, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
        """As `AheadByToken.after`; of whole sequences there is nothing to foresee.

        κ is a share of the mean β of the prefixes, half of it more where a state is rare. β is as wrong as two tokens of
        context say too little, however often the table has seen them.
        """
        position, reader = prefixes.position, prefixes.reader
        outline = reader.outline
        if outline is None or position + 1 == reader.length:
            return None
        floor, rare = log_floor(self.of(prefixes), weights, share).float(), rarity(prefixes, weights)
        floor = floor.expand(len(outline.live[position + 1])) if rare is None else floor + torch.log1p(rare) - math.log(2)
        floor, last = floor.to(self.device), last_tokens(prefixes.tokens)[1]
        distinct, which = torch.unique(reader.outlined(torch.unique(prefixes.states)), return_inverse=True)
        by_state = self.by_state(position, distinct, floor)
        by_state = by_state if len(distinct) == len(which) else by_state[which.to(self.device)]
        pairs = self.known_pairs(position, reader.outlined(prefixes.states), last, floor)
        return Children(by_state=by_state, pairs=pairs)


def raised(log_beta: Tensor, log_floor: Tensor | None, target: Tensor) -> Tensor:
    """log (β + κ), Long[…] target being the states that f32[…] log β are of."""
    return log_beta if log_floor is None else torch.logaddexp(log_beta, log_floor[target])


@dataclass(frozen=True, eq=False)
class LookAhead(Twist):
    """log β for every position, state and context; see `Twist`.

    Attributes:
        table: the contexts.
        reader: the states.
        log_beta: for each position 0..n, f32[contexts, states], on the model's device; all else is on the CPU.
        single: Long[vocab] on that device, `table.single`.
    """

    table: NGramTable
    reader: LeftToRight
    log_beta: Sequence[Tensor]
    single: Tensor

    @property
    def device(self) -> torch.device:
        """Where β is."""
        return self.single.device

    def by_state(self, position: int, states: Tensor, log_floor: Tensor | None = None) -> Tensor:
        """f32[states, vocab], as `Twist.by_state`."""
        of_classes = self.reader.rows[position][states].long().clamp_min(0).to(self.device)
        target = of_classes[:, self.reader.classes_on(self.device)]
        return raised(self.log_beta[position + 1][self.single, target], log_floor, target)

    def of_states(self, position: int, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """f32[batch], as `Twist.of_states`."""
        context = torch.where(second >= 0, self.table.after(first, second.clamp_min(0)), 0)
        return self.log_beta[position][context.to(self.device), states.to(self.device)].cpu()

    def known_pairs(
        self, position: int, states: Tensor, last: Tensor, log_floor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What is known better, because the table has seen two tokens in a row; see `Twist.known_pairs`."""
        keys, size = self.table.pair_keys, self.table.vocab_size
        low = torch.searchsorted(keys, last.clamp_min(0) * size)
        high = torch.searchsorted(keys, (last.clamp_min(0) + 1) * size)
        count = torch.where(last >= 0, high - low, 0)
        row = torch.repeat_interleave(torch.arange(len(last)), count)
        pair = low[row] + torch.arange(len(row)) - torch.repeat_interleave(count.cumsum(0) - count, count)
        token = keys[pair] % size
        target = self.reader.rows[position][states[row], self.reader.token_class[token]].long().clamp_min(0).to(self.device)
        context = self.table.first_pair + pair
        log_beta = self.log_beta[position + 1][context.to(self.device), target]
        return row, token, raised(log_beta, log_floor, target)


@lru_cache(maxsize=8)
def look_ahead(table: NGramTable, reader: LeftToRight, device: torch.device = CPU) -> LookAhead:
    """The backward pass, from the last position to the first. It runs on the CPU; β is kept on the device.

    For constraints with many states the table is limited to its most frequent contexts, so that time and memory are bounded.
    """
    states, positions = max(len(live) for live in reader.live), reader.length + 1
    most = max(NUMBERS // positions, STEP_NUMBERS) // states
    table = table.limited(most)
    backward, single = _Backward(_Rows(table, reader), device), table.single.to(device)
    # The ends that a limited table keeps beyond its limit are no reason to go over everything twice.
    if positions * states * max(1, min(most, table.num_contexts)) > NUMBERS:
        return LookAhead(table, reader, _Stretches(backward, positions), single)
    return LookAhead(table, reader, _Downwards(backward, positions), single)


@dataclass(frozen=True, eq=False)
class _Beta:
    """β at one position, as numbers of which the largest is 1: behind thousands of positions β itself may be no number.

    Attributes:
        values: f64[contexts, states].
        log_scale: what they are to be multiplied by.
    """

    values: Tensor
    log_scale: float

    @classmethod
    def of(cls, values: Tensor, log_scale: float) -> _Beta:
        """Of values of any size."""
        top = float(values.max())
        return cls(values / top, log_scale + math.log(top)) if top > 0 else cls(values, log_scale)

    def distance(self, other: _Beta) -> float:
        """Between the directions of both, in nats (Hilbert's metric)."""
        positive = self.values > 0
        if not torch.equal(positive, other.values > 0):
            return math.inf
        ratios = self.values[positive] / other.values[positive]
        return float((ratios.max() / ratios.min()).log()) if len(ratios) else 0.0


class _Backward:
    """The backward pass, from wherever it is to begin."""

    def __init__(self, rows: _Rows, device: torch.device) -> None:
        self._rows, self._device = rows, device
        kinds = rows.reader.kinds
        self._alike = (
            next((i for i, kind in enumerate(kinds) if kind != kinds[0]), len(kinds)) - 1
        )  # the last one like the first

    def last(self) -> _Beta:
        """After the last position."""
        return _Beta(self._rows.reader.live[-1].double().expand(self._rows.table.num_contexts, -1), 0.0)

    def before(self, position: int, beta: _Beta, stop: int) -> Iterator[_Beta]:
        """From β at `position`, those at the positions before it, one after the other, down to `stop`.

        A step is linear and has no negative entries, so two β come no further apart by it (Birkhoff 1957, in Hilbert's metric):
        where a step has hardly changed the direction of β, the same step at the positions before changes it no more. Once all
        that is to come amounts to less than `SETTLED` the direction is kept.
        """
        growth: float | None = None
        for earlier in reversed(range(stop, position)):
            if growth is None:
                before, beta = beta, _Beta.of(self._rows.step(earlier, beta.values), beta.log_scale)
                if earlier <= self._alike and earlier * beta.distance(before) <= SETTLED:
                    growth = beta.log_scale - before.log_scale
            else:
                beta = _Beta(beta.values, beta.log_scale + growth)
            yield beta

    def logs(self, beta: _Beta) -> Tensor:
        """f32[contexts, states] on the device: log β, floored relative to the largest."""
        return beta.values.float().add_(RELATIVE_FLOOR).log_().add_(beta.log_scale).to(self._device)


class _Downwards(Sequence[Tensor]):
    """log β of all positions, found from the last one down to the earliest that is asked for.

    A table that is learned on the way is asked nothing of what came before.
    """

    def __init__(self, backward: _Backward, positions: int) -> None:
        last = backward.last()
        self._logs = map(backward.logs, chain([last], backward.before(positions - 1, last, 0)))
        self._positions, self._log_betas, self._lock = positions, list[Tensor](), threading.Lock()

    def __len__(self) -> int:
        return self._positions

    def __getitem__(self, position: int) -> Tensor:  # type: ignore[override]  # no slices
        if not 0 <= position < self._positions:
            raise IndexError(position)
        number = self._positions - position
        with self._lock:
            self._log_betas += islice(self._logs, max(0, number - len(self._log_betas)))
        return self._log_betas[number - 1]


class _Stretches(Sequence[Tensor]):
    """log β of more positions than are kept: of every stretch the last is, from which the others are found again.

    Readings go from left to right, so they find each stretch once. With n positions √n are kept and √n found again at a time,
    for each of a few readings, which may be in threads of their own.
    """

    def __init__(self, backward: _Backward, positions: int) -> None:
        self._backward, self._positions = backward, positions
        self._size = math.isqrt(positions)
        last = positions - 1
        self._ends = {last: backward.last()}  # by position: where a stretch ends
        for position, beta in zip(reversed(range(last)), backward.before(last, self._ends[last], 0), strict=True):
            if position % self._size == self._size - 1:
                self._ends[position] = beta
        most = max(1, NUMBERS // (self._size * self._ends[last].values.numel()))
        self._stretches: Kept[int, list[Tensor]] = Kept(most)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._positions

    def __getitem__(self, position: int) -> Tensor:  # type: ignore[override]  # no slices: they would be large
        if not 0 <= position < self._positions:
            raise IndexError(position)
        stretch, within = divmod(position, self._size)
        with self._lock:
            return (self._stretches.get(stretch) or self._stretches.put(stretch, self._again(stretch)))[within]

    def _again(self, stretch: int) -> list[Tensor]:
        """log β of its positions."""
        begin = stretch * self._size
        end = min(begin + self._size, self._positions) - 1
        earlier = self._backward.before(end, self._ends[end], begin)
        return [self._backward.logs(beta) for beta in [self._ends[end], *earlier]][::-1]


class _Rows:
    """The table's rows as one sparse matrix from contexts to the contexts that may follow.

    A context names its last token, so it also names the class that was read: all states share the matrix, and a step is one
    gather and one sparse product. Tokens that the table never saw last have context 0; they get a column for each class
    instead.
    """

    def __init__(self, table: NGramTable, reader: LeftToRight) -> None:
        self.table = table
        self.reader = reader
        last = table.last_token()
        num_classes = int(reader.token_class.max()) + 1
        # The column of each target context, then one for each class with context 0 after it.
        column_class = torch.cat([reader.token_class[last.clamp_min(0)], torch.arange(num_classes)])
        column_context = torch.cat([torch.arange(len(last)), torch.zeros(num_classes, dtype=torch.long)])
        start, tokens, probs = _largest_entries(table, singled_out(reader))
        owner = torch.repeat_interleave(torch.arange(len(last)), start[1:] - start[:-1])
        following = table.after(last[owner], tokens)
        columns = torch.where(following > 0, following, len(last) + reader.token_class[tokens])
        # Tokens of one class that no context tells apart are one entry: thousands of them, in the row of context 0 above all.
        entries, entry = torch.unique(owner * len(column_class) + columns, return_inverse=True)
        used, place = torch.unique(entries % len(column_class), return_inverse=True)
        self.column_class, self.column_context = column_class[used], column_context[used]
        sums = torch.zeros(len(entries), dtype=torch.float64).index_add_(0, entry, probs)
        self._matrix = _matrix(entries // len(column_class), place, sums.float(), (len(last), len(used)))
        # Of the latest rows, which positions far apart share, and of so many states behind them.
        self._targets: tuple[Tensor, int, Tensor] | None = None
        mass = torch.zeros(len(last), dtype=torch.float64).index_add_(0, owner, probs)
        self.backoff = (1 - mass).clamp_min(0.0)

    def step(self, position: int, beta: Tensor) -> Tensor:
        """f64[contexts, states] at `position` from those at the next one."""
        padded = torch.nn.functional.pad(beta, (0, 1)).view(-1)  # a last column of zeros stands for DEAD
        targets, live = self._after(position), _asked(self.reader)[position]
        result = torch.zeros(len(self.backoff), len(live), dtype=torch.float64)
        for states in torch.split(live.nonzero()[:, 0], STATES_AT_ONCE):  # from all others β is 0, or nobody asks for it
            after = padded.take(targets if len(states) == len(live) else targets.index_select(1, states))
            # Single precision is enough for sums of products and takes half the time, but β of different states may lie further
            # apart than it reaches: each has a scale of its own.
            scale = after.amax(0).clamp_min(SMALLEST)
            result[:, states] = (self._matrix @ after.div_(scale).float()).double().mul_(scale)
        first_pair, backoff = self.table.first_pair, self.backoff[:, None]
        result[1:first_pair] += backoff[1:first_pair] * result[0]
        # Pairs last: they back off to single tokens, which are finished now.
        result[first_pair:] += backoff[first_pair:] * result[self.table.parent[first_pair:]]
        return result

    def _after(self, position: int) -> Tensor:
        """Int[columns, states]: where β behind each column's class from each state lies, in β with a column for DEAD, flat."""
        rows, states = self.reader.rows[position], len(self.reader.live[position + 1])
        if self._targets is None or self._targets[0] is not rows or self._targets[1] != states:
            targets = rows.T[self.column_class].long()
            targets = torch.where(targets == DEAD, states, targets)
            self._targets = rows, states, self.column_context[:, None] * (states + 1) + targets
        return self._targets[2]


@lru_cache(maxsize=8)
def _asked(reader: LeftToRight) -> tuple[Tensor, ...]:
    """For each position Bool[states]: where the rest can be completed, and that a prefix of this length can lead to.

    A counter has gone through few of its states after few tokens. Where horizons are long all states that matter are reached
    soon, and it is worth more that β settles.
    """
    if reader.length > SHORT:
        return reader.live
    asked, reached = [], torch.zeros_like(reader.live[0])
    reached[reader.start] = True
    for rows, live, following in zip(reader.rows, reader.live, reader.live[1:], strict=False):
        asked.append(reached & live)
        after = torch.zeros(len(following) + 1, dtype=torch.bool)
        after[rows[asked[-1]].flatten().long()] = True  # DEAD is the last one
        reached = after[:-1]
    return *asked, reached & reader.live[-1]


def _matrix(rows: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """f32[size] of these entries, ordered by rows; dense where that is faster."""
    if len(values) > DENSE * size[0] * size[1]:
        return torch.zeros(size).index_put_((rows, columns), values)
    begins = torch.searchsorted(rows, torch.arange(size[0] + 1))
    with warnings.catch_warnings():  # torch warns that its sparse matrices are young
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(begins, columns, values, size, check_invariants=False)


@lru_cache(maxsize=8)
def singled_out(reader: LeftToRight) -> Tensor:
    """Bool[vocab]: tokens that the constraint treats almost individually; the rarest classes first, up to a limit."""
    sizes = torch.bincount(reader.token_class)
    size = sizes[reader.token_class]
    limit = int(size.sort().values[min(MOST_SINGLED_OUT, len(size) - 1)])
    return size < max(2, limit)


def _largest_entries(table: NGramTable, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row starts, tokens and probabilities: the unigram row whole, of other rows the largest entries and the wanted tokens."""
    begin, end = table.start[:-1], table.start[1:]
    # +1 where a row begins, −1 behind its largest entries: one byte for each of the millions of entries.
    steps = torch.zeros(len(table.tokens) + 1, dtype=torch.int8)
    ones = torch.ones_like(begin, dtype=torch.int8)
    steps.index_add_(0, begin, ones)
    steps.index_add_(0, torch.minimum(begin + ROW_ENTRIES, end), ones, alpha=-1)
    chosen = (steps[:-1].cumsum(0, dtype=torch.int8).bool() | wanted[table.tokens]).nonzero()[:, 0]
    start = torch.searchsorted(chosen, table.start) + table.vocab_size  # the row of context 0 has no entries, but all tokens
    start[0] = 0
    tokens = torch.cat([torch.arange(table.vocab_size), table.tokens[chosen].long()])
    return start, tokens, torch.cat([table.unigram, table.probs[chosen].double()])
