"""Writes the last checkpoint as a Hugging Face folder with 16-bit weights.

`python -m locore_lab.tiny_lm.export` writes src/locore/assets/tiny, with `--model judge` the judge; a second run
replaces the weights atomically.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from locore_lab.tiny_lm.models import RECIPES, SPECIAL, Recipe


def averaged_model(recipe: Recipe, checkpoint: Path) -> PreTrainedModel:
    """fp16 rather than bf16: the weights are small and fp16 keeps three more bits of them."""
    state = torch.load(checkpoint, weights_only=True)
    model = recipe.make()
    model.load_state_dict(state["ema"], strict=False)  # the tied output head is not listed
    model.generation_config.update(**SPECIAL)
    return model.half()


def loads_as_float32(config: Path) -> None:
    """Arithmetic in fp16 is slow and coarse on a CPU: let loaders that follow `dtype` widen it."""
    settings = json.loads(config.read_text())
    settings["dtype"] = "float32"
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def install(source: Path, target: Path) -> None:
    """Replaces each changed file in one step, so that readers never see half of one."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        final = target / file.name
        if final.exists() and filecmp.cmp(file, final, shallow=False):
            continue
        if final.exists() and file.name.startswith("tokenizer"):
            raise SystemExit(f"{final} differs: weights of one tokenizer are useless with another")
        temporary = target / f".{file.name}.tmp"
        shutil.copyfile(file, temporary)
        temporary.replace(final)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=RECIPES, default="tiny")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    recipe = RECIPES[args.model]
    runs, out = args.runs or recipe.runs, args.out or recipe.folder
    with tempfile.TemporaryDirectory() as folder:
        averaged_model(recipe, runs / "checkpoint.pt").save_pretrained(folder)
        loads_as_float32(Path(folder) / "config.json")
        for file in (runs / "tokenizer").iterdir():
            shutil.copyfile(file, Path(folder) / file.name)
        install(Path(folder), out)
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>9} {file.name}")


if __name__ == "__main__":
    main()
