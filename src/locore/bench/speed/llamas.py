"""Llamas with random weights: speed does not depend on the values, and nothing has to be fetched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import transformers

from locore.models import HuggingFaceModel
from locore.models.loading import quiet
from locore.models.onednn import pack
from locore.tokenizer import Tokenizer


@dataclass(frozen=True)
class Shape:
    """Of a Llama whose input and output share their embedding.

    Attributes:
        vocab, hidden, inner, layers, heads: as in its configuration.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int

    def model(self, positions: int) -> HuggingFaceModel:
        """One with bare ids for tokens and no end, in float32, that reads so many positions."""
        config = transformers.LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=positions,
            tie_word_embeddings=True,
        )
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = transformers.LlamaForCausalLM(config).requires_grad_(False)
        pack(module)  # as `load` does
        return HuggingFaceModel.from_module(module, Tokenizer.integers(self.vocab))


def parameters(model: HuggingFaceModel) -> int:
    """How many numbers the weights are."""
    return sum(weight.numel() for weight in model.causal.module.parameters())


def millions(number: int) -> str:
    """As a person writes it."""
    return f"{number / 1e6:.3g}M"
