"""What is worked on a few rows at a time, for memory's sake, gives what all rows together give."""

from __future__ import annotations

import warnings
from dataclasses import fields

import pytest
import torch

from locore.kernel import numerics
from locore.kernel.numerics import categorical
from locore.models import TableModel
from locore.samplers.twist.ngram import NGramCounts


@pytest.mark.parametrize("cached", [1, 7, 40, 10**6])
def test_draws_by_inversion_do_not_depend_on_the_slices(monkeypatch, cached):
    """Against the definition: the first item whose cumulated probability exceeds the uniform."""
    monkeypatch.setattr(numerics, "CACHED", cached)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 7, generator=generator).log_softmax(-1)
    rows[::5, 2] = -torch.inf
    uniforms = torch.rand(50, generator=generator, dtype=torch.float64)
    drawn = categorical(rows, uniforms).tolist()
    for row, uniform, token in zip(rows.double().exp(), uniforms.tolist(), drawn, strict=True):
        before = float(row[:token].sum() / row.sum())
        assert before <= uniform + 1e-7 and uniform <= before + float(row[token] / row.sum()) + 1e-7
        assert row[token] > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's, of a copy that it makes
        assert categorical(rows.T.contiguous().T, uniforms).tolist() == drawn  # rows that lie apart in memory


def test_a_table_does_not_depend_on_the_slices(monkeypatch):
    model = TableModel.random(5, 6, seed=1, eos=True)
    tables = []
    for numbers in (1, 15, 10**6):
        monkeypatch.setattr(numerics, "CACHED", numbers)
        counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
        counts.draft(model, 40, 6, torch.Generator().manual_seed(2))
        tables.append(counts.table())
    for other in tables[1:]:
        for part in fields(other):
            assert torch.allclose(getattr(tables[0], part.name).double(), getattr(other, part.name).double())
