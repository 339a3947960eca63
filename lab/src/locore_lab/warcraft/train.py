"""Trains the CNN-LSTM of one seed; the same command goes on after a kill.

`OMP_NUM_THREADS=1 python -m locore_lab.warcraft.train --seed 0` generates the data, or reads the original with `--data FOLDER`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from locore_lab.places import RUNS
from locore_lab.warcraft.dataset import generate_maps, load_maps
from locore_lab.warcraft.training import Settings, train

DATA_SEED = 0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--data", type=Path, help="folder of the original .npy files")
    parser.add_argument("--out", type=Path, default=RUNS / "warcraft")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.data is None:
        maps, val = generate_maps(10_000, DATA_SEED, "train"), generate_maps(1_000, DATA_SEED, "val")
    else:
        maps, val = load_maps(arguments.data, "train"), load_maps(arguments.data, "val")
    settings = Settings(seed=arguments.seed, epochs=arguments.epochs)
    folder = arguments.out / f"seed{arguments.seed}"
    train(settings, maps, val, folder, lambda line: print(json.dumps(line), flush=True))


if __name__ == "__main__":
    main()
