"""How far conditioning moves a token: log p(y_t | y_<t, α) − log p(y_t | y_<t), in nats.

By Bayes' rule it is log p(α | y_≤t) − log p(α | y_<t): what the token does for the chances of the constraint. Over the tokens
of a text that satisfies the constraint the shifts add up to −log p(α), whatever the text.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locore.circuits import Circuit


def log_shares(tokens: Tensor, log_weights: Tensor, log_prob: Tensor) -> tuple[Tensor, Tensor]:
    """What weighted sequences say of log p(y_t | y_<t, α): the share of the weight of those that begin like y_<t.

    Exact if these are all sequences that satisfy α, with their probabilities; right in the limit of many particles otherwise.

    The error is that of Horvitz and Thompson (1952) for the weight of all that begin like y_≤t. A particle adds p(y)/π to the
    estimate of p(α), where π is the chance of its being there (taken as 1 where several of it were expected), and
    (p(y)/π)² (1 − π) to its variance. What certainly is there, as the likely sequences of a set without replacement, adds no
    error; a sequence that came by luck, and is alone with its beginning, has an error of 1.

    Args:
        tokens: Long[num, time].
        log_weights: f64[num]; their mean estimates p(α).
        log_prob: f64[num], log p(y).

    Returns:
        f64[num, time]: the log share; f64[num, time]: the relative error of the weight that begins like y_≤t.
    """
    num, length = tokens.shape
    shares, errors = torch.zeros(num, length, dtype=torch.float64), torch.zeros(num, length, dtype=torch.float64)
    inclusion = (log_prob - log_weights + math.log(num)).clamp(max=0.0)
    variance = 2 * log_weights + torch.log(-torch.expm1(inclusion))  # up to num², as the weights up to num
    prefix = torch.zeros(num, dtype=torch.long)  # a number for each distinct beginning
    before = torch.logsumexp(log_weights, 0).expand(num)
    for position in range(length):
        prefix = torch.unique(torch.stack([prefix, tokens[:, position]], 1), dim=0, return_inverse=True)[1]
        after = _log_sums(log_weights, prefix)[prefix]
        shares[:, position] = after - before
        errors[:, position] = (_log_sums(variance, prefix)[prefix] / 2 - after).exp()
        before = after
    return shares, errors


def is_forced(circuit: Circuit, tokens: Tensor) -> Tensor:
    """Bool[num, time]: is there only one token with which Long[num, time] can go on? Then its p(y_t | y_<t, α) is 1."""
    reader = circuit.reader
    forced = torch.zeros(tokens.shape, dtype=torch.bool)
    if reader is None:
        return forced
    states = reader.initial(len(tokens))
    for position in range(circuit.length):
        forced[:, position] = reader.allowed_tokens(position, states).sum(-1) == 1
        states = reader.step(position, states, tokens[:, position])
    return forced


def _log_sums(log_values: Tensor, groups: Tensor) -> Tensor:
    """f64[groups]: log of the sum of each group's values, −inf for a sum of zeros."""
    count = int(groups.max()) + 1
    top = torch.full((count,), -torch.inf, dtype=torch.float64).scatter_reduce_(0, groups, log_values, "amax")
    top = top.clamp(min=torch.finfo(torch.float64).min)
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, groups, (log_values - top[groups]).exp())
    return sums.log() + top
