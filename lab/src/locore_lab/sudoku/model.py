"""The transformer of this experiment as files in Hugging Face's form, and the models of a run by their names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

import locore
from locore.kernel.errors import InvalidArgument
from locore.models import HuggingFaceModel, LanguageModel
from locore_lab.sudoku.network import Size
from locore_lab.sudoku.puzzles import Puzzle
from locore_lab.sudoku.training import Settings, Trainer, train

TRAINED = "trained"  # the name of the transformer of this experiment
WEIGHTS = Path(str(files("locore_lab"))) / "sudoku" / "weights"
TOY = Settings(
    size=Size(box=2, width=48, layers=2, heads=2), steps=240, every=60, learning_rate=4e-3, warmup=20, bfloat16=False
)


def save_model(trainer: Trainer, folder: Path) -> None:
    """Network in 16 bits and tokenizer, as `locore.load` and `transformers` read them."""
    network = trainer.network
    state = {name: weight.half() for name, weight in network.state_dict().items()}
    network.save_pretrained(folder, state_dict=state)
    trainer.tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # weights are written for their owner alone


def open_models(names: tuple[str, ...], box: int, output: Path, split: Mapping[str, list[Puzzle]]) -> dict[str, LanguageModel]:
    """Models by name: "trained", or as `locore.load` takes it.

    For 9 × 9 the trained one comes with Locore; a smaller one for 4 × 4 is trained in the output folder, in seconds.
    """
    if len(set(names)) < len(names):
        raise InvalidArgument(f"a model is named twice: {', '.join(names)}.")
    return {name: _open(name, box, output, split) for name in names}


def _open(name: str, box: int, output: Path, split: Mapping[str, list[Puzzle]]) -> LanguageModel:
    if name != TRAINED:
        return locore.load(name)
    if box == 3:
        return locore.load(WEIGHTS, dtype=torch.float32)
    trainer = train(TOY, split["train"], split["validation"], output / "model", _say)
    return HuggingFaceModel.from_module(trainer.network, trainer.tokenizer)


def _say(report: dict[str, Any]) -> None:
    print(f"training, step {report['step']}: {report['exact']:.1%} of samples exact", file=sys.stderr, flush=True)
