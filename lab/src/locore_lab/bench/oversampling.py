"""Oversampling of the Warcraft experiment by the number of draws S, without chance in which S draws: many for each map.

The row "+ oversampling" takes one of S draws that holds, or one that does not if none does. Of n draws for a map, v of them
valid and e exact, a random S hold no valid one with probability C(n − v, S) / C(n, S), and else the one that is taken is exact
with probability e / v. Means over maps are unbiased for every S ≤ n; S → ∞ is p(y | α), and no sampler can do better but by
chance (a map of whose n draws none is valid counts as not exact).
"""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch

from locore_lab.harness import Case, Row, measurement
from locore_lab.warcraft.command import WHOLE
from locore_lab.warcraft.dataset import Maps, grade
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.training import draw

SIZES = (1, 2, 3, 5, 10, 20, 50)
ALL = "∞"


def counted(model: PathModel, one: Maps, draws: int, seed: int) -> tuple[int, int]:
    """How many of so many draws for a map are valid, and how many are paths of minimum cost."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        embedding = model.network.embed(torch.from_numpy(one.images)).expand(draws, -1)
        tokens = draw(model.network, embedding, one.horizon, generator)
    valid = exact = 0
    for sequence, times in Counter(map(tuple, tokens.tolist())).items():
        found = grade(torch.tensor([sequence]), one)
        valid += times * bool(found.consistent)
        exact += times * bool(found.exact)
    return valid, exact


def shares(valid: int, exact: int, draws: int, size: int | None) -> tuple[float, float]:
    """P(exact) and P(consistent) of oversampling with so many draws; None for as many as it takes."""
    if not valid:
        return 0.0, 0.0
    none = 0.0 if size is None else math.comb(draws - valid, size) / math.comb(draws, size)
    return (1 - none) * exact / valid, 1 - none


def curve(counts: list[tuple[int, int]], draws: int) -> list[Row]:
    """A row for each number of draws, with standard errors over maps."""
    rows: list[Row] = []
    for size in (*(size for size in SIZES if size <= draws), None):
        row: Row = {"draws": size or ALL}
        found = torch.tensor([shares(valid, exact, draws, size) for valid, exact in counts], dtype=torch.float64)
        errors = found.std(0) / math.sqrt(len(found)) if len(found) > 1 else found[0] * 0
        for column, mean, error in zip(("exact %", "consistent %"), found.mean(0).tolist(), errors.tolist(), strict=True):
            row[column] = f"{100 * mean:.1f} ± {100 * error:.1f}"
        rows.append(row)
    return rows


@measurement("draws | exact % | consistent %", "{draws} | {exact %} | {consistent %}")
def run(
    weights: Annotated[Path, "of a model over edge bits, from `locore reproduce warcraft`"],
    maps: Annotated[int, "of the test, each with its draws"] = 300,
    draws: int = 100,
    seed: int = 0,
) -> Iterator[Case]:
    model, test = PathModel.load(weights), WHOLE["edges"].drawn("test", maps)
    yield {}, lambda: curve([counted(model, test.one(i), draws, seed + i) for i in range(len(test))], draws)
