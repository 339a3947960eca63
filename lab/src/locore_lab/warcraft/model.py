"""The CNN-LSTM of the paper as a language model over paths, whose prompt is the picture of a map."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from locore.io import replacing
from locore.kernel.chat import Prompt
from locore.kernel.errors import CannotScore, InvalidArgument, ModelNotFound
from locore.models import Cursor, LanguageModel
from locore_lab.warcraft.encodings import ENCODINGS, MOVES_TO_8, Encoding
from locore_lab.warcraft.network import PathNetwork, State
from locore_lab.warcraft.terrain import TILE

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
