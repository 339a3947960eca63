"""What the paper reports: is a path valid, and is it one of minimum cost?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument
from locore_lab.warcraft.dataset import Maps
from locore_lab.warcraft.paths import is_minimum_cost


@dataclass(frozen=True, eq=False)
class Grades:
    """Of sequences of tokens, one row a map.

    Attributes:
        consistent: Bool[num], a simple path on the grid from the upper left to the lower right cell.
        exact: Bool[num], a path of minimum cost (there may be several).
        equal: Bool[num], the very path of the label.
    """

    consistent: Tensor
    exact: Tensor
    equal: Tensor

    def rates(self) -> dict[str, float]:
        """Share of each, from 0 to 1."""
        return {name: float(values.double().mean()) for name, values in vars(self).items()}


def grade(tokens: Tensor, maps: Maps) -> Grades:
    """Grade one sequence for each map.

    Args:
        tokens: Long[num, length], in the encoding of the maps.
        maps: of as many maps.
    """
    if len(tokens) != len(maps):
        raise InvalidArgument(f"There are {len(tokens)} sequences for {len(maps)} maps; give one for each.")
    rows = []
    for index, sequence in enumerate(tokens.tolist()):
        cells = maps.encoding.path(sequence, maps.height, maps.width)
        if cells is None:
            rows.append((False, False, False))
        else:
            cheap = is_minimum_cost(maps.weights[index], cells, maps.encoding.steps)
            rows.append((True, cheap, cells == maps.paths[index]))
    consistent, exact, equal = torch.tensor(rows).unbind(1)
    return Grades(consistent, exact, equal)
