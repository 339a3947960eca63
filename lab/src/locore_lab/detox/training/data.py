"""The labelled texts: 78,072 lines of `toxicity_text.jsonl.xz` (../../../shared/data/detox, or where --data says)."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from locore_lab.detox.scorers.features import words_of
from locore_lab.places import SHARED

DATA = SHARED / "data" / "detox" / "toxicity_text.jsonl.xz"
TARGET = "perspective"  # the kind of label that the scorer stands in for


@dataclass(frozen=True)
class Texts:
    """Texts with labels, one entry each.

    Attributes:
        texts: as they are.
        words: what the scorer reads of them.
        toxicity: Float[num] in [0, 1].
        column: Int[num], 0 for Perspective scores, else one number for each source: what it means by "toxic".
        source, group: where a text is from; texts of one group are not independent.
    """

    texts: list[str]
    words: list[list[str]]
    toxicity: np.ndarray
    column: np.ndarray
    source: np.ndarray
    group: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)


def load(path: Path) -> dict[str, Texts]:
    """The splits train, valid and test, as the file says."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    columns = [TARGET, *sorted({row["source"] for row in rows if row["kind"] != TARGET})]
    return {split: _texts([row for row in rows if row["split"] == split], columns) for split in ("train", "valid", "test")}


def _texts(rows: list[dict], columns: list[str]) -> Texts:
    meaning = [TARGET if row["kind"] == TARGET else row["source"] for row in rows]
    return Texts(
        texts=[row["text"] for row in rows],
        words=[words_of(row["text"]) for row in rows],
        toxicity=np.array([row["toxicity"] for row in rows]),
        column=np.array([columns.index(name) for name in meaning]),
        source=np.array([row["source"] for row in rows]),
        group=np.array([row["group"] for row in rows]),
    )
