"""A constraint that is read from left to right without ever being written down as a circuit."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

import torch
from torch import Tensor

from locore.circuits.circuit import Circuit, Distributions
from locore.circuits.draw import MAX_NODES
from locore.circuits.left_to_right import DEAD, LeftToRight
from locore.errors import InvalidArgument
from locore.tokenizer import Tokenizer

UNWRITTEN = (
    "this constraint is read from left to right as far as texts go (it has a grammar or a large search in it) and is never "
    "written down as a circuit, so that {what} cannot be computed. "
    "Use a sampler that goes token by token: 'auto', 'swor', 'twisted', 'smc', 'masked', 'awrs' or 'rejection'."
)


class UnwrittenCircuit(Circuit):
    """A reading in the place of a circuit. What a circuit says of masks and prefixes it says too, and nothing of masses."""

    @classmethod
    def of(cls, reader: LeftToRight) -> UnwrittenCircuit:
        """Of a left-to-right reading."""
        classes = int(reader.token_class.max()) + 1
        nothing = torch.zeros(0, dtype=torch.bool, device=reader.token_class.device)
        return cls(reader.length, reader.token_class, classes, (), (), nothing, reader)

    @property
    def num_nodes(self) -> int:
        """None."""
        return 0

    @property
    def num_edges(self) -> int:
        """None."""
        return 0

    def dot(self, tokenizer: Tokenizer | None = None, max_nodes: int = MAX_NODES) -> str:
        """There is nothing to draw: `InvalidArgument`."""
        self._refuse("a drawing")

    def _repr_svg_(self) -> None:
        """None: notebooks show its name."""

    def count(self) -> int:
        """The number of sequences, where all states fit into a table; elsewhere not known: `InvalidArgument`."""
        if self.reader is None or not self.reader.tabulated:
            self._refuse("a count")
        following = [1] * len(self.reader.live[-1])
        for rows in reversed(self.reader.rows):
            following = [
                sum(following[target] * number for target, number in Counter(row).items() if target != DEAD)
                for row in rows.tolist()
            ]
        return following[self.reader.start] if following else 0

    def log_mass(self, log_probs: Distributions) -> Tensor:
        """Not known: `InvalidArgument`."""
        self._refuse("a mass")

    def sample_with_mass(
        self, log_probs: Distributions, seed: int | torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Not known: `InvalidArgument`."""
        self._refuse("a sample of independent positions")

    def most_probable(self, log_probs: Distributions) -> tuple[Tensor, Tensor]:
        """Not known: `InvalidArgument`."""
        self._refuse("the most probable sequence of independent positions")

    def marginals(self, log_probs: Tensor) -> Tensor:
        """Not known: `InvalidArgument`."""
        self._refuse("marginals")

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidArgument(UNWRITTEN.format(what=what))
