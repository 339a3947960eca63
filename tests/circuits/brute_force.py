"""Enumeration beside every recursion: the plain meaning of a circuit's queries."""

from __future__ import annotations

import itertools

import torch


def all_sequences(vocab_size, length):
    """Every sequence, Long[vocab ** length, length]."""
    return torch.tensor(list(itertools.product(range(vocab_size), repeat=length))).reshape(-1, length)


def weights(log_probs, models):
    """f64[batch, models]: log weight of each model under each distribution."""
    positions = torch.arange(models.shape[1])
    return log_probs[:, positions, models].sum(-1)


def log_mass(log_probs, models):
    if len(models) == 0:
        return torch.full((len(log_probs),), float("-inf"), dtype=torch.float64)
    return torch.logsumexp(weights(log_probs, models), -1)


def marginals(log_probs, models):
    """f64[batch, length, vocab]: log p(y_i = v | α)."""
    joint = weights(log_probs, models) - log_mass(log_probs, models)[:, None]
    result = torch.full_like(log_probs, float("-inf"))
    for i in range(models.shape[1]):
        for v in range(log_probs.shape[-1]):
            chosen = models[:, i] == v
            if chosen.any():
                result[:, i, v] = torch.logsumexp(joint[:, chosen], -1)
    return result


def random_log_probs(batch, length, vocab_size, seed, zeros=0.0):
    """Unnormalised random weights; a share of them exactly zero."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, length, vocab_size)
    values = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.masked_fill(torch.rand(shape, generator=generator) < zeros, float("-inf"))
