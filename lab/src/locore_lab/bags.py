"""Bag-of-future heads: how often every token comes in windows of the future, from a hidden state and the token after it.

    rate_w(k | x, v) = p̄(k) · exp((h V_h + e_v V_e) · (U W_w)_k)

h is the hidden state before v was chosen, e_v the embedding of v, U the model's own unembedding, p̄ the mean distribution. The
targets are means of the model's *distributions* over the window, not counts of tokens. A penalty on the log of the normaliser
makes what is read of a few tokens right by itself; of the rare tokens each epoch sees some, which stand for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.models import HuggingFaceModel

WINDOWS = ((0, 2), (2, 8), (8, 32))  # tokens after v: from, to
RANK, EPOCHS, BATCH = 64, 8, 512
RATE, DECAY = 2e-3, 0.1  # of AdamW
FREQUENT, SAMPLED = 2048, 1024  # tokens of an epoch: the most frequent, and some of the others
LEAST = 1e-7  # of a mean probability
NORMALISED, STEEPEST = 0.1, 1.0  # weight of the penalty; norm of a gradient
SHRUNK = (0.75, 0.55, 0.5)  # what heads of 11,520 positions are too sure of in each window, by eight texts that were held out


@dataclass(frozen=True, eq=False)
class Bags:
    """Heads for all tokens.

    Attributes:
        of_hidden, of_token: f32[size, rank].
        of_windows: f32[windows, size, rank].
        log_mean: f32[vocab], of the model's distributions.
        embedding: f32[vocab, size], the model's, with variance 1.
        scale: of hidden states.
    """

    of_hidden: Tensor
    of_token: Tensor
    of_windows: Tensor
    log_mean: Tensor
    embedding: Tensor
    scale: float

    def place(self, hidden: Tensor, chosen: Tensor) -> Tensor:
        """f32[batch, rank], from f32[batch, size] hidden states before Long[batch] tokens."""
        return hidden / self.scale @ self.of_hidden + self.embedding[chosen] @ self.of_token

    def rates(self, places: Tensor, tokens: Tensor) -> Tensor:
        """f32[batch, windows, tokens]: how probable each is at a position of each window."""
        read = torch.einsum("td,wdr->wtr", self.embedding[tokens], self.of_windows)
        return (self.log_mean[tokens] + torch.einsum("br,wtr->bwt", places, read)).exp()

    def within(self, places: Tensor, tokens: Tensor, window: int) -> Tensor:
        """f64[batch, tokens]: that each comes within so many tokens, as if the positions were independent."""
        lengths = torch.tensor([max(0, min(end, window) - begin) for begin, end in WINDOWS], dtype=torch.float64)
        missed = torch.log1p(-self.rates(places, tokens).double().clamp_max(1 - 1e-9))
        return -torch.expm1((missed * lengths[:, None]).sum(1))


class _Texts:
    """Texts as pairs of a place and what comes after it.

    Attributes:
        places: Long[places], the flat positions from which heads are learned.
        inputs: f32[texts · time, 2 · size].
        mean: f32[vocab].
    """

    def __init__(self, model: HuggingFaceModel, hidden: Tensor, tokens: Tensor) -> None:
        """Of f32[texts, time, size], after each of Long[texts, time] tokens."""
        embedding = model.causal.module.get_output_embeddings().weight.detach().float()
        self.unit, self._matrix, self._hidden = embedding / embedding.std(), embedding, hidden
        self._end = model.tokenizer.eos_ids[0]
        self._alive = (tokens != self._end).cumprod(1).bool()
        self.scale = float(hidden.std())
        before, after = hidden[:, :-1] / self.scale, self.unit[tokens[:, 1:]]
        self.inputs = torch.cat([before, after], 2).flatten(0, 1)
        self.places = self._alive[:, 1:].flatten().nonzero()[:, 0]
        self._log_sums, total = torch.empty(tokens.shape), torch.zeros(len(embedding))
        for text, states in enumerate(hidden):
            logits = states @ embedding.T
            self._log_sums[text] = logits.logsumexp(-1)
            total += (logits - self._log_sums[text, :, None]).exp()[self._alive[text]].sum(0)
        self.mean = total / self._alive.sum()

    def windows(self, tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each window f32[texts · places, tokens], their mean probabilities in it, and which places see half of it."""
        texts, time = self._log_sums.shape
        sums = torch.zeros(texts, time + 1, len(tokens))
        for text, states in enumerate(self._hidden):
            probs = (states @ self._matrix[tokens].T - self._log_sums[text, :, None]).exp() * self._alive[text, :, None]
            probs += ((tokens == self._end) & ~self._alive[text, :, None]).float()  # after an end the padding is certain
            sums[text, 1:] = probs.cumsum(0)
        first = torch.arange(1, time)
        for begin, end in WINDOWS:
            low, high = (first + begin).clamp_max(time), (first + end).clamp_max(time)
            number = (high - low)[:, None]
            means = (sums[:, high] - sums[:, low]) / number.clamp_min(1)
            yield means.flatten(0, 1), (2 * number[:, 0] >= end - begin).repeat(texts)


def learned(model: HuggingFaceModel, hidden: Tensor, tokens: Tensor, seed: int = 0) -> Bags:
    """Heads from f32[texts, time, size] hidden states after each of Long[texts, time] tokens."""
    generator, texts = torch.Generator().manual_seed(seed), _Texts(model, hidden, tokens)
    size = hidden.shape[2]
    low = torch.nn.Parameter(torch.randn(2 * size, RANK, generator=generator) / (2 * size) ** 0.5)
    readers = torch.nn.Parameter(torch.zeros(len(WINDOWS), size, RANK))
    steps = EPOCHS * (1 + len(texts.places) // BATCH)
    optimizer = torch.optim.AdamW([low, readers], lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps + 1, pct_start=0.1)
    order = texts.mean.argsort(descending=True)
    for _ in range(EPOCHS):
        rare = order[FREQUENT:][torch.randperm(len(order[FREQUENT:]), generator=generator)[:SAMPLED]]
        some = torch.cat([order[:FREQUENT], rare])
        counts = torch.ones(len(some))
        counts[FREQUENT:] = len(order[FREQUENT:]) / max(1, len(rare))
        windows, base = list(texts.windows(some)), texts.mean[some] + LEAST
        for part in torch.split(texts.places[torch.randperm(len(texts.places), generator=generator)], BATCH):
            places, loss = texts.inputs[part] @ low, torch.zeros(())
            for reader, (targets, seen) in zip(readers, windows, strict=True):
                logs = (places @ (texts.unit[some] @ reader).T).clamp_max(15)
                log_sum = ((base * counts) * logs.exp()).sum(1).log() - (base * counts).sum().log()
                one = log_sum + NORMALISED * log_sum.square() - (targets[part] * logs) @ counts
                loss = loss + (one * seen[part]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_([low, readers], STEEPEST)
            optimizer.step()
            schedule.step()
    parts, shrunk = low.detach(), readers.detach() * torch.tensor(SHRUNK)[:, None, None]
    return Bags(parts[:size], parts[size:], shrunk, (texts.mean + LEAST).log(), texts.unit, texts.scale)
