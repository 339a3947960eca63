"""How long a pass of a model takes, by its rows: what turns seconds into LM tokens.

A budget in LM tokens is known before anything is drawn, so weights stay proper. So are seconds made into one: a pass takes some
time before its first row (the weights are read, kernels are launched) and then some for each row. Both are measured once for a
model, in seven passes, and kept with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from locore.kernel.chat import Prompt
from locore.kernel.errors import BudgetExceeded
from locore.kernel.models.base import LanguageModel, Wrapper
from locore.kernel.models.cursor import Cursor
from locore.kernel.request import Seconds

WIDE, TIMES = 32, 3  # rows of a pass that is measured, and how often: other work may be in its way
OUTSIDE = 1.25  # times the model's own seconds, for what samplers do with its answers
MOST_ROWS = 1_024  # of a pass: what more of them bring is better had by another call


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass before its first row, and for each row."""

    a_pass: float
    a_row: float

    def seconds(self, passes: int, lm_tokens: int) -> float:
        """Of so many passes over so many rows in all, and of what a sampler does meanwhile."""
        return OUTSIDE * (passes * self.a_pass + lm_tokens * self.a_row)

    def lm_tokens(self, budget: Seconds, length: int, stages: int) -> int:
        """What a budget pays for, where texts of this length are gone through so many times.

        Raises:
            BudgetExceeded: not for one text.
        """
        steps = max(1, length - 1)
        least = self.seconds(stages * steps, stages * steps)
        if budget.seconds < least:
            raise BudgetExceeded(
                f"{budget.seconds:g} seconds do not pay for a text of {length} tokens, which takes about {least:.2g} here; "
                "give more, or ask for fewer tokens."
            )
        left = budget.seconds / OUTSIDE - stages * steps * self.a_pass
        return max(steps, int(min(left / max(self.a_row, 1e-9), MOST_ROWS * steps)))


_paces: WeakKeyDictionary[Any, Pace] = WeakKeyDictionary()


def pace_of(model: LanguageModel, prompt: Prompt) -> Pace:
    """Of a model before any prompt; measured behind this one, if it was not yet."""
    inner = model
    while isinstance(inner, Wrapper):
        inner = inner.base
    weights = getattr(getattr(inner, "causal", inner), "module", inner)
    if weights not in _paces:
        _paces[weights] = _measured(model.prompted(prompt))
    return _paces[weights]


def _measured(model: LanguageModel) -> Pace:
    """By the first of its distributions: rows go on with the likeliest tokens that do not end the text."""
    start = model.begin(1)
    likely = start.log_probs[0].clone()
    likely[list(model.tokenizer.eos_ids)] = -torch.inf
    tokens = likely.topk(min(WIDE, model.vocab_size - len(model.tokenizer.eos_ids))).indices.cpu()
    tokens = tokens.repeat(-(-WIDE // len(tokens)))[:WIDE]
    _read(start, tokens[:1])  # the first pass finds out what later ones know
    one, wide = (min(_read(start, rows) for _ in range(TIMES)) for rows in (tokens[:1], tokens))
    a_row = max(0.0, wide - one) / (WIDE - 1)
    return Pace(max(0.0, one - a_row), a_row)


def _read(start: Cursor, tokens: torch.Tensor) -> float:
    """Seconds of a pass."""
    began = time.perf_counter()
    after = start.advance(tokens, torch.zeros(len(tokens), dtype=torch.long))
    float(after.log_probs[0, 0])  # an accelerator is waited for
    return time.perf_counter() - began
