"""Llamas with random weights: speed does not depend on the values, and nothing has to be fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import transformers

from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel
from locore.models.onednn import is_wanted, pack
from locore.models.quiet import quiet


@dataclass(frozen=True)
class Shape:
    """Of a Llama.

    Attributes:
        vocab, hidden, inner, layers, heads: as in its configuration.
        shared_heads: of keys and values; as many as `heads` if None.
        tied: do input and output share their embedding?
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    shared_heads: int | None = None
    tied: bool = True

    def model(self, positions: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> HuggingFaceModel:
        """One with bare ids for tokens and no end, that reads so many positions."""
        config = transformers.LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads if self.shared_heads is None else self.shared_heads,
            max_position_embeddings=positions,
            tie_word_embeddings=self.tied,
        )
        with quiet(), torch.random.fork_rng(), torch.device(device), _default(dtype):
            torch.manual_seed(0)
            module = transformers.LlamaForCausalLM(config).requires_grad_(False)
        if is_wanted() and module.device.type == "cpu":
            pack(module)  # as `load` does
        return HuggingFaceModel.from_module(module, Tokenizer.integers(self.vocab))


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """Weights are made in this type, and never in a larger one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def parameters(model: HuggingFaceModel) -> int:
    """How many numbers the weights are."""
    return sum(weight.numel() for weight in model.causal.module.parameters())


def millions(number: int) -> str:
    """As a person writes it."""
    return f"{number / 1e6:.3g}M"
