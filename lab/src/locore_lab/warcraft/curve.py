"""Oversampling by the number of draws S, without chance in which S draws: from many draws for each map.

The row "+ oversampling" takes one of S draws that holds, or one that does not if none does. Of n draws for a map, v of them
valid and e exact, a random S hold no valid one with probability C(n − v, S) / C(n, S), and else the one that is taken is exact
with probability e / v. Means over maps are unbiased for every S ≤ n; S → ∞ is p(y | α), and no sampler can do better but by
chance (a map of whose n draws none is valid counts as not exact).

    python -m locore_lab.warcraft.curve --weights runs/warcraft/edges/seed0/weights.safetensors
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path

import torch

from locore.io import markdown_table
from locore_lab.places import RESULTS
from locore_lab.warcraft.dataset import Maps
from locore_lab.warcraft.grading import grade
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.plan import WHOLE
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


def curve(counts: list[tuple[int, int]], draws: int) -> list[dict[str, object]]:
    """A row for each number of draws, with standard errors over maps."""
    rows: list[dict[str, object]] = []
    for size in (*(size for size in SIZES if size <= draws), None):
        row: dict[str, object] = {"draws": size or ALL}
        found = torch.tensor([shares(valid, exact, draws, size) for valid, exact in counts], dtype=torch.float64)
        errors = found.std(0) / math.sqrt(len(found)) if len(found) > 1 else found[0] * 0
        for column, mean, error in zip(("exact %", "consistent %"), found.mean(0).tolist(), errors.tolist(), strict=True):
            row[column] = f"{100 * mean:.1f} ± {100 * error:.1f}"
        rows.append(row)
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True, help="of a model over edge bits")
    parser.add_argument("--maps", type=int, default=300, help="test maps")
    parser.add_argument("--draws", type=int, default=100, help="for each map")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "warcraft" / "edges")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model, test = PathModel.load(arguments.weights), WHOLE["edges"].drawn("test", arguments.maps)
    counts = [counted(model, test.one(i), arguments.draws, arguments.seed + i) for i in range(len(test))]
    rows = curve(counts, arguments.draws)
    table = markdown_table(rows, list(rows[0]))
    text = (
        f"{len(test)} test maps, {arguments.draws} draws for each, one model; ± is the standard error over maps.\n\n{table}\n"
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    facts = {"model": model.fingerprint(), "maps": len(test), "draws": arguments.draws, "seed": arguments.seed, "rows": rows}
    (arguments.out / "curve.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    (arguments.out / "curve.md").write_text(f"# Oversampling by the number of draws\n\n{text}")
    print(text)


if __name__ == "__main__":
    main()
