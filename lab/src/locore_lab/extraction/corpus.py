"""The training texts of the extraction model: sentences, the fields asked for, and records, spelled as people spell JSON.

`python -m locore_lab.extraction.corpus` writes lab/runs/clerk/: a tokenizer and packed rows. Training and export are those of
the other small models:

    python -m locore_lab.extraction.corpus
    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 -m locore_lab.tiny_lm.train --model clerk --minutes 40
    python -m locore_lab.tiny_lm.export --model clerk
"""

from __future__ import annotations

import argparse
import json
import random
import re

from tokenizers import Tokenizer

from locore_lab.extraction.world import Order
from locore_lab.tiny_lm.models import RECIPES
from locore_lab.tiny_lm.prepare import save_rows, save_tokenizer, train_tokenizer

COMPACT = 0.3  # of records, without spaces; the others are written as `json.dumps` writes them
LONG_NUMBERS = 0.3  # of weights below 10 have all three digits behind the point: 1.250


def spelled(record: dict[str, object], rng: random.Random) -> str:
    """A record as JSON text."""
    text = json.dumps(record, separators=(",", ":") if rng.random() < COMPACT else None)
    if rng.random() < LONG_NUMBERS:
        text = re.sub(r"(?<=[ :]\d\.)\d+", lambda digits: digits[0].ljust(3, "0"), text)
    return text


def texts(number: int, seed: object) -> list[str]:
    """So many documents."""
    rng = random.Random(f"extraction/{seed}")
    orders = (Order.drawn(rng) for _ in range(number))
    return [order.prompt + spelled(order.record, rng) for order in orders]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    args = parser.parse_args()
    recipe = RECIPES["clerk"]
    recipe.runs.mkdir(parents=True, exist_ok=True)
    save_tokenizer(
        train_tokenizer(texts(20_000, "tokenizer"), recipe.config.vocab_size, digits=True), recipe.runs / "tokenizer"
    )
    tokenizer = Tokenizer.from_file(str(recipe.runs / "tokenizer" / "tokenizer.json"))
    for name, number in (("train", args.documents), ("valid", 2_000)):
        save_rows(tokenizer, texts(number, name), recipe.runs / f"{name}.npy", seed=0)


if __name__ == "__main__":
    main()
