"""Trains the CNN-LSTM of one seed; the same command goes on after a kill.

`OMP_NUM_THREADS=1 python -m locore_lab.warcraft.train --seed 0` generates the data, or reads the original with `--data FOLDER`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from locore_lab.places import RUNS
from locore_lab.warcraft.dataset import load_maps
from locore_lab.warcraft.plan import WHOLE
from locore_lab.warcraft.training import train


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--encoding", choices=list(WHOLE), default="edges", help="how paths are written as tokens")
    parser.add_argument("--size", type=int, help="cells of a side of the maps")
    parser.add_argument("--epochs", type=int, help="at most")
    parser.add_argument("--data", type=Path, help="folder of the original .npy files")
    parser.add_argument("--out", type=Path, default=RUNS / "warcraft")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    plan = WHOLE[arguments.encoding]
    plan = replace(plan, size=arguments.size or plan.size)
    if arguments.data is None:
        maps, val = plan.drawn("train", plan.train), plan.drawn("val", plan.val)
    else:
        maps, val = (load_maps(arguments.data, split).written(plan.paths) for split in ("train", "val"))
    settings = plan.seeded(arguments.seed)
    settings = replace(settings, epochs=arguments.epochs or settings.epochs)
    folder = arguments.out / plan.encoding / f"seed{arguments.seed}"
    train(settings, maps, val, folder, lambda line: print(json.dumps(line), flush=True))


if __name__ == "__main__":
    main()
