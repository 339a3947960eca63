"""Perplexity of a text by a model that did not write it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from locore import Tokenizer, load
from locore.errors import CannotScore, InvalidArgument
from locore.models import LanguageModel, MarkovModel

BYTES = 256
SMOOTHING = 0.1  # pseudo-occurrences of every pair of bytes
Judgement = tuple[float, int]  # −log p of a text after its prompt, in nats, and its tokens, those of the judge
CRUDE = "byte pairs"  # the name of the judge that needs no model


def open_judge(name: str | None, model: LanguageModel, texts: Sequence[str], device: str = "cpu") -> LanguageModel:
    """A model by its name or folder; without one, pairs of bytes counted in texts.

    Raises:
        InvalidArgument: it is the model that is judged.
        ModelNotFound: there is no such model.
    """
    if name is None:
        return byte_pairs(texts)
    judge = load(name, device=device)
    if judge.fingerprint() == model.fingerprint():
        raise InvalidArgument(f"{name} is the model that writes; its perplexity of its own texts says nothing. Give another.")
    return judge


def byte_pairs(texts: Sequence[str]) -> MarkovModel:
    """The chain of bytes whose transitions are counted in texts, a crude judge: perplexity is for each byte."""
    counts = torch.full((BYTES, BYTES), SMOOTHING, dtype=torch.float64)
    for text in texts:
        content = torch.tensor(list(text.encode()), dtype=torch.long)
        counts.index_put_((content[:-1], content[1:]), torch.ones((), dtype=torch.float64), accumulate=True)
    tokenizer = Tokenizer.from_tokens([bytes([value]) for value in range(BYTES)])
    return MarkovModel(counts.sum(0) / counts.sum(), counts / counts.sum(1, keepdim=True), tokenizer=tokenizer)


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
