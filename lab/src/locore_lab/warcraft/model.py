"""The CNN-LSTM of the paper, as a network and as a language model over paths, whose prompt is the picture of a map.

ResNet-18 (He et al. 2016) gives the picture an embedding of 128 numbers; an LSTM of one layer and 512 units reads it together
with the last token at every step, and predicts the next one. It is told neither the weights nor where it stands.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetModel

from locore.io import replacing
from locore.kernel.chat import Prompt
from locore.kernel.errors import CannotScore, InvalidArgument, ModelNotFound
from locore.models import Cursor, LanguageModel
from locore_lab.warcraft.paths import ENCODINGS, MOVES_TO_8, Encoding
from locore_lab.warcraft.terrain import TILE

IMAGE_SIZE = 128  # numbers in the embedding of a picture
HIDDEN_SIZE = 512
WIDTHS = (64, 128, 256, 512)  # channels of the four stages of ResNet-18

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
        config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[*WIDTHS], embedding_size=WIDTHS[0])
        self.encoder: nn.Module = ResNetModel(config)
        self.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-arg]
        # The last features are joined and not averaged: where things are matters for a path.
        self.project = nn.Linear(WIDTHS[-1] * _last_side(height) * _last_side(width), IMAGE_SIZE)
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


Picture = NDArray[np.uint8] | Tensor


class PathModel(LanguageModel):
    """p(path | picture), in the tokens of an encoding. Before a picture it has a vocabulary, but no distribution.

    Attributes:
        network: the network, in evaluation mode.
    """

    def __init__(self, network: PathNetwork, embedding: Tensor | None = None) -> None:
        """A model around a network, after the picture with this embedding Float[1, IMAGE_SIZE], if one is given."""
        self.network = network.eval().requires_grad_(False)
        self.tokenizer = network.encoding.tokenizer
        self.full_support = True
        self._embedding = embedding

    @classmethod
    def load(cls, path: Path | str) -> PathModel:
        """The model in a file that `save` wrote."""
        if not Path(path).is_file():
            raise ModelNotFound(f"There is no file {path}. Train a model first; see locore_lab/warcraft.")
        try:
            with safe_open(path, "pt") as file:
                sides = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            encoding: Encoding = ENCODINGS[sides.get("encoding", MOVES_TO_8.name)]
            network = PathNetwork(int(sides["height"]), int(sides["width"]), encoding)
            network.load_state_dict({name: _widened(values) for name, values in weights.items()})
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise ModelNotFound(f"{path} holds no weights of a path network: {error}") from error
        return cls(network)

    def save(self, path: Path | str) -> None:
        """Write the weights as safetensors, matrices in 16 bits."""
        save_weights(self.network, Path(path))

    def prompted(self, prompt: Prompt | Picture) -> PathModel:
        """The model after a picture.

        Args:
            prompt: uint8[TILE · height, TILE · width, 3]; an empty text or list leaves a model with a picture as it is.
        """
        if self._embedding is not None and not len(prompt):
            return self
        return PathModel(self.network, self._embed(prompt))

    def unprompted(self) -> PathModel:
        """The model before any picture."""
        return PathModel(self.network)

    def fingerprint(self) -> str:
        """Of the weights and of the picture."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        picture = {} if self._embedding is None else {"picture": self._embedding}
        for name, values in {**self.network.state_dict(), **picture}.items():
            digest.update(name.encode())
            digest.update(values.detach().contiguous().numpy().tobytes())
        return digest.hexdigest()[:32]

    @property
    def embedding(self) -> Tensor:
        """Float[1, IMAGE_SIZE] of the picture."""
        if self._embedding is None:
            raise CannotScore("This model needs a picture of a map first: model.prompted(maps.images[0]).")
        return self._embedding

    def _embed(self, prompt: Any) -> Tensor:
        """Float[1, IMAGE_SIZE] of a checked picture."""
        shape = (TILE * self.network.height, TILE * self.network.width, 3)
        if self._embedding is not None:
            raise CannotScore("This model has read a picture already; prompt `model.unprompted()` with another.")
        if not isinstance(prompt, np.ndarray | Tensor):
            raise CannotScore(f"The prompt of this model is a picture uint8{list(shape)}, not {type(prompt).__name__}.")
        picture = torch.as_tensor(prompt)
        if picture.dtype != torch.uint8 or picture.shape != shape:
            raise CannotScore(
                f"The prompt of this model is a picture uint8{list(shape)}, not {picture.dtype} {list(picture.shape)}."
            )
        return self.network.embed(picture[None])

    def _log_probs(self, tokens: Tensor) -> Tensor:
        logits = self.network.logits(self.embedding.expand(len(tokens), -1), tokens)
        return logits.log_softmax(-1)

    def _token_scores(self, tokens: Tensor) -> Tensor:
        """A prefix that several sequences have is read once: neighbours of a sequence differ from it in one place only."""
        scores, end, vocab_size = torch.zeros(tokens.shape, dtype=torch.float64), self.network.encoding.end, self.vocab_size
        going = torch.arange(len(tokens))  # sequences that have not ended
        row = torch.zeros_like(going)  # of the cursor, where their prefix is
        cursor = self._begin(1)
        for position in range(tokens.shape[1]):
            token = tokens[going, position]
            scores[going, position] = cursor.log_probs[row, token].double()
            live = torch.ones_like(token, dtype=torch.bool) if end is None else token != end
            going = going[live]
            if not len(going) or position + 1 == tokens.shape[1]:
                break
            branches, row = torch.unique(row[live] * vocab_size + token[live], return_inverse=True)
            cursor = cursor.advance(branches % vocab_size, branches // vocab_size)
        return scores

    def _begin(self, batch: int) -> Cursor:
        start = torch.full((batch,), self.network.encoding.begin)
        return _PathCursor.after(self.network, self.embedding, start, None)


@dataclass(frozen=True, eq=False)
class _PathCursor(Cursor):
    """The LSTM's state after the tokens of a batch of rows."""

    network: PathNetwork
    embedding: Tensor
    state: State
    rows: Tensor

    @classmethod
    def after(cls, network: PathNetwork, embedding: Tensor, tokens: Tensor, state: State | None) -> _PathCursor:
        """Feed one token to each row of a state."""
        logits, state = network.step(embedding.expand(len(tokens), -1), tokens[:, None], state)
        return cls(network, embedding, state, logits[:, 0].log_softmax(-1))

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token."""
        return self.rows

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _PathCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        hidden, cell = self.state
        if parents is None and len(tokens) != hidden.shape[1]:
            raise InvalidArgument(f"{len(tokens)} tokens for {hidden.shape[1]} rows; give one for each, or name their parents.")
        if parents is not None:
            hidden, cell = hidden[:, parents], cell[:, parents]
        return _PathCursor.after(self.network, self.embedding, tokens, (hidden, cell))


def save_weights(network: PathNetwork, path: Path) -> None:
    """Write the weights of a network as safetensors: matrices in 16 bits, what has one axis as it is."""
    state = network.state_dict()
    weights = {name: (v.half() if v.ndim > 1 else v).contiguous() for name, v in state.items()}
    facts = {"height": str(network.height), "width": str(network.width), "encoding": network.encoding.name}
    with replacing(path) as temporary:
        save_file(weights, temporary, facts)


def _widened(values: Tensor) -> Tensor:
    """16-bit floats as 32-bit floats."""
    return values.float() if values.dtype == torch.float16 else values
