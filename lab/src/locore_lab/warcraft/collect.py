"""Gathers what `train.py` left in `lab/runs`: logs of all seeds, weights of one, and a table of the models alone.

`python -m locore_lab.warcraft.collect` writes `logs/seedN.jsonl`, `training.json` and `training.md` into
`lab/results/warcraft/edges` (or `moves`), and with `--keep SEED` the weights of one seed.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from statistics import mean, stdev

import torch

from locore_lab.places import RESULTS, RUNS
from locore_lab.warcraft.dataset import Maps, load_maps
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.plan import WHOLE
from locore_lab.warcraft.training import LOG, WEIGHTS, validate

SHARES = ("exact", "equal", "consistent", "rounded_exact", "rounded_consistent")


def measured(folder: Path, test: Maps, draws: int) -> dict[str, float | int]:
    """One seed: its epochs, the one that was kept, and its model alone on the test maps."""
    settings, *looks = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    target = settings["settings"]["target"]
    validated = [look for look in looks if "exact" in look]
    kept = min(reversed(validated), key=lambda look: abs(look["exact"] - target))
    network = PathModel.load(folder / WEIGHTS).network
    return {
        "seed": settings["settings"]["seed"],
        "epochs": looks[-1]["epoch"],
        "kept_epoch": kept["epoch"],
        "validation_exact": kept["exact"],
        "train_seconds": round(sum(look["train_seconds"] for look in looks)),
        **validate(network, test, draws, seed=0),
    }


def table(rows: list[dict[str, float | int]]) -> str:
    """Markdown: a row for each seed, then means with standard errors over seeds."""
    lines = [
        "| seed | epochs | kept | exact % | equal to the label % | consistent % | likeliest tokens: exact % | consistent % | "
        "nats per label | training, minutes |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        shares = " | ".join(f"{100 * row[name]:.2f}" for name in SHARES)
        epochs = f"{row['epochs']:g} | {row['kept_epoch']:g}"
        lines.append(f"| {row['seed']} | {epochs} | {shares} | {row['nats']:.3f} | {row['train_seconds'] / 60:.0f} |")
    if len(rows) > 1:
        shares = " | ".join(
            f"{100 * mean(row[name] for row in rows):.2f} ± {100 * stdev(row[name] for row in rows) / len(rows) ** 0.5:.2f}"
            for name in SHARES
        )
        lines.append(f"| mean | | | {shares} | {mean(row['nats'] for row in rows):.3f} | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=RUNS / "warcraft")
    parser.add_argument("--out", type=Path, default=RESULTS / "warcraft")
    parser.add_argument("--encoding", choices=list(WHOLE), default="edges")
    parser.add_argument("--data", type=Path, help="folder of the original .npy files")
    parser.add_argument("--draws", type=int, default=10, help="paths sampled for each test map")
    parser.add_argument("--keep", type=int, help="the seed whose weights are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    plan, out = WHOLE[arguments.encoding], arguments.out / arguments.encoding
    folders = sorted(path.parent for path in (arguments.runs / arguments.encoding).glob(f"seed*/{WEIGHTS}"))
    if not folders:
        parser.error(f"there are no weights in {arguments.runs / arguments.encoding}; run locore_lab.warcraft.train first")
    test = plan.drawn("test", 1_000) if arguments.data is None else load_maps(arguments.data, "test").written(plan.paths)
    rows = []
    (out / "logs").mkdir(parents=True, exist_ok=True)
    for folder in folders:
        rows.append(measured(folder, test, arguments.draws))
        shutil.copy(folder / LOG, out / "logs" / f"{folder.name}.jsonl")
        if rows[-1]["seed"] == arguments.keep:
            shutil.copy(folder / WEIGHTS, out / WEIGHTS)
    (out / "training.json").write_text(json.dumps({"draws": arguments.draws, "models": rows}, indent=2) + "\n")
    (out / "training.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
