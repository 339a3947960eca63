"""A model of long sequences of few tokens, cheap and exact: what comes depends on the position and on the token before."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel


class Chain(LanguageModel):
    """p(y_t | y_<t) from a table Float[time, vocab, vocab] of log probabilities, by position and last token."""

    def __init__(self, log_table: Tensor, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.full_support = True
        self._table = log_table.log_softmax(-1)

    @classmethod
    def nearly(cls, likely: list[set[int]], seed: int, tokenizer: Tokenizer) -> Chain:
        """At each position some tokens are likely, each about as much as the others, and the rest is not."""
        generator = torch.Generator().manual_seed(seed)
        shape = (len(likely), tokenizer.vocab_size, tokenizer.vocab_size)
        table = torch.randn(shape, generator=generator, dtype=torch.float64) / 2
        for position, tokens in enumerate(likely):
            for token in set(range(tokenizer.vocab_size)) - tokens:
                table[position, :, token] -= 5
        return cls(table, tokenizer)

    def prompted(self, prompt: object) -> Chain:
        """Knows nothing of prompts."""
        return self

    def _log_probs(self, tokens: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], 1)
        return self._table[torch.arange(tokens.shape[1]), before]
