"""A few exact draws for the price of hardly more: the model writes, and a text that breaks the constraint is given up at once.

Rejection as in `rejection`, made for a draw and not for p(α): it reads a row for each text that is wanted, and stops with the
last of them. A row goes by the state of the constraint, so what cannot be completed is not written to its end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.evidence import Draws, Record
from locore.kernel.evidence.bounds import binomial_bounds
from locore.kernel.numerics import categorical
from locore.kernel.samplers.sampler import Prefixes, left_to_right
from locore.models import LanguageModel

MOST_STATES = 64  # that are looked at for whether nothing can break the constraint


def few_draws(model: LanguageModel, circuit: Circuit, num: int, most: int, generator: torch.Generator) -> Draws | None:
    """Exact draws from p(· | α), of equal weight; None where one of them was not found among `most` rows for each.

    How many rows it took says what p(α) may be, in an interval, and is no unbiased estimate of it; so there is none.
    """
    reader = left_to_right(circuit)
    is_certain = nothing_breaks(reader, model.tokenizer.eos_ids)
    parts: list[Prefixes] = []
    drawn = accepted = 0
    while accepted < num and drawn < most * num:
        whole = _written(model, reader, num - accepted, generator, is_certain and not drawn)
        drawn += num - accepted
        accepted += len(whole)
        parts += [whole] if len(whole) else []
    if accepted < num:
        return None
    tokens, scores = torch.cat([part.tokens for part in parts]), torch.cat([part.token_scores for part in parts])
    weights = torch.zeros(num, dtype=torch.float64)
    if is_certain:
        record = Record(exact_draws=True, bounds=(0.0, 0.0), interval=(0.0, 0.0), likely=(0.0, 0.0))
    else:
        bounds = binomial_bounds(accepted, drawn, False)  # wide enough for either way to stop
        record = Record(exact_draws=True, weighted=False, interval=bounds, likely=bounds, details={"draws": drawn})
    return Draws(tokens, weights, scores, record)


def _written(model: LanguageModel, reader: LeftToRight, num: int, generator: torch.Generator, is_certain: bool) -> Prefixes:
    """So many texts of the model itself, without those that break the constraint."""
    prefixes = Prefixes.start(model, reader, num)
    while not prefixes.are_complete and len(prefixes):
        uniforms = torch.rand(len(prefixes), generator=generator, dtype=torch.float64)
        token = categorical(prefixes.log_probs.double().cpu(), uniforms)
        prefixes = prefixes.extended(torch.arange(len(prefixes)), token)
        prefixes = prefixes.at(prefixes.states != DEAD)
        if is_certain:
            prefixes.settle()
        if not prefixes.are_complete and len(prefixes) and not bool(prefixes.going().any()):
            prefixes = prefixes.padded()  # only padding is to come
    return prefixes.at(reader.accepting(prefixes.states)) if len(prefixes) else prefixes


def nothing_breaks(reader: LeftToRight, eos_ids: tuple[int, ...]) -> bool:
    """Does every sequence that a model can write satisfy the constraint?"""
    if not reader.tabulated:
        return False
    ends = torch.zeros(len(reader.token_class), dtype=torch.bool)
    ends[list(eos_ids)] = True
    of_ends, of_others = (_classes(reader, which) for which in (ends, ~ends))
    going, ended = torch.tensor([reader.start]), torch.zeros(0, dtype=torch.long)
    for position in range(reader.length):
        if len(going) + len(ended) > MOST_STATES:
            return False
        allowed = reader.allowed(position, going)
        if not bool(allowed.all()) or not bool(reader.allowed(position, ended)[:, of_ends].all()):
            return False
        rows = reader.rows[position].long()
        after = torch.cat([rows[going][:, of_ends].flatten(), rows[ended][:, of_ends].flatten()])
        going, ended = torch.unique(rows[going][:, of_others]), torch.unique(after)
    return True


def _classes(reader: LeftToRight, tokens: Tensor) -> Tensor:
    """Bool[classes]: which hold one of these tokens, Bool[vocab]."""
    held = torch.zeros(int(reader.token_class.max()) + 1, dtype=torch.bool)
    held[reader.token_class[tokens]] = True
    return held
