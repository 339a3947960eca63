"""The left-to-right reading of a circuit: states after prefixes, with exact look-ahead to the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from locore.errors import InvalidArgument

DEAD = -1
NO_LOOK_AHEAD = (
    "without look-ahead a mask needs one automaton for all positions; this constraint speaks about single positions. Leave "
    "look_ahead on."
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

    token_class: Tensor
    rows: tuple[Tensor, ...]
    live: tuple[Tensor, ...]
    start: int
    coaccessible: Tensor | None
    complete: tuple[Tensor, ...] | None
    tabulated: bool

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of positions."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Tensor, ...]:
        """The tensors that the reading keeps."""

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
    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading on a device; shared tensors stay shared."""

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

    @cached_property
    def kinds(self) -> tuple[int, ...]:
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
    rows: tuple[Tensor, ...]
    live: tuple[Tensor, ...]
    start: int = 0
    coaccessible: Tensor | None = None
    complete: tuple[Tensor, ...] | None = None
    tabulated = True

    @property
    def length(self) -> int:
        """Number of positions."""
        return len(self.rows)

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

    def _completable(self, position: int, look_ahead: bool) -> Tensor:
        """Bool[states]: from which states the rest can be completed, within the length or (no look-ahead) at any length."""
        if look_ahead:
            return self.live[position]
        if self.coaccessible is None:
            raise InvalidArgument(NO_LOOK_AHEAD)
        return self.coaccessible
