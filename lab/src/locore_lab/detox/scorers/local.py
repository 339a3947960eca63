"""Toxicity without a service: a small model that ships with Locore (model card: docs/toxicity_scorer.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from locore.kernel.errors import ModelNotFound
from locore_lab.detox.scorers.features import words_of
from locore_lab.detox.scorers.network import LinearModel, WordNetwork
from locore_lab.detox.scorers.protocol import Scores

WEIGHTS = "local_scorer.safetensors"
WORDS_AT_ONCE = 16_384  # padded words of the texts that are read together; bounds the memory
NO_WORDS = 0.0  # the score of a text without any word: there is nothing in it to object to


class LocalScorer:
    """An estimate of the Perspective API's TOXICITY of 2020, from hashed n-grams; English, offline, the same at every call."""

    name = "local"

    def __init__(self, weights: Path | None = None) -> None:
        """Read the weights.

        Args:
            weights: another file of `save_model`; default: the one that ships.
        """
        with resources.as_file(resources.files("locore_lab.detox.scorers") / WEIGHTS) as shipped:
            path = weights or shipped
            try:
                with safe_open(path, "pt") as file:
                    notes = file.metadata()
                    tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118 (no mapping)
                shape = json.loads(notes["shape"])
                self.version = str(notes["version"])
                self._linear = LinearModel(shape["linear_buckets"])
                self._network = WordNetwork(shape["buckets"], shape["size"], shape["filters"])
                self._mix = tensors.pop("mix").double()
                parts = torch.nn.ModuleDict({"linear": self._linear, "network": self._network})
                parts.load_state_dict(tensors)
                parts.eval()
            except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
                raise ModelNotFound(f"{path} holds no weights of the local scorer ({error}).") from None

    def score(self, texts: Sequence[str]) -> Scores:
        """A number in [0, 1] for every text, whatever is in it; 0.0 for one without any word."""
        words = [words_of(text) for text in texts]
        scores: Scores = [NO_WORDS] * len(texts)
        for rows in _batches([len(each) for each in words]):
            for row, value in zip(rows, self._read([words[row] for row in rows]), strict=True):
                scores[row] = value
        return scores

    @torch.inference_mode()
    def _read(self, texts: Sequence[Sequence[str]]) -> list[float]:
        logits = torch.stack([self._linear(texts)[:, 0], self._network(texts)[:, 0], torch.ones(len(texts))], 1)
        return [float(value) for value in torch.sigmoid(logits.double() @ self._mix)]


def save_model(path: Path, linear: LinearModel, network: WordNetwork, mix: torch.Tensor, version: str) -> None:
    """Write both models in 16 bits, with one column each, and the three numbers that mix them: linear, network, constant."""
    parts = torch.nn.ModuleDict({"linear": linear, "network": network})
    tensors = {name: tensor.half().contiguous() for name, tensor in parts.state_dict().items()}
    pieces = network.pieces
    shape = {
        "linear_buckets": linear.weights.num_embeddings,
        "buckets": pieces.num_embeddings,
        "size": pieces.embedding_dim,
        "filters": network.filters.out_channels,
    }
    save_file({**tensors, "mix": mix.float()}, path, {"version": version, "shape": json.dumps(shape)})


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of texts of similar length that are read together; texts without words are left out."""
    batch: list[int] = []
    for row in sorted((row for row, length in enumerate(lengths) if length), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[row] > WORDS_AT_ONCE:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
