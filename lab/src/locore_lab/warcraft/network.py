"""The CNN-LSTM of the paper.

ResNet-18 (He et al. 2016) gives the picture an embedding of 128 numbers; an LSTM of one layer and 512 units reads it together
with the last token at every step, and predicts the next one. It is told neither the weights nor where it stands.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetModel

from locore_lab.warcraft.encodings import MOVES_TO_8, Encoding
from locore_lab.warcraft.terrain import TILE

IMAGE_SIZE = 128  # numbers in the embedding of a picture
HIDDEN_SIZE = 512

State = tuple[Tensor, Tensor]  # Float[1, batch, HIDDEN_SIZE] twice


class PathNetwork(nn.Module):
    """Pictures and tokens in, logits of the next tokens out.

    Attributes:
        height: rows of cells of the maps.
        width: columns of cells.
        encoding: what the tokens say.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, height: int = 12, width: int = 12, encoding: Encoding = MOVES_TO_8) -> None:
        """Fresh weights from the global generator, for maps of `height` × `width` cells."""
        super().__init__()
        self.height, self.width, self.encoding = height, width, encoding
        config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], embedding_size=64)
        self.encoder: nn.Module = ResNetModel(config)
        self.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-arg]
        # The last features are joined and not averaged: where things are matters for a path.
        self.project = nn.Linear(512 * _last_side(height) * _last_side(width), IMAGE_SIZE)
        self.moves = nn.Embedding(encoding.read, encoding.token_size)
        self.lstm = nn.LSTM(IMAGE_SIZE + encoding.token_size, HIDDEN_SIZE, batch_first=True)
        self.head = nn.Linear(HIDDEN_SIZE, encoding.vocab_size)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("std", torch.ones(3))

    def set_normalisation(self, images: Tensor) -> None:
        """Take mean and standard deviation of each channel from the training pictures uint8[num, rows, columns, 3]."""
        counts = torch.stack([torch.bincount(images[..., channel].flatten(), minlength=256) for channel in range(3)]).double()
        values = torch.arange(256, dtype=torch.float64)
        mean = (counts @ values) / counts.sum(1)
        self.mean = mean.float()
        self.std = ((counts @ values**2) / counts.sum(1) - mean**2).sqrt().float()

    def embed(self, images: Tensor) -> Tensor:
        """Float[batch, IMAGE_SIZE] of pictures uint8[batch, TILE · height, TILE · width, 3]."""
        pixels = (images.float() - self.mean) / self.std
        features = self.encoder(pixels.permute(0, 3, 1, 2)).last_hidden_state
        return cast(Tensor, self.project(features.flatten(1))).float()

    def logits(self, embedding: Tensor, tokens: Tensor) -> Tensor:
        """Float[batch, time, vocab]: row t reads the tokens before position t.

        Args:
            embedding: Float[batch, IMAGE_SIZE].
            tokens: Long[batch, time]; the last of each row is not read.
        """
        before = torch.cat([torch.full_like(tokens[:, :1], self.encoding.begin), tokens[:, :-1]], 1)
        return self.step(embedding, before, None)[0]

    def step(self, embedding: Tensor, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Read on.

        Args:
            embedding: Float[batch, IMAGE_SIZE].
            tokens: Long[batch, time], the tokens to read.
            state: what was read before; None at the start, where the first token is `encoding.begin`.

        Returns:
            Logits Float[batch, time, vocab] after each of these tokens, and the state after the last.
        """
        picture = embedding[:, None].expand(-1, tokens.shape[1], -1)
        hidden, state = self.lstm(torch.cat([picture, self.moves(tokens)], 2), state)
        return self.head(hidden).float(), state


def _last_side(cells: int) -> int:
    """Side of the last feature map of a ResNet, which halves the pixels five times and rounds up."""
    return -(-TILE * cells // 32)
