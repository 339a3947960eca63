"""Pearson's chi-square of sequences against a law."""

from __future__ import annotations

import torch


def p_value(drawn, tokens, law):
    """Of Pearson's chi-square of independent sequences against a law; the rare ones are one cell."""
    index = {tuple(y): k for k, y in enumerate(tokens.tolist())}
    counts = torch.zeros(len(tokens), dtype=torch.float64)
    for y in drawn:
        counts[index[tuple(y)]] += 1
    expected = len(drawn) * law / law.sum()
    common = expected >= 10
    cells = [torch.cat([values[common], values[~common].sum()[None]]) for values in (counts, expected)]
    counts, expected = (values[cells[1] >= 10] for values in cells)
    assert len(expected) >= 3
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2, dtype=torch.float64), statistic / 2))
