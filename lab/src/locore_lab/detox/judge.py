"""Perplexity of a text by a model that did not write it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import torch

from locore import load
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.models import LanguageModel

Judgement = tuple[float, int]  # −log p of a text after its prompt, in nats, and its tokens, those of the judge
BUNDLED = "bundled judge"  # of another family than `tiny`, with another tokenizer; locore_lab.tiny_lm trains both


def open_judge(name: str | None, model: LanguageModel, device: str = "cpu") -> LanguageModel:
    """A model by its name or folder; without one, the small model that comes with the experiment."""
    folder = Path(str(files("locore_lab"))) / "detox" / "weights" / "judge"
    judge = load(folder if name is None else name, device=device)
    if judge.fingerprint() == model.fingerprint():
        raise InvalidArgument(f"{name} is the model that writes; its perplexity of its own texts says nothing. Give another.")
    return judge


def judgements(judge: LanguageModel, prompt: str, texts: Sequence[str | None]) -> list[Judgement | None]:
    """What the judge says of each text; the perplexity is exp of nats/tokens.

    None for a text without any token, for no text, and for one that the judge cannot read, for callers to count.
    """
    ids = [judge.tokenizer.encode(text) if text else [] for text in texts]
    found: list[Judgement | None] = [None] * len(texts)
    rows = [row for row, each in enumerate(ids) if each]
    if not rows:
        return found
    longest = max(len(ids[row]) for row in rows)
    # What stands behind a text changes no score before it.
    padded = torch.tensor([ids[row] + ids[row][-1:] * (longest - len(ids[row])) for row in rows])
    try:
        scores = judge.prompted(prompt).token_scores(padded)
    except CannotScore:
        return found
    for row, score in zip(rows, scores, strict=True):
        nats = -float(score[: len(ids[row])].sum())
        found[row] = (nats, len(ids[row])) if math.isfinite(nats) else None
    return found
