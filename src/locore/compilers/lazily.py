"""Compiling a constraint with a grammar or a large schema: no circuit, but a reading whose states are made when reached."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from locore.automata.lazily import TokenMachine
from locore.circuits import DEAD, LeftToRight
from locore.circuits.unwritten import UnwrittenCircuit
from locore.compilers.explored import Exploration, MachineAtoms
from locore.compilers.left_to_right import with_atoms
from locore.compilers.problem import Partition, Problem, gathered, no_model, with_lifted
from locore.compilers.residual import Residuals
from locore.constraints import And, Constraint, Not, conjunction, disjunction, negation
from locore.constraints.machine import is_finite, is_machine, is_text_leaf, machine_of
from locore.constraints.structure import fold
from locore.errors import BudgetExceeded, InvalidArgument

MOST_ENTRIES = 1_000_000  # of a table of all states
NO_LOOK_AHEAD = "a constraint with a grammar in it is read with look-ahead only. Leave look_ahead on."


def needs_machine(constraint: Constraint) -> bool:
    """Is there a leaf with any number of states, or with too many to make them all?"""
    return any(map(is_machine, constraint.leaves()))


def read_lazily(problem: Problem) -> UnwrittenCircuit:
    """The reading of a constraint whose states are made when they are first reached.

    Raises:
        Unsatisfiable: no text of this length satisfies the constraint.
        BudgetExceeded: of parts that are compiled beforehand.
    """
    tokenizer = problem.tokenizer
    root = gathered(problem.constraint, tokenizer.vocab_size)
    problem = Problem(root, tokenizer, problem.length, problem.min_length, problem.limits).with_end_apart()
    every = np.arange(tokenizer.vocab_size)
    classes = Partition(every, every)
    lifted = with_lifted(with_machines(problem.constraint, tokenizer.token_bytes), tokenizer.token_bytes)
    residuals = Residuals(with_atoms(lifted, classes, problem.length), classes, problem.length, tokenizer.eos_ids)
    explored = Exploration(residuals, problem)
    if not explored.live(explored.start, 0):
        raise no_model(problem.length)
    return UnwrittenCircuit.of(LazyReader(explored, torch.arange(tokenizer.vocab_size)))


def with_machines(constraint: Constraint, token_bytes: tuple[bytes | None, ...]) -> Constraint:
    """The constraint with an atom for each maximal combination of text leaves that no automaton of all states decides.

    Combining over 256 bytes is cheaper than over the vocabulary, as in `with_lifted`.
    """

    def read(part: Constraint) -> Constraint:
        return part if is_finite(part) else MachineAtoms(TokenMachine(machine_of(part), token_bytes)).atom(0)

    def rule(node: Constraint, parts: list[tuple[Constraint, bool]]) -> tuple[Constraint, bool]:
        if not parts:
            return node, is_text_leaf(node)
        if all(text for _, text in parts):
            return node, True
        if isinstance(node, Not):
            return negation(parts[0][0]), False
        joined = conjunction if isinstance(node, And) else disjunction
        texts = [part for part, text in parts if text]
        others = [part for part, text in parts if not text]
        return joined([*others, read(joined(texts))] if texts else others), False

    whole, text = fold(constraint, rule)
    return read(whole) if text else whole


class LazyReader(LeftToRight):
    """A reading whose states are numbered as they are reached, at each position from 0 on; only completable ones are."""

    start = 0
    coaccessible = None
    complete = None

    def __init__(self, explored: Exploration, token_class: Tensor) -> None:
        """Nothing has been read.

        Args:
            token_class: Long[vocab]: 0, 1, …; every token is a class of its own.
        """
        self.token_class = token_class
        self.explored = explored
        self._state_of: list[dict[int, int]] = [{} for _ in range(explored.length + 1)]
        self._of_state: list[list[int]] = [[] for _ in range(explored.length + 1)]
        self._number(0, explored.start)

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.explored.length

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """None: what is here can be made again."""
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
        """For each position Int[states, vocab], of all states that can be reached.

        Raises:
            BudgetExceeded: more than MOST_ENTRIES entries.
        """
        vocab, entries, tables = len(self.token_class), 0, []
        for position in range(self.length):
            table = []
            for state in self._of_state[position]:
                entries += vocab
                if entries > MOST_ENTRIES:
                    raise BudgetExceeded(
                        f"read from left to right, this constraint has over {MOST_ENTRIES // vocab:,} states, too many for "
                        "a table of all of them; use a sampler that needs none, such as 'swor', 'smc' or 'masked'."
                    )
                row = self.explored.row(state, position)
                distinct, which = np.unique(row, return_inverse=True)
                numbers = [self._number(position + 1, one) for one in distinct.tolist()]
                table.append(np.array(numbers, dtype=np.int32)[which])
            tables.append(torch.from_numpy(np.stack(table)).to(self.token_class.device))
        return tuple(tables)

    @cached_property
    def live(self) -> tuple[Tensor, ...]:  # type: ignore[override]  # made late
        """For each position 0..n Bool[states]: all true, for only states that can be completed are numbered."""
        sizes = [*(len(rows) for rows in self.rows), max(1, len(self._of_state[-1]))]
        return tuple(torch.ones(size, dtype=torch.bool, device=self.token_class.device) for size in sizes)

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        _require(look_ahead)
        after = [
            DEAD if s == DEAD else self._number(position + 1, int(self.explored.row(self._of_state[position][s], position)[t]))
            for s, t in zip(states.flatten().tolist(), tokens.flatten().tolist(), strict=True)
        ]
        return torch.tensor(after, dtype=torch.long, device=states.device).view(states.shape)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, vocab]: tokens that may come at `position` so that the rest can still be completed."""
        _require(look_ahead)
        flags = np.zeros((len(states), len(self.token_class)), dtype=np.bool_)
        for number, state in enumerate(states.tolist()):
            if state != DEAD:
                row = self.explored.row(self._of_state[position][state], position)
                distinct, which = np.unique(row, return_inverse=True)
                flags[number] = np.array([self.explored.live(one, position + 1) for one in distinct.tolist()])[which]
        return torch.from_numpy(flags).to(self.token_class.device)

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        return states != DEAD

    def completed(self, position: int, states: Tensor) -> Tensor | None:
        """Bool[batch]: which texts are complete; see `LeftToRight.completed`."""
        explored = [DEAD if state == DEAD else self._of_state[position][state] for state in states.tolist()]
        flags = [self.explored.is_complete(state, position) for state in explored]
        return torch.tensor(flags, dtype=torch.bool, device=states.device)

    def notes(self) -> tuple[str, ...]:
        """What a report should say of the look-ahead."""
        found = []
        if self.explored.assumed:
            found.append(
                f"look-ahead: {self.explored.assumed} states were taken to be completable within the horizon without a full "
                "search; texts that then ran out of tokens have no weight, and every text that is here is whole"
            )
        if self.explored.late:
            found.append(
                f"look-ahead: {self.explored.late} states were taken to be too late for the horizon without a full search; "
                "texts that end there, by a way shorter than the straight one, are left out. A longer horizon has more room"
            )
        return tuple(found)

    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading with its results on a device; the work is done where Python runs."""
        return LazyReader(self.explored, self.token_class.to(device))

    def _number(self, position: int, state: int) -> int:
        """The number of an explored state at a position; DEAD if nothing can be completed from it."""
        known = self._state_of[position]
        if state not in known:
            if not self.explored.live(state, position):
                known[state] = DEAD
            else:
                known[state] = len(self._of_state[position])
                self._of_state[position].append(state)
        return known[state]


def _require(look_ahead: bool) -> None:
    if not look_ahead:
        raise InvalidArgument(NO_LOOK_AHEAD)
