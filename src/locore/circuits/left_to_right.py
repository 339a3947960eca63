"""The left-to-right reading of a circuit: states after prefixes, with exact look-ahead to the end; and masks made of it.

`Masks` follow one sequence that grows token by token: the state is kept, and masks that come again are too.
`circuit.allowed(prefix)` says the same and reads the prefix anew.
"""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from locore.errors import InvalidArgument
from locore.numerics import NEG_INF

DEAD = -1
NO_LOOK_AHEAD = (
    "without look-ahead a mask needs one automaton for all positions; this constraint speaks about single positions. Leave "
    "look_ahead on."
)

MEMORY_BYTES = 64_000_000  # of masks that are kept


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

    @property
    def completes(self) -> bool:
        """Can a text be complete before the last position?"""
        return self.complete is None or any(bool(flags.any()) for flags in self.complete[:-1])

    def masks(self, memory_bytes: int = MEMORY_BYTES) -> Masks:
        """Transitions and masks one state at a time, for `MaskReader`."""
        return _Masks(self, memory_bytes) if self.tables else _ReachedMasks(self, memory_bytes)

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


class MaskReader:
    """Which tokens may come next, so that the rest can still be completed within the length.

    ```python
    reader = MaskReader(circuit.reader)
    for _ in range(circuit.length):
        token = choose(reader.mask())
        reader.advance(token)
    ```

    Attributes:
        position: number of tokens read so far.
    """

    def __init__(self, reader: LeftToRight, memory_bytes: int = MEMORY_BYTES) -> None:
        """Nothing has been read yet.

        Args:
            reader: the left-to-right reading of a circuit; masks are on its device.
            memory_bytes: masks of so many bytes are kept, those used last; copies share them. 0: none.
        """
        self.position = 0
        self._state = reader.start
        self._masks = reader.masks(memory_bytes)

    def copy(self) -> MaskReader:
        """Another reader of the same prefix, which may go on differently. It shares the kept masks."""
        return copy.copy(self)

    def advance(self, token: int) -> None:
        """Read one token id. After one that was not allowed nothing is allowed any more.

        Raises:
            InvalidArgument: no token id of this vocabulary, or the length is reached.
        """
        self._state = self._masks.state_after(self.position, self._state, token)
        self.position += 1

    def mask(self) -> Tensor:
        """Bool[vocab]: the allowed tokens. Not to be written to: the next reader in this state gets the same tensor.

        Raises:
            InvalidArgument: the length is reached.
        """
        return self._masks.mask(self.position, self._state)


def stack_masks(readers: Sequence[MaskReader], out: Tensor | None = None) -> Tensor:
    """Bool[batch, vocab]: the masks of several readers, at any positions.

    Args:
        readers: those of one circuit.
        out: written to if given.
    """
    return torch.stack([reader.mask() for reader in readers], out=out)


class Masks(Protocol):
    """Transitions and masks, one state at a time."""

    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after a token; DEAD where nothing can be completed any more."""

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab]: the tokens that may come."""


class _ReachedMasks:
    """Masks of a reading that is asked again for every state; those used last are kept."""

    def __init__(self, reader: LeftToRight, memory_bytes: int) -> None:
        self._reader = reader
        self._token_class = reader.token_class
        self._class_of = reader.token_class.cpu().numpy()
        self._kinds: Sequence[int] = range(reader.length)
        self._kept: OrderedDict[tuple[int, int], Tensor] = OrderedDict()
        self._most = memory_bytes // len(self._class_of)

    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after a token; DEAD where nothing can be completed any more."""
        if not hasattr(token, "__index__") or not 0 <= (token := operator.index(token)) < len(self._class_of):
            raise InvalidArgument(
                f"token ids must be whole numbers in 0..{len(self._class_of) - 1} for this circuit; got {token!r}."
            )
        self._check(position)
        return DEAD if state == DEAD else self._after(position, state, token)

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab], kept for the next time; the one that was not used for longest is forgotten."""
        self._check(position)
        key = (self._kinds[position], state)
        mask = self._kept.get(key)
        if mask is not None:
            self._kept.move_to_end(key)
            return mask
        mask = self._kept[key] = self._computed(position, state)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return mask

    def _after(self, position: int, state: int, token: int) -> int:
        return int(self._reader.step(position, torch.tensor([state]), torch.tensor([token])))

    def _computed(self, position: int, state: int) -> Tensor:
        return self._reader.allowed_tokens(position, torch.tensor([state]))[0]

    def _check(self, position: int) -> None:
        if position >= self._reader.length:
            raise InvalidArgument(
                f"the prefix has {position} tokens, and so many are all that the circuit speaks about; compile for a greater "
                "length."
            )


class _Masks(_ReachedMasks):
    """The transitions of a circuit as numpy arrays, whose single entries are read ten times faster than those of tensors."""

    def __init__(self, reader: LeftToRight, memory_bytes: int) -> None:
        super().__init__(reader, memory_bytes)
        arrays = {id(tensor): tensor.cpu().numpy() for tensor in (*reader.rows, *reader.live)}
        self._rows = [arrays[id(rows)] for rows in reader.rows]
        self._live = [arrays[id(live)] for live in reader.live]
        self._kinds = reader.kinds

    def _after(self, position: int, state: int, token: int) -> int:
        target = int(self._rows[position][state, self._class_of[token]])
        return target if target != DEAD and self._live[position + 1][target] else DEAD

    def _computed(self, position: int, state: int) -> Tensor:
        targets = self._rows[position][state]
        possible = (targets != DEAD) & self._live[position + 1][targets]  # DEAD reads some state's flag, which does not count
        if state == DEAD:
            possible = np.zeros_like(possible)
        return torch.from_numpy(possible).to(self._token_class.device).index_select(0, self._token_class)
