"""What a step of twisted sampling costs outside the model, at vocabularies of 512, 32,000 and 128,000 tokens.

The model is made up: 512 peaked distributions, one of which follows each token, so that it costs nothing to speak of (its time
is measured and taken off). The tokens are numbers spelled out; the constraints are a rare ending and a ban. The table is made
of 2,000 positions of the model's own text, with rows for thousands of pairs, as `locore prepare` makes it.
"""

import time
from collections.abc import Iterator
from functools import cache, partial
from typing import Annotated

import torch
from torch import Tensor

import locore
from locore import Tokenizer, ban, ends_with
from locore.kernel.samplers.rounds import abreast
from locore.models import LanguageModel
from locore.samplers.swor import Size, walk
from locore.samplers.twist.lookahead import look_ahead
from locore.samplers.twist.ngram import NGramCounts, NGramTable
from locore_lab.harness import Case, Row, measurement

VOCABULARIES = (512, 32_000, 128_000)
LENGTH = 20
PARTICLES = (32, 128)
TABLE_POSITIONS = 2_000
KINDS = 512  # distinct distributions
REPEATS = 5


class Peaked(LanguageModel):
    """A model whose next distribution depends on the last token only."""

    full_support = True

    def __init__(self, tokenizer: Tokenizer, kinds: int = KINDS, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        ranks = torch.argsort(torch.rand(kinds, tokenizer.vocab_size, generator=generator), 1)
        self.rows = torch.log_softmax(-1.6 * (ranks + 1.0).log(), -1)  # Zipf's law, in another order after each token
        self._tokenizer = tokenizer
        self.cpu_seconds = 0.0

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def prompted(self, prompt: object) -> "Peaked":
        return self

    def _next_log_probs(self, tokens: Tensor) -> Tensor:
        start = time.process_time()
        last = tokens[:, -1] if tokens.shape[1] else torch.zeros(len(tokens), dtype=torch.long)
        rows = self.rows[(last * 7919) % len(self.rows)]
        self.cpu_seconds += time.process_time() - start
        return rows

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return torch.stack([self._next_log_probs(tokens[:, :t]) for t in range(tokens.shape[1])], 1)


def numbers(vocab: int) -> Tokenizer:
    """So many tokens, which spell numbers; the last one ends a text."""
    return Tokenizer.from_tokens([None if i == vocab - 1 else f" {i:x}" for i in range(vocab)], [vocab - 1])


def table_of(model: Peaked) -> NGramTable:
    """What `locore prepare` would make, of fewer positions."""
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    while counts.positions < TABLE_POSITIONS:
        counts.draft(model, 8, 50, torch.Generator().manual_seed(counts.positions))
    return counts.table()


def cell(model: Peaked, table: NGramTable, constraint: locore.Constraint, particles: int) -> Row:
    """Milliseconds a step, the look-ahead's own milliseconds apart."""
    start = time.process_time()
    reader = locore.compile(constraint, model, LENGTH).reader
    compiled = time.process_time() - start
    start = time.process_time()
    twist = look_ahead(table, reader)
    backward = time.process_time() - start
    best = float("inf")
    for seed in range(REPEATS):
        before, start = model.cpu_seconds, time.process_time()
        abreast([walk(model, reader, Size(particles), torch.Generator().manual_seed(seed), twist)])
        spent = time.process_time() - start - (model.cpu_seconds - before)
        best = min(best, spent / LENGTH)
    return {
        "states": reader.rows[0].shape[0],
        "contexts": table.num_contexts,
        "step_ms": 1e3 * best,
        "look_ahead_ms": 1e3 * backward,
        "compile_ms": 1e3 * compiled,
    }


@measurement(
    "constraint | tokens | particles | a step, ms | look-ahead, ms | compile, ms",
    "{constraint} | {vocabulary:,} | {particles} | {step_ms:.1f} | {look_ahead_ms:,.0f} | {compile_ms:,.0f}",
    quick={"vocabulary": [512]},
)
def run(vocabulary: Annotated[list[int], "tokens"] = VOCABULARIES) -> Iterator[Case]:
    for tokens in vocabulary:
        model = Peaked(numbers(tokens))
        made = cache(partial(table_of, model))
        for constraint in (ends_with(" 7f"), ban([f" {i:x}" for i in range(16, 116)])):
            for particles in PARTICLES:
                name = {"vocabulary": tokens, "constraint": constraint.to_json()["type"], "particles": particles}
                yield name, lambda c=constraint, k=particles, model=model, made=made: cell(model, made(), c, k)
