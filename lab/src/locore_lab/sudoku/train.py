"""Trains the small transformer on generated puzzles with 10 open cells; the same command goes on after a kill.

`OMP_NUM_THREADS=1 python -m locore_lab.sudoku.train` leaves checkpoints in `lab/runs`, and at the end the log in `lab/results`
and the weights in the package.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch

from locore_lab.places import RESULTS, RUNS
from locore_lab.sudoku.dataset import generated_split
from locore_lab.sudoku.model import WEIGHTS, save_model
from locore_lab.sudoku.plan import DATA_SEED
from locore_lab.sudoku.training import LOG, Settings, train, validate


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--runs", type=Path, default=RUNS / "sudoku")
    parser.add_argument("--export", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    split = generated_split(DATA_SEED)
    folder = arguments.runs / f"seed{arguments.seed}"
    settings = Settings(seed=arguments.seed, steps=arguments.steps)
    trainer = train(settings, split["train"], split["validation"], folder, lambda line: print(json.dumps(line), flush=True))
    save_model(trainer, arguments.export)
    shutil.copy(folder / LOG, RESULTS / "sudoku" / f"training{arguments.seed}.jsonl")
    print(json.dumps({"test": validate(trainer.network, trainer.tokenizer, split["test"])}))


if __name__ == "__main__":
    main()
