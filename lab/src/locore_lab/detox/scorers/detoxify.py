"""Toxicity by the models of the `detoxify` package (Hanu and Unitary 2020; extra `detox`)."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from locore.kernel.errors import InvalidArgument, MissingExtra, ModelNotFound
from locore_lab.detox.scorers.protocol import Scores

MODELS = ("original", "unbiased", "multilingual", "original-small", "unbiased-small")


class DetoxifyScorer:
    """`toxicity` of a Detoxify model, trained on the Jigsaw challenges; fetched on first use (up to 1 GB).

    Attributes:
        refusals: how many texts `score` gave None for, by reason: longer than the model's 512 tokens ("TOO_LONG").
    """

    def __init__(
        self,
        model: str = "original",
        checkpoint: Path | None = None,
        config: Path | None = None,
        batch_size: int = 32,
        device: str = "cpu",
    ) -> None:
        """Load a model.

        Args:
            model: one of `MODELS`.
            checkpoint: a file of weights that is here already, for work without a network. The package unpickles it, which can
                run code: only files that you trust.
            config: a folder with the Hugging Face configuration and tokenizer that belong to it, likewise.
            batch_size: texts that are read together.
            device: where to compute.
        """
        if model not in MODELS:
            raise InvalidArgument(f"Detoxify has no model {model!r}; it has {', '.join(MODELS)}.")
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is {batch_size}; it must be at least 1.")
        try:
            package = importlib.import_module("detoxify")
        except ImportError as error:
            raise MissingExtra(f"DetoxifyScorer needs detoxify ({error}): pip install './lab[detox]'") from error
        files = {"checkpoint": str(checkpoint)} if checkpoint else {}
        files |= {"huggingface_config_path": str(config)} if config else {}
        try:
            self._model: Any = package.Detoxify(model, device=device, **files)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelNotFound(f"Detoxify cannot load {str(checkpoint or model)!r}: {error}") from error
        if "toxicity" not in self._model.class_names:
            raise ModelNotFound(f"{str(checkpoint or model)!r} has no column 'toxicity'; it has {self._model.class_names}.")
        self._batch_size = batch_size
        self.refusals: Counter[str] = Counter()
        self.name = f"detoxify-{model}"
        self.version = f"{metadata.version('detoxify')} {checkpoint.name if checkpoint else model}"

    def score(self, texts: Sequence[str]) -> Scores:
        """Toxicity in [0, 1] of each text; None for a text of more tokens than the model reads, which the package would cut."""
        readable = [text.encode("utf-8", "replace").decode() for text in texts]  # tokenizers fail on lone surrogates
        tokenizer = self._model.tokenizer
        rows = [row for row, text in enumerate(readable) if len(tokenizer(text)["input_ids"]) <= tokenizer.model_max_length]
        if len(rows) < len(texts):
            self.refusals["TOO_LONG"] += len(texts) - len(rows)
        scores: Scores = [None] * len(texts)
        for start in range(0, len(rows), self._batch_size):
            batch = rows[start : start + self._batch_size]
            found = self._model.predict([readable[row] for row in batch])["toxicity"]
            values = [found] if isinstance(found, float) else found  # a batch of one text gives a plain number
            for row, value in zip(batch, values, strict=True):
                scores[row] = float(value)
        return scores
