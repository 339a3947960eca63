"""A left-to-right reading of a circuit that was not compiled from left to right: what is left of it after each prefix.

Reading a token conditions the circuit on it: leaves of its position become true or false; what then simplifies is done away
with, and equal remainders are one node and one state. The circuit is decomposable, so what is not false can still be completed:
look-ahead is exact and free. States are made when they are first reached; a whole table exists only where somebody asks for it
and it is small.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from locore.circuits.chain import FALSE, TRUE, Block, classes_of_range
from locore.circuits.left_to_right import DEAD, NO_LOOK_AHEAD, LeftToRight
from locore.errors import BudgetExceeded, InvalidArgument
from locore.limits import may_stop

MOST_STATES = 20_000  # of a table
MOST_VISITS = 3_000_000  # of nodes, to make one: some seconds
Key = tuple[int, int, int, int]


class ConditionedReader(LeftToRight):
    """The reading of a circuit of one block, state by state; see `LeftToRight` for its methods.

    `rows` and `live` are made when they are asked for. A state is a number among those of its position.
    """

    start = 0
    coaccessible = None
    complete = None

    def __init__(self, block: Block, token_class: Tensor, num_classes: int, length: int) -> None:
        """Nothing has been read yet.

        Args:
            block: reads all positions in their order and has no inputs; output 0 is the root.
        """
        self.token_class = token_class
        self._given = block, token_class, num_classes, length
        self._num_classes = num_classes
        self._num_states = 1
        self._node_of: list[list[int]] = [[] for _ in range(length + 1)]  # by state; those of position 0 are the root alone
        self._state_of: list[dict[int, int]] = [{} for _ in range(length + 1)]
        self._allowed: dict[tuple[int, int], list[bool]] = {}
        self._after: dict[tuple[int, int, int], int] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return ConditionedReader, self._given  # without the states that were made

    @property
    def length(self) -> int:
        """Number of positions."""
        return self._given[3]

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """None: what is here can be made again from the circuit."""
        return ()

    @cached_property
    def tabulated(self) -> bool:  # type: ignore[override]  # made late
        """Are there few enough states for `rows`? The answer takes as long as making them."""
        try:
            return len(self.rows) == self.length
        except BudgetExceeded:
            return False

    @cached_property
    def rows(self) -> tuple[Tensor, ...]:  # type: ignore[override]  # made late
        """For each position Int[states, classes], of all states that can be reached.

        Raises:
            BudgetExceeded: more than MOST_STATES of them, or more than MOST_VISITS of nodes to make them.
        """
        tables, most_visits = [], self._nodes.visits + MOST_VISITS
        for position in range(self.length):
            states = range(len(self._node_of[position]) if position else 1)
            table = [self._row(position, state, most_visits) for state in states]
            tables.append(torch.tensor(table, dtype=torch.int32, device=self.token_class.device))
        return tuple(tables)

    def _row(self, position: int, state: int, most_visits: int) -> list[int]:
        """The states after one, by class."""
        row = [DEAD] * self._num_classes
        for number, flag in enumerate(self._allowed_classes(position, state)):
            if flag:
                row[number] = self._state_after(position, state, number)
            may_stop()
            if self._num_states > MOST_STATES or self._nodes.visits > most_visits:
                raise BudgetExceeded(
                    f"read from left to right, this circuit has more than {MOST_STATES:,} states, or large ones, too many for "
                    "a table of all of them; use a sampler that needs none, such as 'swor', 'smc' or 'masked'."
                )
        return row

    @cached_property
    def live(self) -> tuple[Tensor, ...]:  # type: ignore[override]  # made late
        """For each position 0..n Bool[states]: all true, for only states that can be completed are made."""
        sizes = [*(len(rows) for rows in self.rows), 1]
        return tuple(torch.ones(size, dtype=torch.bool, device=self.token_class.device) for size in sizes)

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        _require(look_ahead)
        classes = self.token_class[tokens].tolist()
        after = [self._state_after(position, s, c) for s, c in zip(states.tolist(), classes, strict=True)]
        return torch.tensor(after, dtype=torch.long, device=states.device).view(states.shape)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, classes]: classes that may come at `position` so that the rest can still be completed."""
        _require(look_ahead)
        masks = [self._allowed_classes(position, state) for state in states.tolist()]
        flags = torch.tensor(masks, dtype=torch.bool, device=self.token_class.device)
        return flags.view(len(masks), self._num_classes)

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        return states != DEAD

    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading with its results on a device; the work is done where Python runs."""
        block, token_class, num_classes, length = self._given
        return ConditionedReader(block, token_class.to(device), num_classes, length)

    @cached_property
    def _nodes(self) -> _Nodes:
        return _Nodes(self._given[0], self._num_classes)

    def _node(self, position: int, state: int) -> int:
        return self._node_of[position][state] if position else self._nodes.root

    def _allowed_classes(self, position: int, state: int) -> list[bool]:
        """For each class whether it can come."""
        key = position, state
        if key not in self._allowed:
            mask = 0 if state == DEAD else self._nodes.possible(self._node(position, state), position)
            self._allowed[key] = [bool(mask >> c & 1) for c in range(self._num_classes)]
        return self._allowed[key]

    def _state_after(self, position: int, state: int, number: int) -> int:
        """The state after a class."""
        if state == DEAD:
            return DEAD
        key = position, state, number
        if key not in self._after:
            node = self._nodes.conditioned(self._node(position, state), position, number)
            states = self._state_of[position + 1]
            if node != FALSE and node not in states:
                states[node] = len(states)
                self._node_of[position + 1].append(node)
                self._num_states += 1
            self._after[key] = states.get(node, DEAD)
        return self._after[key]


def _require(look_ahead: bool) -> None:
    if not look_ahead:
        raise InvalidArgument(NO_LOOK_AHEAD)


class _Nodes:
    """Nodes (a ∧ b) ∨ (c ∧ d) and leaves, of the circuit and those that conditioning makes; children come before parents.

    Attributes:
        visits: how many nodes were looked at so far, and how often it was asked for some.
    """

    def __init__(self, block: Block, num_classes: int) -> None:
        self.visits = 0
        self._leaf: list[tuple[int, int] | None] = [None, None]  # position, and the classes as a mask
        self._key: list[Key | None] = [None, None]
        self._scope = [0, 0]
        self._index: dict[Key, int] = {}
        node_of = [FALSE, TRUE]  # by slot
        for position, heap in block.leaves.tolist():
            mask = sum(1 << c for c in classes_of_range(heap, num_classes))
            node_of.append(self._put((position, mask), None, 1 << position) if mask else FALSE)
        for level in block.levels:
            node_of += [self._node(node_of[a], node_of[b], node_of[c], node_of[d]) for a, b, c, d in level.T.tolist()]
        self.root = node_of[int(block.outputs[0])]

    def possible(self, root: int, position: int) -> int:
        """The classes, as a mask, that the token at a position can have."""
        masks: dict[int, int] = {}
        for node in self._touched(root, position):
            leaf, key = self._leaf[node], self._key[node]
            if leaf is not None:
                masks[node] = leaf[1]
            elif key is not None:
                masks[node] = 0
                for child in key:
                    masks[node] |= masks.get(child, 0)
        return masks.get(root, 0)

    def conditioned(self, root: int, position: int, number: int) -> int:
        """What is left of a node once the token at a position has this class."""
        after: dict[int, int] = {}
        for node in self._touched(root, position):
            leaf, key = self._leaf[node], self._key[node]
            if leaf is not None:
                after[node] = TRUE if leaf[1] >> number & 1 else FALSE
            elif key is not None:
                after[node] = self._node(*(after.get(child, child) for child in key))
        return after.get(root, root)

    def _touched(self, root: int, position: int) -> list[int]:
        """The nodes below a root that speak about a position, children first."""
        bit, scope = 1 << position, self._scope
        self.visits += 1
        if not scope[root] & bit:
            return []
        reached, pending = {root}, [root]
        while pending:
            for child in self._key[pending.pop()] or ():
                if scope[child] & bit and child not in reached:
                    reached.add(child)
                    pending.append(child)
        self.visits += len(reached)
        return sorted(reached)

    def _node(self, a: int, b: int, c: int, d: int) -> int:
        first = (FALSE, FALSE) if FALSE in (a, b) else (a, b) if a != TRUE else (b, TRUE)
        second = (FALSE, FALSE) if FALSE in (c, d) else (c, d) if c != TRUE else (d, TRUE)
        if first[0] == FALSE:
            first, second = second, first
        if second[0] == FALSE and first[1] in (TRUE, FALSE):
            return first[0]
        key = (*first, *second)
        if key not in self._index:
            scope = 0
            for child in key:
                scope |= self._scope[child]
            self._index[key] = self._put(None, key, scope)
        return self._index[key]

    def _put(self, leaf: tuple[int, int] | None, key: Key | None, scope: int) -> int:
        self._leaf.append(leaf)
        self._key.append(key)
        self._scope.append(scope)
        return len(self._scope) - 1
