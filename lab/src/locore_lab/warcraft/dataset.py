"""Maps, weights and labels: generated, read from and written to the `.npy` files of the original data, and grades of answers.

The original files are those of Vlastelica et al. (2020), `warcraft_shortest_path_oneskin/12x12`: for each split
`{split}_maps.npy` uint8[num, 8 · height, 8 · width, 3], `{split}_vertex_weights.npy` Float[num, height, width] and
`{split}_shortest_paths.npy` [num, height, width] of 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.kernel.errors import InvalidArgument
from locore_lab.shared import reading
from locore_lab.warcraft.paths import (
    MOVES_TO_8,
    Cell,
    Encoding,
    cells_of_mask,
    integer_weights,
    is_minimum_cost,
    mask_of,
    shortest_path,
)
from locore_lab.warcraft.terrain import SPLITS, STANDARD, TILE, Recipe, draw_maps

_FILES = {"images": "maps", "weights": "vertex_weights", "labels": "shortest_paths"}


@dataclass(frozen=True, eq=False)
class Maps:
    """Pictures of maps with their weights and one path of minimum cost each."""

    images: NDArray[np.uint8]  # uint8[num, TILE · height, TILE · width, 3]
    weights: NDArray[np.floating[Any]]  # Float[num, height, width], the costs of the cells; no model sees them
    labels: NDArray[np.uint8]  # uint8[num, height, width], 1 on the path
    encoding: Encoding = MOVES_TO_8  # how paths are written; it says which cells are neighbours

    def __len__(self) -> int:
        return len(self.images)

    @property
    def height(self) -> int:
        """Rows of cells."""
        return int(self.weights.shape[1])

    @property
    def width(self) -> int:
        """Columns of cells."""
        return int(self.weights.shape[2])

    @cached_property
    def paths(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of each label in order."""
        return tuple(cells_of_mask(label, self.encoding.steps) for label in self.labels)

    @property
    def longest(self) -> int:
        """Tokens of the longest label, its end included."""
        return self.encoding.length(self.paths, self.height, self.width)

    @property
    def horizon(self) -> int:
        """Length of sequences among which paths like these are sought."""
        return self.encoding.horizon(self.paths, self.height, self.width)

    def tokens(self, length: int) -> Tensor:
        """Long[num, length]: the labels, padded."""
        return torch.tensor([self.encoding.tokens(path, self.height, self.width, length) for path in self.paths])

    def one(self, index: int) -> Maps:
        """One of them, alone."""
        return self._part(slice(index, index + 1))

    def written(self, encoding: Encoding) -> Maps:
        """The same terrain with labels for this encoding."""
        return self if encoding == self.encoding else labelled(self.images, self.weights, encoding)

    def first(self, num: int) -> Maps:
        """The first `num` maps."""
        if not 1 <= num <= len(self):
            raise InvalidArgument(f"There are {len(self)} maps; give a number from 1 to that, not {num}.")
        return self._part(slice(num))

    def _part(self, some: slice) -> Maps:
        return Maps(self.images[some], self.weights[some], self.labels[some], self.encoding)

    def turned(self, symmetry: int) -> Maps:
        """The maps seen from another side, with labels of their own.

        A map stays one when it is mirrored at the diagonal (bit 0 of `symmetry`) or turned by 180° (bit 1): both keep the
        pair of ends. Which of several cheapest paths is the label depends on the order of the cells, so labels are derived
        anew.
        """
        turned = [_turn(values, symmetry) for values in (self.images, self.weights)]
        return labelled(turned[0], turned[1], self.encoding) if symmetry else self


def labelled(images: NDArray[np.uint8], weights: NDArray[np.floating[Any]], encoding: Encoding = MOVES_TO_8) -> Maps:
    """Maps with labels by the original rule (`shortest_path`), among the paths of an encoding."""
    labels = np.stack([mask_of(shortest_path(grid, encoding.steps), *grid.shape) for grid in weights])
    return Maps(images, weights, labels, encoding)


def generate_maps(
    num: int,
    seed: int,
    split: str = "train",
    height: int = 12,
    width: int = 12,
    recipe: Recipe = STANDARD,
    encoding: Encoding = MOVES_TO_8,
) -> Maps:
    """Maps of `terrain.draw_maps` (which see) with their labels."""
    return labelled(*draw_maps(num, seed, split, height, width, recipe), encoding)


def load_maps(folder: Path | str, split: str) -> Maps:
    """Read the three files of a split of the original data, such as `warcraft_shortest_path_oneskin/12x12`; all is checked."""
    folder = Path(folder)
    with reading(f"{folder}, split {split!r}"):
        images, weights, labels = (np.load(_path(folder, split, part), allow_pickle=False) for part in _FILES)
        num, height, width = weights.shape
        if (images.shape, labels.shape) != ((num, TILE * height, TILE * width, 3), weights.shape) or images.dtype != np.uint8:
            raise InvalidArgument(f"maps are {images.dtype}{images.shape} and paths {labels.shape}, weights {weights.shape}.")
        for index, (grid, label) in enumerate(zip(weights, labels, strict=True)):
            with reading(f"map {index}"):
                integer_weights(grid)
                if not is_minimum_cost(grid, cells_of_mask(label)):
                    raise InvalidArgument("there is a path that is cheaper than the label.")
    return Maps(images, weights, labels.astype(np.uint8))


def _turn(values: NDArray[Any], symmetry: int) -> NDArray[Any]:
    """[num, rows, columns, …] mirrored at the diagonal, turned by 180°, both or neither."""
    if symmetry & 1:
        values = np.swapaxes(values, 1, 2)
    if symmetry & 2:
        values = values[:, ::-1, ::-1]
    return np.ascontiguousarray(values)


def _path(folder: Path, split: str, part: str) -> Path:
    if split not in SPLITS:
        raise InvalidArgument(f"There is no split {split!r}; the splits are {', '.join(SPLITS)}.")
    return folder / f"{split}_{_FILES[part]}.npy"


@dataclass(frozen=True, eq=False)
class Grades:
    """Of sequences of tokens, one row a map."""

    consistent: Tensor  # Bool[num], a simple path on the grid from the upper left to the lower right cell
    exact: Tensor  # Bool[num], a path of minimum cost (there may be several)
    equal: Tensor  # Bool[num], the very path of the label

    def rates(self) -> dict[str, float]:
        """Share of each, from 0 to 1."""
        return {name: float(values.double().mean()) for name, values in vars(self).items()}


def grade(tokens: Tensor, maps: Maps) -> Grades:
    """Grade one sequence for each map."""
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
