"""A left-to-right reading of a circuit that was not compiled from left to right: what is left of it after each prefix.

Reading a token replaces leaves of its position by true or false; what then simplifies is done away with, and equal remainders
are one node and one state. The circuit is decomposable, so what is not false can still be completed: look-ahead is exact and
free. States are made when they are first reached; a whole table exists only where somebody asks for it and it is small.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from locore.circuits.block import FALSE, Block
from locore.circuits.left_to_right import DEAD, LeftToRight
from locore.circuits.remainders import Remainders
from locore.errors import BudgetExceeded

MOST_STATES = 20_000  # of a table; two seconds or so


class ConditionedReader(LeftToRight):
    """The reading of a circuit of one block, state by state; see `LeftToRight` for its methods.

    `rows` and `live` are made when they are asked for.
    """

    def __init__(self, block: Block, token_class: Tensor, num_classes: int, length: int) -> None:
        """Nothing has been read yet.

        Args:
            block: reads all positions in their order and has no inputs; output 0 is the root.
        """
        object.__setattr__(self, "token_class", token_class)
        object.__setattr__(self, "start", 0)
        object.__setattr__(self, "hopeful", None)
        object.__setattr__(self, "complete", None)
        self.__dict__.update(_block=block, _num_classes=num_classes, _length=length)

    @property
    def length(self) -> int:
        """Number of positions."""
        return int(self.__dict__["_length"])

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """None: what is here can be made again from the circuit."""
        return ()

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
            BudgetExceeded: more than MOST_STATES of them.
        """
        states = self._states
        for position in range(self.length):
            number = 0
            while number < states.count(position):
                states.row(position, number)
                number += 1
                if states.total > MOST_STATES:
                    raise BudgetExceeded(
                        f"read from left to right, this circuit has more than {MOST_STATES:,} states, too many for a table of "
                        "all of them; use a sampler that needs none, such as 'swor', 'smc' or 'greedy'."
                    )
        device = self.token_class.device
        return tuple(
            torch.tensor([states.row(position, s) for s in range(states.count(position))], dtype=torch.int32, device=device)
            for position in range(self.length)
        )

    @cached_property
    def live(self) -> tuple[Tensor, ...]:
        """For each position 0..n Bool[states]: all true, for only states that can be completed are made."""
        sizes = [*(len(rows) for rows in self.rows), 1]
        return tuple(torch.ones(size, dtype=torch.bool, device=self.token_class.device) for size in sizes)

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        self._require_look_ahead(look_ahead)
        classes = self.token_class[tokens].tolist()
        after = [self._states.step(position, s, c) for s, c in zip(states.tolist(), classes, strict=True)]
        return torch.tensor(after, dtype=torch.long, device=states.device).view(states.shape)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, classes]: classes that may come at `position` so that the rest can still be completed."""
        self._require_look_ahead(look_ahead)
        masks = [self._states.allowed(position, state) for state in states.tolist()]
        device = self.token_class.device
        if not masks:
            return torch.zeros(0, self._states.num_classes, dtype=torch.bool, device=device)
        return torch.tensor(masks, dtype=torch.bool, device=device)

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        return states != DEAD

    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading with its results on a device; the work is done where Python runs."""
        return ConditionedReader(self._states.block, self.token_class.to(device), self._states.num_classes, self.length)

    def _require_look_ahead(self, look_ahead: bool) -> None:
        if not look_ahead:
            self._open(0, look_ahead)  # raises: there is no automaton for all positions

    @cached_property
    def _states(self) -> _States:
        kept = self.__dict__
        return _States(kept["_block"], kept["_num_classes"], self.length)

    def __repr__(self) -> str:  # without the table, which would have to be made
        return f"ConditionedReader(length={self.length})"

    def __reduce__(self) -> tuple[object, ...]:
        return ConditionedReader, (self._states.block, self.token_class, self._states.num_classes, self.length)


class _States:
    """Remainders of a circuit. A state is a number among those of its position; state 0 at position 0 is the whole circuit."""

    def __init__(self, block: Block, num_classes: int, length: int) -> None:
        self.block = block
        self.num_classes = num_classes
        self._pool = Remainders(block, num_classes)
        root = int(self._pool.slot[int(block.outputs[0])])
        self._nodes: list[list[int]] = [[root], *([] for _ in range(length))]
        self._number: list[dict[int, int]] = [{root: 0}, *({} for _ in range(length))]
        self._allowed: dict[tuple[int, int], list[bool]] = {}
        self._after: dict[tuple[int, int, int], int] = {}

    @property
    def total(self) -> int:
        """States made so far."""
        return sum(map(len, self._nodes))

    def count(self, position: int) -> int:
        """States made so far at a position."""
        return len(self._nodes[position])

    def row(self, position: int, state: int) -> list[int]:
        """The state after each class."""
        flags = self.allowed(position, state)
        return [self.step(position, state, c) if flag else DEAD for c, flag in enumerate(flags)]

    def allowed(self, position: int, state: int) -> list[bool]:
        """For each class whether it can come."""
        key = position, state
        if key not in self._allowed:
            mask = 0 if state == DEAD else self._pool.possible(self._nodes[position][state], position)
            self._allowed[key] = [bool(mask >> c & 1) for c in range(self.num_classes)]
        return self._allowed[key]

    def step(self, position: int, state: int, number: int) -> int:
        """The state after a class."""
        if state == DEAD:
            return DEAD
        key = position, state, number
        if key not in self._after:
            node = self._pool.conditioned(self._nodes[position][state], position, number)
            if node == FALSE:
                self._after[key] = DEAD
            else:
                numbers = self._number[position + 1]
                if node not in numbers:
                    numbers[node] = len(numbers)
                    self._nodes[position + 1].append(node)
                self._after[key] = numbers[node]
        return self._after[key]
