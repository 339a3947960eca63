"""Toxicity by any text classifier of Hugging Face, by name or folder, or by the `detoxify` package."""

from __future__ import annotations

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from locore.kernel.errors import InvalidArgument, MissingExtra, ModelNotFound
from locore_lab.detox.scorers import Scores

Activation = Literal["softmax", "sigmoid"]
DETOXIFY = ("original", "unbiased", "multilingual", "original-small", "unbiased-small")


class BatchScorer(ABC):
    """Reads texts in batches, and refuses those of more tokens than its model reads.

    Attributes:
        refusals: how many texts `score` gave None for, by reason: too long ("TOO_LONG").
    """

    name: str
    version: str

    def __init__(self, batch_size: int) -> None:
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is {batch_size}; it must be at least 1.")
        self._batch_size = batch_size
        self._tokenizer: Any = None
        self.refusals: Counter[str] = Counter()

    def score(self, texts: Sequence[str]) -> Scores:
        """A number in [0, 1] for each text; None for one that is too long."""
        readable = [text.encode("utf-8", "replace").decode() for text in texts]  # tokenizers fail on lone surrogates
        lengths = [len(self._tokenizer(text)["input_ids"]) for text in readable]
        rows = sorted((row for row in range(len(texts)) if lengths[row] <= self._most_tokens()), key=lengths.__getitem__)
        if len(rows) < len(texts):
            self.refusals["TOO_LONG"] += len(texts) - len(rows)
        scores: Scores = [None] * len(texts)
        for start in range(0, len(rows), self._batch_size):
            batch = rows[start : start + self._batch_size]
            for row, value in zip(batch, self._read([readable[row] for row in batch]), strict=True):
                scores[row] = float(value)
        return scores

    @abstractmethod
    def _read(self, texts: list[str]) -> list[float]:
        """The scores of one batch."""

    def _most_tokens(self) -> int:
        return int(self._tokenizer.model_max_length)


class ClassifierScorer(BatchScorer):
    """The probability that a sequence classifier gives to one of its labels."""

    def __init__(
        self,
        model: str | Path,
        label: str,
        activation: Activation | None = None,
        revision: str | None = None,
        batch_size: int = 32,
        device: str = "cpu",
    ) -> None:
        """Load a classifier.

        Args:
            model: a folder, or a name on the Hugging Face hub, such as "s-nlp/roberta_toxicity_classifier".
            label: whose probability is the score, as in the model's `id2label`, such as "toxic".
            activation: "softmax" if exactly one label holds of a text, "sigmoid" if each may; default: what the model's
                `problem_type` says, or else sigmoid for one label and softmax for several.
            revision: a commit of the hub, so that the same weights come again.
        """
        super().__init__(batch_size)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(model, revision=revision)
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(model, revision=revision).to(device).eval()
        except (OSError, ValueError) as error:
            raise ModelNotFound(f"No text classifier {str(model)!r}: {error}") from error
        config = self._model.config
        labels = {str(name): int(number) for number, name in config.id2label.items()}
        if label not in labels:
            raise InvalidArgument(f"{str(model)!r} has no label {label!r}; it has {', '.join(map(repr, labels))}.")
        self._column = labels[label]
        self._activation = activation or _activation_of(config.problem_type, len(labels))
        if self._activation not in ("softmax", "sigmoid"):
            raise InvalidArgument(f"activation is {activation!r}; choose 'softmax' or 'sigmoid'.")
        if self._activation == "softmax" and len(labels) == 1:
            raise InvalidArgument(f"{str(model)!r} has one label, whose softmax is always 1; choose activation='sigmoid'.")
        self.name = f"{Path(model).name}:{label}"
        self.version = _fingerprint(self._model)

    @torch.inference_mode()
    def _read(self, texts: list[str]) -> list[float]:
        alone = self._tokenizer.pad_token is None  # such a tokenizer cannot fill up shorter texts
        values: list[float] = []
        for group in [[text] for text in texts] if alone else [texts]:
            inputs = self._tokenizer(group, padding=not alone, return_tensors="pt")
            logits = self._model(**inputs.to(self._model.device)).logits.double()
            probabilities = logits.sigmoid() if self._activation == "sigmoid" else logits.softmax(1)
            values += probabilities[:, self._column].tolist()
        return values

    def _most_tokens(self) -> int:
        """What both the tokenizer and the table of positions allow; RoBERTa's table has rows that no token uses."""
        config = self._model.config
        positions = getattr(config, "max_position_embeddings", None) or 10**9
        unused = (config.pad_token_id or 0) + 1 if getattr(config, "model_type", "") in ("roberta", "xlm-roberta") else 0
        return int(min(super()._most_tokens(), positions - unused))


def _activation_of(problem_type: str | None, labels: int) -> Activation:
    if problem_type == "multi_label_classification":
        return "sigmoid"
    if problem_type == "single_label_classification":
        return "softmax"
    return "sigmoid" if labels == 1 else "softmax"


def _fingerprint(model: Any) -> str:
    """Twelve hex digits of the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else b"")
    return digest.hexdigest()[:12]


class DetoxifyScorer(BatchScorer):
    """`toxicity` of a model of the `detoxify` package (Hanu and Unitary 2020; extra `detox`); fetched once, up to 1 GB."""

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
            model: one of `DETOXIFY`.
            checkpoint: a file of weights that is here already, for work without a network. The package unpickles it, which can
                run code: only files that you trust.
            config: a folder with the Hugging Face configuration and tokenizer that belong to it, likewise.
        """
        super().__init__(batch_size)
        if model not in DETOXIFY:
            raise InvalidArgument(f"Detoxify has no model {model!r}; it has {', '.join(DETOXIFY)}.")
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
        self._tokenizer = self._model.tokenizer
        self.name = f"detoxify-{model}"
        self.version = f"{metadata.version('detoxify')} {checkpoint.name if checkpoint else model}"

    def _read(self, texts: list[str]) -> list[float]:
        found = self._model.predict(texts)["toxicity"]
        return [found] if isinstance(found, float) else found  # a batch of one text gives a plain number
