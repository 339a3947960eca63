"""Toxicity without a service: a small model that ships with Locore (model card: docs/lab/toxicity_scorer.md).

Only hashes leave this module, so that a model over them ships no list of words. The hash is CRC-32 (zlib) of UTF-8 bytes,
the same on every machine and in every Python process.

`LinearModel` is logistic regression on words, pieces of words and pairs of words. `WordNetwork` makes a vector of each word
from its pieces (as fastText does: Bojanowski et al. 2017), reads three words at a time (Kim 2014) and keeps the largest and the
mean response. They err differently: mixed, they are better than either.

In training they have several columns: what raters of tweets call toxic is not what the Perspective API does. What ships has one
column, which is the API's.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import accumulate, pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from locore.kernel.errors import ModelNotFound
from locore_lab.detox.scorers import Scores

Ids = npt.NDArray[np.int64]

LONGEST_WORD = 40  # characters; longer ones are cut into several words
SHORTEST_PIECE, LONGEST_PIECE = 2, 5

# A word may hold signs that stand for letters ("sh*t", "a$$", "@ss"); every other sign is a word of its own.
_WORD = re.compile(r"[^\W_]+(?:['’*@$#!_-]+[^\W_]+)*[*$]*|[@$*]+[^\W_]+|\S")
_INVISIBLE = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFE0F, 0xFEFF])
_LOOKALIKES = str.maketrans("@$013457!|", "asoieastii")
_REPEATED = re.compile(r"(.)\1+")


def words_of(text: str) -> list[str]:
    """Words and single signs of a text, in lower case; compatibility forms (NFKC) and invisible signs are undone first."""
    text = unicodedata.normalize("NFKC", text.translate(_INVISIBLE)).casefold()
    found = _WORD.findall(text)
    return [word[cut : cut + LONGEST_WORD] for word in found for cut in range(0, len(word), LONGEST_WORD)]


def skeleton(word: str) -> str:
    """A word with signs read as the letters they look like and repeated letters joined: "$hiiit" and "shit" agree."""
    return _REPEATED.sub(r"\1", word.translate(_LOOKALIKES))


def hashed(text: str) -> int:
    """A number in [0, 2³²) that stands for a string; lone surrogates count as they are."""
    return crc32(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1 << 16)
def ids_of_word(word: str) -> Ids:
    """Int[num] of one word: itself, its skeleton, and every piece of 2 to 5 characters with the ends marked."""
    marked = f"<{word}>"
    pieces = [
        marked[start : start + size]
        for size in range(SHORTEST_PIECE, LONGEST_PIECE + 1)
        for start in range(len(marked) - size + 1)
        if size < len(marked)
    ]
    names = [f"w {word}", f"s {skeleton(word)}", *(f"c {piece}" for piece in pieces)]
    return np.unique(np.array([hashed(name) for name in names], dtype=np.int64))


@lru_cache(maxsize=1 << 16)
def id_of_pair(first: str, second: str) -> int:
    """The number of two words that follow each other."""
    return hashed(f"p {first} {second}")


def ids_of_text(words: Sequence[str]) -> Ids:
    """Int[num], sorted and without repeats: everything in the words, pairs and the ends of the text included."""
    ends = ["^", *words, "$"]
    pairs = np.array([id_of_pair(*pair) for pair in pairwise(ends)], dtype=np.int64)
    return np.unique(np.concatenate([pairs, *(ids_of_word(word) for word in dict.fromkeys(words))]))


WINDOW = 3  # words that one filter reads


@dataclass(frozen=True)
class Bags:
    """Sets of numbers, one after the other."""

    ids: Tensor  # Long[total]
    starts: Tensor  # Long[num], where each set begins

    @staticmethod
    def of(sets: Sequence[Ids], buckets: int) -> Bags:
        """Join sets of hashes, folded to `buckets` numbers."""
        joined = np.concatenate(sets) % buckets if sets else np.zeros(0, dtype=np.int64)
        starts = [0, *accumulate(len(numbers) for numbers in sets)][: len(sets)]
        return Bags(torch.from_numpy(joined), torch.tensor(starts, dtype=torch.long))


class LinearModel(nn.Module):
    """Weights of hashed features; the sum is divided by the root of their number, so that long texts do not weigh more."""

    def __init__(self, buckets: int, columns: int = 1) -> None:
        """All weights zero."""
        super().__init__()
        self.weights = nn.EmbeddingBag(buckets, columns, mode="sum")
        nn.init.zeros_(self.weights.weight)

    def forward(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """Float[num, columns] of texts, each given by its words."""
        return self.read([ids_of_text(words) for words in texts])

    def read(self, sets: Sequence[Ids]) -> Tensor:
        """Float[num, columns] of texts, each given by its features; none is empty."""
        bags = Bags.of(sets, self.weights.num_embeddings)
        counts = torch.tensor([len(numbers) for numbers in sets], dtype=torch.float32)
        return torch.as_tensor(self.weights(bags.ids, bags.starts)) / counts.sqrt()[:, None]


class WordNetwork(nn.Module):
    """Hashed pieces → word vectors → filters over three words → largest and mean response → logits."""

    def __init__(self, buckets: int, size: int, filters: int, columns: int = 1) -> None:
        """Fresh weights from torch's global generator."""
        super().__init__()
        self.pieces = nn.EmbeddingBag(buckets, size, mode="mean")
        nn.init.normal_(self.pieces.weight, 0.0, 0.3)
        self.filters = nn.Conv1d(size, filters, WINDOW, padding=WINDOW // 2)
        self.logits = nn.Linear(2 * filters, columns)
        self.dropout = nn.Dropout(0.3)

    def forward(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """Float[num, columns] of texts, each given by its words; at least one has a word."""
        number = {word: row for row, word in enumerate(dict.fromkeys(word for words in texts for word in words))}
        bags = Bags.of([ids_of_word(word) for word in number], self.pieces.num_embeddings)
        vectors = torch.as_tensor(self.pieces(bags.ids, bags.starts))
        if self.training:  # forget whole words now and then: no text should hang on a single one
            vectors = vectors * (torch.rand(len(number), 1) > 0.1)
        nothing = torch.zeros(1, vectors.shape[1])
        longest = max(len(words) for words in texts)
        rows = np.full((len(texts), longest), len(number), dtype=np.int64)
        for row, words in zip(rows, texts, strict=True):
            row[: len(words)] = [number[word] for word in words]
        padded = torch.from_numpy(rows)
        inputs: Tensor = self.dropout(torch.cat([vectors, nothing])[padded])
        real = (padded < len(number))[:, None].float()
        responses = torch.relu(self.filters(inputs.transpose(1, 2))) * real  # none is negative, so zero is no response
        mean = responses.sum(2) / real.sum(2).clamp(min=1)
        return torch.as_tensor(self.logits(self.dropout(torch.cat([responses.amax(2), mean], 1))))


WEIGHTS = "local_scorer.safetensors"
WORDS_AT_ONCE = 16_384  # padded words of the texts that are read together; bounds the memory
NO_WORDS = 0.0  # the score of a text without any word: there is nothing in it to object to


class LocalScorer:
    """An estimate of the Perspective API's TOXICITY of 2020, from hashed n-grams; English, offline, the same at every call."""

    name = "local"

    def __init__(self, weights: Path | None = None) -> None:
        """Read the weights."""
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
