"""The two models that `LocalScorer` mixes, over the hashed features of `features`.

`LinearModel` is logistic regression on words, pieces of words and pairs of words. `WordNetwork` makes a vector of each word
from its pieces (as fastText does: Bojanowski et al. 2017), reads three words at a time (Kim 2014) and keeps the largest and the
mean response. They err differently: mixed, they are better than either.

In training they have several columns: what raters of tweets call toxic is not what the Perspective API does. What ships has one
column, which is the API's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn

from locore_lab.detox.scorers.features import Ids, ids_of_text, ids_of_word

WINDOW = 3  # words that one filter reads


@dataclass(frozen=True)
class Bags:
    """Sets of numbers, one after the other.

    Attributes:
        ids: Long[total].
        starts: Long[num], where each set begins.
    """

    ids: Tensor
    starts: Tensor

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
        """Fresh weights from torch's global generator.

        Args:
            buckets: rows of the table of pieces.
            size: numbers in the vector of a word.
            filters: of the convolution.
            columns: logits for each text.
        """
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
