"""Toxicity by any text classifier of Hugging Face, by name or folder."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from locore.kernel.errors import InvalidArgument, ModelNotFound
from locore_lab.detox.scorers.protocol import Scores

Activation = Literal["softmax", "sigmoid"]


class ClassifierScorer:
    """The probability that a sequence classifier gives to one of its labels.

    Attributes:
        refusals: how many texts `score` gave None for, by reason: longer than the model reads ("TOO_LONG").
    """

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
            batch_size: texts that are read together.
            device: where to compute.
        """
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is {batch_size}; it must be at least 1.")
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(model, revision=revision)
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
        self._batch_size = batch_size
        self.name = f"{Path(model).name}:{label}"
        self.version = _fingerprint(self._model)
        self.refusals: Counter[str] = Counter()

    def score(self, texts: Sequence[str]) -> Scores:
        """The label's probability for each text; None for a text of more tokens than the model reads."""
        ids = [self._tokenizer(_encodable(text))["input_ids"] for text in texts]
        limit = self._most_tokens()
        scores: Scores = [None] * len(texts)
        fitting = sorted((row for row in range(len(texts)) if len(ids[row]) <= limit), key=lambda row: len(ids[row]))
        if len(fitting) < len(texts):
            self.refusals["TOO_LONG"] += len(texts) - len(fitting)
        for start in range(0, len(fitting), self._batch_size):
            rows = fitting[start : start + self._batch_size]
            for row, value in zip(rows, self._read([texts[row] for row in rows]), strict=True):
                scores[row] = value
        return scores

    @torch.inference_mode()
    def _read(self, texts: Sequence[str]) -> list[float]:
        alone = self._tokenizer.pad_token is None  # such a tokenizer cannot fill up shorter texts
        groups = [[text] for text in texts] if alone else [list(texts)]
        values = []
        for group in groups:
            inputs = self._tokenizer([_encodable(text) for text in group], padding=not alone, return_tensors="pt")
            logits = self._model(**inputs.to(self._model.device)).logits.double()
            probabilities = logits.sigmoid() if self._activation == "sigmoid" else logits.softmax(1)
            values += probabilities[:, self._column].tolist()
        return values

    def _most_tokens(self) -> int:
        """What both the tokenizer and the table of positions allow; RoBERTa's table has rows that no token uses."""
        config = self._model.config
        positions = getattr(config, "max_position_embeddings", None) or 10**9
        unused = (config.pad_token_id or 0) + 1 if getattr(config, "model_type", "") in ("roberta", "xlm-roberta") else 0
        return int(min(self._tokenizer.model_max_length, positions - unused))


def _activation_of(problem_type: str | None, labels: int) -> Activation:
    if problem_type == "multi_label_classification":
        return "sigmoid"
    if problem_type == "single_label_classification":
        return "softmax"
    return "sigmoid" if labels == 1 else "softmax"


def _encodable(text: str) -> str:
    """Lone surrogates as question marks: tokenizers fail on them."""
    return text.encode("utf-8", "replace").decode()


def _fingerprint(model: Any) -> str:
    """Twelve hex digits of the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else b"")
    return digest.hexdigest()[:12]
