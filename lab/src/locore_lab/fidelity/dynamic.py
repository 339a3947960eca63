"""Exact answers for Markov chains: backward passes over automaton state and last token."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.models import LanguageModel


def transitions(model: LanguageModel) -> tuple[Tensor, Tensor]:
    """f64[vocab] and f64[vocab, vocab], log p(y_0) and log p(y_t | y_{t−1}), read off a chain without an end."""
    every = torch.arange(model.vocab_size)[:, None]
    rows = model.log_probs(torch.cat([every, every], 1)).double()
    return rows[0, 0], rows[:, 1]


def backward(reader: LeftToRight, step: Tensor, best: bool = False) -> list[Tensor]:
    """For each position t, f64[states, vocab]: log p(the rest is accepted | state at t, y_{t−1}).

    Args:
        step: f64[vocab, vocab], log transition.
        best: the most probable completion instead of all of them.
    """
    final = reader.live[-1].double().log()[:, None].expand(-1, len(step))
    result = [final]
    for position in reversed(range(reader.length)):
        rows = reader.rows[position][:, reader.token_class].long()
        following = result[-1]
        value = following[rows.clamp_min(0), torch.arange(len(step))]  # state, next token
        value = value.masked_fill(rows == DEAD, float("-inf"))
        joint = step[None] + value[:, None, :]
        result.append(joint.amax(-1) if best else torch.logsumexp(joint, -1))
    return result[::-1]


def first_tokens(circuit: Circuit, model: LanguageModel) -> tuple[float, Tensor]:
    """log p(α), and f64[vocab], p(y_0 = v | α)."""
    assert circuit.reader is not None
    reader = circuit.reader
    start, step = transitions(model)
    joint = start + _after(reader, backward(reader, step), 0, reader.initial(1))[0]
    log_z = float(torch.logsumexp(joint, 0))
    return log_z, (joint - log_z).exp()


def most_probable(circuit: Circuit, model: LanguageModel, num: int) -> tuple[Tensor, Tensor]:
    """The `num` most probable sequences that satisfy α, Long[num, length], and log p(y).

    A prefix of one of them is among the `num` prefixes with the best completions: each better prefix brings a better sequence
    of its own. So it is enough to keep `num` prefixes at every position, ranked by their best completion.
    """
    assert circuit.reader is not None
    reader = circuit.reader
    start, step = transitions(model)
    best = backward(reader, step, best=True)
    tokens, scores = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    states = reader.initial(1)
    for position in range(reader.length):
        log_probs = step[tokens[:, -1]] if position else start[None]
        joint = scores[:, None] + log_probs
        merit = (joint + _after(reader, best, position, states)).flatten()
        chosen = merit.topk(min(num, int((merit > float("-inf")).sum()))).indices
        row, token = chosen // len(start), chosen % len(start)
        tokens, scores = torch.cat([tokens[row], token[:, None]], 1), joint.flatten()[chosen]
        states = reader.step(position, states[row], token)
    return tokens, scores


def _after(reader: LeftToRight, values: list[Tensor], position: int, states: Tensor) -> Tensor:
    """f64[batch, vocab]: the values at the next position after each token."""
    rows = reader.rows[position][states][:, reader.token_class].long()
    reached = values[position + 1][rows.clamp_min(0), torch.arange(rows.shape[1])]
    return reached.masked_fill(rows == DEAD, float("-inf"))
