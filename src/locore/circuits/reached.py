"""A left-to-right reading whose states are made when a text first gets there.

What may come next is asked of a `Steering`, one state at a time. A whole table exists only where somebody asks for it and it is
small.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.kernel.circuits.reading import DEAD, NO_LOOK_AHEAD, LeftToRight
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.kernel.limits import may_stop
from locore.kernel.plugins import cached_property

MOST_STATES = 20_000  # of a table
MOST_ENTRIES = 1_000_000  # of a table
MOST_EFFORT = 3_000_000  # to make one: some seconds
STATE_BYTES = 200  # that a state's number takes, as Python keeps it
Flags = NDArray[np.bool_]
NO_TABLE = (
    "read from left to right, this constraint has too many states for a table of all of them, and without one it has no nodes: "
    "no mass, count, drawing or sample of independent positions. Use a sampler that goes token by token, as the default does, "
    "fewer tokens, or a simpler constraint."
)


class Steering(ABC):
    """What may come next, one state at a time; of a state only what can still be completed within the length is told.

    A state is a number, whose meaning may depend on the position.

    Attributes:
        length: number of positions.
        num_classes: number of token classes.
        is_shared: may several requests read it, or has each a bound of its own for what is looked at?
    """

    length: int
    num_classes: int
    is_shared: ClassVar[bool] = True

    @property
    @abstractmethod
    def start(self) -> int:
        """The state before the first token."""

    @property
    def effort(self) -> int:
        """What was looked at so far, where that can take long; it bounds the making of a table."""
        return 0

    @property
    def num_bytes(self) -> int:
        """About what the states take that were made so far."""
        return 0

    @abstractmethod
    def after(self, position: int, state: int, number: int) -> int:
        """The state after a token of class `number` at `position`; DEAD where nothing can be completed any more."""

    @abstractmethod
    def allowed(self, position: int, state: int) -> Flags:
        """Bool[classes]: the classes behind which `after` is not DEAD."""

    def row(self, position: int, state: int) -> NDArray[np.int32]:
        """Int32[classes]: the states after each class, as `after` says."""
        row = np.full(self.num_classes, DEAD, dtype=np.int32)
        for number in np.flatnonzero(self.allowed(position, state)).tolist():
            row[number] = self.after(position, state, number)
        return row

    def accepts(self, state: int) -> bool:
        """Does a state after the last position satisfy the constraint? Of one that is not DEAD, by default."""
        return True

    def is_complete(self, position: int, state: int) -> bool | None:
        """Does the text satisfy the constraint as it is, and no longer one that begins like it? None: of fixed length."""
        return None

    def notes(self) -> tuple[str, ...]:
        """What a report should say of what was told."""
        return ()


class Reached(LeftToRight):
    """The reading of a `Steering`; see `LeftToRight` for its methods. Its states are numbered as they are reached."""

    start = 0
    coaccessible = None
    complete = None
    tables = ()  # what is here can be made again

    def __init__(self, steering: Steering, token_class: Tensor) -> None:
        """Nothing has been read.

        Args:
            token_class: Long[vocab].
        """
        self.steering, self.token_class = steering, token_class
        self._states: list[list[int]] = [[] for _ in range(steering.length + 1)]  # states of the steering, by number
        self._number: list[dict[int, int]] = [{DEAD: DEAD} for _ in range(steering.length + 1)]
        self._lock = threading.Lock()
        self._numbered(0, steering.start)

    def __reduce__(self) -> tuple[object, ...]:
        return Reached, (self.steering, self.token_class)  # without the states that were made

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.steering.length

    @property
    def num_classes(self) -> int:
        """Number of token classes."""
        return self.steering.num_classes

    @property
    def kinds(self) -> Sequence[int]:
        """Nothing is known to be alike."""
        return range(self.length)

    @property
    def num_bytes(self) -> int:
        """Of the states that were reached, and of what the steering has made for them."""
        table = int(sum(row.nbytes for row in self.__dict__.get("rows", ())))  # where it was asked for
        return self.steering.num_bytes + STATE_BYTES * sum(map(len, self._states)) + table

    @cached_property
    def tabulated(self) -> bool:
        """Are there few enough states for `rows`? The answer takes as long as making them."""
        try:
            return len(self.rows) == self.length
        except BudgetExceeded:
            return False

    @cached_property
    def rows(self) -> tuple[Tensor, ...]:
        """For each position Int[states, classes], of all states that can be reached.

        Raises:
            BudgetExceeded: they are too many, or take too long to make.
        """
        classes, most_effort = self.num_classes, self.steering.effort + MOST_EFFORT
        left = min(MOST_STATES, MOST_ENTRIES // classes) - self.length  # each position has a state
        tables = []
        for position in range(self.length):
            table: list[NDArray[np.int32]] = []
            for state in self._states[position]:
                may_stop()
                left -= bool(table)
                if left < 0 or self.steering.effort > most_effort:
                    raise BudgetExceeded(NO_TABLE)
                distinct, which = np.unique(self.steering.row(position, state), return_inverse=True)
                numbers = [self._numbered(position + 1, after) for after in distinct.tolist()]
                table.append(np.array(numbers, dtype=np.int32)[which])
                following = len(self._states[position + 1]) if position + 1 < self.length else 0
                if following - 1 > left:  # each of them needs a row
                    raise BudgetExceeded(NO_TABLE)
            tables.append(torch.from_numpy(np.stack(table)).to(self.token_class.device))
        return tuple(tables)

    @cached_property
    def live(self) -> tuple[Tensor, ...]:
        """For each position 0..n Bool[states]: can the rest be completed? Only states that can are made, but for the last."""
        device = self.token_class.device
        sizes = [*map(len, self.rows)]
        flags = [self.steering.accepts(state) for state in self._states[-1]]
        return *(torch.ones(size, dtype=torch.bool, device=device) for size in sizes), torch.tensor(flags, device=device)

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        require_look_ahead(look_ahead)
        pairs = zip(states.flatten().tolist(), tokens.flatten().tolist(), strict=True)
        after = [self.state_after(position, state, token) for state, token in pairs]
        return torch.tensor(after, dtype=torch.long, device=states.device).view(states.shape)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, classes]: classes that may come at `position` so that the rest can still be completed."""
        require_look_ahead(look_ahead)
        flags = np.zeros((len(states), self.num_classes), dtype=np.bool_)
        for mask, state in zip(flags, states.tolist(), strict=True):
            if state != DEAD:
                mask[:] = self.steering.allowed(position, self._states[position][state])
        return torch.from_numpy(flags).to(self.token_class.device)

    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after one token; DEAD where nothing can be completed any more."""
        if state == DEAD:
            return DEAD
        own_state, number = self._states[position][state], self._class_of[token]
        return self._numbered(position + 1, self.steering.after(position, own_state, number))

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab]: the tokens that may come after one state."""
        if state == DEAD:
            return torch.zeros(len(self.token_class), dtype=torch.bool, device=self.token_class.device)
        flags = torch.from_numpy(self.steering.allowed(position, self._states[position][state])).to(self.token_class.device)
        return flags if self.num_classes == len(self.token_class) else flags.index_select(0, self.token_class)

    def allowed_tokens(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """As `allowed`, spread over the vocabulary where tokens share classes."""
        if self.num_classes < len(self.token_class):
            return super().allowed_tokens(position, states, look_ahead)
        return self.allowed(position, states, look_ahead)

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        flags = [state != DEAD and self.steering.accepts(self._states[-1][state]) for state in states.tolist()]
        return torch.tensor(flags, dtype=torch.bool, device=states.device)

    def completed(self, position: int, states: Tensor) -> Tensor | None:
        """Bool[batch]: which texts are complete; None where positions are fixed, see `LeftToRight`."""
        own_states = [None if state == DEAD else self._states[position][state] for state in states.tolist()]
        flags = [False if state is None else self.steering.is_complete(position, state) for state in own_states]
        return None if None in flags else torch.tensor(flags, dtype=torch.bool, device=states.device)

    def notes(self) -> tuple[str, ...]:
        """What a report should say of the look-ahead."""
        return self.steering.notes()

    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading with its results on a device; the work is done where Python runs."""
        return Reached(self.steering, self.token_class.to(device))

    @cached_property
    def _class_of(self) -> list[int]:
        classes: list[int] = self.token_class.tolist()
        return classes

    def _numbered(self, position: int, state: int) -> int:
        """The number of a state of the steering at a position."""
        number = self._number[position].get(state)
        if number is None:
            with self._lock:
                number = self._number[position].setdefault(state, len(self._states[position]))
                if number == len(self._states[position]):
                    self._states[position].append(state)
        return number


def require_look_ahead(look_ahead: bool) -> None:
    """`InvalidArgument` where it is off, for readings that cannot do without."""
    if not look_ahead:
        raise InvalidArgument(NO_LOOK_AHEAD)
