"""The left-to-right reading of a circuit: states after prefixes, with exact look-ahead to the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.kernel.circuits.nodes import Nodes
from locore.kernel.errors import InvalidArgument
from locore.kernel.numerics import NEG_INF
from locore.kernel.plugins import cached_property

DEAD = -1
Ints = NDArray[np.int64]
NO_LOOK_AHEAD = (
    "without look-ahead a mask needs one automaton for all positions, written down as a whole; this constraint speaks about "
    "single positions, or is read state by state. Leave look_ahead on."
)


class LeftToRight(ABC):
    """A layered deterministic automaton over token classes.

    Attributes:
        token_class: Long[vocab].
        rows: for each position, Int[states, classes]: the state at the next position, DEAD if none. Positions with the
            same transitions share one tensor.
        live: for each position 0..n, Bool[states]: can the rest still be completed from here?
        start: state before the first token.
        coaccessible: Bool[states]: can the rest be completed at *some* length? Known where all positions number their states
            alike; it serves only to reproduce engines that do not know the length.
        complete: for each position 0..n, Bool[states]: does the text satisfy the constraint as it is, and no longer one that
            begins like it, whatever the horizon? None where positions are fixed, and the horizon is part of the constraint.
        tabulated: can `rows` be had? Not where states are made when they are first reached and are too many for a table.
    """

    pictured = True  # is it worth a try to draw the nodes?
    token_class: Tensor
    start: int
    coaccessible: Tensor | None
    complete: tuple[Tensor, ...] | None

    @property
    @abstractmethod
    def rows(self) -> tuple[Tensor, ...]:
        """As above; `BudgetExceeded` where they cannot be had."""

    @property
    @abstractmethod
    def live(self) -> tuple[Tensor, ...]:
        """As above; `BudgetExceeded` where `rows` cannot be had."""

    @property
    @abstractmethod
    def tabulated(self) -> bool:
        """As above."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of positions."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Tensor, ...]:
        """The tensors that the reading keeps."""

    @property
    def num_bytes(self) -> int:
        """To be kept: of the tables, each once, and as much again for their nodes."""
        return 2 * sum({id(table): table.nbytes for table in self.tables}.values())

    @abstractmethod
    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""

    @abstractmethod
    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, classes]: classes that may come at `position` so that the rest can still be completed."""

    @abstractmethod
    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""

    @abstractmethod
    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after one token, as `step` says; DEAD where nothing can be completed any more."""

    @abstractmethod
    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab]: the tokens that may come after one state, as `allowed_tokens` says."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Number of token classes."""

    @property
    def outline(self) -> LeftToRight | None:
        """A reading whose states are all there and say most of what these do; None where there is none."""
        return self if self.tabulated else None

    def nodes(self) -> Nodes | None:
        """Where a reading has its own way of writing its nodes down: these. None where they follow from its rows."""
        return None

    def outlined(self, states: Tensor) -> Tensor:
        """Long like the states: those of the outline."""
        return states

    @property
    def completes(self) -> bool:
        """Can a text be complete before the last position?"""
        return self.complete is None or any(bool(flags.any()) for flags in self.complete[:-1])

    @abstractmethod
    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading on a device; shared tensors stay shared."""

    def completed(self, position: int, states: Tensor) -> Tensor | None:
        """Bool[batch]: which texts are complete, as `complete` says; None where it is None."""
        if self.complete is None:
            return None
        return (states != DEAD) & self.complete[position][states.clamp_min(0)]

    def notes(self) -> tuple[str, ...]:
        """What a report on sequences that were read with it should say."""
        return ()

    def initial(self, batch: int) -> Tensor:
        """Long[batch]: the states before the first token."""
        return torch.full((batch,), self.start, dtype=torch.long, device=self.token_class.device)

    def read(self, tokens: Tensor) -> Tensor:
        """Long[batch]: states after Long[batch, time] prefixes."""
        states = self.initial(len(tokens))
        for position in range(tokens.shape[1]):
            states = self.step(position, states, tokens[:, position].to(states.device))
        return states

    def allowed_tokens(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, vocab]: tokens that may come at `position`; `allowed` spread over the vocabulary, each state once."""
        distinct, which = torch.unique(states, return_inverse=True)
        classes = self.allowed(position, distinct, look_ahead)
        # On a CPU `gather` is three times as fast as `classes[:, token_class]`.
        tokens = classes.gather(1, self.token_class.expand(len(distinct), -1))
        return tokens if len(distinct) == len(states) == 1 else tokens[which]

    def log_allowed(self, position: int, distinct: Tensor, device: torch.device, look_ahead: bool = True) -> Tensor:
        """f32[states, vocab] on a device: 0 for what `allowed_tokens` of distinct states says, −inf elsewhere; to add to logs.

        Only what is allowed of the classes is moved there.
        """
        allowed = self.allowed(position, distinct, look_ahead)
        logs = torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed, NEG_INF)
        return logs.to(device).gather(1, self.classes_on(device).expand(len(distinct), -1))

    def classes_on(self, device: torch.device) -> Tensor:
        """`token_class` on a device, where it stays."""
        if device not in self._classes:
            self._classes[device] = self.token_class.to(device)
        return self._classes[device]

    @cached_property
    def _classes(self) -> dict[torch.device, Tensor]:
        return {}

    @cached_property
    def kinds(self) -> Sequence[int]:
        """A number for each position; where it is equal, so are the transitions and what can be completed after them.

        What is allowed then depends on this number and on the state only. All positions that are far from the end of a ban
        or a pattern have the same number.
        """
        lives = [live.cpu().numpy().tobytes() for live in self.live[1:]]
        numbers: dict[tuple[int, bytes], int] = {}
        return tuple(numbers.setdefault((id(rows), live), len(numbers)) for rows, live in zip(self.rows, lives, strict=True))


@dataclass(frozen=True, eq=False)
class TableReader(LeftToRight):
    """A reading whose transitions are all there, as tables; see `LeftToRight`."""

    token_class: Tensor
    rows: tuple[Tensor, ...] = ()
    live: tuple[Tensor, ...] = ()
    start: int = 0
    coaccessible: Tensor | None = None
    complete: tuple[Tensor, ...] | None = None
    tabulated = True

    @property
    def length(self) -> int:
        """Number of positions."""
        return len(self.rows)

    @property
    def num_classes(self) -> int:
        """Number of token classes."""
        return self.rows[0].shape[1]

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The tensors that the reading keeps."""
        return (*self.rows, *self.live, *(self.complete or ()))

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        target = self.rows[position][states.clamp_min(0), self.token_class[tokens]].long()
        alive = (states != DEAD) & (target != DEAD)
        alive &= self._completable(position + 1, look_ahead)[target.clamp_min(0)]
        return torch.where(alive, target, DEAD)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, classes]: classes that may come at `position` so that the rest can still be completed."""
        targets = self.rows[position].index_select(0, states.clamp_min(0))
        completable = self._completable(position + 1, look_ahead)
        possible = completable.index_select(0, targets.clamp_min(0).flatten()).view_as(targets)
        return possible & (targets != DEAD) & (states != DEAD)[:, None]

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        return (states != DEAD) & self.live[-1][states.clamp_min(0)]

    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading on a device; shared tensors stay shared."""
        moved = {id(table): table.to(device) for table in self.tables}

        def all_of(tables: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(moved[id(table)] for table in tables)

        return TableReader(
            self.token_class.to(device),
            all_of(self.rows),
            all_of(self.live),
            self.start,
            None if self.coaccessible is None else self.coaccessible.to(device),
            None if self.complete is None else all_of(self.complete),
        )

    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after one token; DEAD where nothing can be completed any more."""
        rows, live, class_of = self._arrays
        if state == DEAD:
            return DEAD
        target = int(rows[position][state, class_of[token]])
        return target if target != DEAD and live[position + 1][target] else DEAD

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab]: the tokens that may come after one state."""
        rows, live, _ = self._arrays
        targets = rows[position][state]
        possible = (targets != DEAD) & live[position + 1][targets]  # DEAD reads some state's flag, which does not count
        if state == DEAD:
            possible = np.zeros_like(possible)
        return torch.from_numpy(possible).to(self.token_class.device).index_select(0, self.token_class)

    @cached_property
    def _arrays(self) -> tuple[list[NDArray[Any]], list[NDArray[Any]], NDArray[Any]]:
        """`rows`, `live` and `token_class` as numpy arrays, whose entries are read ten times faster than those of tensors."""
        arrays = {id(tensor): tensor.numpy(force=True) for tensor in (*self.rows, *self.live)}
        rows, live = ([arrays[id(tensor)] for tensor in tensors] for tensors in (self.rows, self.live))
        return rows, live, self.token_class.numpy(force=True)

    def _completable(self, position: int, look_ahead: bool) -> Tensor:
        """Bool[states]: from which states the rest can be completed, within the length or (no look-ahead) at any length."""
        if look_ahead:
            return self.live[position]
        if self.coaccessible is None:
            raise InvalidArgument(NO_LOOK_AHEAD)
        return self.coaccessible


@dataclass(frozen=True)
class SparseRows:
    """Int[states, classes] of target states, -1 where none.

    Attributes:
        num_states: number of rows.
        default: Int64[classes], the row of a state without entries of its own.
        state, column, target: Int64[entries], where rows differ from the default; sorted by state, then column.
    """

    num_states: int
    default: Ints
    state: Ints
    column: Ints
    target: Ints

    @classmethod
    def from_dense(cls, rows: NDArray[np.int32]) -> SparseRows:
        """The rows of a dense table; the first is the default."""
        default = rows[0].astype(np.int64)
        state, column = np.nonzero(rows != rows[0])
        return cls(len(rows), default, state, column, rows[state, column].astype(np.int64))

    def dense(self) -> NDArray[np.int32]:
        """Int32[states, classes]."""
        rows = np.repeat(self.default[None].astype(np.int32), self.num_states, axis=0)
        rows[self.state, self.column] = self.target
        return rows


def shared(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The same arrays, equal ones as one object: far from both ends most positions look alike."""
    first: dict[tuple[tuple[int, ...], bytes], NDArray[Any]] = {}
    return [first.setdefault((array.shape, array.tobytes()), array) for array in arrays]


def table_reader(
    token_class: NDArray[np.int64],
    rows: Sequence[NDArray[np.int32]],
    live: Sequence[NDArray[np.bool_]],
    complete: Sequence[NDArray[np.bool_]] | None = None,
    coaccessible: NDArray[np.bool_] | None = None,
) -> TableReader:
    """The reading of a layered automaton that starts in state 0. Positions that share an array share a tensor.

    Args:
        token_class: Int64[vocab].
        rows, live, complete, coaccessible: as in `LeftToRight`.
    """
    tensors = {id(table): torch.from_numpy(table) for table in rows}
    return TableReader(
        torch.from_numpy(token_class),
        tuple(tensors[id(table)] for table in rows),
        tuple(map(torch.from_numpy, shared(live))),
        coaccessible=None if coaccessible is None else torch.from_numpy(coaccessible),
        complete=None if complete is None else tuple(map(torch.from_numpy, shared(complete))),
    )
